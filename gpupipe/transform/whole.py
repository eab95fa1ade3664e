"""whole: a program computed for many rows at once, where all rows have one shape: small images in memory, mostly.

Row by row, an image of 32x32 costs more in Python calls than in pixels. Ops with a `stacked` form take a stack of rows
instead: enough of them that the calls do not count, and few enough that intermediate results stay in a core's cache.
The results are bit-identical. After an error the rows are computed one by one, so that it belongs to its row.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..classes import dataclass
from ..graph.op import Array
from ..graph.values import Apply, Const, Value
from .program import Feed, Program

__all__ = ["Whole", "static_shape"]

CACHED = 1 << 20
"""Bytes of the largest value of a stack, about a core's own cache."""

FEWEST = 4
"""Rows of a stack: with fewer, the calls are not what costs."""


def static_shape(value: Value) -> tuple[int, ...] | None:
    """The shape of every row; None if it is not known before run time."""
    dims, dtype = value.spec.shape, value.spec.dtype
    if dims is None or dtype is None or dtype is bytes:  # NumPy finds float64 equal to None
        return None
    known = tuple(n for n in dims if n is not None)
    return known if len(known) == len(dims) else None


@dataclass(frozen=True, slots=True)
class _Step:
    """One call: the slots of its arguments and of its result, and the output that it writes to itself, if any."""

    call: Callable[..., Array]
    arguments: tuple[int, ...]
    slot: int
    output: int | None


@dataclass(frozen=True, slots=True)
class Whole:
    """A program as calls on stacks of rows.

    Attributes:
        rows: of a stack, at most.
        inputs: for each input a constant, or the shape and dtype of a row.
        steps: in order.
        outputs: the slots of the results.
    """

    rows: int
    inputs: tuple[Array | tuple[tuple[int, ...], Any], ...]
    steps: tuple[_Step, ...]
    outputs: tuple[int, ...]

    def per_chunk(self, rows: int, least: int) -> int:
        """How many of a batch's rows one thread takes: at least so many, in equal stacks."""
        return -(-rows // -(-rows // max(self.rows, least)))

    @classmethod
    def of(cls, program: Program) -> Whole | None:
        """Compile a program; None if a shape varies, an op has no such form, or few rows fill a core's cache."""
        values = (*program.inputs, *program.values)
        shapes = [static_shape(value) for value in values]
        able = all(isinstance(value, Apply) and value.op.supports("stacked") for value in program.values)
        known = all(isinstance(v.value, np.ndarray | np.generic) for v in program.inputs if isinstance(v, Const))
        if not able or not known or None in shapes:  # a Python number has no dtype of its own
            return None
        largest = max(math.prod(s or ()) * v.spec.dtype.itemsize for s, v in zip(shapes, values, strict=True))
        rows = CACHED // max(largest, 1)
        if rows < FEWEST:
            return None
        slots = {value: n for n, value in enumerate(values)}
        steps = []
        for value in program.values:
            assert isinstance(value, Apply)
            writes = value in program.outputs and "out" in inspect.signature(value.op.stacked).parameters
            output = program.outputs.index(value) if writes else None
            steps.append(_Step(value.op.stacked, tuple(slots[x] for x in value.inputs), slots[value], output))
        inputs = tuple(
            np.asarray(value.value) if isinstance(value, Const) else (static_shape(value) or (), value.spec.dtype)
            for value in program.inputs
        )
        return cls(rows, inputs, tuple(steps), tuple(slots[value] for value in program.outputs))

    def computed(self, feed: Feed, results: Sequence[Any], start: int, stop: int) -> bool:
        """Compute rows start..stop into `results`, one array[B,...] per output; False to compute them one by one."""
        try:
            for first in range(start, stop, self.rows):
                self._compute(feed, results, slice(first, min(first + self.rows, stop)))
        except Exception:  # raised again for its row, or a row is not what its spec says, which may be no error
            return False
        return True

    def _compute(self, feed: Feed, results: Sequence[Any], part: slice) -> None:
        slots: list[Any] = []
        for known, column in zip(self.inputs, feed.values, strict=True):
            slots.append(_stack(known, column[part]))
        slots += [None] * len(self.steps)
        for step in self.steps:
            arguments = [slots[n] for n in step.arguments]
            if step.output is None:
                slots[step.slot] = step.call(*arguments)
            else:
                slots[step.slot] = step.call(*arguments, out=results[step.output][part])
        written = {step.slot: step.output for step in self.steps if step.output is not None}
        for n, slot in enumerate(self.outputs):
            if written.get(slot) != n:
                target, made = results[n][part], slots[slot]
                if made.shape != target.shape or made.dtype != target.dtype:
                    raise ValueError(f"needs {target.dtype}{list(target.shape)}, got {made.dtype}{list(made.shape)}")
                target[...] = made


def _stack(known: Array | tuple[tuple[int, ...], Any], rows: Any) -> Array:
    """Rows as one array.

    Raises:
        ValueError: a row has another shape or dtype than its spec says.
    """
    if isinstance(known, np.ndarray):
        return np.broadcast_to(known, (len(rows), *known.shape))
    if isinstance(rows, np.ndarray):  # drawn parameters
        return rows
    shape, dtype = known
    out = np.empty((len(rows), *shape), dtype)
    for n, row in enumerate(rows):
        if row.shape != shape or row.dtype != dtype:
            raise ValueError(f"needs {dtype}{list(shape)}, got {row.dtype}{list(row.shape)}")
        out[n] = row
    return out
