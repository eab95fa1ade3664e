"""array: results that stay on the GPU, as CuPy arrays or, where CuPy is missing, as arrays that speak DLPack.

Everything here is ordered on the default stream, which CuPy, torch and JAX synchronise with unless told otherwise.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import DataError, FunctionError, MissingDependencyError, text_of
from ..op import Op

__all__ = ["DeviceArray", "concatenate", "run_array", "to_device", "to_device_array", "to_host"]


@dataclass(frozen=True, slots=True, eq=False)
class DeviceArray:
    """An array in GPU memory where CuPy is missing: ``torch.from_dlpack`` and ``jax.dlpack.from_dlpack`` take it.

    Attributes:
        tensor: the DALI tensor that owns the memory.
    """

    tensor: Any

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        interface: dict[str, Any] = self.tensor.__cuda_array_interface__
        return interface

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape, the batch first."""
        return tuple(self.__cuda_array_interface__["shape"])

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's name of the dtype."""
        dtype: np.dtype[Any] = np.dtype(self.__cuda_array_interface__["typestr"])
        return dtype

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __dlpack__(self, **arguments: Any) -> Any:
        return self.tensor.__dlpack__(**arguments)

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, ordinal = self.tensor.__dlpack_device__()
        return int(kind), int(ordinal)

    def __repr__(self) -> str:
        return f"DeviceArray({self.dtype}{list(self.shape)} on gpu:{self.__dlpack_device__()[1]})"


@functools.cache
def has_cupy() -> bool:
    """Whether CuPy is installed."""
    return importlib.util.find_spec("cupy") is not None


def to_device_array(output: Any, size: int) -> Any:
    """A DALI list of GPU tensors as one array[B, ...], or as a list of arrays where shapes differ. Nothing is copied.

    Args:
        output: a `TensorListGPU` bound to the default stream.
        size: rows of the batch.
    """
    if output.is_dense_tensor():
        return _wrap(output.as_tensor())
    rows = [_wrap(output[row]) for row in range(size)]
    if len({row.shape for row in rows}) > 1 or not has_cupy():
        return rows
    import cupy

    with rows[0].device:
        return cupy.stack(rows)  # of one shape, but not in one piece of memory


def _wrap(tensor: Any) -> Any:
    if not has_cupy():
        return DeviceArray(tensor)
    import cupy

    # from_dlpack tells DALI CuPy's current stream, which then waits for the data; the capsule owns the memory.
    with cupy.cuda.Device(tensor.__dlpack_device__()[1]):
        return cupy.from_dlpack(tensor)


def to_device(array: Any, device_id: int) -> Any:
    """Copy a NumPy array to a GPU."""
    if has_cupy():
        import cupy

        with cupy.cuda.Device(device_id):
            return cupy.asarray(array)
    from .dali import copy_to_gpu

    return DeviceArray(copy_to_gpu(np.asarray(array), device_id))


def to_host(array: Any) -> Any:
    """Copy an array of a GPU to NumPy; what is there already stays as it is."""
    if isinstance(array, DeviceArray):
        return np.asarray(array.tensor.as_cpu())
    get = getattr(array, "get", None)  # of CuPy
    return array if isinstance(array, np.ndarray) or get is None else get()


def run_array(op: Op, xs: Sequence[Any], params: Sequence[Any]) -> tuple[Any, ...]:
    """Run the array code of an op on batches: with CuPy where one of them is on a GPU, else with NumPy.

    Where CuPy is missing, batches of a GPU come to the host, and so do the results.

    Raises:
        FunctionError: the code failed, or gave something else than one batch for each result.
    """
    device = next((x for x in xs if hasattr(x, "__cuda_array_interface__")), None)
    try:
        if device is not None and has_cupy():
            import cupy

            with device.device:
                results = op.array(cupy, *(cupy.asarray(x) for x in xs), *params)
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
        return cupy.concatenate(parts)
