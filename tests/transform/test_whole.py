"""Programs that the NumPy executor computes for many rows at once: the same elements and errors as row by row."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe.graph.arithmetic import Arithmetic
from gpupipe.graph.op import Array, Op
from gpupipe.graph.symbols import apply
from gpupipe.graph.values import Apply, Const, Input
from gpupipe.spec import TensorSpec
from gpupipe.transform.numpy import NumpyExecutor
from gpupipe.transform.program import Feed, Program
from gpupipe.transform.whole import Whole

COUNT = 150
IMAGES = np.random.default_rng(0).integers(0, 256, (COUNT, 32, 32, 3), dtype=np.uint8)
MEAN, STD = (125.0, 123.0, 114.0), (63.0, 62.0, 67.0)


def cifar(x: Any, layout: str) -> Any:
    x = gp.ops.pad_to_bounding_box(x, 4, 4, 40, 40)
    x = gp.ops.random_flip_left_right(gp.ops.random_crop(x, (32, 32)))
    x = gp.ops.normalize(x, MEAN, STD)
    return gp.ops.transpose(x) if layout == "CHW" else x


CHAINS: dict[str, Callable[[Any, Any], Any]] = {
    "HWC": lambda x, y: (cifar(x, "HWC"), y),
    "CHW": lambda x, y: (cifar(x, "CHW"), y),
    "two": lambda x, y: (gp.ops.flip_left_right(x), gp.ops.random_flip_up_down(x)),
    "shift": lambda x, y: gp.ops.pad_to_bounding_box(x, y % 8, 2, 41, 36),
    "scale": lambda x, y: (
        (gp.ops.random_flip_left_right(x) - np.array(MEAN, np.float32)) / 63.0 * gp.ops.cast(y, "float32")
    ),
    "floats": lambda x, y: gp.ops.convert_image_dtype(gp.ops.center_crop(x, (24, 20)), "float32"),
}


def delivered(fn: Callable[[Any, Any], Any], threads: int = 2) -> list[Any]:
    ds = gp.Dataset.from_tensor_slices((IMAGES, np.arange(COUNT))).shuffle(COUNT, seed=3).map(fn).batch(64)
    ds = ds.with_options(gp.Options(device="cpu", backend="numpy", threads=threads))
    return [[np.array(leaf) for leaf in (batch if isinstance(batch, tuple) else (batch,))] for batch in ds]


@pytest.mark.parametrize("name", CHAINS)
def test_batches_are_those_that_are_computed_row_by_row(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[bool] = []
    computed = Whole.computed

    def noted(self: Whole, *args: Any) -> bool:
        answers.append(computed(self, *args))
        return answers[-1]

    monkeypatch.setattr(Whole, "computed", noted)
    found, one_thread = delivered(CHAINS[name]), delivered(CHAINS[name], threads=1)
    monkeypatch.setattr(Whole, "of", lambda program: None)
    expected = delivered(CHAINS[name])

    assert answers and all(answers)
    assert [len(batch[0]) for batch in expected] == [64, 64, 22]
    for batch, other, meant in zip(found, one_thread, expected, strict=True):
        for leaf, same, wanted in zip(batch, other, meant, strict=True):
            assert (leaf.dtype, leaf.shape) == (wanted.dtype, wanted.shape)
            assert leaf.tobytes() == same.tobytes() == wanted.tobytes()


@dataclass(frozen=True, slots=True)
class Picky(Op):
    """Negates; refuses images whose first value is 7."""

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        return TensorSpec(xs[0].shape, xs[0].dtype, "HWC")

    def reference(self, x: Array) -> Array:
        if x.flat[0] == 7:
            raise ValueError("seven is not allowed")
        return 255 - x

    def stacked(self, x: Array) -> Array:
        if (x[:, 0, 0, 0] == 7).any():
            raise ValueError("there is a seven somewhere")
        return 255 - x


def test_the_error_of_a_row_names_that_row_and_the_others_are_delivered() -> None:
    bad = IMAGES[:10].copy()
    bad[:, 0, 0, 0], bad[6, 0, 0, 0] = 1, 7
    ds = gp.Dataset.from_tensor_slices(bad).map(lambda x: apply(Picky(), x)).batch(5)
    options = gp.Options(device="cpu", backend="numpy")

    with pytest.raises(gp.errors.FunctionError, match=r"index 6.*seven is not allowed"):
        list(ds.with_options(options))
    first, rest = ds.with_options(dataclasses.replace(options, on_error="skip"))
    np.testing.assert_array_equal(np.concatenate([first, rest]), 255 - np.delete(bad, 6, axis=0))


@pytest.mark.parametrize(
    "row", [np.zeros((31, 32, 3), np.uint8), np.zeros((32, 32, 3)), np.zeros((1, 32, 3), np.uint8)]
)
def test_rows_that_are_not_what_their_spec_says_are_computed_one_by_one(row: Array) -> None:
    rows = [*IMAGES[:3], row]
    program = Program((Apply(Counting(), (Input(0, TensorSpec((32, 32, 3), "uint8", "HWC")),)),))
    executor = NumpyExecutor(program, 4, 1)
    try:
        (found,) = executor.run(Feed(4, (rows,)))
    finally:
        executor.close()

    assert [tuple(shape) for shape in found.tolist()] == [x.shape for x in rows]


@dataclass(frozen=True, slots=True)
class Counting(Op):
    """The shape of an image as numbers."""

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        return TensorSpec((3,), "int64")

    def reference(self, x: Array) -> Array:
        return np.array(x.shape)

    def stacked(self, x: Array) -> Array:
        return np.tile(np.array(x.shape[1:]), (len(x), 1))


def test_large_images_open_shapes_and_python_numbers_are_no_stacks() -> None:
    def program(shape: tuple[int | None, ...], number: Any) -> Program:
        image = Input(0, TensorSpec(shape, "uint8", "HWC"))
        return Program((Apply(Arithmetic("mul", image=True), (image, Const(number))),))

    assert Whole.of(program((256, 256, 1), np.float32(2))) is not None
    assert Whole.of(program((512, 512, 3), np.float32(2))) is None
    assert Whole.of(program((None, 32, 3), np.float32(2))) is None
    assert Whole.of(program((32, 32, 3), 2.0)) is None
