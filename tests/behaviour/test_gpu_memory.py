"""What was delivered on a GPU and dropped is not written to while the user's kernels may still read it.

CuPy gives the memory of an array that was dropped to the next one that asks, at once: right for its own stream, and
wrong for another on which the user still reads. Memory of DALI's waits for the device. Here the stand-in's CuPy does
the same, and "a kernel that still reads" is a look at the memory of an array that was dropped.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from gpupipe import Dataset, Options, ops
from gpupipe.errors import DeviceError, GpupipeError
from gpupipe.graph.values import Apply
from gpupipe.ops.mixup import Mixup
from gpupipe.spec import flatten
from gpupipe.transform.array import on_gpu, overlap, to_host
from gpupipe.transform.dali import copying
from gpupipe.transform.dali import executor as dali
from gpupipe.transform.dali.executor import DaliExecutor
from gpupipe.transform.program import Feed, Program
from tests import stand_in_gpu
from tests.behaviour.a_gpu import a_gpu
from tests.transform.tiny import IMAGE, TinySame, jpeg

__all__ = ["a_gpu"]

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("a_gpu")]

IMAGES = np.random.default_rng(0).integers(0, 256, (32, 8, 8, 3), np.uint8)
LABELS = np.arange(32)
GPU = Options(device="gpu")


class Block:
    """Memory that goes back to the pool with the last array in it."""

    def __init__(self, memory: Any) -> None:
        self.memory = memory


class Pool:
    """CuPy's: who asks gets what was given back, whoever still reads it."""

    def __init__(self) -> None:
        self.free: dict[int, list[Any]] = defaultdict(list)
        self.lent: weakref.WeakValueDictionary[int, Block] = weakref.WeakValueDictionary()
        self.reused = 0

    def block(self, size: int) -> Block:
        free = self.free[size]
        self.reused += bool(free)
        memory = free.pop() if free else np.empty(size, np.uint8)
        block = Block(memory)
        weakref.finalize(block, free.append, memory)
        self.lent[id(memory)] = block
        return block


@pytest.fixture
def pool(a_gpu: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    """Lets what the stand-in's CuPy computes lie in such a pool; what it is handed stays where it is."""
    if getattr(sys.modules.get("cupy"), "ndarray", None) is not stand_in_gpu.DeviceNumbers:
        pytest.skip("needs the stand-in GPU: on a real one, what lies where is not seen")
    pool, plain = Pool(), stand_in_gpu.DeviceNumbers.__init__

    def init(self: Any, values: Any) -> None:
        plain(self, values)
        root = self.values
        while isinstance(root.base, np.ndarray):
            root = root.base
        self.block = pool.lent.get(id(root))
        if root.base is None and self.block is None and root.nbytes:  # neither a view nor handed in: computed
            self.block = pool.block(root.nbytes)
            self.values = self.block.memory.view(root.dtype).reshape(self.values.shape)
            self.values[...] = root

    monkeypatch.setattr(stand_in_gpu.DeviceNumbers, "__init__", init)
    gc.freeze()  # what other tests have imported is not looked through for garbage
    yield pool
    gc.unfreeze()


def _mixed(x: Any, y: Any) -> Any:
    return ops.mixup(ops.flip_left_right(x), y, 1.0, num_classes=32)


def _cut(x: Any, y: Any) -> Any:
    return ops.cutmix(ops.flip_left_right(x), y, num_classes=32)


def _twice(x: Any, y: Any) -> Any:
    x = ops.flip_left_right(x)
    return x, x, y


def _slices() -> Dataset:
    return Dataset.from_tensor_slices((IMAGES, LABELS))


def _decoded() -> Dataset:
    files = [jpeg(n) for n in range(32)]
    decoded = Dataset.from_tensor_slices((files, LABELS)).map(lambda x, y: (ops.decode_jpeg(x, channels=3), y))
    return decoded.map(lambda x, y: (ops.resize(x, (8, 8)), y))


CHAINS: dict[str, Callable[[], Dataset]] = {
    "mixup": lambda: _slices().batch(4).map(_mixed),
    "parts": lambda: _decoded().batch(4).with_options(Options(device_memory=20_000)),
    "one result twice": lambda: _slices().map(_twice).batch(4),
    "zip": lambda: Dataset.zip((_slices().batch(4).map(_mixed), _slices().batch(4).map(_cut))),
}


@pytest.mark.parametrize("chain", CHAINS)
def test_what_the_user_dropped_is_not_overwritten_while_a_kernel_reads_it(chain: str, pool: Pool) -> None:
    ds = CHAINS[chain]().with_options(GPU)
    reading = []

    for element in ds:
        for leaf in flatten(element)[0]:
            assert on_gpu(leaf)
            reading.append((leaf.values, to_host(leaf)))
        del element, leaf
        gc.collect()

    assert len(reading) >= 16
    for memory, before in reading:
        np.testing.assert_array_equal(memory, before)
    if chain != "one result twice":
        assert pool.reused  # what was computed on the way came out of one block after the other


def test_what_stands_in_for_a_bad_batch_has_memory_of_its_own(pool: Pool) -> None:
    files = [jpeg(n, 20, 30 + 10 * (n == 5)) for n in range(12)]  # the second batch cannot be stacked
    ds = Dataset.from_tensor_slices(files).map(lambda x: ops.decode_jpeg(x, channels=3)).batch(4)
    ds = ds.with_options(GPU).with_options(Options(on_error="replace"))

    first, second, _ = ds

    np.testing.assert_array_equal(to_host(second), to_host(first))
    assert not np.may_share_memory(first.values, second.values)
    assert second.block is None  # not of CuPy's pool


def test_two_results_in_one_buffer_are_two_arrays() -> None:
    same = Apply(TinySame(), (IMAGE,))
    executor = DaliExecutor(Program((same, Apply(TinySame(), (same,)))), 4, 2, 0)

    executor.submit(Feed(4, (list(IMAGES[:4]),)))
    one, other = executor.collect()
    executor.close()

    assert not overlap(one, other)
    assert on_gpu(one) and on_gpu(other)
    one[...] = 0
    np.testing.assert_array_equal(to_host(other), IMAGES[:4])


def test_rows_of_one_shape_that_are_no_batch_end_the_loop_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dali, "to_device_array", lambda output, size: [np.zeros((8, 8, 3), np.uint8)] * size)
    ds = _slices().map(lambda x, y: ops.flip_left_right(x)).batch(4).with_options(GPU)

    with pytest.raises(GpupipeError, match=r"must give one batch, got 4 separate rows of shape \[8, 8, 3\]"):
        list(ds)


class CUDARuntimeError(RuntimeError):
    """CuPy's, by its name."""


class OutOfMemoryError(MemoryError):
    """CuPy's, by its name."""


@pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])
@pytest.mark.parametrize("error", [CUDARuntimeError("cudaErrorIllegalAddress: memory"), OutOfMemoryError("memory")])
def test_an_error_of_the_gpu_in_array_code_is_none_of_the_batch(
    error: Exception, on_error: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: Any, xp: Any, *args: Any) -> Any:
        raise error

    monkeypatch.setattr(Mixup, "array", fails)
    items = iter(_slices().batch(4).map(_mixed).with_options(GPU).with_options(Options(on_error=on_error)))

    with pytest.raises(DeviceError, match=r"mixup failed on the GPU, and not because of the data: .*memory"):
        list(items)
    assert items.left_out == 0 and items.errors == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("CUDA runtime API error cudaErrorIllegalAddress (700)", "failed, and not because of the data"),
        ("Can't allocate 1000 bytes on device 1.", "needs more memory than is available for a copy"),
        ("CUDA runtime API error cudaErrorInitializationError (3)", "failed, .* forked from one that used CUDA cannot"),
    ],
)
def test_a_copy_that_the_gpu_refuses_is_an_error_of_the_gpu(
    text: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*arguments: Any) -> Any:
        raise RuntimeError(text)

    monkeypatch.setattr(copying, "_copying", refused)

    with pytest.raises(DeviceError, match=rf"DALI on GPU 1 {words}"):
        copying._copied("cpu", [np.zeros(3)], np.dtype("float64"), 1, 1)
