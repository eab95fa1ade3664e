"""trace: turn a user's function into a graph, once; or find out that it is ordinary Python.

Which of the two it is, is decided without calling it: a function is a candidate if its code reaches a gpupipe name,
or if it is a pure expression. Only a candidate is called, once, with symbols. Every use of a value that a symbol
cannot give is remembered, so that an `except` in the function cannot hide it.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, NoReturn, TypeVar

import numpy as np

from .arithmetic import Arithmetic
from .candidate import call_site, decide, generator_states, mistake_of, name_of
from .eager import run
from .errors import PlanError, PlanTypeError, SpecError, TraceError
from .graph import Apply, Const, Draw, Input, Item, Value, digest_of
from .integers import is_integer, plain
from .log import logger
from .op import Arg, Op
from .spec import Structure, TensorSpec, as_leaf, flatten

__all__ = ["Symbol", "Traced", "apply", "decide", "part_of", "trace"]

T = TypeVar("T")


@dataclass(slots=True)
class Trace:
    """What is known while one function is being traced."""

    counts: dict[str, int]
    depth: int = 0
    param: Any = None
    calls: int = 0
    refusals: list[str] = field(default_factory=list)

    def site(self, name: str, seed: int | None) -> str:
        """The name of the next random call of op `name`: counted along the chain, or given by its seed."""
        if seed is not None:
            return f"{name}@{seed}/{self.depth}"
        return f"{name}#{self.number(name)}/{self.depth}"

    def number(self, name: str) -> int:
        """How many calls of op `name` came before this one in the chain."""
        count = self.counts.get(name, 0)
        self.counts[name] = count + 1
        return count


_PLAIN = frozenset({int, float, bool, str, type(None)})

_ACTIVE: ContextVar[Trace | None] = ContextVar("gpupipe_trace", default=None)


class Symbol:
    """Stands for a value of a traced function: it can be passed to ops and used in arithmetic, nothing else."""

    __slots__ = ("_batched", "_owner", "_value")
    __gpupipe_symbol__: ClassVar[bool] = True
    __array_ufunc__ = None  # NumPy arrays on the left give way to __radd__ and its kin
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: Value, batched: bool = False, owner: Trace | None = None) -> None:
        object.__setattr__(self, "_value", value)
        object.__setattr__(self, "_batched", batched)
        object.__setattr__(self, "_owner", owner or _ACTIVE.get())

    def leaf_of_param(self) -> tuple[Any, int] | None:
        """The parameter of the surrounding `interleave` or `flat_map`, and which leaf of it this is; else None."""
        active = _ACTIVE.get()
        if active is None or active is not self._owner or active.param is None or not isinstance(self._value, Input):
            return None
        return active.param, self._value.index

    def __repr__(self) -> str:
        return f"<traced {self._value.spec.batched(None) if self._batched else self._value.spec}>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        _refuse(f"the attribute .{name}")

    def __setattr__(self, name: str, value: Any) -> None:
        _refuse(f"setting the attribute .{name}")

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, Symbol) or self._batched or self._value.spec.layout is not None:
            _refuse("a subscript")
        return _record(Arithmetic("getitem", right=_frozen_key(key)), (self,), None)

    def __iter__(self) -> Any:
        _refuse("iteration")

    def __contains__(self, item: Any) -> bool:
        _refuse("`in`")

    def __bool__(self) -> bool:
        _refuse("a truth value (`if`, `and`, `not`)")

    def __len__(self) -> int:
        _refuse("len()")

    def __int__(self) -> int:
        _refuse("int()")

    def __float__(self) -> float:
        _refuse("float()")

    def __index__(self) -> int:
        _refuse("an index")

    def __bytes__(self) -> bytes:
        _refuse("bytes()")

    def __str__(self) -> str:
        _refuse("str()")

    def __format__(self, spec: str) -> str:
        _refuse("formatting")

    def __fspath__(self) -> str:
        _refuse("a path")

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        _refuse("NumPy")

    def __add__(self, other: Any) -> Any:
        return _binary("add", self, other)

    def __radd__(self, other: Any) -> Any:
        return _binary("add", other, self)

    def __sub__(self, other: Any) -> Any:
        return _binary("sub", self, other)

    def __rsub__(self, other: Any) -> Any:
        return _binary("sub", other, self)

    def __mul__(self, other: Any) -> Any:
        return _binary("mul", self, other)

    def __rmul__(self, other: Any) -> Any:
        return _binary("mul", other, self)

    def __truediv__(self, other: Any) -> Any:
        return _binary("truediv", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _binary("truediv", other, self)

    def __floordiv__(self, other: Any) -> Any:
        return _binary("floordiv", self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return _binary("floordiv", other, self)

    def __mod__(self, other: Any) -> Any:
        return _binary("mod", self, other)

    def __rmod__(self, other: Any) -> Any:
        return _binary("mod", other, self)

    def __pow__(self, other: Any) -> Any:
        return _binary("pow", self, other)

    def __rpow__(self, other: Any) -> Any:
        return _binary("pow", other, self)

    def __and__(self, other: Any) -> Any:
        return _binary("and", self, other)

    def __rand__(self, other: Any) -> Any:
        return _binary("and", other, self)

    def __or__(self, other: Any) -> Any:
        return _binary("or", self, other)

    def __ror__(self, other: Any) -> Any:
        return _binary("or", other, self)

    def __xor__(self, other: Any) -> Any:
        return _binary("xor", self, other)

    def __rxor__(self, other: Any) -> Any:
        return _binary("xor", other, self)

    def __lt__(self, other: Any) -> Any:
        return _binary("lt", self, other)

    def __le__(self, other: Any) -> Any:
        return _binary("le", self, other)

    def __gt__(self, other: Any) -> Any:
        return _binary("gt", self, other)

    def __ge__(self, other: Any) -> Any:
        return _binary("ge", self, other)

    def __eq__(self, other: Any) -> Any:
        return _binary("eq", self, other)

    def __ne__(self, other: Any) -> Any:
        return _binary("ne", self, other)

    def __neg__(self) -> Any:
        return _unary("neg", self)

    def __invert__(self) -> Any:
        return _unary("invert", self)

    def __abs__(self) -> Any:
        return _unary("abs", self)


def part_of(x: Symbol, index: int) -> Any:
    """``x[index]`` of every element, also of the rows of a batch, where ``x[index]`` would be one of the rows."""
    return _record(Arithmetic("getitem", right=index), (x,), None)


def _refuse(what: str) -> NoReturn:
    """Remember that the function needs a value, and say so."""
    text = (
        f"a traced function needs {what} of a value that exists only while the pipeline runs, at {call_site()}; "
        f"use ops for it, wrap the Python part in ops.py_function(fn, args, spec=...), or map(fn, traced=False)"
    )
    active = _ACTIVE.get()
    if active is not None:
        active.refusals.append(text)
    raise TraceError(text)


def _frozen_key(key: Any) -> Any:
    legal = (int, np.integer, slice, type(None), type(Ellipsis))
    parts = key if isinstance(key, tuple) else (key,)
    if not all(isinstance(part, legal) for part in parts):
        _refuse("a subscript")
    return key


def _is_image(x: Any) -> bool:
    return isinstance(x, Symbol) and x._value.spec.layout is not None


def _unary(name: str, x: Symbol) -> Any:
    return _record(Arithmetic(name, image=_is_image(x)), (x,), None)


def _binary(name: str, left: Any, right: Any) -> Any:
    image = _is_image(left) or _is_image(right)
    other = right if isinstance(left, Symbol) else left
    if isinstance(other, str):
        _refuse("a comparison of bytes with str (compare with bytes: b'...')")
    if isinstance(other, Symbol):
        return _record(Arithmetic(name, image=image), (left, right), None)
    if isinstance(other, (bool, int, float, np.generic, bytes)):
        if isinstance(left, Symbol):
            return _record(Arithmetic(name, right=other, image=image), (left,), None)
        return _record(Arithmetic(name, left=other, image=image), (right,), None)
    if not isinstance(other, (np.ndarray, list, tuple)):
        return NotImplemented
    array = np.asarray(other)
    batched = next(x for x in (left, right) if isinstance(x, Symbol))
    if batched._batched and array.ndim > (batched._value.spec.rank or 0):
        _refuse("arithmetic with an array that has a batch dimension")
    if image and array.dtype == np.float64:
        array = array.astype(np.float32)
    return _record(Arithmetic(name, image=image), (array, right) if isinstance(right, Symbol) else (left, array), None)


def apply(op: Op, *xs: Any, seed: int | None = None) -> Any:
    """Apply an op: record it inside a traced function, run it at once on arrays.

    Args:
        op: the op with its parameters; a field named in its `traceable` may hold a traced host value.
        xs: its inputs: symbols, arrays, scalars or bytes.
        seed: draws with this number instead of the count of such calls. Equal seeds draw equally for one element,
            behind a `zip` too, but not in the inputs of one.

    Returns:
        One result, or a tuple for an op with several.
    """
    given, seed = seed, plain(seed)
    if seed is not None and not is_integer(seed):
        raise PlanTypeError(f"{op.name} needs seed to be an integer or None, got {given!r}")
    _check_parameters(op)
    op, traced = _looked_at(op)
    if traced or _ACTIVE.get() is not None or any(isinstance(x, Symbol) for x in xs):
        return _record(op, xs, seed)
    return run(op, xs, seed)


def _check_parameters(op: Op) -> None:
    """Refuse an array where a number belongs: a parameter for each row is a leaf of the element."""
    for name in op.traceable:
        value = getattr(op, name)
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, np.ndarray) and item.ndim:
                raise PlanTypeError(
                    f"{op.name} needs a number for {name}, got an array of shape {list(item.shape)}; "
                    f"a number for each element has to be a part of the element"
                )


def _looked_at(op: Op) -> tuple[Op, bool]:
    """The op with Python's integers in the place of NumPy's, and whether it holds a traced value.

    So equal calls are equal, and no number overflows that an op computes with its parameters.
    """
    traced, changed = False, {}
    for name in op.__dataclass_fields__:
        value = getattr(op, name)
        if type(value) in _PLAIN:
            continue
        if (number := plain(value)) is not value:
            changed[name] = number
        traced = traced or any(isinstance(item, Symbol) for item in (value if isinstance(value, tuple) else (value,)))
    return replace(op, **changed) if changed else op, traced


def _record(op: Op, xs: Sequence[Any], seed: int | None) -> Any:
    active = _ACTIVE.get()
    if active is None:
        raise TraceError(f"{op.name} got a traced value outside the function it belongs to, at {call_site()}")
    for x in xs:
        if isinstance(x, Symbol) and x._owner is not active:
            _refuse("a value of the function around it")
    active.calls += 1
    line = call_site()
    batched = any(x._batched for x in xs if isinstance(x, Symbol))
    if op.rows == "batch" and not batched:
        raise SpecError(
            f"{op.name} needs all rows of a batch at once, got one element, at {line}; "
            f"put it into a map behind batch: ds.batch(n).map(...)"
        )
    inputs = tuple(x._value if isinstance(x, Symbol) else Const(_constant(x)) for x in xs)
    op, args = _take_args(op)
    if op.stateful:  # hash-consing would make one of two calls that look the same
        op = replace(op, call=active.number(op.name))  # type: ignore[call-arg]
    params: tuple[Value, ...] = ()
    try:
        if op.parameters:
            site = active.site(op.name, seed) if op.random else ""
            draw = Draw(op, site, inputs, args, line=line)
            params = tuple(Item(draw, i) for i in range(len(op.parameters)))
        made = Apply(op, inputs, params, line)
    except PlanError as error:
        raise type(error)(f"{error}, at {line}") from error.__cause__
    if len(made.specs) == 1:
        return Symbol(made, batched)
    return tuple(Symbol(Item(made, i), batched) for i in range(len(made.specs)))


def _constant(x: Any) -> Any:
    return x if isinstance(x, (bool, int, float, bytes)) else as_leaf(x)


def _take_args(op: Op) -> tuple[Op, tuple[Value, ...]]:
    """Move traced values out of the op's fields: each becomes an `Arg`."""
    args: list[Value] = []

    def taken(name: str, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(taken(name, item) for item in value)
        if not isinstance(value, Symbol):
            return value
        if name not in op.traceable:
            raise SpecError(f"{op.name} needs a plain value for {name}, got a traced one")
        args.append(value._value)
        return Arg(len(args) - 1)

    changed = {f.name: taken(f.name, getattr(op, f.name)) for f in fields(op)}
    return (replace(op, **changed), tuple(args)) if args else (op, ())


@dataclass(frozen=True, slots=True)
class Traced:
    """A function as a graph over the leaves of its element.

    Attributes:
        outputs: one value per leaf of the result, over `Input(i)`, leaf i of the element.
        structure: the nesting of the result.
        counts: how many random calls of each op the chain has, this function included.
    """

    outputs: tuple[Value, ...]
    structure: Structure
    counts: tuple[tuple[str, int], ...]


def trace(
    fn: Callable[..., Any],
    structure: Structure,
    specs: Sequence[TensorSpec],
    *,
    batched: bool = False,
    counts: Sequence[tuple[str, int]] = (),
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
        counts: random calls before this one.
        depth: nesting depth in `flat_map` and `interleave`.
        force: True raises where the function cannot be traced.
        who: the method, for messages.

    Raises:
        TraceError: a function that calls ops also needs a value.
        SpecError: an op inside was given a value it is not defined for.
        PlanError: it names something that gpupipe does not have.
        PlanTypeError: it calls a function of gpupipe with arguments that this does not take.
    """
    kind = "ops" if force else decide(fn)
    if kind == "python" or (batched and any(spec.shape is None for spec in specs)):
        return None

    def attempt() -> _Attempt:
        return _attempt(fn, structure, specs, batched, Trace(dict(counts), depth), raises=kind == "ops")

    first = attempt()
    active, failure = first.active, first.failure
    mistake = None if failure is None or active.refusals else mistake_of(failure, who)
    if mistake is not None:
        raise mistake from failure
    if active.refusals or failure is not None:
        if force or (active.calls and kind == "ops"):
            text = active.refusals[0] if active.refusals else f"{who} could not trace {name_of(fn)}: {failure!r}"
            raise TraceError(text) from failure
        if kind == "ops":  # right, but one element at a time and not on a GPU: never in silence
            reason = active.refusals[0] if active.refusals else repr(failure)
            logger.warning("%s runs as ordinary Python, element by element: %s", name_of(fn), reason)
        return None
    if first.result is None:
        raise PlanTypeError(f"{who} needs a function that returns an element, got None from {name_of(fn)}")
    traced = finish(first.result, active, batched)
    if first.moved and not _steady(traced, attempt, batched):
        raise TraceError(
            f"{name_of(fn)} draws from a random generator while it is traced: the number would be the same for every "
            f"element; use a random op, or {who}(fn, traced=False)"
        )
    if traced is None and kind == "ops":
        logger.warning(
            "%s runs as ordinary Python: it returns a list, or a constant beside batches, which is no part of a graph",
            name_of(fn),
        )
    return traced


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One call of a function with symbols.

    Attributes:
        active: what it recorded.
        result: of the call.
        failure: what it raised.
        moved: a random generator that it may draw from has moved meanwhile.
    """

    active: Trace
    result: Any
    failure: Exception | None
    moved: bool


def _attempt(
    fn: Callable[..., Any],
    structure: Structure,
    specs: Sequence[TensorSpec],
    batched: bool,
    active: Trace,
    raises: bool,
) -> _Attempt:
    symbols = structure.unflatten([Symbol(Input(i, spec), batched, active) for i, spec in enumerate(specs)])
    before = generator_states(fn)
    token = _ACTIVE.set(active)
    failure: Exception | None = None
    result: Any = None
    try:
        result = call_with(fn, symbols)
    except PlanError as error:
        if raises and not isinstance(error, TraceError):
            raise
        failure = error
    except Exception as error:
        failure = error
    finally:
        _ACTIVE.reset(token)
    return _Attempt(active, result, failure, generator_states(fn) != before)


_ATTEMPTS = 16
"""A function that tosses one coin a call makes the same graph so often once in 65,536 times."""


def _steady(traced: Traced | None, attempt: Callable[[], _Attempt], batched: bool) -> bool:
    """Whether it was somebody else, another thread, who drew while a function was traced.

    It was if the function can be called without a draw, or makes the same graph each time.
    """
    for _ in range(_ATTEMPTS):
        again = attempt()
        if again.failure is not None or again.active.refusals or again.result is None:
            return False
        if not again.moved:
            return True
        other = finish(again.result, again.active, batched)
        if (other is None) != (traced is None):
            return False
        if other is not None and traced is not None and digest_of(other.outputs) != digest_of(traced.outputs):
            return False
    return True


def finish(result: Any, active: Trace, batched: bool = False) -> Traced | None:
    """Make a graph of what a traced function returned; None if a leaf cannot be part of one."""
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
            return None  # a constant has no batch dimension: as ordinary Python it is one value for the batch
        else:
            outputs.append(Const(as_leaf(leaf)))
    return Traced(tuple(outputs), structure, tuple(sorted(active.counts.items())))


def active_trace() -> Trace | None:
    """The trace that is going on, if there is one."""
    return _ACTIVE.get()


def trace_inner(
    fn: Callable[..., Any],
    structure: Structure,
    specs: Sequence[TensorSpec],
    param: Any,
    depth: int,
    counts: Sequence[tuple[str, int]],
    who: str = "interleave",
) -> tuple[Any, bool]:
    """Call a function of `interleave` or `flat_map` once with symbols.

    Returns:
        What it returned, and whether it failed or needed a value: then it has to be called for each element.
    """
    active = Trace(dict(counts), depth, param)
    symbols = structure.unflatten([Symbol(Input(i, spec), False, active) for i, spec in enumerate(specs)])
    token = _ACTIVE.set(active)
    try:
        result = call_with(fn, symbols)
    except SpecError:
        raise
    except Exception as error:  # the function is called again for each element, and raises there with its place
        mistake = None if active.refusals else mistake_of(error, who)
        if mistake is not None:
            raise mistake from error
        return None, True
    finally:
        _ACTIVE.reset(token)
    return (None, True) if active.refusals else (result, False)


def require_no_symbols(who: str, fn: Any) -> None:
    """Make sure that a function which will run as ordinary Python captured no value of the function around it.

    Inside a function of `interleave` or `flat_map` such a value exists for one outer element only, so that function has
    to be called for each of them.

    Raises:
        TraceError: it captured one.
    """
    if _ACTIVE.get() is not None and _holds_symbol(fn, 0):
        _refuse(f"the ordinary Python function of {who}, {name_of(fn)},")


def _holds_symbol(value: Any, depth: int) -> bool:
    if isinstance(value, Symbol):
        return True
    if depth > 8:
        return False
    parts: list[Any] = []
    if isinstance(value, functools.partial):
        parts = [value.func, *value.args, *value.keywords.values()]
    elif isinstance(value, types.MethodType):
        parts = [value.__func__, *getattr(value.__self__, "__dict__", {}).values()]
    elif isinstance(value, types.FunctionType):
        cells = [cell for cell in value.__closure__ or () if cell != types.CellType()]
        parts = [*(cell.cell_contents for cell in cells), *(value.__defaults__ or ())]
    elif isinstance(value, (tuple, list)):
        parts = list(value)
    elif isinstance(value, dict):
        parts = list(value.values())
    elif callable(value) and not isinstance(value, type):
        parts = list(getattr(value, "__dict__", {}).values())
    return any(_holds_symbol(part, depth + 1) for part in parts)


def call_with(fn: Callable[..., Any], element: Any) -> Any:
    """Call a user's function as tf.data does: exactly a top-level tuple is unpacked."""
    return fn(*element) if type(element) is tuple else fn(element)
