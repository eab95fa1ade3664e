"""jax: batches as arrays of JAX."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import PlanTypeError
from ..transform.array import on_gpu, to_host

__all__ = ["to_jax"]


def to_jax(device: Any = None, sharding: Any = None, dtype: Any = None, rank: int = 0) -> Callable[[Any], Any]:
    """The conversion of a leaf to a `jax.Array`; bytes and arrays of them stay what they are.

    JAX gives 64-bit numbers 32 bits unless ``jax_enable_x64`` is set. Arrays on a GPU are taken over by DLPack.
    JAX's CPU shares an array in host memory that starts at a multiple of 64 bytes, as batches of a stage on DALI or
    NumPy do, and copies others: those that Python functions or `batch` alone made start anywhere.

    Args:
        device: a `jax.Device` or `jax.sharding.Sharding` for the arrays; None: where they are, JAX's default device
            for those in host memory.
        sharding: of the array that the batches of all processes make; each process has its own rows of it.
        dtype: of floating-point arrays; None: their own.
        rank: least rank of an array that gets that dtype.

    Raises:
        PlanTypeError: the dtype is not a floating-point one.
    """
    if dtype is not None and not jnp.issubdtype(dtype := _dtype(dtype), jnp.floating):
        raise PlanTypeError(f"as_jax needs a floating-point dtype, such as 'bfloat16', got {dtype!r}")

    return partial(_converted, device, sharding, dtype, rank)


def _converted(device: Any, sharding: Any, dtype: Any, rank: int, leaf: Any) -> Any:
    there = on_gpu(leaf)
    dtype = dtype if getattr(leaf, "ndim", 0) >= rank else None
    if not there and not (isinstance(leaf, (np.ndarray, np.generic)) and leaf.dtype.kind in "biuf"):
        return leaf
    if sharding is not None:
        return jax.make_array_from_process_local_data(sharding, _cast(to_host(leaf), dtype))
    if there:
        array = _cast(jax.dlpack.from_dlpack(leaf), dtype)
        return array if device is None else jax.device_put(array, device)
    return jax.device_put(_cast(leaf, dtype), device)


def _dtype(dtype: Any) -> Any:
    try:
        return jnp.dtype(dtype)
    except TypeError as error:
        raise PlanTypeError(f"as_jax needs a floating-point dtype, such as 'bfloat16', got {dtype!r}") from error


def _cast(array: Any, dtype: Any) -> Any:
    return array.astype(dtype) if dtype is not None and jnp.issubdtype(array.dtype, jnp.floating) else array
