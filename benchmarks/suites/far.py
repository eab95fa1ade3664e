"""far: one of 1,024 ranks over 10,000 files that are far away: start, memory, requests, recovery; and its stragglers.

All of gpupipe's code runs, on a storage that computes its files (`far_store.py`) and waits 50 ms for each answer. What
is of all ranks is computed from what one of them does.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import report
from benchmarks.suites.far_steps import ANSWER, LATE, handed_out, in_step
from benchmarks.suites.far_store import MANIFEST, Store, stored

__all__ = ["CASES", "add_options", "far", "tables"]

RANKS, FILES, BATCH = 1024, 10_000, 8192
DELAY = 0.05
LENGTH = 110_016
"""Bytes of a record."""

RATE = 300
"""Records a second that a rank uses."""

CASES: Mapping[str, tuple[int, int]] = {"1.28 million": (128, 1250), "1 billion": (100_000, 1000)}
"""Records of a file, and of a window."""

RANK = 517
STREAMS = 1024


def add_options(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser("far", help="one of 1,024 ranks over 10,000 far files: start, memory, requests")
    parser.set_defaults(run=_run)
    parser.add_argument("--records", type=int, default=4000, help="that a rank reads (%(default)s)")
    parser.add_argument("--steps", type=int, default=20_000, help="of the simulated training (%(default)s)")
    parser.add_argument("--pairs", type=int, default=1, help="accepted for the plan of all suites; one run is made")


def _run(options: argparse.Namespace, folder: Path) -> int:
    path = far(options.out, records=options.records, steps=options.steps)
    print(f"written to {path.name}")
    return 0


def far(out: Path, *, records: int = 4000, steps: int = 20_000) -> Path:
    """Measure, print tables, and write the result file.

    Args:
        out: folder of the result file.
        records: that a rank reads.
        steps: of the simulated training.
    """
    settings = {
        "ranks": RANKS, "files": FILES, "batch": BATCH, "streams": STREAMS, "bytes": LENGTH, "records": records,
        "steps": steps, "delay_s": DELAY, "records_per_s": RATE, "answer_s": ANSWER,
        "late": [list(one) for one in LATE],
    }  # fmt: skip
    document = report.header("far", settings)
    document["cases"] = {name: _case(*case, records) for name, case in CASES.items()}
    document["stragglers"] = _stragglers(steps)
    print("\n\n".join(tables(document).values()))
    return report.write(document, out)


def _case(each: int, window: int, records: int) -> dict[str, Any]:
    """One data set."""
    found: dict[str, Any] = {"records": FILES * each, "window": window, **_order(each, window)}
    with stored(Store(FILES, each, LENGTH, DELAY)) as store:
        found |= _memory(each, window)
        found |= _rank(store, window, records)
    a_rank = FILES * each / RANKS
    found["requests_an_epoch"] = round(found["requests_a_record"] * a_rank)
    found["requests_a_second_of_all"] = round(found["requests_a_record"] * RATE * RANKS)
    found["read_ratio"] = round(found["bytes_a_record"] / LENGTH, 3)
    found["start_bytes_of_all"] = found["start_bytes"] * RANKS
    return found


def _order(each: int, window: int) -> dict[str, Any]:
    """What the order alone takes, and how many files a rank reads."""
    from gpupipe.flow.order.permutation import Permutation
    from gpupipe.flow.order.streams import StreamOrder

    start = time.perf_counter()
    order = StreamOrder(np.full(FILES, each), STREAMS, window, 5)
    made = time.perf_counter() - start
    own = np.arange(RANK, FILES * each, RANKS)[: 1 << 18]
    start = time.perf_counter()
    for first in range(0, len(own), 4096):
        order(own[first : first + 4096])
    used = time.perf_counter() - start
    every = Permutation(FILES * each, 7)(np.arange(RANK, FILES * each, RANKS)) // each
    return {
        "order_s": round(made, 5),
        "order_us_a_record": round(used / len(own) * 1e6, 2),
        "files_a_rank": max(order.parts_of(stream) for stream in range(STREAMS)),
        "files_a_rank_without_streams": len(np.unique(every)),
    }


def _memory(each: int, window: int) -> dict[str, Any]:
    """The most bytes that manifest, order and offsets take, while the places of a part of an epoch are looked up."""
    from gpupipe.extract.records.manifest import read_manifest
    from gpupipe.extract.records.manifest_offsets import Offsets
    from gpupipe.flow.order.streams import StreamOrder

    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        manifest = read_manifest(MANIFEST)
        listed = tracemalloc.get_traced_memory()[0] - before
        order, offsets = StreamOrder(manifest.counts, STREAMS, window, 5), Offsets(manifest, None)
        own, held = np.arange(RANK, FILES * each, RANKS)[: 40 * 4096], 0
        for first in range(0, len(own), 4096):
            places = order(own[first : first + 4096])
            offsets.spans(places // each, places % each)
            held = max(held, order.nbytes + offsets.nbytes)
        return {"order_and_offsets_bytes": held, "names_and_sizes_bytes": listed, "index_bytes": 8 * FILES * each}
    finally:
        tracemalloc.stop()


def _chain(window: int) -> Any:
    import gpupipe as gp

    records = gp.TFRecordDataset.from_manifest(MANIFEST).shuffle(gp.ALL, seed=1, streams=STREAMS, window=window)
    return records.map(len, traced=False).batch(BATCH, drop_remainder=True).by_rank(RANK, RANKS, check=False)


def _rank(store: Store, window: int, records: int) -> dict[str, Any]:
    """One rank: its start, its first batch, what it reads, and its start in the middle of an epoch."""
    found: dict[str, Any] = {}
    mark = _Mark(store)
    ds = _chain(window)
    items = ds.iterator(epoch=0)
    state = items.state_dict()
    found["steps"] = len(ds)
    found |= mark.since("start")
    rows = len(next(items))
    found |= mark.since("first_batch")
    batches = 1
    while batches < min(records // rows, len(ds) // 2):
        next(items)
        batches += 1
    state = items.state_dict()
    # What was requested ahead is less than one window: it is left out by counting whole windows.
    done = batches * rows
    found["records_read"] = done
    found["requests_a_record"] = round((mark.requests() - found["start_requests"]) / _whole(done, window), 4)
    found["bytes_a_record"] = round((store.sent - found["start_bytes"]) / _whole(done, window))
    items.close()
    mark = _Mark(store)
    again = _chain(window).iterator(epoch=0)
    again.load_state_dict(state)
    next(again)
    found |= mark.since("recovery")
    found["state_bytes"] = len(_text(state))
    again.close()
    return found


def _whole(records: int, window: int) -> int:
    """Records of all windows that were begun."""
    return -(-records // window) * window


def _text(state: Any) -> str:
    import json

    return json.dumps(state)


class _Mark:
    """A point in time: seconds, requests and bytes since then."""

    def __init__(self, store: Store) -> None:
        self._store, self._first = store, store.requests
        self._set()

    def _set(self) -> None:
        self._at, self._requests, self._sent = time.perf_counter(), self._store.requests, self._store.sent

    def requests(self) -> int:
        """All requests since the mark was made."""
        return self._store.requests - self._first

    def since(self, name: str) -> dict[str, Any]:
        """What happened since the last call."""
        found = {
            f"{name}_s": round(time.perf_counter() - self._at, 3),
            f"{name}_requests": self._store.requests - self._requests,
            f"{name}_bytes": self._store.sent - self._sent,
        }
        self._set()
        return found


def _stragglers(steps: int) -> dict[str, Any]:
    needed, step = BATCH / RANKS * LENGTH / (4 << 20), BATCH / RANKS / RATE
    shares = {
        str(ranks): {
            str(ahead): round(in_step(ranks, ahead, steps=max(steps // (10 if ranks > 64 else 1), 1), step=step,
                                      needed=needed), 3)
            for ahead in (1, 8, 32, 125, 500)
        }
        for ranks in (1, 64, 1024)
    }  # fmt: skip
    return {
        "computing": shares,
        "workers": {
            str(ahead): round(handed_out(16, 4.0, ahead, segment=4, batches=max(steps // 2, 64)), 2)
            for ahead in (0, 1, 2, 4)
        },
    }


def tables(document: Mapping[str, Any]) -> dict[str, str]:
    """The tables of the guide's page, by their subject."""
    cases = document["cases"]
    names = [f"{name} records" for name in cases]
    rows: dict[str, Sequence[str]] = {
        label: [text.format(**case) for case in cases.values()] for label, text in _ROWS.items()
    }
    head = f"| a rank of {RANKS:,}, {FILES:,} files | {' | '.join(names)} |\n|---|{'--:|' * len(names)}"
    body = "\n".join(f"| {label} | {' | '.join(cells)} |" for label, cells in rows.items())
    found = document["stragglers"]
    ahead = list(next(iter(found["computing"].values())))
    steps = f"| ranks | {' | '.join(f'{one} ahead' for one in ahead)} |\n|--:|{'--:|' * len(ahead)}"
    for ranks, shares in found["computing"].items():
        steps += f"\n| {int(ranks):,} | {' | '.join(f'{shares[one]:.0%}' for one in ahead)} |"
    return {"rank": f"{head}\n{body}", "steps": steps}


_ROWS: Mapping[str, str] = {
    "index that `shuffle(gp.ALL)` of local files builds, bytes": "{index_bytes:,}",
    "order and offsets in use, bytes": "{order_and_offsets_bytes:,}",
    "names, sizes and counts, bytes": "{names_and_sizes_bytes:,}",
    "order: made in, s": "{order_s:.4f}",
    "order: a record, µs": "{order_us_a_record:.1f}",
    "files that a rank reads in an epoch": "{files_a_rank:,}",
    "the same without `streams`": "{files_a_rank_without_streams:,}",
    "start, until its state and number of steps are known: requests": "{start_requests}",
    "start: bytes": "{start_bytes:,}",
    "start: s": "{start_s:.2f}",
    "then the first batch: requests": "{first_batch_requests}",
    "then the first batch: s": "{first_batch_s:.2f}",
    "requests a record": "{requests_a_record:.3f}",
    "requests in an epoch": "{requests_an_epoch:,}",
    "requests a second of all ranks": "{requests_a_second_of_all:,}",
    "bytes read for each byte used": "{read_ratio:.2f}",
    "after a restart in the middle: requests to the next batch": "{recovery_requests}",
    "after a restart in the middle: s": "{recovery_s:.2f}",
    "state, bytes": "{state_bytes:,}",
}
