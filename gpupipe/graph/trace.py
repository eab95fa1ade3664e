"""trace: turn a user's function into a graph, or find that it is ordinary Python.

`classify` decides, without calling the function, whether it may be traced. If so, it is called with symbols, twice, and
both calls must make equal graphs: a random number, a clock or a counter would become one constant for all elements.
Nested functions are called when the functions around them are, so they too are called twice, at any depth.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from ..brief import fields_in_brief
from ..classes import dataclass
from ..errors import PlanError, PlanKeyError, PlanTypeError, SpecError, TraceError
from ..log import logger
from ..spec import Compound, Structure, TensorSpec, as_leaf, describe, flatten
from .classify import LARGEST, classify, closure_of, generator_states, generators, name_of
from .difference import Difference, difference
from .named import named
from .sites import mistake_of, place, site_of, user_site
from .symbols import ACTIVE, TEXT, Symbol, Trace, refuse, refused
from .values import CONST_LIMIT, Const, Input, Value

__all__ = ["Traced", "called_before", "trace"]


@dataclass(frozen=True, slots=True)
class Traced:
    """A function as a graph over the leaves of its element.

    Attributes:
        outputs: one value per leaf of the result, over `Input(i)`, leaf i of the element.
        structure: the nesting of the result.
        random_calls: number of random calls of each op in the chain, including this function.
    """

    outputs: tuple[Value, ...]
    structure: Structure
    random_calls: tuple[tuple[str, int], ...]

    __repr__ = fields_in_brief


def trace(
    fn: Callable[..., Any],
    structure: Structure,
    specs: Sequence[TensorSpec],
    *,
    batched: bool = False,
    random_calls: Sequence[tuple[str, int]] = (),
    depth: int = 0,
    force: bool | None = None,
    who: str = "map",
) -> Traced | None:
    """Trace `fn` over an element of this structure; None if it is ordinary Python.

    Args:
        fn: the user's function; a top-level tuple is unpacked into positional arguments.
        structure: of the element.
        specs: of its leaves; of one row where `batched`.
        batched: whether the element is a batch.
        random_calls: random calls of the chain before this function.
        depth: nesting depth in `flat_map` and `interleave`.
        force: True raises if the function cannot be traced.
        who: the calling method, for messages.

    Raises:
        TraceError: a function that calls ops also needs an actual value.
        SpecError: an op in it is not defined for its input.
        PlanError: it uses a gpupipe name that does not exist.
        PlanTypeError: it calls a gpupipe function with the wrong arguments.
    """
    kind = "ops" if force else classify(fn)
    if kind == "python" or (batched and any(spec.shape is None for spec in specs)):
        return None
    call = _Caller(fn, structure, specs, batched)

    def attempt() -> _Attempt:
        return call(Trace(dict(random_calls), depth, batched=batched, most=LARGEST if kind == "expression" else None))

    first = attempt()
    active, failure = first.active, first.failure
    if failure is not None:
        _raise_mistakes(failure, active, kind, who)
    traced = None
    if failure is None and first.result is not None and not active.refusals:
        if kind == "expression" and any(map(_too_large, flatten(first.result)[0])):
            return None
        try:
            traced = finish(first.result, active, batched)
        except PlanError as error:
            raise type(error)(f"{error}, at {_defined(fn)}") from error.__cause__
        if traced is not None and active.shown and (kind == "expression" or reaches(traced.outputs, _is_text)):
            active.refusals.append(refused("the text", active.shown))
    if active.refusals or failure is not None:
        _tell_why_not(fn, first, kind, bool(force), who)
        return None
    if first.result is None:
        raise PlanTypeError(
            f"{who} needs a function that returns an element, got None from {name_of(fn)}, at {_defined(fn)}"
        )
    if traced is None and kind == "ops":
        logger.warning("%s runs as ordinary Python: %s", name_of(fn), _NO_GRAPH)
    if traced is not None and kind == "ops" and call.twice:
        _require_steady(first, attempt, functools.partial(_graphs_differ, traced, batched), who, fn)
    return traced


def _raise_mistakes(failure: Exception, active: Trace, kind: str, who: str) -> None:
    """Raise errors that can only be mistakes in the function, whatever its kind."""
    stays = kind == "ops" and not isinstance(failure, TraceError)
    if isinstance(failure, PlanKeyError) or (isinstance(failure, PlanError) and stays):
        raise failure
    mistake = None if active.refusals else mistake_of(failure, who)
    if mistake is not None:
        raise mistake.with_traceback(failure.__traceback__) from None


def _tell_why_not(fn: Callable[..., Any], first: _Attempt, kind: str, force: bool, who: str) -> None:
    """Log why a function could not be traced and runs as ordinary Python.

    Raises:
        TraceError: the function calls ops, or has to be traced.
    """
    refusals = first.active.refusals
    reason = refusals[0] if refusals else f"{_raised(first.failure)}; {_WAYS}"
    if force or (first.active.calls and kind == "ops"):
        error = TraceError(reason if refusals else f"{who} could not trace {name_of(fn)}: {reason}")
        raise error.with_traceback(getattr(first.failure, "__traceback__", None)) from None
    if kind == "ops":  # correct, but slower, one element at a time and not on a GPU, so log it
        logger.warning("%s runs as ordinary Python, element by element: %s", name_of(fn), reason)


_NO_GRAPH = "it returns a list, or a constant along with batches, which cannot be part of a graph"
_WAYS = "use ops for it, wrap the Python part in ops.py_function(fn, args, spec=...), or map(fn, traced=False)"


def _raised(failure: BaseException | None) -> str:
    where = "" if failure is None else site_of(failure)
    return f"{failure!r}, at {where}" if where else repr(failure)


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One call of a function with symbols.

    Attributes:
        active: the record of the call.
        result: its return value.
        failure: the exception it raised; a PlanError names the user's line.
        moved: whether a random generator that it can reach advanced meanwhile.
    """

    active: Trace
    result: Any
    failure: Exception | None
    moved: bool


_CALLED_BEFORE: ContextVar[bool] = ContextVar("gpupipe_called_before", default=False)


@contextmanager
def called_before(known: bool) -> Iterator[None]:
    """Mark that a function is called for an element; if `known`, not the first, so inner functions are traced once."""
    before = _CALLED_BEFORE.get()
    try:
        _CALLED_BEFORE.set(known)
        yield
    finally:
        _CALLED_BEFORE.set(before)


class _Caller:
    """Calls a function with symbols.

    Attributes:
        twice: whether to call it a second time; not if the enclosing function is called twice.
    """

    __slots__ = ("_batched", "_fn", "_generators", "_specs", "_structure", "twice")

    def __init__(
        self, fn: Callable[..., Any], structure: Structure, specs: Sequence[TensorSpec], batched: bool = False
    ) -> None:
        self._fn, self._structure, self._specs, self._batched = fn, structure, specs, batched
        self.twice = ACTIVE.get() is None and not _CALLED_BEFORE.get()
        self._generators = generators(fn) if self.twice else []

    def __call__(self, active: Trace) -> _Attempt:
        made = self._call(active)
        if not isinstance(made.failure, KeyError):
            return made
        again = self._call(
            replace(active, random_calls=dict(active.random_calls), calls=0, named=True, shown="", refusals=[])
        )
        return again if isinstance(again.failure, PlanKeyError) else made  # else a dict of the user's own

    def _call(self, active: Trace) -> _Attempt:
        leaves = [Symbol(Input(i, spec), self._batched, active) for i, spec in enumerate(self._specs)]
        element = self._structure.unflatten(leaves)
        symbols = named(element) if active.named else element
        states = generator_states(self._generators) if self.twice else None
        before = ACTIVE.get()
        failure: Exception | None = None
        result: Any = None
        try:
            ACTIVE.set(active)
            result = call_with(self._fn, symbols)
        except PlanError as error:
            failure = _located(error)
        except Exception as error:
            failure = error
        finally:
            ACTIVE.set(before)
        moved = self.twice and generator_states(self._generators) != states
        return _Attempt(active, result, failure, moved)


def _located(error: PlanError) -> PlanError:
    """Add the user's line to the text of an error."""
    where = site_of(error)
    if where and where not in str(error):
        error.args = (f"{error}, at {where}", *error.args[1:])
    return error


_ATTEMPTS = 16
"""A function that flips one coin per call makes the same graph this often once in 65,536 times."""


def _require_steady(
    first: _Attempt,
    attempt: Callable[[], _Attempt],
    compare: Callable[[_Attempt], Difference | None],
    who: str,
    fn: Callable[..., Any],
) -> None:
    """Call a function again and compare.

    If a random generator advanced meanwhile, another thread may have drawn from it. The function did not if it can be
    called without a draw, or makes the same graph each time.

    Raises:
        TraceError: the graphs differ; it names the first difference.
    """
    for _ in range(_ATTEMPTS):
        again = attempt()
        failure = again.failure
        if failure is not None:
            found: Difference | None = Difference(f"a result, then {failure!r}", site_of(failure))
        else:
            found = compare(again)
        if found is not None:
            how = "makes a different graph each time it is called"
            if first.moved or again.moved:
                how = "draws from a random generator while it is traced"
            where = found.line or _defined(fn)
            way = f"call Python in ops.py_function(fn, args, spec=...), or {who}(fn, traced=False)"
            if who in ("flat_map", "interleave"):
                way = (
                    "or derive it from the element; a function that needs a value of it, int(x), is called per element"
                )
            text = f"{who}: {name_of(fn)} {how}: {found.text}, at {where}; the first"
            if not found.told:
                error = TraceError(f"{text} would hold for every element: use a random op, {way}")
                raise error.with_traceback(getattr(failure, "__traceback__", None)) from None
            logger.warning("%s holds for every element", text)
            return
        if not (first.moved and again.moved):
            return


def _defined(fn: Any) -> str:
    """``file:line`` of a function."""
    fn = fn.func if isinstance(fn, functools.partial) else fn
    code = getattr(fn, "__code__", None) or getattr(getattr(fn, "__wrapped__", None), "__code__", None)
    return place(code.co_filename, code.co_firstlineno) if code is not None else user_site()


def _graphs_differ(traced: Traced, batched: bool, again: _Attempt) -> Difference | None:
    if again.active.refusals:
        return Difference(f"a graph, then: {again.active.refusals[0]}", "")
    other = None if again.result is None else finish(again.result, again.active, batched)
    if other is None:
        return Difference("a graph, then a result that cannot be part of one", "")
    if other.structure != traced.structure:
        return Difference(f"{_leaves_of(traced)}, then {_leaves_of(other)}", "")
    return difference(traced.outputs, other.outputs)


def _too_large(leaf: Any) -> bool:
    """Whether a leaf is an array too large for a graph."""
    return isinstance(leaf, np.ndarray) and leaf.nbytes > CONST_LIMIT


def _leaves_of(traced: Traced) -> str:
    """The element that a graph computes, for a message."""
    return describe(traced.structure.unflatten([value.spec for value in traced.outputs]))


def finish(result: Any, active: Trace, batched: bool = False) -> Traced | None:
    """Turn the return value of a traced function into a graph; None if a leaf cannot be part of one."""
    leaves, structure = flatten(tuple(result) if type(result) is list else result)
    if structure.kind is type(None) or structure.count == 0:
        raise PlanTypeError("a function needs to return an element, got None")
    outputs: list[Value] = []
    for leaf in leaves:
        if isinstance(leaf, Symbol):
            if leaf._owner is not active:
                return None
            outputs.append(leaf._value)
        elif isinstance(leaf, (list, tuple)):
            return None
        elif batched:
            return None  # a constant has no batch dimension; in ordinary Python it is one value per batch
        else:
            outputs.append(Const(as_leaf(leaf)))
    return Traced(tuple(outputs), structure, tuple(sorted(active.random_calls.items())))


def trace_inner(
    fn: Callable[..., Any],
    structure: Structure,
    specs: Sequence[TensorSpec],
    param: Any,
    depth: int,
    random_calls: Sequence[tuple[str, int]],
    compare: Callable[[Any, Any], Difference | None],
    who: str = "interleave",
) -> tuple[Any, bool]:
    """Call a function of `interleave` or `flat_map` with symbols.

    Args:
        fn: the user's function.
        structure: of the outer element.
        specs: of its leaves.
        param: the outer element in the plan of the function.
        depth: nesting depth in `flat_map` and `interleave`.
        random_calls: random calls of the chain before this function.
        compare: returns the first difference of two results.
        who: the calling method, for messages.

    Returns:
        The result, and whether the function failed or needs an actual value and so must be called per element.

    Raises:
        TraceError: it makes a different dataset each time it is called.
    """
    call = _Caller(fn, structure, specs)

    def attempt() -> _Attempt:
        return call(Trace(dict(random_calls), depth, param))

    first = attempt()
    active, failure = first.active, first.failure
    if failure is not None:
        if isinstance(failure, (SpecError, PlanKeyError)):
            raise failure
        mistake = None if active.refusals else mistake_of(failure, who)
        if mistake is not None:  # any other error is raised when the function is called for an element
            raise mistake.with_traceback(failure.__traceback__) from None
        return None, True
    if active.refusals or (active.shown and reaches(first.result, _is_text)):
        return None, True
    if call.twice:
        _require_steady(first, attempt, lambda again: compare(first.result, again.result), who, fn)
    return first.result, False


def require_no_symbols(who: str, fn: Any) -> None:
    """Refuse a function that will run as ordinary Python and captures a symbol of the enclosing function.

    Inside a function of `interleave` or `flat_map` such a value exists for one outer element only, so the enclosing
    function has to be called per element.

    Raises:
        TraceError: it captures a symbol.
    """
    if ACTIVE.get() is not None and reaches(fn, lambda part: isinstance(part, Symbol)):
        refuse(f"the use, in the ordinary Python function of {who}, {name_of(fn)},")


def reaches(value: Any, test: Callable[[Any], bool]) -> bool:
    """Whether `test` holds for a value or any of its parts: items, fields, captured values."""
    waiting, seen = [value], set[int]()
    while waiting and len(seen) < _MOST:
        part = waiting.pop()
        if test(part):
            return True
        if id(part) not in seen:
            seen.add(id(part))
            waiting.extend(_parts(part))
    return False


_MOST = 100_000


def _parts(value: Any) -> Sequence[Any]:
    if isinstance(value, (str, bytes, int, float, Symbol, type, types.ModuleType)):
        return ()
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, types.MethodType):
        return [value.__func__, *getattr(value.__self__, "__dict__", {}).values()]
    if isinstance(value, types.FunctionType):
        return closure_of(value)
    if isinstance(value, (tuple, list)):
        return value
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, np.ndarray):
        return value.ravel().tolist() if value.dtype == object else ()
    if isinstance(value, Value):
        return [getattr(value, "value", None), getattr(value, "op", None), *value.inputs]
    if is_dataclass(value):
        return [getattr(value, f.name, None) for f in fields(value)]
    held = getattr(value, "__dict__", {})
    return list(held.values()) if callable(value) or isinstance(value, Compound) else ()


def _is_text(value: Any) -> bool:
    """Whether a value contains the text of a symbol."""
    return (isinstance(value, str) and TEXT in value) or (isinstance(value, bytes) and TEXT.encode() in value)


def call_with(fn: Callable[..., Any], element: Any) -> Any:
    """Call a user's function as tf.data does: only a top-level tuple is unpacked."""
    return fn(*element) if type(element) is tuple else fn(element)
