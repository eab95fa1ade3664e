"""array: results that stay on the GPU, as CuPy arrays or, without CuPy, as arrays with the DLPack protocol.

A delivered array is complete: the stage's thread waits for a batch before it delivers it. So any stream of any thread
may read it without synchronising. Its memory is DALI's, whose DLPack capsules synchronise the whole device before they
free it, so memory that a stream still reads is not reused. CuPy's own memory is reused as soon as an array is dropped,
which is safe for CuPy's stream alone. So arrays that CuPy computes here (batch-wise ops, batches joined from parts) are
computed on a private stream and copied to DALI memory.
"""

from __future__ import annotations

import functools
import importlib.util
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..classes import dataclass
from ..errors import DataError, DeviceError, FunctionError, MissingDependencyError, text_of
from ..graph.op import Op
from ..timing import Ranges
from .machine import cupy_libraries

__all__ = [
    "DeviceArray",
    "allocated",
    "concatenate",
    "copied",
    "goes_to_gpu",
    "load_cupy",
    "nvtx",
    "on_gpu",
    "overlap",
    "put",
    "run_array",
    "to_cupy",
    "to_device",
    "to_device_array",
    "to_host",
    "uploaded",
]


@dataclass(frozen=True, slots=True, eq=False)
class DeviceArray:
    """An array in GPU memory, used without CuPy; ``torch.from_dlpack`` and ``jax.dlpack.from_dlpack`` take it.

    It has no ``__cuda_array_interface__``, whose readers do not tell when they have finished reading.

    Attributes:
        tensor: the DALI tensor that owns the memory, complete.
    """

    tensor: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape, batch axis first."""
        return tuple(self.tensor.__cuda_array_interface__["shape"])

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy dtype."""
        dtype: np.dtype[Any] = np.dtype(self.tensor.__cuda_array_interface__["typestr"])
        return dtype

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    def get(self) -> Any:
        """Copy to a NumPy array, as CuPy's method of this name."""
        return np.array(self.tensor.as_cpu())

    def copy(self) -> DeviceArray:
        """Copy on the same GPU."""
        from .dali import copying

        return DeviceArray(copying.copy_on_gpu(self.tensor, self.__dlpack_device__()[1]))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        raise TypeError("a DeviceArray is on a GPU and is not converted to NumPy implicitly; use its get()")

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: Any = None,
        copy: bool | None = None,
    ) -> Any:
        given = {"max_version": max_version, "copy": copy}
        # -1: no synchronisation, the data is complete. DALI would make a given stream wait for the next batch too.
        return self.tensor.__dlpack__(stream=-1, **{name: x for name, x in given.items() if x is not None})

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, ordinal = self.tensor.__dlpack_device__()
        return int(kind), int(ordinal)

    def __repr__(self) -> str:
        return f"DeviceArray({self.dtype}{list(self.shape)} on gpu:{self.__dlpack_device__()[1]})"


_DEVICE_FAILURES = ("CUDARuntimeError", "CUDADriverError", "OutOfMemoryError")
"""CuPy's errors of the GPU, its driver or memory, by name, since they are in no public module."""


@functools.cache
def has_cupy() -> bool:
    """Whether CuPy is installed."""
    return importlib.util.find_spec("cupy") is not None


def load_cupy() -> None:
    """Import CuPy if it is installed, ahead of time: it takes a second."""
    if has_cupy():
        import cupy  # noqa: F401


def nvtx() -> Ranges | None:
    """Functions that push and pop a range of NVTX, which NVIDIA's profilers show; None without CuPy."""
    if not has_cupy():
        return None
    import cupy

    push, pop = (getattr(getattr(cupy.cuda, "nvtx", None), name, None) for name in ("RangePush", "RangePop"))
    return None if push is None or pop is None else (push, pop)  # CuPy may be built without NVTX


def to_device_array(output: Any, size: int) -> Any:
    """A DALI list of GPU tensors as one array[B, ...], or as a list of arrays if shapes differ; a view if contiguous.

    Args:
        output: a `TensorListGPU` that is complete.
        size: rows of the batch.
    """
    if output.is_dense_tensor():
        return _wrap(output.as_tensor())
    rows = [_wrap(output[row]) for row in range(size)]
    if len({row.shape for row in rows}) > 1:
        return rows
    if not has_cupy():
        return to_device(np.stack([row.get() for row in rows]), rows[0].__dlpack_device__()[1])
    import cupy

    device = rows[0].device
    with device, _stream(device.id):
        return _owned(cupy, cupy.stack(rows))  # of one shape, but not contiguous


def _wrap(tensor: Any) -> Any:
    array = DeviceArray(tensor)
    if not has_cupy():
        return array
    import cupy

    with cupy.cuda.Device(array.__dlpack_device__()[1]):
        return cupy.from_dlpack(array)  # the capsule owns the memory


def to_device(array: Any, device_id: int) -> Any:
    """Copy a NumPy array to DALI memory on a GPU; CuPy's own would be reused while a stream reads it."""
    from .dali import copying

    return _wrap(copying.copy_to_gpu(np.asarray(array), device_id))


def uploaded(arrays: Sequence[Any], device_id: int) -> list[Any]:
    """Copy arrays of the host to a GPU in one piece, to memory as that of `to_device`; needs CuPy."""
    starts = np.cumsum([0, *(-(-array.nbytes // 256) * 256 for array in arrays)]).tolist()
    packed = np.empty(max(starts[-1], 1), np.uint8)
    for array, start in zip(arrays, starts, strict=False):
        packed[start : start + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    there = to_device(packed, device_id)
    return [
        there[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
        for array, start in zip(arrays, starts, strict=False)
    ]


def copied(array: Any) -> Any:
    """Copy an array or number on its own device."""
    if isinstance(array, DeviceArray) or not on_gpu(array):
        return array.copy()
    import cupy

    with array.device, _stream(array.device.id):
        return _owned(cupy, array)


def overlap(a: Any, b: Any) -> bool:
    """Whether two arrays, both on a GPU or both on the host, share memory. Of a list of rows the first is compared."""
    a, b = (x[0] if isinstance(x, list) else x for x in (a, b))
    if isinstance(a, np.ndarray):
        return bool(np.may_share_memory(a, b))
    (first, end), (other, last) = map(_addresses, (a, b))
    return first < last and other < end


def _addresses(array: Any) -> tuple[int, int]:
    """Start and end address of a contiguous GPU array."""
    owner = array.tensor if isinstance(array, DeviceArray) else array
    start = int(owner.__cuda_array_interface__["data"][0])
    return start, start + int(array.nbytes)


def on_gpu(array: Any) -> bool:
    """Whether an array is on a GPU."""
    return isinstance(array, DeviceArray) or hasattr(array, "__cuda_array_interface__")


def to_host(array: Any) -> Any:
    """Copy a GPU array to NumPy; return anything else as it is."""
    return array.get() if on_gpu(array) else array


def allocated(nbytes: int, device_id: int) -> Any:
    """New memory on a GPU, as uint8[nbytes] of CuPy, for `put`.

    Raises:
        DeviceError: the GPU has no such memory left, or failed.
    """
    import cupy

    try:
        with cupy.cuda.Device(device_id), _stream(device_id):
            return cupy.empty(nbytes, cupy.uint8)
    except Exception as error:
        if type(error).__name__ not in _DEVICE_FAILURES:
            raise
        raise DeviceError(f"GPU {device_id} gives no {nbytes:,} bytes of memory: {text_of(error)}") from error


def put(array: Any, memory: Any, start: int) -> Any:
    """Copy an array of the host, or of the same GPU, to memory from `allocated`.

    Args:
        array: of one of DALI's dtypes.
        memory: from `allocated`.
        start: the first byte of the copy.

    Returns:
        The copy, complete, as a CuPy array.
    """
    import cupy

    stream = _stream(memory.device.id)
    with memory.device, stream:
        there = memory[start : start + array.nbytes]
        if on_gpu(array):
            there[...] = cupy.ascontiguousarray(array).reshape(-1).view(cupy.uint8)
        else:
            there.set(np.ascontiguousarray(array).reshape(-1).view(np.uint8), stream)
        stream.synchronize()
        return there.view(array.dtype).reshape(array.shape)


def to_cupy(leaf: Any) -> Any:
    """A numeric array as a CuPy array, copied from the host or as it is on its GPU; anything else as it is.

    Raises:
        MissingDependencyError: CuPy is not installed.
    """
    if not has_cupy():
        raise MissingDependencyError(f"as_cupy needs CuPy, which is not installed; pip install {cupy_libraries()}")
    import cupy

    if isinstance(leaf, DeviceArray):
        return cupy.from_dlpack(leaf)
    numeric = isinstance(leaf, (np.ndarray, np.generic)) and leaf.dtype.kind in "biuf"
    return cupy.asarray(leaf) if numeric else leaf


def goes_to_gpu(leaf: Any) -> bool:
    """Whether a host leaf is moved to the GPU of the images: numeric arrays with axes, of dtypes that DALI has."""
    return isinstance(leaf, np.ndarray) and leaf.ndim > 0 and leaf.dtype.kind in "biuf" and leaf.dtype.itemsize <= 8


def run_array(op: Op, xs: Sequence[Any], params: Sequence[Any]) -> tuple[Any, ...]:
    """Run the array code of an op on batches: with CuPy if one of them is on a GPU, else with NumPy.

    Without CuPy, GPU batches are copied to the host, and results are host arrays.

    Raises:
        FunctionError: the code failed, or a result does not have one row per element.
        DeviceError: the GPU failed, or has too little memory.
    """
    device = next((x for x in xs if on_gpu(x)), None)
    try:
        if device is not None and has_cupy():
            import cupy

            with device.device, _stream(device.device.id):
                results = op.array(cupy, *(cupy.asarray(x) for x in xs), *params)
                results = results if isinstance(results, tuple) else (results,)
                results = tuple(_owned(cupy, result) if on_gpu(result) else result for result in results)
        else:
            results = op.array(np, *map(to_host, xs), *params)
            results = results if isinstance(results, tuple) else (results,)
    except DataError as error:
        raise error.at(stage=op.name) from error.__cause__
    except Exception as error:
        if type(error).__name__ in _DEVICE_FAILURES:
            raise DeviceError(
                f"{op.name} failed on the GPU, and not because of the data: {text_of(error)}; if out of memory, use a "
                "smaller batch; else restart the process and look at nvidia-smi and the kernel's log (Xid)"
            ) from error
        raise FunctionError(text_of(error), stage=op.name) from error
    if any(len(result) != len(xs[0]) for result in results):
        raise FunctionError(
            f"needs to return {len(xs[0])} rows, got {[len(result) for result in results]}", stage=op.name
        )
    return results


def concatenate(parts: Sequence[Any]) -> Any:
    """Concatenate arrays of one device along their first axis.

    Raises:
        MissingDependencyError: they are on a GPU, and CuPy is not installed.
    """
    if len(parts) == 1:
        return parts[0]
    if all(isinstance(part, np.ndarray) for part in parts):
        return np.concatenate(parts)
    if not has_cupy():
        raise MissingDependencyError(
            "joining the parts of a batch on the GPU needs CuPy, which is not installed; "
            f"pip install {cupy_libraries()}, or raise Options(device_memory=...) so that the batch runs in one part"
        )
    import cupy

    device = parts[0].device
    with device, _stream(device.id):
        return _owned(cupy, cupy.concatenate(parts))


@functools.cache
def _stream(device_id: int) -> Any:
    """The stream that CuPy uses here; the device must be current.

    The default stream would synchronise with the user's work on it.
    """
    import cupy

    return cupy.cuda.Stream(non_blocking=True)


def _owned(cupy: Any, array: Any) -> Any:
    """Wait for an array computed on the current stream and copy it to contiguous DALI memory."""
    array = cupy.ascontiguousarray(array)
    cupy.cuda.get_current_stream().synchronize()
    if not array.nbytes:
        return array
    # As bytes: CuPy has dtypes that DALI lacks, and so one pipeline serves all.
    from .dali import copying

    there = _wrap(copying.copy_on_gpu(array.reshape(-1).view(np.uint8), array.device.id))
    return there.view(array.dtype).reshape(array.shape)
