"""python_function: a user's Python function, called with the columns of an element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from ...classes import dataclass
from ...errors import DataError, FunctionError, PlanError, ResultError, ends_run
from ...extract.images.decode import MOST_PIXELS
from ...graph.eager import ELEMENT, ElementRng
from ...graph.trace import call_with
from ...random import hash64, mix64
from ...serial.structures import spec_from_json, spec_to_json
from ...spec import Structure, TensorSpec, as_leaf, describe, flatten, own, same_dtype, spec_of
from ..bad.found import bad_element
from ..check import conform, failed, same_structure
from ..element import Element
from ..own_bytes import own_bytes
from ..run import Context
from ..state.snapshot import State, part

__all__ = ["Calls", "PythonFunction", "SameSpecs"]


@dataclass(frozen=True)
class PythonFunction:
    """A user's function from columns to columns.

    Attributes:
        fn: called as tf.data calls it.
        structure: of its argument.
        who: the method, for messages.
        result: structure and specs that its result must have; None accepts any.
        rng: pass a generator, keyed like an op.
        site: tells this function's random numbers from those of other steps.
        seen: the structure of the first result, once there was one.
    """

    fn: Callable[..., Any]
    structure: Structure
    who: str = "map"
    result: tuple[Structure, tuple[TensorSpec, ...]] | None = None
    rng: bool = False
    site: str = ""
    seen: list[Structure] = field(default_factory=list, compare=False)

    def learned(self) -> Structure | None:
        """Return the structure of the first result, or None before it."""
        return self.seen[0] if self.seen else None

    def __call__(self, element: Element, at: Context, step: Any) -> Element:
        """Return the element with its new columns, or a hole. `Calls` is faster for many elements."""
        MOST_PIXELS.set(at.run.settings.max_pixels)
        return Calls(self, at, step).run(element)


class Calls:
    """A user's function in one pass and one thread; `__init__` does what is the same for every element.

    Args:
        function: the function.
        at: where its step is opened.
        step: the flow that calls it.
    """

    __slots__ = ("_flat", "_fn", "_function", "_lone", "_result", "_rng", "_seen", "_step", "_who")

    def __init__(self, function: PythonFunction, at: Context, step: Any) -> None:
        self._step = step
        self._function = function
        self._fn = function.fn
        self._who = function.who
        self._seen = function.seen
        self._result = function.result
        self._rng = ElementRng(at.run.settings.seed, at.epoch, hash64(function.site))
        self._lone = function.structure.kind is None and not function.rng
        self._flat = function.structure.flat and not function.rng

    def run(self, element: Element) -> Element:
        """Return the element with its new columns, or a hole."""
        columns, stream, position = element
        token = ELEMENT.set(self._rng.at(stream.key, position))
        try:
            if self._lone:
                column = columns[0]
                value = self._fn(bytes(column) if type(column) is memoryview else column)
            elif self._flat:
                value = self._fn(*own_bytes(columns))
            else:
                value = self._call(own_bytes(columns))
            if type(value) in _READY and self._seen and self._seen[0].kind is None and self._result is None:
                return (value,), stream, position
            return self._columns(value), stream, position
        except DataError as error:
            return bad_element(error.at(stream.name, position, self._who, stream.unit), stream, position, self._step)
        except BaseException as error:
            if ends_run(error):
                raise
            return bad_element(failed(self._who, error, stream, position), stream, position, self._step)
        finally:
            ELEMENT.reset(token)

    def _call(self, columns: Sequence[Any]) -> Any:
        argument = self._function.structure.unflatten(columns)
        if not self._function.rng:
            return call_with(self._fn, argument)
        at = self._rng
        key = mix64(mix64(mix64(at.stream, at.position), at.epoch), at.site)
        generator = np.random.Generator(np.random.Philox(key=np.array([at.seed, key], np.uint64)))
        arguments = argument if type(argument) is tuple else (argument,)
        return self._fn(*arguments, generator)

    def _columns(self, value: Any) -> tuple[Any, ...]:
        if self._result is not None or self._seen:
            known = self._seen[0] if self._result is None else self._result[0]
            columns = like(known, value)
            if columns is not None:
                return columns if self._result is None else conform(self._who, known, columns, *self._result)
        if value is None:
            raise ResultError(f"{self._who} needs a function that returns an element, got None")
        try:
            leaves, structure = flatten(tuple(value) if type(value) is list else value)
            columns = tuple([own(as_leaf(leaf)) for leaf in leaves])
        except PlanError as error:
            instead = "; return np.array(x) for a list x whose length varies" if type(value) is list else ""
            raise ResultError(f"{self._who} needs a function that returns an element, and {error}{instead}") from None
        if self._result is not None:
            return conform(self._who, structure, columns, *self._result)
        same_structure(self._who, structure, self._seen)
        return columns


_READY = frozenset(kind for kind in np.sctypeDict.values() if np.dtype(kind).kind in "biuf") | {bytes}


_MADE: dict[type, Any] = {str: str.encode, **{kind: np.asarray(kind()).dtype.type for kind in (bool, int, float)}}


def like(structure: Structure, value: Any) -> tuple[Any, ...] | None:
    """Return the columns of a value whose types and length alone tell that it has this structure; else None."""
    if structure.kind is None:
        leaf = quick_leaf(value)
        return None if leaf is None else (leaf,)
    if type(value) is tuple and structure.flat:
        parts: Sequence[Any] = value
    elif type(value) is dict and structure.kind is dict and tuple(value) == structure.keys:
        parts = list(value.values())
        if any(child.kind is not None for child in structure.children):
            return None
    else:
        return None
    columns = tuple(map(quick_leaf, parts))
    for column in columns:
        if column is None:
            return None
    return columns if len(columns) == structure.count else None


def quick_leaf(value: Any) -> Any:
    """Return ``own(as_leaf(value))`` where the type of the value alone determines it; else None."""
    kind = type(value)
    if kind in _READY:
        return value
    if kind is np.ndarray:
        return value.copy() if value.dtype.kind in "biuf" and value.dtype.isnative else None
    make = _MADE.get(kind)
    if make is None:
        return None
    try:
        return make(value)
    except OverflowError:  # uint64, or too large
        return None


class SameSpecs:
    """Checks results of a Python function against the first one: number of leaves, dtypes and ranks.

    Args:
        function: the function whose results are checked.
        step: the flow that calls it.
        state: of the step; its "first" is what `snapshot` returned.
    """

    def __init__(self, function: PythonFunction, step: Any, state: State = None) -> None:
        self._step = step
        self._who = function.who
        self._first: list[TensorSpec] | None = None
        self._kinds: list[Any] = []
        self._lone: Any = None  # the kind of an only leaf that is not an array
        first = part(state, "first")
        if first is not None:
            self._first = [spec_from_json(spec) for spec in first]

    def snapshot(self) -> State:
        """The specs of the first result; None if there was none, or they cannot be written as JSON."""
        try:
            return None if self._first is None else [spec_to_json(spec) for spec in self._first]
        except PlanError:
            return None

    def __call__(self, element: Element) -> Element:
        """Return the element, or a hole if it is unlike the first."""
        columns = element[0]
        if type(columns) is not tuple or (len(columns) == 1 and type(columns[0]) is self._lone):
            return element
        kinds = list(map(kind_of, columns))
        if kinds == self._kinds:
            return element
        specs = [spec_of(column) for column in columns]
        if self._first is None:
            self._first, self._kinds = specs, kinds
            self._lone = kinds[0] if len(kinds) == 1 and kinds[0] in _READY else None
            return element
        first = self._first
        if len(first) == len(specs) and all(
            same_dtype(a.dtype, b.dtype) and a.rank == b.rank for a, b in zip(first, specs, strict=True)
        ):
            return element
        _, stream, position = element
        error = FunctionError(
            f"needs a function whose results are all of one dtype and rank, got {describe(tuple(specs))} after "
            f"{describe(tuple(first))}; convert them, or say what it returns with spec="
        )
        return bad_element(error.at(stream.name, position, self._who, stream.unit), stream, position, self._step)


def kind_of(column: Any) -> Any:
    """Return the kind of a leaf: leaves of equal kinds have equal dtype and rank. Other leaves equal no kind."""
    kind = type(column)
    return kind if kind in _READY else (column.dtype, column.ndim) if kind is np.ndarray else object()
