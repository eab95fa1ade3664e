"""The contract of executors, on every one that runs without a GPU, and the training chain through both."""

from __future__ import annotations

import io
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from PIL import Image

from gpupipe import ops
from gpupipe.errors import ClosedError, GpupipeError, SpecError
from gpupipe.graph.host_values import HostValues
from gpupipe.graph.op import Array, Op
from gpupipe.graph.trace import trace
from gpupipe.graph.values import Apply, Const, Draw, Item, Value
from gpupipe.spec import LEAF, TensorSpec
from gpupipe.transform import machine
from gpupipe.transform.choose import Choice, make_executor
from gpupipe.transform.dali.executor import DaliExecutor
from gpupipe.transform.numpy import NumpyExecutor
from gpupipe.transform.program import BatchFailed, Executor, Feed, Program
from tests.transform.tiny import (
    IMAGE,
    TinyHalves,
    TinySame,
    TinyScale,
    chain,
    damaged,
    decoded,
    expected,
    feed_of,
    jpeg,
)

FILES = [jpeg(n) for n in range(8)]
Make = Callable[[Program, int], Executor]

needs_dali = pytest.mark.skipif(not machine.has_dali(), reason="DALI is not installed")


@pytest.fixture(params=[pytest.param("dali", marks=needs_dali), "numpy"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    """Makes executors of one kind, and closes them after the test."""
    made: list[Executor] = []

    def build(program: Program, batch_size: int = 8) -> Executor:
        kind: Any = DaliExecutor if request.param == "dali" else NumpyExecutor
        executor: Executor = kind(program, batch_size, 2)
        made.append(executor)
        return executor

    yield build
    for executor in made:
        executor.close()


def test_several_batches_in_flight_come_back_in_order_whatever_their_sizes(make: Make) -> None:
    program = chain()
    starts = np.arange(16, dtype=np.int32).reshape(8, 2)
    executor = make(program, 8)
    sizes = [3, 8, 1, 5]

    for size in sizes:
        executor.submit(feed_of(program, FILES[:size], starts[:size]))

    for size in sizes:
        (images,) = executor.collect()
        assert images.dtype == np.float32
        np.testing.assert_array_equal(images, expected(FILES[:size], starts[:size]))


def test_rows_of_different_shapes_come_as_a_list_and_equal_ones_as_one_array(make: Make) -> None:
    program = Program((decoded(),))
    files = [jpeg(0, 20, 30), jpeg(1, 30, 20), jpeg(2, 20, 30)]
    executor = make(program, 4)

    executor.submit(Feed(3, (files,)))
    executor.submit(Feed(2, (files[::2],)))
    (ragged,) = executor.collect()
    (dense,) = executor.collect()

    assert isinstance(ragged, list)
    assert [row.shape for row in ragged] == [(20, 30, 3), (30, 20, 3), (20, 30, 3)]
    assert dense.shape == (2, 20, 30, 3)
    np.testing.assert_array_equal(dense[1], ragged[2])


def test_an_op_may_have_two_results(make: Make) -> None:
    image = decoded()
    halves = Apply(TinyHalves(), (image,))
    program = Program((image, Item(halves, 1), Item(halves, 0)))
    executor = make(program, 4)

    whole, lower, upper = executor.run(Feed(2, (FILES[:2],)))

    np.testing.assert_array_equal(upper, whole[:, :20])
    np.testing.assert_array_equal(lower, whole[:, 20:])


def test_results_are_owned_writable_and_never_overwritten(make: Make) -> None:
    program = chain()
    executor = make(program, 4)
    kept = []
    for start in (0, 4, 0, 4, 0, 4):
        kept.append((start, executor.run(feed_of(program, FILES[start : start + 4]))[0]))
    executor.close()

    for start, images in kept:
        np.testing.assert_array_equal(images, expected(FILES[start : start + 4]))
        images += 1  # writable, and nobody else's
    for start, images in kept:
        np.testing.assert_array_equal(images, expected(FILES[start : start + 4]) + 1)


@pytest.mark.parametrize("heights", [[6], [6, 6, 6], [4, 5, 6]], ids=str)
def test_results_share_memory_neither_with_the_feed_nor_with_each_other(make: Make, heights: list[int]) -> None:
    same = Apply(TinySame(), (IMAGE,))
    again = Apply(TinyScale(), (IMAGE,))
    program = Program((same, again, Apply(TinySame(), (again,)), Apply(TinySame(), (same,)), same))
    fed = [np.full((height, 5, 3), n, np.uint8) for n, height in enumerate(heights)]
    executor = make(program, 4)

    results = executor.run(Feed(len(fed), (fed,)))

    seen = list(fed)
    for source, row in zip(fed, results[0], strict=True):
        np.testing.assert_array_equal(row, source)
    for result in results:
        parts = result if isinstance(result, list) else [result]
        assert all(part.flags.writeable for part in parts)
        assert not any(np.may_share_memory(part, other) for part in parts for other in seen)
        seen += parts


def test_arrays_of_any_strides_byte_order_and_writability_are_fed_as_they_read(make: Make) -> None:
    program = Program((Apply(TinyScale(3.0), (Apply(TinySame(), (IMAGE,)),)),))
    base = np.random.default_rng(0).integers(0, 256, (9, 8, 3), dtype=np.uint8)
    frozen = base.copy()
    frozen.flags.writeable = False
    rows = [base[::-1], base[:, ::-1], base[2:5, 1:4], base.transpose(1, 0, 2), frozen]
    executor = make(program, 8)

    (images,) = executor.run(Feed(5, (rows,)))

    for image, row in zip(images, rows, strict=True):
        np.testing.assert_array_equal(image, row.astype(np.float32) * 3)


def test_a_bad_image_costs_its_batch_and_no_other(make: Make) -> None:
    program = chain()
    executor = make(program, 4)
    bad = [*FILES[4:6], damaged(FILES[6]), FILES[7]]

    for files in (FILES[:4], bad, FILES[4:]):
        executor.submit(feed_of(program, files))

    np.testing.assert_array_equal(executor.collect()[0], expected(FILES[:4]))
    with pytest.raises(BatchFailed) as failure:
        executor.collect()
    np.testing.assert_array_equal(executor.collect()[0], expected(FILES[4:]))
    assert failure.value.text
    assert set(failure.value.causes) <= {2}
    for noise in ("Critical error", "no longer valid", "traceback", "File ", "C++ context"):
        assert noise not in failure.value.text


def test_no_bytes_and_no_image_are_bad_rows_not_broken_executors(make: Make) -> None:
    program = chain()
    executor = make(program, 4)

    for junk in (b"", b"x", b"GIF89a" + bytes(50), FILES[0][:60]):
        executor.submit(feed_of(program, [FILES[0], junk]))
        executor.submit(feed_of(program, FILES[:2]))
        with pytest.raises(BatchFailed):
            executor.collect()
        np.testing.assert_array_equal(executor.collect()[0], expected(FILES[:2]))


@pytest.mark.parametrize("size", [0, 5])
def test_a_batch_that_does_not_fit_is_refused(make: Make, size: int) -> None:
    program = chain()
    executor = make(program, 4)

    with pytest.raises(GpupipeError, match="batches of 1 to 4 rows"):
        executor.submit(feed_of(program, FILES[:size]))
    with pytest.raises(GpupipeError, match="submit"):
        executor.collect()


def test_a_closed_executor_says_so_and_leaves_no_thread_behind(make: Make) -> None:
    before = set(threading.enumerate())
    program = chain()
    executor = make(program, 8)
    for _ in range(3):
        executor.submit(feed_of(program, FILES))

    executor.close()
    executor.close()

    assert set(threading.enumerate()) <= before
    with pytest.raises(ClosedError, match="closed"):
        executor.submit(feed_of(program, FILES))
    with pytest.raises(ClosedError, match="closed"):
        executor.collect()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_is_refused_and_the_parent_goes_on(make: Make) -> None:
    program = chain()
    executor = make(program, 8)
    executor.submit(feed_of(program, FILES))
    time.sleep(0.2)  # CPython 3.11 itself may hang in a child if another thread is just entering Python when it forks

    child = os.fork()
    if child == 0:
        status = 1
        try:
            executor.collect()
        except ClosedError as error:
            status = 0 if "before fork" in str(error) else 2
        finally:
            executor.close()
            del executor
            os._exit(status)
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 0
    np.testing.assert_array_equal(executor.collect()[0], expected(FILES))


def test_constants_enter_the_graph_and_are_not_fed(make: Make) -> None:
    @dataclass(frozen=True, slots=True)
    class Add(Op):
        def infer(self, *xs: TensorSpec) -> TensorSpec:
            return TensorSpec(xs[0].shape, "float32", "HWC")

        def reference(self, x: Array, a: Array, b: float) -> Array:
            return x.astype(np.float32) + a + np.float32(b)

        def dali(self, d: Any, x: Any, a: Any, b: Any) -> Any:
            return d.fn.cast(x, dtype=d.dtype("float32")) + a + b

    constants = (Const(np.array([1, 2, 3], np.float32)), Const(0.5))
    program = Program((Apply(Add(), (IMAGE, *constants)),))
    executor = make(program, 2)
    image = np.zeros((4, 4, 3), np.uint8)
    columns: dict[Value, list[Any]] = {IMAGE: [image] * 2, **{value: [value.value] * 2 for value in constants}}

    executor.submit(Feed(2, tuple(columns[v] for v in program.inputs)))

    np.testing.assert_array_equal(executor.collect()[0][1, 0, 0], [1.5, 2.5, 3.5])


def test_wrong_dtypes_of_parameters_are_a_mistake_of_the_caller() -> None:
    pytest.importorskip("nvidia.dali")
    program = chain()
    executor = DaliExecutor(program, 2, 1)
    executor.submit(feed_of(program, FILES[:2]))
    with pytest.raises(SpecError, match="int32 rows of rank 1"):
        executor.submit(feed_of(program, FILES[:2], np.zeros((2, 2), np.float32)))
    executor.collect()
    executor.close()


# ---- the training chain


SIDE = 48
PHOTOS = [jpeg(n, *((90, 120), (120, 80), (61, 200))[n % 3]) for n in range(24)]


def training(data: Any) -> Any:
    image = ops.decode_jpeg(data, channels=3)
    image = ops.random_resized_crop(image, (SIDE, SIDE))
    image = ops.random_flip_left_right(image)
    return ops.normalize(image, ops.IMAGENET_MEAN, ops.IMAGENET_STD)


def program_of(fn: Any) -> Program:
    traced = trace(fn, LEAF, [TensorSpec((), bytes)], force=True)
    assert traced is not None
    return Program(traced.outputs)


def host_side(files: list[bytes], first: int) -> HostValues:
    keys = np.arange(first, first + len(files), dtype=np.uint64)
    return HostValues(len(files), lambda column: files, lambda column: keys, 7, 0)


def by_hand(files: list[bytes], batch: HostValues, program: Program) -> Array:
    """The chain with Pillow, in the order of the words of its definition."""
    parameters = {
        (v.value.op.name, v.value.op.parameters[v.index]): np.asarray(batch.rows(v))
        for v in program.inputs
        if isinstance(v, Item) and isinstance(v.value, Draw)
    }
    out = []
    for row, file in enumerate(files):
        image: Image.Image = Image.open(io.BytesIO(file))
        (y, x), (h, w) = (parameters["random_resized_crop", name][row].tolist() for name in ("start", "shape"))
        image = image.crop((x, y, x + w, y + h)).resize((SIDE, SIDE), Image.Resampling.BILINEAR)
        if parameters["random_flip_left_right", "mirror"][row]:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        out.append((np.asarray(image, np.float64) - ops.IMAGENET_MEAN) / ops.IMAGENET_STD)
    return np.stack(out)


@pytest.mark.parametrize("kind", ["dali-cpu", "numpy"])
def test_pixels_are_pillows_inside_and_near_them_on_the_ring(kind: Any) -> None:
    program = program_of(training)
    executor = make_executor(Choice(kind, None, "test"), program, 8, 2)
    for start in (0, 8, 16):
        batch = host_side(PHOTOS[start : start + 8], start)
        (images,) = executor.run(Feed.of(program, batch))

        assert (images.dtype, images.shape) == (np.float32, (8, SIDE, SIDE, 3))
        error = np.abs(images - by_hand(PHOTOS[start : start + 8], batch, program))
        level = 1 / min(ops.IMAGENET_STD)  # one of 255
        assert error[:, 1:-1, 1:-1].max() <= 1.01 * level  # resizing rounds to either side; Pillow twice
        assert error.max() <= 18 * level  # DALI repeats edge pixels, Pillow leaves out what lies outside
    executor.close()
