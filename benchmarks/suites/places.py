"""places: what batches by their number cost: `pick` over many files, a slice that opens them again, a shard of batches.

`pick` takes the numbers of batches from an iterator; the files are small, and the first batch, for which all of them
are opened, is shown apart. The shard is one of four behind the batch of a chain of photographs with random crops.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.equal import UnequalWork
from gpupipe.comparison.ratios import Spread

__all__ = ["GOALS", "add_options", "places"]

ROWS = 64
RECORDS = 16
"""Of a file."""
GOALS: Mapping[str, float] = {"pick, CPU-ms a row": 0.1, "shard, of the CPU time of the whole": 0.3}


def add_options(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser("places", help="batches by their number: pick over 10,000 files, shards of batches")
    parser.set_defaults(run=_run)
    parser.add_argument("--files", type=int, default=10_000, help="that pick reads (%(default)s)")
    parser.add_argument("--images", type=int, default=512, help="of the chain that is sharded (%(default)s)")
    parser.add_argument("--pairs", type=int, default=5, help="runs of each (%(default)s)")


def _run(options: argparse.Namespace, folder: Path) -> int:
    path = places(options.out, folder, files=options.files, images=options.images, runs=options.pairs)
    print(f"written to {path.name}")
    return 0


def places(out: Path, folder: Path, *, files: int = 10_000, images: int = 512, runs: int = 5) -> Path:
    """Measure, print a table, and write the result file.

    Args:
        out: folder of the result file.
        folder: the files are written here.
        files: that `pick` reads, at least 64.
        images: of the chain that is sharded, at least 64.
        runs: of each.

    Raises:
        UnequalWork: batches by number are not those of the loop.
    """
    many, photographs = _many(folder, files), _photographs(folder, images)
    found: dict[str, list[float]] = {}
    for number in range(runs):
        for name, value in (*_picked(many, number), *_sharded(photographs)):
            found.setdefault(name, []).append(value)
        print(f"run {number + 1} of {runs}", file=sys.stderr, flush=True)
    spreads = {name: Spread.of(values) for name, values in found.items()}
    for name, spread in spreads.items():
        goal = GOALS.get(name)
        met = "" if goal is None else f"   goal <= {goal:g}: {'met' if spread.median <= goal else 'NOT met'}"
        print(f"{name:<40}{spread!s:>26}{met}")
    document = report.header("places", {"files": files, "images": images, "rows": ROWS, "runs": runs})
    document["goals"] = dict(GOALS)
    document["found"] = {name: {**asdict(spreads[name]), "runs": values} for name, values in found.items()}
    return report.write(document, out)


def _many(folder: Path, count: int) -> Any:
    """Batches over many small files in a random order."""
    import gpupipe as gp

    target = folder / "many"
    target.mkdir()
    for i in range(count):
        with gp.io.TFRecordWriter(target / f"{i:05d}.tfrecord") as out:
            for j in range(RECORDS):
                out.write(b"%d-%d " % (i, j) * 20)
    names = gp.Dataset.list_files(str(target / "*"), shuffle=False)
    records = names.interleave(gp.TFRecordDataset, cycle_length=16).shuffle(gp.ALL, seed=1)
    ds = records.batch(ROWS, drop_remainder=True).prefetch(1)
    len(ds)  # the index of all files
    return ds


def _picked(ds: Any, number: int) -> Iterator[tuple[str, float]]:
    most = len(ds)
    count = min(100, most - 1)
    numbers = [(7 * number + 13 * i) % most for i in range(count + 1)]
    with closing(ds.pick(iter(numbers)).iterator(epoch=0)) as items:
        started = time.perf_counter()
        first = next(items)
        yield "pick, seconds to the first batch", time.perf_counter() - started
        cpu = time.process_time()
        for _ in range(count):
            next(items)
        yield "pick, CPU-ms a row", (time.process_time() - cpu) * 1e3 / count / ROWS
    cpu = time.process_time()
    (again,) = ds[numbers[0] : numbers[0] + 1].iterator(epoch=0)
    yield "a slice of one batch, CPU-ms a row", (time.process_time() - cpu) * 1e3 / ROWS
    if first.tolist() != again.tolist():
        raise UnequalWork("pick gives another batch than a slice")


def _photographs(folder: Path, count: int) -> Any:
    """Batches of random crops of photographs in a random order."""
    import gpupipe as gp
    from gpupipe import ops
    from gpupipe.comparison.photographs import write_shards

    features = {
        "image/encoded": gp.io.FixedLenFeature((), bytes),
        "image/class/label": gp.io.FixedLenFeature((), "int64"),
    }

    def crop(record: Any) -> Any:
        x = gp.io.parse_single_example(record, features)
        image = ops.decode_jpeg(x["image/encoded"], channels=3)
        return ops.random_resized_crop(image, (224, 224)), x["image/class/label"]

    files = list(map(str, write_shards(folder, count=count, shards=8)))
    records = gp.TFRecordDataset(files).shuffle(gp.ALL, seed=1)
    ds = records.map(crop).batch(16).prefetch(2).with_options(gp.Options(device="cpu", threads=1))
    next(iter(ds))  # imports what it needs, and makes the index of the files
    return ds


def _sharded(ds: Any) -> Iterator[tuple[str, float]]:
    whole, every = _cpu(lambda: ds)
    for name, make in (("shard", lambda: ds.shard(4, 1)), ("[1::4]", lambda: ds[1::4])):
        took, labels = _cpu(make)
        if labels != every[1::4]:
            raise UnequalWork(f"{name} gives other batches than the loop")
        yield f"{name}, of the CPU time of the whole", took / whole


def _cpu(make: Callable[[], Any]) -> tuple[float, Sequence[Any]]:
    """CPU seconds of an epoch, and its labels."""
    cpu = time.process_time()
    labels = [batch.tolist() for _, batch in make().iterator(epoch=0)]
    return time.process_time() - cpu, labels
