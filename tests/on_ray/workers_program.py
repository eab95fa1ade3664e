"""What `on_ray` gives on one machine: each scenario once, in one session of Ray; prints their results as JSON."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import gpupipe as gp
from gpupipe.on_ray import segments, team
from gpupipe.on_ray.worker import part_of
from tests.on_ray.chains import (
    damaged,
    digest,
    digests,
    images,
    listed_images,
    numbers,
    odd,
    ragged,
    write_damaged,
    write_images,
)
from tests.on_ray.killed_program import endless_kills, noted, six_kills

FOLDER = Path(sys.argv[1]) if len(sys.argv) > 1 else Path()


def error_of(make: Callable[[], Any]) -> str:
    """The error that a call raises, as text with its class."""
    try:
        make()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "none"


def alike(own: gp.Dataset, by_workers: gp.Dataset | None = None) -> dict[str, Any]:
    """Whether an epoch of workers, by default of one, is that of the loop without them."""
    by_workers = own.on_ray(1, segment=2) if by_workers is None else by_workers
    found, wanted = digests(by_workers.iterator(epoch=5)), digests(own.iterator(epoch=5))
    return {"equal": found == wanted, "count": len(found), "errors": [x for x in found if len(x) > 16]}


def structures() -> Any:
    """Texts, pairs, rows of unequal length, single elements; types that only elements tell."""
    return alike(gp.Dataset.range(23).map(odd))


def padded() -> Any:
    return alike(gp.Dataset.range(23).map(odd).padded_batch(4))


def rows() -> Any:
    return alike(gp.Dataset.range(40).batch(5).map(ragged, traced=False))


def images_of_all_kinds() -> Any:
    """uint8; float32, of a manifest; and with steps behind the workers, which draw what they draw in a loop.

    They draw by the identities of the rows. The worker of float32 waits for the last loop.
    """
    own = listed_images(FOLDER)
    by_workers = own.on_ray(1, segment=2)

    def later(ds: gp.Dataset) -> gp.Dataset:
        moved = ds.map(lambda image, label: (gp.ops.random_flip_left_right(image), label))
        return moved.map(lambda image, label: {"image": image, "label": label}).unbatch().batch(6).prefetch(2)

    return {
        "uint8": alike(images(FOLDER), images(FOLDER).on_ray(2, segment=2)),
        "float32": alike(own, by_workers),
        "later steps": alike(later(own), later(by_workers)),
    }


class Scaled:
    """Of the program itself: workers cannot import it."""

    def __init__(self, by: int) -> None:
        self.by = by

    def __call__(self, x: Any) -> Any:
        return twice(x) * self.by


def twice(x: Any) -> Any:
    return x * 2


def of_the_program() -> Any:
    """A class, a function and an array of the program."""
    ds = gp.Dataset.from_tensor_slices(np.arange(1 << 15).reshape(64, 512))  # 256 KiB: more than goes along
    return alike(ds.map(Scaled(3), traced=False).batch(4))


def one_state() -> Any:
    """4 ranks, 2, 1; a worker, 2; the loop, a worker of a rank, and the loop again."""
    ds, state, found, sizes = numbers(), None, [], []
    wanted = [digest(batch) for batch in ds.iterator(epoch=1)]
    ranks = ((4, 3), (2, 4), (1, 2))
    legs = [([ds.by_rank(r, n, check=False) for r in range(n)], count) for n, count in ranks]
    rank = ds.by_rank(0, 1, check=False)
    legs += [([ds.on_ray(1, segment=2)], 6), ([ds.on_ray(2)], 4), ([ds], 2), ([rank.on_ray(1)], 3), ([ds], 100)]
    for every, count in legs:
        items = [one.iterator(epoch=1) for one in every]
        for one in items:
            if state is not None:
                one.load_state_dict(json.loads(state))
        for _ in range(count):
            parts = [next(one, None) for one in items]
            if parts[0] is None:
                break
            whole = parts[0]
            if len(parts) > 1:  # rank r of N has rows r, r + N, ...
                whole = np.stack([part for part in parts if part is not None], 1).reshape(-1, *parts[0].shape[1:])
            found.append(digest(whole))
        states = [json.dumps(one.state_dict()) for one in items]
        state = states[0]
        sizes.append(len(state))
        for one in items:
            one.close()
    return {"equal": found == wanted, "found": len(found), "wanted": len(wanted), "bytes": max(sizes)}


def epochs() -> Any:
    """One iterator over three epochs, stopped inside the second; a worker with other segments goes on."""
    ds = numbers(96)
    wanted = digests(ds.epochs(3))
    items = ds.on_ray(1).epochs(3)
    found = [digest(next(items)) for _ in range(17)]
    state = items.state_dict()
    items.close()
    rest = ds.on_ray(1, segment=3).epochs(3)
    rest.load_state_dict(state)
    return {"equal": found + digests(rest) == wanted, "count": len(wanted)}


def asleep() -> Any:
    """Elements that were made, and what lies in Ray's memory, while the loop sleeps."""
    from ray._private.internal_api import memory_summary

    fn = noted("asleep", size=16384)  # 128 KiB an element
    items = numbers(400, fn=fn).on_ray(1, segment=2, ahead=4).iterator(epoch=0)
    for _ in range(9):
        first = next(items)
    until = time.monotonic() + 30
    while len(fn.made()) < 16 * 8 and time.monotonic() < until:  # what four segments have
        time.sleep(0.05)
    time.sleep(1)  # a worker makes more than 16 batches in it
    text = memory_summary(stats_only=True)
    used = next(line for line in text.splitlines() if line.startswith("Plasma memory usage"))
    items.close()
    return {"batches": len(fn.made()) / 8, "batch": first.nbytes, "mib": float(used.split()[3]), "text": used}


def told(items: Any) -> dict[str, Any]:
    """What an iterator over damaged records gives and reports."""
    found = [text if len(text) > 16 else "" for text in digests(items)]
    records = sorted((r.file, r.offset, r.reason, r.action, r.key) for r in items.errors)
    return {"found": found, "records": records, "left_out": items.left_out, "place": items.state_dict()["place"]}


def bad_raised() -> Any:
    """As `ds[i]`: a batch with a bad record is an error, and the next one follows."""
    ds = damaged(FOLDER / "bad")
    on_ray = ds.on_ray(1, segment=2)
    by_workers = told(on_ray.iterator(epoch=0))
    own = []
    for i in range(8):
        own += [text if len(text) > 16 else "" for text in digests(ds[i : i + 1].iterator(epoch=0))]
    good = [digest(ds[i]) for i in (3, 5, 6, 7)]
    items, kept = on_ray.iterator(epoch=0), []
    for _ in range(8):
        try:
            kept.append(digest(next(items)))
        except gp.DataError as error:
            kind, file, offset = type(error).__name__, os.path.basename(str(error.file)), error.offset
    return {"said": by_workers, "own": own, "good": kept == good, "last": [kind, file, offset]}


def bad_replaced() -> Any:
    """The same bytes, counts and manifest as in a loop; the first rows of segments are among the bad ones."""
    said = {}
    for name in ("loop", "workers"):
        manifest = FOLDER / f"{name}.jsonl"
        options = gp.Options(on_error="replace", error_manifest=str(manifest))
        ds = damaged(FOLDER / "bad").with_options(options)
        ds = ds.on_ray(1, segment=1) if name == "workers" else ds
        items, valid = ds.iterator(epoch=0), []
        found: list[str] = []
        for batch in items:
            found.append(digest(batch))
            valid.append(items.valid.tolist())
        lines = sorted(manifest.read_text().splitlines())
        reasons = sorted((r.offset, r.action, r.key) for r in items.errors)
        said[name] = [found, valid, items.left_out, reasons, [json.loads(line)["offset"] for line in lines]]
    return {"left_out": said["workers"][2], "said": said}


def too_many_bad() -> Any:
    ds = damaged(FOLDER / "bad").with_options(gp.Options(on_error="replace", max_bad=2)).on_ray(1)
    return error_of(lambda: list(ds.iterator(epoch=0)))


def kept_workers() -> Any:
    """The second loop has the worker of the first; it ends with the dataset."""
    fn = noted("kept")
    ds = numbers(64, fn=fn).on_ray(1, segment=1)
    for epoch in range(2):
        digests(ds.iterator(epoch=epoch))
    pids = fn.pids()
    alive = [os.path.exists(f"/proc/{pid}") for pid in pids]
    del ds
    return {"pids": len(pids), "alive": all(alive), "ended": ended(pids)}


def stopped_early() -> Any:
    """Both workers make elements; they end with a loop that is left."""
    fn = noted("early", seconds=0.01)
    items = numbers(4000, fn=fn).on_ray(2).iterator(epoch=0)
    for _ in items:
        if len(fn.pids()) == 2:
            break
    items.close()
    return {"pids": len(fn.pids()), "ended": ended(fn.pids())}


def ended(pids: set[int]) -> bool:
    """Whether processes end within 15 seconds."""
    until = time.monotonic() + 15
    while (left := [pid for pid in pids if os.path.exists(f"/proc/{pid}")]) and time.monotonic() < until:
        time.sleep(0.1)
    return not left


def other_files() -> Any:
    """A trainer that has other files and another seed than its workers."""
    real = part_of

    def changed(*args: Any) -> Any:
        part = real(*args)
        return {**part, "files": {**part["files"], "count": 7}, "options": {**part["options"], "seed": 9}}

    with patch.object(segments, "part_of", changed):
        return error_of(lambda: next(images(FOLDER).on_ray(1).iterator(epoch=0)))


def no_room() -> Any:
    """Workers that ask for what the cluster has not."""
    with patch.object(team, "WAIT", 1.0):
        return error_of(lambda: next(numbers().on_ray(2, resources={"moon": 1}).iterator(epoch=0)))


def more_than_cpus() -> Any:
    """More workers than there is room for: the one that starts makes everything."""
    ds = numbers(64)
    return digests(ds.on_ray(3, num_cpus=4).iterator(epoch=0)) == digests(ds.iterator(epoch=0))


def not_pickled() -> Any:
    lock = threading.Lock()
    return error_of(lambda: next(gp.Dataset.range(8).map(lambda x: [lock, x][1] + 0).on_ray(1).iterator()))


def to_and_from() -> Any:
    """Converters."""
    import ray.data

    from gpupipe.ray import from_dataset, to_dataset

    ray.data.DataContext.get_current().enable_progress_bars = False
    ds = numbers(96)
    wanted = digests(ds.epochs(2))[5:]
    found = [digest(batch["item"]) for batch in to_dataset(ds, 2, start=5, workers=1).iter_batches(batch_size=8)]
    items = [{"id": i, "text": f"row {i}"} for i in range(30)]
    rows = from_dataset(ray.data.from_items(items, override_num_blocks=2))
    mixed = [int(row["id"]) for row in rows.shuffle(gp.ALL, seed=3).iterator(epoch=0)]
    return {
        "equal": found == wanted,
        "count": len(found),
        "rows": len(rows),
        "mixed": sorted(mixed) == list(range(30)) and mixed != sorted(mixed),
        "fifth": [int(rows[5]["id"]), repr(rows[5]["text"])],
    }


TOGETHER = (
    six_kills, to_and_from, one_state, endless_kills, epochs, images_of_all_kinds, structures, padded, rows,
    of_the_program, bad_raised, bad_replaced, too_many_bad, kept_workers, stopped_early, not_pickled,
)  # fmt: skip
"""Two at a time: most of each is the start of a worker."""

ALONE = (asleep, other_files, no_room, more_than_cpus)
"""What changes this process for a while, or asks for the memory or the CPUs of the cluster."""


def outcome(scenario: Callable[[], Any]) -> tuple[str, Any]:
    """The name of a scenario, and its result or error."""
    start = time.monotonic()
    try:
        found = scenario()
    except Exception:
        found = traceback.format_exc()[-3000:]
    print(f"{scenario.__name__}: {time.monotonic() - start:.1f} s", file=sys.stderr, flush=True)
    return scenario.__name__, found


def main() -> None:
    import faulthandler

    import ray

    faulthandler.dump_traceback_later(250, exit=True)  # where it hangs, if it does
    said: dict[str, Any] = {"not_connected": error_of(lambda: next(iter(numbers().on_ray(2))))}
    write_images(FOLDER)
    bad = FOLDER / "bad"  # written once: scenarios that run at the same time read it
    bad.mkdir()
    write_damaged(bad)
    address: dict[str, Any] = {"_node_ip_address": "127.0.0.1", "_temp_dir": os.environ["RAY_TEST_FOLDER"]}
    ray.init(num_cpus=4, include_dashboard=False, object_store_memory=256 << 20, log_to_driver=False, **address)
    chosen = sys.argv[2:]
    together, alone = (
        [one for one in some if one.__name__ in (chosen or [one.__name__])] for some in (TOGETHER, ALONE)
    )
    with ThreadPoolExecutor(2) as pool:
        said |= pool.map(outcome, together)
    said |= map(outcome, alone)
    ray.shutdown()
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
