"""host_program: a traced function compiled for one element on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from itertools import pairwise
from operator import itemgetter
from typing import Any

from ...classes import dataclass
from ...errors import DataError, FunctionError, text_of
from ...extract.images.decode import check_data
from ...graph.host_values import HostValues, header_size
from ...graph.values import Apply, Const, Draw, Identity, Input, Item, Value, topological
from ..element import element_keys
from ..run import Context
from .lazy import LAZY

__all__ = ["HeaderCheck", "HostProgram"]


@dataclass(frozen=True, slots=True)
class HeaderCheck:
    """The size of an encoded image as a column (height, width); a bad header is a hole.

    Attributes:
        data: the encoded bytes.
        oriented: whether the decoder rotates the image by its EXIF orientation.
        stage: the decoder, for messages.
    """

    data: Value
    oriented: bool
    stage: str


_Step = tuple[int, Callable[..., Any], int | None, list[int], list[tuple[int, int]], str]
"""Slot of the result, function, slot of an only argument, slots of all arguments, (slot, index) of each single result,
name of the op."""


@dataclass(frozen=True, slots=True)
class HostProgram:
    """Host values of one element, compiled to a list of calls.

    Attributes:
        outputs: values and header checks, one column each.
        max_pixels: the largest image that a header check lets pass, in pixels.
        strict: whether a header check refuses JPEGs with damaged data as well, see `Options.strict_images`.
        unread: columns that are passed on as they are, so that a graph takes arrays of a cache from the GPU.
        values: all values in the order of computation, inputs first.
    """

    outputs: tuple[Value | HeaderCheck, ...]
    max_pixels: int = 1 << 62
    strict: bool = False
    unread: frozenset[int] = frozenset()
    values: tuple[Value, ...] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        values = [output.data if isinstance(output, HeaderCheck) else output for output in self.outputs]
        object.__setattr__(self, "values", tuple(topological(values)))

    def compile(self, at: Context) -> Callable[[tuple[Any, ...], Any, int], tuple[Any, ...]]:
        """Return a function of (columns, stream, position) that computes the new columns.

        It raises DataError with the stage that failed.
        """
        if any(isinstance(value, (Draw, Identity)) for value in self.values):
            return self._one_by_one(at)
        indices = [output.index for output in self.outputs if isinstance(output, Input)]
        if indices and len(indices) == len(self.outputs):
            return picked(indices, self.unread)
        line = self._line()
        if line is not None:
            return line
        steps, slots = self._steps()
        picks = [slots[value.data if isinstance(value, HeaderCheck) else value] for value in self.outputs]
        checks = [(k, output) for k, output in enumerate(self.outputs) if isinstance(output, HeaderCheck)]
        blank: list[Any] = [value.value if isinstance(value, Const) else None for value in self.values]
        columns = [(i, value.index, LAZY) for i, value in enumerate(self.values) if isinstance(value, Input)]
        columns = [(i, index, frozenset() if index in self.unread else lazy) for i, index, lazy in columns]

        def compute(row: tuple[Any, ...], stream: Any, position: int) -> tuple[Any, ...]:
            have = blank.copy()
            for i, index, lazy in columns:
                column = row[index]
                have[i] = column.read() if type(column) in lazy else column
            name = ""
            try:
                for i, call, lone, arguments, items, step in steps:
                    name = step
                    result = have[i] = call(*[have[j] for j in arguments]) if lone is None else call(have[lone])
                    for j, index in items:
                        have[j] = result[index]
            except DataError as error:
                error.at(stage=name)
                raise
            except Exception as error:
                raise _failed(error, name) from error
            out = [have[i] for i in picks]
            for k, check in checks:
                out[k] = self._header(out[k], check)
            return tuple(out)

        return compute

    def _line(self) -> Callable[[tuple[Any, ...], Any, int], tuple[Any, ...]] | None:
        """Compile a program of one column and one call after the other, like ``x % 2 == 0``; None for others."""
        first = self.values[0] if self.values else None
        if self.outputs != self.values[-1:] or not isinstance(first, Input):
            return None
        calls = []
        for lower, value in pairwise(self.values):
            if not isinstance(value, Apply) or tuple(value.inputs) != (lower,):
                return None
            calls.append((self._call(value), value.op.name))
        index = first.index

        def compute(row: tuple[Any, ...], stream: Any, position: int) -> tuple[Any, ...]:
            value = row[index]
            if type(value) in LAZY:
                value = value.read()
            name = ""
            try:
                for call, step in calls:
                    name = step
                    value = call(value)
            except DataError as error:
                error.at(stage=name)
                raise
            except Exception as error:
                raise _failed(error, name) from error
            return (value,)

        return compute

    def _steps(self) -> tuple[list[_Step], dict[Value, int]]:
        slots = {value: i for i, value in enumerate(self.values)}
        steps: list[_Step] = []
        for value in self.values:
            if isinstance(value, Apply):
                items = [
                    (slots[item], item.index) for item in self.values if isinstance(item, Item) and item.value == value
                ]
                arguments = [slots[x] for x in value.inputs]
                lone = arguments[0] if len(arguments) == 1 else None
                steps.append((slots[value], self._call(value), lone, arguments, items, value.op.name))
        return steps, slots

    def _call(self, value: Apply) -> Callable[..., Any]:
        """The function of an op; a decoder that runs here has no header check before it."""
        op = value.op
        function = op.compiled(value.line)
        if not (self.strict and (op.decodes or op.decodes_on_host)):
            return function

        def checked(data: Any, *others: Any) -> Any:
            check_data(data)
            return function(data, *others)

        return checked

    def _header(self, data: Any, check: HeaderCheck) -> tuple[int, int]:
        try:
            found = header_size(data, oriented=check.oriented, max_pixels=self.max_pixels)
            if self.strict:
                check_data(data)
            return found
        except DataError as error:
            error.stage = check.stage  # the user wrote a decoder and knows nothing of a header check
            raise

    def _one_by_one(self, at: Context) -> Callable[[tuple[Any, ...], Any, int], tuple[Any, ...]]:
        """Compile a program that draws random numbers on the host: it runs on batches of one."""
        seed, epoch, unread = at.run.settings.seed, at.epoch, self.unread

        def compute(row: tuple[Any, ...], stream: Any, position: int) -> tuple[Any, ...]:
            row = tuple(
                column.read() if type(column) in LAZY and i not in unread else column for i, column in enumerate(row)
            )

            def keys(index: int) -> Any:
                who = (stream, position) if index < 0 else row[index]
                return element_keys([who[0]], [who[1]])

            batch = HostValues(1, lambda i: [row[i]], keys, seed, epoch)
            out = []
            for output in self.outputs:
                try:
                    if isinstance(output, HeaderCheck):
                        out.append(self._header(batch.rows(output.data)[0], output))
                    else:
                        out.append(batch.rows(output)[0])
                except DataError as error:
                    error.at(stage="map")
                    raise
                except Exception as error:
                    raise _failed(error, "map") from error
            return tuple(out)

        return compute


def picked(
    indices: Sequence[int], unread: frozenset[int] = frozenset()
) -> Callable[[tuple[Any, ...], Any, int], tuple[Any, ...]]:
    """Compile a program that computes nothing: it picks columns and reads references, but for those `unread`."""
    first, lone = indices[0], len(indices) == 1
    several = itemgetter(*indices)
    if unread:
        lazy = [frozenset() if index in unread else LAZY for index in indices]

        def compute_some(row: tuple[Any, ...], stream: Any, position: int) -> tuple[Any, ...]:
            out = zip([row[index] for index in indices], lazy, strict=True)
            return tuple([column.read() if type(column) in kinds else column for column, kinds in out])

        return compute_some

    def compute(row: tuple[Any, ...], stream: Any, position: int) -> tuple[Any, ...]:
        out = (row[first],) if lone else several(row)
        for column in out:
            if type(column) in LAZY:
                return tuple([column.read() if type(column) in LAZY else column for column in out])
        return out

    return compute


def _failed(error: Exception, stage: str) -> FunctionError:
    return FunctionError(f"raised {text_of(error)}", stage=stage)
