"""autotune: does AUTOTUNE reach, from bad starts, the best of a grid of fixed numbers; and does it do no harm?

Three chains that read with Python functions, map, batch and prefetch: two wait most of the time, as for slow storage
and for a slow service; in the third, photographs are decoded, cropped, resized and mirrored on the CPU. Each run is a
process of its own: it takes batches for some seconds, and its rate is that of the seconds after. "Nothing to tune" is
the third chain with its best numbers, with and without tuning, in alternating pairs, by rate and by CPU time; "the
noise" is that without tuning divided by another such run of the same round.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter, process_time, sleep
from typing import Any

from benchmarks import report, tied
from benchmarks.equal import UnequalWork
from benchmarks.pairs import ContestantFailed
from gpupipe.comparison.ratios import Spread, ratios

__all__ = ["CHAINS", "GOALS", "STARTS", "autotune", "build"]

GOALS: Mapping[str, float] = {"slow files": 0.95, "slow service": 0.95, "training": 0.9}
"""The least rate after tuning, relative to the best of the grid."""
HARM = 0.02
STARTS: Mapping[str, tuple[int, int, int]] = {
    "everything 1": (1, 1, 1),
    "16 threads": (16, 16, 2),
    "one reader": (1, 4, 2),
}
"""Threads that read, threads that map, and batches that wait, before anything is tuned."""
READERS, CALLS, AHEAD = (1, 4, 16), (1, 4, 16, 64), 2
"""The grid; the training chain has no 64 threads, but 2."""
SHORT, LAST = 2.5, 5.0
"""Seconds of a grid's point; of a run whose rate is reported."""
FILES, RECORDS, BATCH, SIDE = 32, 1 << 20, 16, 160
AUTO = -1


@dataclass(frozen=True)
class Run:
    """What one process does.

    Attributes:
        chain: its name.
        numbers: readers, calls and ahead, each `AUTO` or fixed.
        start: the numbers to start with where they are `AUTO`.
        tunes: whether these change.
        warmup: seconds before the rate is measured.
        seconds: in which it is.
        folder: of the photographs.
    """

    chain: str
    numbers: tuple[int, int, int]
    start: tuple[int, int, int] = (2, 2, 2)
    tunes: bool = False
    warmup: float = 1.0
    seconds: float = LAST
    folder: str = ""


def _waiting(reading: float, working: float) -> Callable[[Run], Any]:
    """A chain whose reads and calls take some seconds each, in which they wait."""

    def build(run: Run) -> Any:
        import gpupipe as gp

        def read(x: Any) -> int:
            sleep(reading)
            return int(x)

        def work(x: Any) -> int:
            sleep(working)
            return int(x)

        def file(i: Any) -> gp.Dataset:
            return gp.Dataset.range(RECORDS).map(read)

        readers, calls, ahead = run.numbers
        items = gp.Dataset.range(FILES).interleave(file, cycle_length=16, num_parallel_calls=readers)
        return items.map(work, num_parallel_calls=calls).batch(BATCH).prefetch(ahead)

    return build


def _training(run: Run) -> Any:
    """Photographs out of shards, decoded and augmented by Python functions."""
    import numpy as np
    from PIL import Image
    from simplejpeg import decode_jpeg

    import gpupipe as gp
    from gpupipe.io import FixedLenFeature, parse_single_example

    features = {"image/encoded": FixedLenFeature([], "string"), "image/class/label": FixedLenFeature([], "int64")}

    def parsed(record: Any) -> tuple[Any, Any]:
        example = parse_single_example(bytes(record), features)
        return example["image/encoded"], example["image/class/label"]

    def example(data: Any, label: Any, rng: Any) -> tuple[Any, Any]:
        pixels = decode_jpeg(data, "RGB")
        side = int(rng.integers(min(pixels.shape[:2]) // 2, min(pixels.shape[:2])))
        top, left = (int(rng.integers(0, size - side + 1)) for size in pixels.shape[:2])
        image = Image.fromarray(pixels).resize(
            (SIDE, SIDE), Image.Resampling.BILINEAR, (left, top, left + side, top + side)
        )
        out = np.asarray(image)
        return (out[:, ::-1] if rng.random() < 0.5 else out).astype(np.float32) / 255, label

    def file(path: Any) -> gp.Dataset:
        return gp.TFRecordDataset(str(path, "utf-8") if isinstance(path, bytes) else str(path)).map(
            parsed, traced=False
        )

    readers, calls, ahead = run.numbers
    paths = gp.Dataset.list_files(f"{run.folder}/*.tfrecord", seed=1).repeat()
    items = paths.interleave(file, cycle_length=8, num_parallel_calls=readers).shuffle(256, seed=1)
    return items.map(example, num_parallel_calls=calls, rng=True, traced=False).batch(BATCH).prefetch(ahead)


CHAINS: Mapping[str, Callable[[Run], Any]] = {
    "slow files": _waiting(0.02, 0.004),
    "slow service": _waiting(0.002, 0.04),
    "training": _training,
}


def build(run: Run) -> Any:
    """The chain of a run, with its options."""
    import gpupipe as gp

    dataset = CHAINS[run.chain](run)
    with dataset.with_options(gp.Options(autotune=False)).iterator() as items:
        next(items)
        names = items.stats().tuned
    kinds = dict(zip(("interleave(", "map(", "prefetch("), run.start, strict=True))
    tuned = {name: number for name in names for kind, number in kinds.items() if name.startswith(kind)}
    return dataset.with_options(gp.Options(tuned=tuned, autotune=run.tunes))


def measured(run: Run) -> dict[str, Any]:
    """Take batches; return their rate in elements per second, their CPU time, the numbers, and the decisions."""
    with build(run).iterator() as items:
        next(items)
        start, count, begun, cpu = perf_counter(), 0, 0.0, 0.0
        while True:
            next(items)
            now = perf_counter()
            count += 1
            if not begun and now - start >= run.warmup:
                begun, count, cpu = now, 0, process_time()
            if begun and now - begun >= run.seconds:
                break
        cpu = process_time() - cpu
        stats = items.stats()
        changes = [f"{one.seconds:.1f} s: {one.before} to {one.after}, {one.reason}" for one in stats.decisions]
        rate, cpu_ms = count * BATCH / (now - begun), 1e3 * cpu / (count * BATCH)
        return {"rate": rate, "cpu_ms": cpu_ms, "tuned": stats.tuned, "decisions": changes}


def autotune(
    out: Path,
    folder: Path,
    *,
    chains: Sequence[str] = tuple(CHAINS),
    starts: Sequence[str] = tuple(STARTS),
    images: int = 200,
    seconds: int = 30,
    pairs: int = 5,
) -> Path:
    """Measure, print a table, and write the result file.

    Args:
        out: folder of the result file.
        folder: for temporary files.
        chains: names in `CHAINS`.
        starts: names in `STARTS`.
        images: photographs of the training chain.
        seconds: that AUTOTUNE gets.
        pairs: of the training chain with and without tuning, where there is nothing to tune.

    Raises:
        UnequalWork: an unknown name.
        ContestantFailed: a run did not end well.
    """
    if wrong := [name for name in chains if name not in CHAINS] + [name for name in starts if name not in STARTS]:
        raise UnequalWork(
            f"autotune needs chains out of {', '.join(CHAINS)} and starts out of {', '.join(STARTS)}, got "
            f"{', '.join(wrong)}"
        )
    if "training" in chains:
        from gpupipe.comparison.photographs import write_shards

        write_shards(folder, images, min(8, images))
    runs: list[dict[str, Any]] = []
    summary: dict[str, Any] = {}
    for chain in chains:

        def go(run: Run) -> dict[str, Any]:
            found = _alone(replace(run, folder=str(folder)))
            runs.append({**asdict(run), **found})
            return found

        def rate(run: Run) -> float:
            return float(go(run)["rate"])

        calls = (1, 2, 4, 16) if chain == "training" else CALLS
        grid = {(r, c, AHEAD): rate(Run(chain, (r, c, AHEAD), seconds=SHORT)) for r in READERS for c in calls}
        last = sorted(grid, key=lambda numbers: grid[numbers])[-2:]
        best, numbers = max((rate(Run(chain, one)), one) for one in last)
        summary[chain] = {"best of the grid": numbers, "rate": best, "goal": GOALS[chain]}
        for start in starts:
            summary[chain][start] = rate(Run(chain, (AUTO, AUTO, AUTO), STARTS[start], True, float(seconds))) / best
        if chain == "training" and pairs:
            summary[chain]["nothing to tune"] = _harm(go, numbers, pairs)
        print(lines(chain, summary[chain]), flush=True)
    document = {
        **report.header("autotune", {"images": images, "seconds": seconds, "pairs": pairs, "starts": dict(STARTS)}),
        "goals": {**GOALS, "harm": HARM},
        "summary": summary,
        "runs": runs,
    }
    return report.write(document, out)


def _harm(go: Callable[[Run], dict[str, Any]], best: tuple[int, int, int], pairs: int) -> dict[str, Any]:
    """Tuning over no tuning, from numbers that are right: rates, CPU times, and how far two runs without it differ.

    Each of the three runs is first, second and third as often as the others.
    """
    found: dict[str, list[dict[str, Any]]] = {"tuned": [], "fixed": [], "again": []}
    for number in range(pairs):
        for i in range(3):
            which = ("tuned", "fixed", "again")[(number + i) % 3]
            run = Run("training", (AUTO, AUTO, AUTO), best, which == "tuned", seconds=2 * LAST)
            found[which].append(go(run))

    def ratio(one: str, key: str) -> Spread:
        return ratios([each[key] for each in found[one]], [each[key] for each in found["fixed"]])

    return {
        **asdict(ratio("tuned", "rate")),
        "cpu": asdict(ratio("tuned", "cpu_ms")),
        "noise": asdict(ratio("again", "rate")),
        "noise of cpu": asdict(ratio("again", "cpu_ms")),
    }


def lines(chain: str, found: Mapping[str, Any]) -> str:
    """The figures of a chain."""
    readers, calls, ahead = found["best of the grid"]
    text = [
        f"{chain}: {found['rate']:,.0f} elements/s, {readers} readers, {calls} calls, {ahead} ahead: the best of all"
    ]
    for start in STARTS:
        if start in found:
            met = "met" if found[start] >= found["goal"] else "NOT met"
            text.append(f"  from {start:<16}{found[start]:>8.3f} of it   (goal: at least {found['goal']:g}; {met})")
    if "nothing to tune" in found:
        harm = found["nothing to tune"]
        text.append(f"  nothing to tune, rate with over without: {_spread(harm)}   (goal: at least {1 - HARM:g})")
        text.append(f"  ... CPU time: {_spread(harm['cpu'])}; the noise: {_spread(harm['noise'])}, "
                    f"{_spread(harm['noise of cpu'])}")  # fmt: skip
    return "\n".join(text)


def _spread(one: Mapping[str, Any]) -> str:
    return f"{one['median']:.3f} ({one['least']:.3f}-{one['most']:.3f})"


def _alone(run: Run) -> dict[str, Any]:
    """Do a run in a process of its own."""
    done = subprocess.run(
        tied.command(__name__, json.dumps(asdict(run))), capture_output=True, text=True,
        timeout=run.warmup + run.seconds + 120, cwd=Path(__file__).parent.parent,
    )  # fmt: skip
    if done.returncode:
        raise ContestantFailed(
            run.chain, f"ended with {done.returncode}", f"{run.chain} failed:\n{done.stderr[-3000:]}"
        )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Do the run on the command line; print what it found."""
    given: dict[str, Any] = json.loads(sys.argv[1])
    given |= {key: tuple(given[key]) for key in ("numbers", "start")}
    print(json.dumps(measured(Run(**given))))


if __name__ == "__main__":
    main()
