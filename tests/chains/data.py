"""data: the images of the chain tests, and a look at what reaches an executor."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import gpupipe as gp
from gpupipe import ops
from gpupipe.graph.values import Apply, Draw, Item
from gpupipe.optimize.place import placer as place
from gpupipe.transform.choose import make_executor
from gpupipe.transform.program import Executor, Feed, Program

ROOT = Path(__file__).resolve().parents[2]
BACKENDS = ("dali", "numpy")
FEATURES = {
    "image/encoded": gp.io.FixedLenFeature((), bytes),
    "image/class/label": gp.io.FixedLenFeature((), "int64", default_value=-1),
}


def sample_folder() -> Path | None:
    """The folder of real photographs, where there is one."""
    folder = Path(os.environ.get("GPUPIPE_SAMPLE") or ROOT.parent / "shared" / "data" / "imagenet-sample")
    return folder if any(folder.glob("*.tfrecord")) else None


def on(backend: str, **options: Any) -> gp.Options:
    """Options of an executor: "dali" ("dali-cpu") and "numpy" on the CPU, or "gpu" ("dali-gpu")."""
    backend = {"dali-cpu": "dali", "dali-gpu": "gpu"}.get(backend, backend)
    if backend == "gpu":
        return gp.Options(device="gpu", **options)
    return gp.Options(device="cpu", backend=backend, **options)  # type: ignore[arg-type]


def parse(record: Any) -> Any:
    x = gp.io.parse_single_example(record, FEATURES)
    return x["image/encoded"], x["image/class/label"]


def small_example(record: Any) -> Any:
    """Random crops and flips with little else to compute."""
    encoded, label = parse(record)
    image = ops.random_resized_crop(ops.decode_jpeg(encoded, channels=3), (16, 16))
    return ops.random_flip_left_right(image), label


def records(files: Sequence[Path]) -> list[tuple[bytes, int]]:
    """The images and labels of some shards, in order."""
    return [(bytes(data), int(label)) for data, label in gp.TFRecordDataset(list(files)).map(parse)]


@dataclass
class Spy:
    """Stands between a stage and its executors, and notes what they are handed.

    Attributes:
        decoded: images decoded, counted once for each run of the graph that a row takes part in.
        sizes: rows of each run of the graph.
        drawn: for each row the name of its image (a hash of its bytes) and its drawn parameters.
    """

    decoded: int = 0
    sizes: list[int] = field(default_factory=list)
    drawn: list[tuple[str, tuple[Any, ...]]] = field(default_factory=list)

    def install(self, monkeypatch: Any) -> Spy:
        """Wrap every executor made from now on."""
        make = make_executor

        def wrapped(choice: Any, program: Program, *rest: Any) -> Executor:
            return _Watched(make(choice, program, *rest), program, self)

        monkeypatch.setattr(place, "make_executor", wrapped)  # where stages look it up
        return self

    def note(self, program: Program, feed: Feed) -> None:
        """Note one run of the graph."""
        self.sizes.append(feed.size)
        self.decoded += feed.size * sum(isinstance(value, Apply) and value.op.decodes for value in program.values)
        columns = dict(zip(program.inputs, feed.values, strict=True))
        images = next(rows for value, rows in columns.items() if value.spec.dtype is bytes)
        drawn = [
            (value.value.op.name + "." + value.value.op.parameters[value.index], rows)
            for value, rows in columns.items()
            if isinstance(value, Item) and isinstance(value.value, Draw) and value.value.site
        ]
        for i in range(feed.size):
            name = self.name_of(images[i])
            self.drawn.append(
                (name, tuple((what, *np.ravel(rows[i]).tolist()) for what, rows in sorted_by_name(drawn)))
            )

    @staticmethod
    def name_of(data: bytes) -> str:
        """The name of an image: a hash of its bytes."""
        return hashlib.blake2b(data, digest_size=8).hexdigest()

    def windows(self) -> dict[str, tuple[Any, ...]]:
        """The parameters of each image. An image that was drawn for twice with other numbers is a failure."""
        found: dict[str, tuple[Any, ...]] = {}
        for name, numbers in self.drawn:
            assert found.setdefault(name, numbers) == numbers
        return found


def sorted_by_name(drawn: Sequence[tuple[str, Any]]) -> list[tuple[str, Any]]:
    return sorted(drawn, key=lambda pair: pair[0])


class _Watched(Executor):
    """An executor that tells a spy what it is handed."""

    def __init__(self, inner: Executor, program: Program, spy: Spy) -> None:
        super().__init__(inner.label, sys.maxsize)
        self._inner, self._program, self._spy = inner, program, spy

    def _start(self, feed: Feed) -> None:
        self._spy.note(self._program, feed)
        self._inner.submit(feed)

    def _finish(self, flight: None) -> list[Any]:
        return self._inner.collect()

    def close(self) -> None:
        self._inner.close()


def batches(ds: gp.Dataset, epoch: int | None = None) -> Iterator[Any]:
    """What one iterator delivers; its threads are gone afterwards."""
    with ds.iterator(epoch) as items:
        yield from items
