"""strided: slices with a step in DALI, `x[::2]` and `x[::-1]`.

DALI's own slice forgets the step in all but the first of the blocks into which it cuts more than 16,384 values: other
rows come, or zeros. So only whole ranges are sliced there; every second element is the first column of pairs, and what
is to be reversed is flipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["subscripted"]


def subscripted(d: Any, x: Any, key: Sequence[int | slice], dtype: Any) -> Any:
    """`x[key]` of a DALI node, as in NumPy.

    Args:
        d: DALI.
        x: the node.
        key: an integer or a slice for each of its dimensions.
        dtype: of its values.
    """
    cuts: list[int | slice] = []
    steps: list[tuple[int, int]] = []
    axis = 0
    for part in key:
        cuts.append(_range(part) if isinstance(part, slice) else part)
        if isinstance(part, slice):
            steps.append((axis, 1 if part.step is None else part.step))
            axis += 1
    node = x if all(cut == slice(None) for cut in cuts) else x[tuple(cuts)]
    for at, step in steps:
        if step < 0:
            node = _reversed(d, node, at, axis, dtype)
        if abs(step) > 1:
            node = _every(d, node, at, axis, abs(step))
    return node


def _range(part: slice) -> slice:
    """The elements from the first to the last of a slice, in the order of the input."""
    if part.step is None or part.step > 0:
        return slice(part.start, part.stop)
    if part.stop == -1:  # before the last element: there is none
        return slice(0, 0)
    return slice(None if part.stop is None else part.stop + 1, None if part.start in (None, -1) else part.start + 1)


def _every(d: Any, x: Any, axis: int, rank: int, step: int) -> Any:
    """Every `step`-th element of an axis, from the first one on."""
    whole = d.fn.pad(d.fn.reshape(x, layout=""), axes=[axis], align=[step], fill_value=0)
    shape = whole.shape()
    apart = [shape[axis] // step, shape[axis] * 0 + step]
    sizes = [*(shape[i] for i in range(axis)), *apart, *(shape[i] for i in range(axis + 1, rank))]
    columns = d.fn.reshape(whole, shape=d.fn.stack(*sizes))
    return columns[(*[slice(None)] * (axis + 1), 0)]


def _reversed(d: Any, x: Any, axis: int, rank: int, dtype: Any) -> Any:
    """The elements of an axis in reverse order: the lines of a volume, flipped."""
    shape = x.shape()
    one = shape[0] * 0 + 1
    before, behind = one, one
    for i in range(axis):
        before = before * shape[i]
    for i in range(axis + 1, rank):
        behind = behind * shape[i]
    volume = d.fn.reshape(x, shape=d.fn.stack(before, shape[axis], behind, one), layout="DHWC")
    boolean = np.dtype(dtype).kind == "b"
    if boolean:  # which DALI does not flip
        volume = d.fn.reinterpret(volume, dtype=d.dtype(np.uint8))
    turned = d.fn.flip(volume, horizontal=0, vertical=1)
    if boolean:
        turned = d.fn.reinterpret(turned, dtype=d.dtype(np.bool_))
    return d.fn.reshape(turned, shape=shape, layout="")
