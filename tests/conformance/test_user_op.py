"""An op defined in a user's own module works like one of the catalogue: eager, traced, on every executor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pytest

from gpupipe import Dataset, ops
from gpupipe.errors import SpecError
from gpupipe.graph.classify import classify
from gpupipe.graph.host_values import HostValues
from gpupipe.graph.op import Array, Case, Op, check_number
from gpupipe.graph.symbols import apply
from gpupipe.graph.trace import trace
from gpupipe.graph.values import Draw
from gpupipe.random import BatchRng
from gpupipe.spec import TensorSpec, flatten
from gpupipe.transform.program import Feed, Program
from tests.conformance.harness import EXECUTORS, Batch, assert_close, host, make_executor, on_executors

pytestmark = pytest.mark.conformance

# ---- what a user writes ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RandomSolarize(Op):
    """Invert all values from a threshold on, with probability `p`."""

    random: ClassVar[bool] = True
    parameters: ClassVar[tuple[str, ...]] = ("on",)
    traceable: ClassVar[tuple[str, ...]] = ("p",)

    threshold: int = 128
    p: Any = 0.5

    def __post_init__(self) -> None:
        check_number("random_solarize", "p", self.p, 0, 1)

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        return xs[0].require("random_solarize", layout="HWC", dtype="uint8")

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        return ((rng.uniform() < self.p).astype(np.int32),)

    def reference(self, x: Array, on: Array) -> Array:
        return np.where((x >= self.threshold) & bool(on), 255 - x, x)

    def dali(self, d: Any, x: Any, on: Any) -> Any:
        x = d.fn.cast(x, dtype=d.dtype(np.int32))
        chosen = d.fn.cast(x >= self.threshold, dtype=d.dtype(np.int32)) * on
        return d.fn.cast(x + chosen * (255 - 2 * x), dtype=d.dtype(np.uint8))

    @classmethod
    def cases(cls) -> Iterator[Case]:
        x = np.arange(5 * 7 * 3, dtype=np.uint8).reshape(5, 7, 3) * 2
        for p in (0.0, 0.5, 1.0):
            yield Case(cls(100, p), (x,), ("HWC",), note=f"p={p}")


def random_solarize(image: Any, threshold: int = 128, p: Any = 0.5, *, seed: int | None = None) -> Any:
    """The public function of the op."""
    return apply(RandomSolarize(threshold, p), image, seed=seed)


def augment(image: Any, p: Any) -> Any:
    """A function for map that uses it among ops of the catalogue."""
    image = random_solarize(image, threshold=100, p=p)
    return ops.normalize(image, mean=100, std=50)


# ----------------------------------------------------------------------------------------------------------------------

IMAGE = np.arange(6 * 4 * 3, dtype=np.uint8).reshape(6, 4, 3) * 3
SPECS = (TensorSpec((None, None, 3), "uint8", "HWC"), TensorSpec((), "float64"))


@pytest.mark.parametrize(("case", "kind"), on_executors(RandomSolarize.cases()))
def test_an_executor_agrees_with_the_reference(case: Case, kind: str) -> None:
    batch = Batch.of(case)

    rows = batch.run(kind)

    for (got,), (expected,) in zip(rows, batch.references(), strict=True):
        assert_close(got, expected, case, "HWC", kind)


@pytest.mark.parametrize("kind", EXECUTORS)
def test_a_traced_function_runs_it_among_other_ops(kind: str) -> None:
    assert classify(augment) == "ops"
    traced = trace(augment, flatten((0, 0))[1], SPECS)
    assert traced is not None
    program = Program(traced.outputs)
    ps = [0.0, 1.0, 0.5, 0.5, 0.5, 0.5]
    columns: list[list[Any]] = [[IMAGE] * len(ps), [np.float64(p) for p in ps]]
    keys = np.arange(len(ps), dtype=np.uint64)
    values = HostValues(len(ps), columns.__getitem__, lambda index: keys, seed=1, epoch=0)
    (draw,) = (v for v in _below(traced.outputs[0]) if isinstance(v, Draw))

    executor = make_executor(kind, program, len(ps))
    try:
        executor.submit(Feed.of(program, values))
        (images,) = executor.collect()
    finally:
        executor.close()

    (on,) = values.params(draw)
    assert draw.site == "random_solarize#0/0"
    assert on[0] == 0
    assert on[1] == 1
    for row, mirrored in enumerate(on):
        solarized = np.where((IMAGE >= 100) & bool(mirrored), 255 - IMAGE, IMAGE)
        np.testing.assert_allclose(host(images[row]), (solarized - np.float32(100)) / np.float32(50), atol=1e-6, rtol=0)


def test_an_eager_call_runs_it_at_once() -> None:
    assert np.array_equal(random_solarize(IMAGE, 100, p=0), IMAGE)
    assert np.array_equal(random_solarize(IMAGE, 100, p=1), np.where(IMAGE >= 100, 255 - IMAGE, IMAGE))
    assert random_solarize(np.stack([IMAGE] * 3), 100).shape == (3, 6, 4, 3)
    assert np.array_equal(random_solarize(IMAGE, 100, seed=3), random_solarize(IMAGE, 100, seed=3))


def test_its_mistakes_surface_on_the_line_of_the_call() -> None:
    with pytest.raises(SpecError, match=r"random_solarize needs uint8, got float32.*test_user_op\.py:\d+"):
        trace(lambda image: random_solarize(image), flatten(0)[1], [TensorSpec((4, 4, 3), "float32", "HWC")])
    with pytest.raises(SpecError, match="random_solarize needs p from 0 to 1, got 2"):
        random_solarize(IMAGE, p=2)


@dataclass(frozen=True, slots=True)
class Measure(Op):
    """The size that an op on images draws for. Its `layout` is that of something else."""

    domain: ClassVar[Literal["image", "host", "any"]] = "host"
    parameters: ClassVar[tuple[str, ...]] = ("hw",)

    layout: str = "CHW"

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        xs[0].require("measure", layout="HWC")
        return TensorSpec((2,), "int32")

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        return (hw,)

    def reference(self, x: Array, hw: Array) -> Array:
        return hw


def test_a_field_named_layout_says_nothing_of_the_images_that_it_takes() -> None:
    ds = Dataset.from_tensors(IMAGE).map(lambda image: apply(Measure(), image), traced=True)

    assert apply(Measure(), IMAGE).tolist() == [6, 4]
    assert next(iter(ds)).tolist() == [6, 4]


def _below(value: Any) -> Iterator[Any]:
    """A value and everything it is made of."""
    yield value
    for below in value.inputs:
        yield from _below(below)
