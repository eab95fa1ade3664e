"""Arrays of a GPU, with a stand-in for DALI's tensor where there is no GPU, and the real thing where there is one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpupipe.comparison.steps.tolerance import GPU_DECODING
from gpupipe.errors import MissingDependencyError
from gpupipe.transform import array, machine
from gpupipe.transform.array import DeviceArray, concatenate, to_device, to_device_array, to_host
from gpupipe.transform.dali import copying
from gpupipe.transform.dali.executor import DaliExecutor
from gpupipe.transform.program import Feed, Program
from tests.transform.tiny import chain, decoded, expected, feed_of, jpeg

needs_gpu = pytest.mark.skipif(not (machine.has_dali() and machine.gpu_count()), reason="needs an NVIDIA GPU and DALI")


class Tensor:
    """Has what DeviceArray asks of DALI's TensorGPU."""

    def __init__(self, values: Any) -> None:
        self.values = np.asarray(values)
        self.asked: dict[str, Any] = {}

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return dict(self.values.__array_interface__)

    def __dlpack__(self, **arguments: Any) -> str:
        self.asked = arguments
        return "capsule"

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 1

    def as_cpu(self) -> Any:
        return self.values


class TensorList:
    def __init__(self, rows: list[Any], dense: bool) -> None:
        self.rows, self.dense = rows, dense

    def is_dense_tensor(self) -> bool:
        return self.dense

    def as_tensor(self) -> Tensor:
        return Tensor(np.stack(self.rows))

    def __getitem__(self, row: int) -> Tensor:
        return Tensor(self.rows[row])


@pytest.fixture
def no_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array, "has_cupy", lambda: False)


@pytest.fixture(params=[True, False])
def cupy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With CuPy and without it."""
    if request.param:
        pytest.importorskip("cupy")
    else:
        monkeypatch.setattr(array, "has_cupy", lambda: False)


def test_a_device_array_has_a_shape_a_dtype_and_dlpack() -> None:
    tensor = Tensor(np.zeros((2, 3), np.float16))
    x = DeviceArray(tensor)

    assert (x.shape, x.ndim, len(x), x.dtype) == ((2, 3), 2, 2, np.dtype("float16"))
    assert x.__dlpack_device__() == (2, 1)
    assert x.nbytes == 12
    host = x.get()
    host[0] = 1
    assert type(host) is np.ndarray and not tensor.values.any()  # memory of its own
    with pytest.raises(TypeError, match=r"on a GPU .* use its get\(\)"):
        np.asarray(x)
    with pytest.raises(TypeError, match=r"use its get\(\)"):
        np.add(np.ones((2, 3)), x)
    assert repr(x) == "DeviceArray(float16[2, 3] on gpu:1)"
    # Through the other protocol its memory could be used again while a stream still reads it.
    assert not hasattr(x, "__cuda_array_interface__")


@pytest.mark.parametrize("given", [{}, {"stream": 7}, {"stream": None, "max_version": (1, 1), "copy": None}])
def test_a_finished_array_makes_no_stream_wait(given: dict[str, Any]) -> None:
    tensor = Tensor(np.zeros(2))

    assert DeviceArray(tensor).__dlpack__(**given) == "capsule"
    assert tensor.asked == {"stream": -1, **({"max_version": (1, 1)} if "max_version" in given else {})}


@pytest.mark.usefixtures("no_cupy")
def test_a_copy_of_a_device_array_has_memory_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "copy_on_gpu", lambda tensor, device: Tensor(tensor.values + device))

    copied = DeviceArray(Tensor(np.arange(3))).copy()

    np.testing.assert_array_equal(copied.get(), [1, 2, 3])


@pytest.mark.usefixtures("no_cupy")
def test_equal_shapes_become_one_array_and_others_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "copy_to_gpu", lambda values, device: Tensor(values))
    dense = to_device_array(TensorList([np.zeros((2, 2)), np.ones((2, 2))], dense=True), 2)
    ragged = to_device_array(TensorList([np.zeros(2), np.ones(3), np.ones(4)], dense=False), 2)

    pieces = to_device_array(TensorList([np.zeros(2), np.ones(2)], dense=False), 2)

    np.testing.assert_array_equal(pieces.get(), [[0, 0], [1, 1]])
    assert dense.shape == (2, 2, 2)
    assert [row.shape for row in ragged] == [(2,), (3,)]
    np.testing.assert_array_equal(to_host(dense)[1], np.ones((2, 2)))


def test_what_is_on_the_host_stays_there() -> None:
    x = np.arange(3)

    assert to_host(x) is x
    assert concatenate([x]) is x
    np.testing.assert_array_equal(concatenate([x, x]), [0, 1, 2, 0, 1, 2])


@pytest.mark.usefixtures("no_cupy")
def test_joining_parts_on_a_gpu_without_cupy_names_the_way_out() -> None:
    parts = [DeviceArray(Tensor(np.zeros(2)))] * 2

    with pytest.raises(MissingDependencyError, match=r"pip install nvidia-dali.* cupy-cuda1.*device_memory"):
        concatenate(parts)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.usefixtures("cupy")
def test_results_of_a_gpu_stay_there_and_are_never_overwritten() -> None:
    files = [jpeg(n) for n in range(4)]
    program = chain()
    executor = DaliExecutor(program, 4, 2, 0)
    kept = []
    for start in (0, 2, 0, 2):
        kept.append((start, executor.run(feed_of(program, files[start : start + 2]))[0]))
    executor.close()

    for start, images in kept:
        assert images.__dlpack_device__()[0] == 2
        difference = np.abs(to_host(images) - expected(files[start : start + 2]))
        assert difference.max() <= 2 * GPU_DECODING  # the chain doubles what it decodes


@pytest.mark.gpu
@needs_gpu
def test_ragged_results_of_a_gpu_are_a_list() -> None:
    executor = DaliExecutor(Program((decoded(),)), 2, 2, 0)

    (rows,) = executor.run(Feed(2, ([jpeg(0, 20, 30), jpeg(1, 30, 20)],)))
    executor.close()

    assert [to_host(row).shape for row in rows] == [(20, 30, 3), (30, 20, 3)]


@pytest.mark.gpu
@needs_gpu
@pytest.mark.usefixtures("cupy")
def test_host_arrays_go_to_the_gpu_and_come_back() -> None:
    for x in (np.arange(5), np.ones((2, 2), np.float32), np.array([True, False])):
        there = to_device(x, 0)

        assert there.__dlpack_device__() == (2, 0)
        np.testing.assert_array_equal(to_host(there), x)
