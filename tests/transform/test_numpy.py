"""What is particular to the NumPy executor: where results are written, memory, errors, threads, many rows at once."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe.errors import DecodeError, FunctionError, ParseError, PlanError
from gpupipe.graph.arithmetic import Arithmetic
from gpupipe.graph.op import Array, Op
from gpupipe.graph.symbols import apply
from gpupipe.graph.values import Apply, Const, Input
from gpupipe.spec import TensorSpec
from gpupipe.transform.numpy import NumpyExecutor
from gpupipe.transform.program import BatchFailed, Feed, Program
from gpupipe.transform.whole import Whole
from tests.transform.tiny import IMAGE, TinyDaliOnly, TinyHostOnly, TinyScale, chain, damaged, feed_of, jpeg

FIXED = type(IMAGE)(0, TensorSpec((4, 4, 3), "uint8", "HWC"))
ROWS = [np.full((4, 4, 3), n, np.uint8) for n in range(6)]


def run(program: Program, rows: list[Any], threads: int = 2) -> list[Any]:
    executor = NumpyExecutor(program, len(rows), threads)
    try:
        return executor.run(Feed(len(rows), (rows,)))
    finally:
        executor.close()


@dataclass(frozen=True, slots=True, eq=False)
class Spy(Op):
    """Remembers what it was called with."""

    seen: list[Any] = field(default_factory=list)
    spec: TensorSpec = field(default_factory=lambda: TensorSpec((4, 4, 3), "float32"))

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        return self.spec

    def reference(self, x: Array, out: Array | None = None) -> Array:
        self.seen.append(out)
        return np.multiply(x, np.float32(2), out=out, dtype=np.float32)


def test_a_result_that_is_needed_inside_is_written_into_the_batch_too_but_not_one_without_a_fixed_shape() -> None:
    inside, open_shape = Spy(), Spy(spec=TensorSpec((None, 4, 3), "float32"))
    first = Apply(inside, (FIXED,))

    doubled, fourfold, again = run(Program((first, Apply(TinyScale(), (first,)), first)), ROWS)
    run(Program((Apply(open_shape, (FIXED,)),)), ROWS)

    assert all(np.shares_memory(out, doubled) or np.shares_memory(out, again) for out in inside.seen)
    np.testing.assert_array_equal(fourfold, 2 * doubled)
    np.testing.assert_array_equal(again, doubled)
    assert not np.shares_memory(again, doubled)
    assert open_shape.seen == [None] * 6


@dataclass(frozen=True, slots=True)
class Picky(Op):
    """Fails on the rows whose first value is 1 (its own error), 2 (a DataError) or 3 (another shape than declared)."""

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        return TensorSpec((4, 4, 3), "uint8", "HWC")

    def reference(self, x: Array) -> Array:
        match int(x[0, 0, 0]):
            case 1:
                raise KeyError("no such thing")
            case 2:
                raise ParseError("no such feature")
            case 3:
                return x[:3]
        return x


def test_every_bad_row_is_known_with_its_cause() -> None:
    with pytest.raises(BatchFailed) as failure:
        run(Program((Apply(Picky(), (FIXED,)),)), ROWS)

    causes = failure.value.causes
    assert list(causes) == [1, 2, 3]
    assert isinstance(causes[1], FunctionError)
    assert isinstance(causes[1].__cause__, KeyError)
    assert str(causes[1]) == "picky: KeyError: 'no such thing'"
    assert isinstance(causes[2], ParseError)
    assert causes[2].stage == "picky"
    assert "declared as uint8[4, 4, 3], got uint8[3, 4, 3]" in str(causes[3])


@pytest.mark.parametrize("declared", ["uint8", "int16", "float64", "bool"])
def test_a_result_of_another_dtype_than_declared_is_an_error_and_is_not_cast(declared: str) -> None:
    @dataclass(frozen=True, slots=True)
    class Halved(Op):
        def infer(self, *xs: TensorSpec) -> TensorSpec:
            return TensorSpec((4, 4, 3), declared)

        def reference(self, x: Array) -> Array:
            return x / np.float32(2)

    with pytest.raises(BatchFailed, match=rf"declared as {declared}\[4, 4, 3\], got float32\[4, 4, 3\]"):
        run(Program((Apply(Halved(), (FIXED,)),)), ROWS)


def test_a_decoder_that_fails_is_a_decode_error() -> None:
    program = chain()
    executor = NumpyExecutor(program, 2, 1)
    executor.submit(feed_of(program, [jpeg(0), damaged(jpeg(1))]))

    with pytest.raises(BatchFailed) as failure:
        executor.collect()
    executor.close()

    assert isinstance(failure.value.causes[1], DecodeError)
    assert failure.value.causes[1].stage == "tiny_decode"


def test_an_op_without_a_numpy_form_is_named() -> None:
    with pytest.raises(PlanError, match="tiny_dali_only has no NumPy form"):
        NumpyExecutor(Program((Apply(TinyDaliOnly(), (IMAGE,)),)), 1, 1)


BEGUN: list[bool] = []
"""Of each row that `Slow` has begun, whether the executor was closed by then."""
EXECUTORS: list[NumpyExecutor] = []
"""Whose rows they are."""


@dataclass(frozen=True, slots=True)
class Slow(TinyHostOnly):
    def reference(self, x: Array) -> Array:
        BEGUN.extend(executor._closed for executor in EXECUTORS)
        time.sleep(0.05)
        return x.copy()


def test_closing_waits_for_no_more_than_the_rows_at_work() -> None:
    executor = NumpyExecutor(Program((Apply(Slow(), (FIXED,)),)), 100, 2)
    BEGUN.clear()
    EXECUTORS[:] = [executor]
    for _ in range(3):
        executor.submit(Feed(100, ([ROWS[0]] * 100,)))

    while len(BEGUN) < 3:
        time.sleep(0.001)
    executor.close()

    assert sum(BEGUN) <= 2  # of 300: what each thread was about to begin
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("gpupipe-numpy")]


@dataclass(frozen=True, slots=True)
class Meeting(TinyHostOnly):
    """Every row waits until all of them are at work, and the test too."""

    barrier: Any = None

    def reference(self, x: Array) -> Array:
        self.barrier.wait(30)
        return x.copy()


def test_submitting_does_not_wait_and_all_threads_share_a_batch() -> None:
    barrier = threading.Barrier(9)
    executor = NumpyExecutor(Program((Apply(Meeting(barrier), (FIXED,)),)), 8, 8)

    executor.submit(Feed(8, ([ROWS[3]] * 8,)))
    barrier.wait(30)  # breaks if a row is not started before another one is done
    (images,) = executor.collect()
    executor.close()

    assert images.shape == (8, 4, 4, 3)


def test_a_cancelled_chunk_does_not_hide_why_another_one_failed() -> None:
    """As when the executor is closed, by another thread, while a batch that runs out of memory is collected."""
    executor = NumpyExecutor(Program((Apply(Spy(), (FIXED,)),)), 2, 2)
    executor.submit(Feed(2, (ROWS[:2],)))
    failed: Future[None] = Future()
    failed.set_exception(MemoryError("too large"))
    cancelled: Future[None] = Future()
    cancelled.cancel()
    executor._flights[0].futures[:] = [failed, cancelled]

    with pytest.raises(MemoryError, match="too large"):
        executor.collect()
    executor.close()


# ---- many rows at once


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
class Sevens(Op):
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
    ds = gp.Dataset.from_tensor_slices(bad).map(lambda x: apply(Sevens(), x)).batch(5)
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
