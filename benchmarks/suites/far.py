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
from benchmarks.suites.far_steps import ANSWER, LATE, PAUSE, handed_out, in_step
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
    parser.add_argument("--windows", type=int, default=160, help="of the simulated training (%(default)s)")
    parser.add_argument("--pairs", type=int, default=1, help="accepted for the plan of all suites; one run is made")


def _run(options: argparse.Namespace, folder: Path) -> int:
    path = far(options.out, records=options.records, windows=options.windows)
    print(f"written to {path.name}")
    return 0


def far(out: Path, *, records: int = 4000, windows: int = 160) -> Path:
    """Measure, print tables, and write the result file.

    Args:
        out: folder of the result file.
        records: that a rank reads.
        windows: of the simulated training.
    """
    settings = {
        "ranks": RANKS, "files": FILES, "batch": BATCH, "streams": STREAMS, "bytes": LENGTH, "records": records,
        "windows": windows, "delay_s": DELAY, "records_per_s": RATE, "answer_s": ANSWER,
        "late": [list(one) for one in LATE], "pause_s": PAUSE,
    }  # fmt: skip
    document = report.header("far", settings)
    _warm()
    document["cases"] = {name: _case(*case, records) for name, case in CASES.items()}
    document["stragglers"] = _stragglers(windows)
    print("\n\n".join(tables(document).values()))
    return report.write(document, out)


def _warm() -> None:
    """Import what a chain needs."""
    with stored(Store(2, 2048, LENGTH)):
        next(_chain(10).iterator(epoch=0), None)


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
    found |= _reading(store, items, rows, window, records, len(ds) * rows, mark, found["start_bytes"])
    state = found.pop("state")
    items.close()
    mark = _Mark(store)
    again = _chain(window).iterator(epoch=0)
    again.load_state_dict(state)
    next(again)
    found |= mark.since("recovery")
    found["state_bytes"] = len(_text(state))
    again.close()
    return found


def _reading(
    store: Store, items: Any, rows: int, window: int, records: int, whole: int, mark: _Mark, before: int
) -> dict[str, Any]:
    """Requests and bytes a record: of a whole epoch if it is short, else between two places with a like past."""
    short = whole <= records
    first, last = (rows, whole) if short else (window, window * (records // window))
    done, state = rows, None
    for _ in range(rows, first, rows):
        next(items)
        done += rows
    requests, sent, since = (2, before, 0) if short else (mark.requests(), store.sent, done)
    while done < last:
        next(items)
        done += rows
        if state is None and done >= last // 2:
            state = items.state_dict()
    return {
        "records_read": done,
        "requests_a_record": round((mark.requests() - requests) / (done - since), 4),
        "bytes_a_record": round((store.sent - sent) / (done - since)),
        "state": state,
    }


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


WAITS: Mapping[str, tuple[int, float | None]] = {
    "a batch": (8, None),
    "64 records": (64, None),
    "1,024 records": (1024, None),
    "1,024 records, `read_timeout=1`": (1024, 1.0),
}
"""What ranks request ahead, in records, and after how many seconds they give a request up."""


def _stragglers(windows: int) -> dict[str, Any]:
    rows = BATCH // RANKS
    how = {"window": 1000, "ranges": -(-1000 * LENGTH // (4 << 20)), "rows": rows, "rate": RATE, "windows": windows}
    return {
        **how,
        "computing": {
            str(ranks): {
                name: round(in_step(ranks, ahead, timeout=timeout, **how), 3)
                for name, (ahead, timeout) in WAITS.items()
            }
            for ranks in (1, 64, 1024)
        },
        "workers": {
            str(ahead): round(handed_out(16, 4.0, ahead, segment=4, batches=max(50 * windows, 64)), 2)
            for ahead in (0, 1, 2, 4)
        },
    }  # fmt: skip


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
    steps = f"| ranks | {' | '.join(ahead)} |\n|--:|{'--:|' * len(ahead)}"
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
