"""copying: copy arrays to DALI memory on a GPU, with pipelines that only copy."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...graph.op import Array
from . import library
from .build import Lowering
from .failures import device_failed, is_of_device
from .feeding import wrap

__all__ = ["copy_on_gpu", "copy_to_gpu"]


def copy_to_gpu(array: Array, device_id: int) -> Any:
    """Copy a host array to a GPU with DALI alone; return the tensor, complete."""
    array = wrap(array)
    return _copied("cpu", [array], array.dtype, array.ndim, device_id)


def copy_on_gpu(array: Any, device_id: int) -> Any:
    """Copy a GPU array, complete and contiguous, to DALI memory on the same GPU; return the tensor, complete."""
    tensors, interface = library.import_dali().tensors, array.__cuda_array_interface__
    given = array if isinstance(array, tensors.TensorGPU) else tensors.TensorGPU(array, "", device_id)
    dtype = np.dtype(interface["typestr"])
    # -1: a stream of DALI's own; `feed_input` waits for the copy.
    return _copied("gpu", [given], dtype, len(interface["shape"]), device_id, cuda_stream=-1)


def _copied(source: str, arrays: list[Any], dtype: np.dtype[Any], ndim: int, device_id: int, **how: Any) -> Any:
    """Copy an array from `source` to a GPU with a pipeline that only copies."""
    key = ("copy", source, str(dtype), ndim, device_id)
    try:
        pipeline = library.POOL.take(key) or _copying(source, dtype, ndim, device_id)
        pipeline.feed_input("input0", arrays, **how)
        pipeline.schedule_run()
        (output,) = pipeline.share_outputs()
        pipeline.release_outputs()
    except (RuntimeError, MemoryError) as error:
        text = str(error) or type(error).__name__
        if not is_of_device(text):
            raise
        raise device_failed(text, f"DALI on GPU {device_id}", "a copy") from error
    library.POOL.put(key, pipeline)
    return output[0]


def _copying(source: str, dtype: np.dtype[Any], ndim: int, device_id: int) -> Any:
    dali = library.import_dali()
    library.refuse_fork(f"DALI on GPU {device_id}")
    d = Lowering(dali.fn, dali.types, dali.math, "gpu", "mixed", False)
    pipeline = dali.pipeline(batch_size=1, num_threads=1, device_id=device_id, prefetch_queue_depth=1)
    library.POOL.watch(pipeline)
    with pipeline:
        given = dali.fn.external_source(name="input0", device=source, dtype=d.dtype(dtype), ndim=ndim)
        pipeline.set_outputs(given.gpu() if source == "cpu" else given)
    pipeline.build()
    return pipeline
