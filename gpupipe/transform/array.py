"""array: results that stay on the GPU, as CuPy arrays or, where CuPy is missing, as arrays that speak DLPack.

What is handed over is finished: the stage's thread waits for a batch before it passes it on. So any stream may read it,
one of a thread's own as well, and no stream waits for anything. Its memory is DALI's, whose DLPack capsules wait for
the whole device before they give it back: what a stream still reads is not used again under it. What CuPy makes here
(batch-wise ops, batches joined of parts) is finished too, but its memory is CuPy's: it may be used again as soon as it
is dropped, so who reads it on a stream of their own keeps it until that has finished.
"""

from __future__ import annotations

import functools
import importlib.util
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import DataError, FunctionError, MissingDependencyError, text_of
from ..op import Op

__all__ = ["DeviceArray", "concatenate", "load_cupy", "on_gpu", "run_array", "to_device", "to_device_array", "to_host"]


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
        from .dali import copy_to_gpu

        return DeviceArray(copy_to_gpu(self.get(), self.__dlpack_device__()[1]))

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
    if len({row.shape for row in rows}) > 1 or not has_cupy():
        return rows
    import cupy

    with rows[0].device:
        return _finished(cupy, cupy.stack(rows))  # of one shape, but not in one piece of memory


def _wrap(tensor: Any) -> Any:
    array = DeviceArray(tensor)
    if not has_cupy():
        return array
    import cupy

    with cupy.cuda.Device(array.__dlpack_device__()[1]):
        return cupy.from_dlpack(array)  # the capsule owns the memory


def to_device(array: Any, device_id: int) -> Any:
    """Copy a NumPy array to a GPU, into memory of DALI's: CuPy's own would be used again while a stream reads it."""
    from .dali import copy_to_gpu

    return _wrap(copy_to_gpu(np.asarray(array), device_id))


def on_gpu(array: Any) -> bool:
    """Whether an array is one of a GPU."""
    return isinstance(array, DeviceArray) or hasattr(array, "__cuda_array_interface__")


def to_host(array: Any) -> Any:
    """Copy an array of a GPU to NumPy; what is there already stays as it is."""
    get = getattr(array, "get", None)
    return array if isinstance(array, np.ndarray) or get is None else get()


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

            with device.device:
                results = _finished(cupy, op.array(cupy, *(cupy.asarray(x) for x in xs), *params))
        else:
            results = op.array(np, *map(to_host, xs), *params)
    except DataError as error:
        raise error.at(stage=op.name) from error.__cause__
    except Exception as error:
        raise FunctionError(text_of(error), stage=op.name) from error
    results = results if isinstance(results, tuple) else (results,)
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

    with parts[0].device:
        return _finished(cupy, cupy.concatenate(parts))


def _finished(cupy: Any, result: Any) -> Any:
    """What was computed on this thread's stream, once it is there."""
    cupy.cuda.get_current_stream().synchronize()
    return result
