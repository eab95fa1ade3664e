"""An op defined in a user's own module works like one of the catalogue: eager, traced, on every executor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from gpupipe import Dataset, ops
from gpupipe.errors import SpecError
from gpupipe.graph.classify import classify
from gpupipe.graph.op import Array, Case, Op, check_number
from gpupipe.graph.symbols import apply
from gpupipe.graph.trace import trace
from gpupipe.random import BatchRng
from gpupipe.spec import TensorSpec, flatten
from tests.chains.data import on
from tests.conformance.harness import EXECUTORS, Batch, assert_close, host, on_executors

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


@pytest.mark.parametrize(("case", "kind"), on_executors(RandomSolarize.cases()))
def test_an_executor_agrees_with_the_reference(case: Case, kind: str) -> None:
    batch = Batch.of(case)

    rows = batch.run(kind)

    for (got,), (expected,) in zip(rows, batch.references(), strict=True):
        assert_close(got, expected, case, "HWC", kind)


@pytest.mark.parametrize("kind", EXECUTORS)
def test_a_traced_function_runs_it_among_other_ops(kind: str) -> None:
    assert classify(augment) == "ops"
    ps = np.array([0.0, 1.0, *[0.5] * 20])
    chain = Dataset.from_tensor_slices((np.stack([IMAGE] * len(ps)), ps)).map(augment, traced=True)

    solarized = []
    for image in map(host, chain.with_options(on(kind)).iterator(epoch=0)):
        meant = [
            (np.where((IMAGE >= 100) & chosen, 255 - IMAGE, IMAGE) - np.float32(100)) / 50 for chosen in (False, True)
        ]
        found = [bool(np.abs(image - one).max() <= 1e-6) for one in meant]
        assert sorted(found) == [False, True]
        solarized.append(found[1])
    assert solarized[:2] == [False, True] and 0 < sum(solarized[2:]) < 20


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
