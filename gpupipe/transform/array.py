"""array: results that stay on the GPU, as CuPy arrays or, where CuPy is missing, as arrays that speak DLPack.

What is handed over is finished: the stage's thread waits for a batch before it passes it on. So any stream may read it,
one of a thread's own as well, and no stream waits for anything. Its memory is DALI's, whose DLPack capsules wait for
the whole device before they give it back: what a stream still reads is not used again under it. CuPy's own memory is
used again as soon as it is dropped, which is right for CuPy's stream alone. So what CuPy makes here (batch-wise ops,
batches joined of parts) is made on a stream that nobody else uses, and copied into memory of DALI's.
"""

from __future__ import annotations

import functools
import importlib.util
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import DataError, DeviceError, FunctionError, MissingDependencyError, text_of
from ..graph.op import Op
from .dali import copying

__all__ = [
    "DeviceArray",
    "concatenate",
    "copied",
    "goes_to_gpu",
    "load_cupy",
    "on_gpu",
    "overlap",
    "run_array",
    "to_device",
    "to_device_array",
    "to_host",
]


@dataclass(frozen=True, slots=True, eq=False)
class DeviceArray:
    """An array in GPU memory where CuPy is missing: ``torch.from_dlpack`` and ``jax.dlpack.from_dlpack`` take it.

    It has no ``__cuda_array_interface__``: who reads through that does not tell when it has finished reading.

    Attributes:
        tensor: the DALI tensor that owns the memory, finished.
    """

    tensor: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape, the batch first."""
        return tuple(self.tensor.__cuda_array_interface__["shape"])

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's name of the dtype."""
        dtype: np.dtype[Any] = np.dtype(self.tensor.__cuda_array_interface__["typestr"])
        return dtype

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    def get(self) -> Any:
        """A copy on the host, as NumPy's array; the name is CuPy's."""
        return np.array(self.tensor.as_cpu())

    def copy(self) -> DeviceArray:
        """A copy in memory of its own on the same GPU."""
        return DeviceArray(copying.copy_on_gpu(self.tensor, self.__dlpack_device__()[1]))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        raise TypeError("a DeviceArray is on a GPU and does not become a NumPy array unasked; use its get()")

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
        # -1: nobody has to wait, the data is there. Told a stream, DALI would make it wait for the next batch, too.
        return self.tensor.__dlpack__(stream=-1, **{name: x for name, x in given.items() if x is not None})

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, ordinal = self.tensor.__dlpack_device__()
        return int(kind), int(ordinal)

    def __repr__(self) -> str:
        return f"DeviceArray({self.dtype}{list(self.shape)} on gpu:{self.__dlpack_device__()[1]})"


_DEVICE_FAILURES = ("CUDARuntimeError", "CUDADriverError", "OutOfMemoryError")
"""CuPy's errors of the GPU, its driver or its memory; their names, since they are in no module that is public."""


@functools.cache
def has_cupy() -> bool:
    """Whether CuPy is installed."""
    return importlib.util.find_spec("cupy") is not None


def load_cupy() -> None:
    """Import CuPy where it is installed. It takes a second: for when nothing waits for a batch yet."""
    if has_cupy():
        import cupy  # noqa: F401


def to_device_array(output: Any, size: int) -> Any:
    """A DALI list of GPU tensors as one array[B, ...], or as a list of arrays where shapes differ. Nothing is copied.

    Args:
        output: a `TensorListGPU` that is finished.
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
        return _owned(cupy, cupy.stack(rows))  # of one shape, but not in one piece of memory


def _wrap(tensor: Any) -> Any:
    array = DeviceArray(tensor)
    if not has_cupy():
        return array
    import cupy

    with cupy.cuda.Device(array.__dlpack_device__()[1]):
        return cupy.from_dlpack(array)  # the capsule owns the memory


def to_device(array: Any, device_id: int) -> Any:
    """Copy a NumPy array to a GPU, into memory of DALI's: CuPy's own would be used again while a stream reads it."""
    return _wrap(copying.copy_to_gpu(np.asarray(array), device_id))


def copied(array: Any) -> Any:
    """A copy of an array, or of a number, where it is, in memory of its own."""
    if isinstance(array, DeviceArray) or not on_gpu(array):
        return array.copy()
    import cupy

    with array.device, _stream(array.device.id):
        return _owned(cupy, array)


def overlap(a: Any, b: Any) -> bool:
    """Whether two arrays, both of a GPU or both of the host, share memory. A list of rows stands for its first."""
    a, b = (x[0] if isinstance(x, list) else x for x in (a, b))
    if isinstance(a, np.ndarray):
        return bool(np.may_share_memory(a, b))
    (first, end), (other, last) = map(_addresses, (a, b))
    return first < last and other < end


def _addresses(array: Any) -> tuple[int, int]:
    """Where an array without strides of a GPU begins and ends."""
    owner = array.tensor if isinstance(array, DeviceArray) else array
    start = int(owner.__cuda_array_interface__["data"][0])
    return start, start + int(array.nbytes)


def on_gpu(array: Any) -> bool:
    """Whether an array is one of a GPU."""
    return isinstance(array, DeviceArray) or hasattr(array, "__cuda_array_interface__")


def to_host(array: Any) -> Any:
    """Copy an array of a GPU to NumPy; anything else stays as it is."""
    return array.get() if on_gpu(array) else array


def goes_to_gpu(leaf: Any) -> bool:
    """Whether a leaf of the host is put where the images beside it are: arrays of numbers that DALI has, with axes."""
    return isinstance(leaf, np.ndarray) and leaf.ndim > 0 and leaf.dtype.kind in "biuf" and leaf.dtype.itemsize <= 8


def run_array(op: Op, xs: Sequence[Any], params: Sequence[Any]) -> tuple[Any, ...]:
    """Run the array code of an op on batches: with CuPy where one of them is on a GPU, else with NumPy.

    Where CuPy is missing, batches of a GPU come to the host, and so do the results.

    Raises:
        FunctionError: the code failed, or gave something else than one batch for each result.
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
                f"{op.name} failed on the GPU, and not because of the data: {text_of(error)}; out of memory, use a "
                "smaller batch; else start the process again and look at nvidia-smi and the kernel's log (Xid)"
            ) from error
        raise FunctionError(text_of(error), stage=op.name) from error
    if any(len(result) != len(xs[0]) for result in results):
        raise FunctionError(f"needs {len(xs[0])} rows, gave {[len(result) for result in results]}", stage=op.name)
    return results


def concatenate(parts: Sequence[Any]) -> Any:
    """Join arrays of one device along their first axis.

    Raises:
        MissingDependencyError: on a GPU without CuPy.
    """
    if len(parts) == 1:
        return parts[0]
    if all(isinstance(part, np.ndarray) for part in parts):
        return np.concatenate(parts)
    if not has_cupy():
        raise MissingDependencyError(
            "joining the parts of a batch on the GPU needs CuPy, which is not installed; "
            "pip install 'gpupipe[cuda12]', or raise Options(device_memory=...) so that the batch runs in one part"
        )
    import cupy

    device = parts[0].device
    with device, _stream(device.id):
        return _owned(cupy, cupy.concatenate(parts))


@functools.cache
def _stream(device_id: int) -> Any:
    """The stream on which CuPy computes here; that GPU is the current one.

    On the default stream it would wait for all that the user has started there, and the user for it.
    """
    import cupy

    return cupy.cuda.Stream(non_blocking=True)


def _owned(cupy: Any, array: Any) -> Any:
    """What was made on the stream at hand, once it is there, in memory of DALI's and without strides."""
    array = cupy.ascontiguousarray(array)
    cupy.cuda.get_current_stream().synchronize()
    if not array.nbytes:
        return array
    # As bytes: CuPy has dtypes that DALI has not, and one pipeline does for all.
    there = _wrap(copying.copy_on_gpu(array.reshape(-1).view(np.uint8), array.device.id))
    return there.view(array.dtype).reshape(array.shape)
