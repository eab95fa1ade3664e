"""Memory of batches is used again when nobody holds the batch, and never before."""

from __future__ import annotations

import gc
import sys
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe.transform import buffers
from gpupipe.transform.buffers import Buffers

SHAPE = (64, 64, 64, 3)

pytestmark = pytest.mark.skipif(
    not getattr(sys, "_is_gil_enabled", lambda: True)(), reason="without the GIL memory is not used again"
)


def address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def test_memory_is_used_again_once_the_batch_is_gone() -> None:
    found = Buffers()
    first = found.empty(SHAPE, "float32")
    where = address(first)
    second = found.empty(SHAPE, "float32")
    assert address(second) != where

    del first
    third = found.empty(SHAPE, "float32")

    assert address(third) == where
    assert where % buffers.ALIGNMENT == 0
    assert third.flags.writeable and third.flags.c_contiguous


@pytest.mark.parametrize(
    "held",
    [
        lambda batch: batch[3],
        lambda batch: batch.reshape(-1)[::2].T,
        lambda batch: memoryview(batch),
        lambda batch: batch.view(np.uint8)[..., 1],
        lambda batch: np.from_dlpack(batch),
        lambda batch: batch.ctypes,
    ],
    ids=["row", "view of a view", "memoryview", "bytes", "DLPack", "ctypes"],
)
def test_memory_is_not_used_again_while_anything_of_the_batch_is_held(held: Any) -> None:
    found = Buffers()
    batch = found.empty(SHAPE, "float32")
    where, part = address(batch), held(batch)
    del batch

    other = found.empty(SHAPE, "float32")

    assert address(other) != where
    del part, other
    gc.collect(1)  # of what was just made
    assert address(found.empty(SHAPE, "float32")) == where


@pytest.mark.parametrize("lent", [0, 1, 2])
def test_references_are_counted_as_this_interpreter_does(lent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """From Python 3.14 on those that a function only borrows do not count, and a count of 3 means a batch in use."""
    count = sys.getrefcount
    monkeypatch.setattr(sys, "getrefcount", lambda block: count(block) - lent)
    monkeypatch.setattr(buffers, "_UNHELD", buffers._unheld())
    found = Buffers()
    batch = found.empty(SHAPE, "float32")
    where = address(batch)

    assert address(found.empty(SHAPE, "float32")) != where
    del batch
    assert address(found.empty(SHAPE, "float32")) == where


def test_a_tensor_of_torch_holds_its_memory() -> None:
    torch = pytest.importorskip("torch")
    found = Buffers()
    tensor = torch.from_numpy(found.empty(SHAPE, "float32"))

    assert address(found.empty(SHAPE, "float32")) != tensor.data_ptr()


def test_a_user_who_keeps_all_batches_does_not_make_their_memory_stay() -> None:
    found = Buffers()
    batches = [found.empty(SHAPE, "float32") for _ in range(buffers.MOST + 5)]

    assert len({address(batch) for batch in batches}) == buffers.MOST + 5
    assert len(found._blocks) == buffers.MOST


def test_batches_that_a_loop_keeps_are_not_overwritten() -> None:
    x = np.arange(40 * 300 * 300, dtype=np.float32).reshape(40, 300, 300, 1)
    ds = gp.Dataset.from_tensor_slices(x).map(lambda image: gp.ops.normalize(image, 1.0, 2.0)).batch(4)
    ds = ds.with_options(gp.Options(device="cpu", backend="numpy"))
    kept, seen = [], set()

    for n, batch in enumerate(ds):
        seen.add(address(batch))
        if n % 2:
            kept.append((n, batch[1]))
        del batch

    assert len(seen) < 10
    for n, row in kept:
        np.testing.assert_array_equal(row, (x[4 * n + 1] - 1) / 2)


def test_other_sizes_and_small_batches_get_memory_of_their_own() -> None:
    found = Buffers()
    first = found.empty(SHAPE, "float32")
    where = address(first)
    del first

    assert address(found.empty((63, *SHAPE[1:]), "float32")) != where
    found.empty((4,), "uint8")
    assert len(found._blocks) == 2
    assert found.empty((2,), object).tolist() == [None, None]
