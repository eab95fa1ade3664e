"""symbols: placeholders that a traced function is called with, which record the operations applied to them.

Every operation that needs an actual value is recorded as a refusal, so that an `except` in the function cannot hide it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import field, fields, replace
from typing import Any, ClassVar, NoReturn

import numpy as np

from ..classes import dataclass
from ..errors import PlanError, PlanTypeError, SpecError, TraceError
from ..integers import is_integer, plain
from ..spec import TensorSpec, as_leaf, spec_of
from .arithmetic import ALIKE, OPERATORS, Arithmetic, is_narrow
from .drawn import Drawn
from .eager import run
from .frames import over_frames
from .gather import Gather
from .host_values import is_image
from .numpy_names import METHODS, UFUNCS, instead
from .op import Arg, Op
from .shapes import Subscript, checked_key, row_key
from .sites import at_line, user_site
from .values import Apply, Const, Draw, Input, Item, Value

__all__ = [
    "ACTIVE",
    "TEXT",
    "Symbol",
    "Trace",
    "active_trace",
    "alike",
    "apply",
    "binary",
    "clipped",
    "narrowed",
    "part_of",
    "refuse",
    "refused",
]


@dataclass(slots=True)
class Trace:
    """The record of one traced call of a function.

    Attributes:
        random_calls: random calls so far, by op.
        depth: nesting depth in `flat_map` and `interleave`.
        param: the outer element of those, in the plan of the inner function.
        calls: number of ops called.
        named: whether dicts of symbols are `Named`, for the error of a missing key.
        batched: whether the element is a batch.
        most: largest number of ops; None for no limit.
        shown: the line that first turned a symbol into text.
        refusals: messages of operations that need an actual value.
    """

    random_calls: dict[str, int]
    depth: int = 0
    param: Any = None
    calls: int = 0
    named: bool = False
    batched: bool = False
    most: int | None = None
    shown: str = ""
    refusals: list[str] = field(default_factory=list)

    def site(self, name: str, seed: int | None) -> str:
        """The site of the next random call of op `name`: numbered along the chain, or given by its seed."""
        if seed is not None:
            return f"{name}@{seed}/{self.depth}"
        return f"{name}#{self.number(name)}/{self.depth}"

    def number(self, name: str) -> int:
        """The number of calls of op `name` before this one in the chain."""
        count = self.random_calls.get(name, 0)
        self.random_calls[name] = count + 1
        return count


def active_trace() -> Trace | None:
    """The current trace, if there is one."""
    return ACTIVE.get()


_PLAIN = frozenset({int, float, bool, str, type(None)})


ACTIVE: ContextVar[Trace | None] = ContextVar("gpupipe_trace", default=None)


TEXT = "<traced "
"""The start of every symbol's text."""


def _refusing(what: str, instead: str = "") -> Callable[..., NoReturn]:
    """A method that needs an actual value; `instead` is the op that does it."""

    def method(self: Any, *args: Any, **named: Any) -> NoReturn:
        refuse(what, instead)

    return method


def _operator(name: str) -> tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]:
    """The methods of an operator for its left and its right operand."""

    def left(self: Any, other: Any) -> Any:
        return binary(name, self, other)

    def right(self: Any, other: Any) -> Any:
        return binary(name, other, self)

    return left, right


class _Text(str):
    """The text of a symbol, for people to read; comparing it is refused, since it does not depend on the value."""

    __slots__ = ()
    __eq__ = __ne__ = __hash__ = _refusing("the text")


class Symbol:
    """Placeholder for a value in a traced function: it can be passed to ops and used in arithmetic, nothing else."""

    __slots__ = ("_batched", "_owner", "_value")
    __gpupipe_symbol__: ClassVar[bool] = True
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: Value, batched: bool = False, owner: Trace | None = None) -> None:
        object.__setattr__(self, "_value", value)
        object.__setattr__(self, "_batched", batched)
        object.__setattr__(self, "_owner", owner or ACTIVE.get())

    def leaf_of_param(self) -> tuple[Any, int] | None:
        """The parameter of the enclosing `interleave` or `flat_map` and the index of this leaf in it; else None."""
        active = ACTIVE.get()
        if active is None or active is not self._owner or active.param is None or not isinstance(self._value, Input):
            return None
        return active.param, self._value.index

    def __repr__(self) -> str:
        active = ACTIVE.get()
        if active is not None:
            active.shown = active.shown or user_site()
        return f"{TEXT}{self._value.spec.batched(None) if self._batched else self._value.spec}>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        refuse(f"the attribute .{name}", METHODS.get(name, ""))

    def __setattr__(self, name: str, value: Any) -> None:
        refuse(f"setting the attribute .{name}")

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, Symbol) and not (self._batched or key._batched or is_image(self._value)):
            return _record(Gather(wraps=True), (self, key), None)
        parts = checked_key(key)
        if parts is None:
            refuse("a subscript", "ops.gather(x, indices, axis)" if isinstance(key, (Symbol, list, np.ndarray)) else "")
        if self._batched and (parts := row_key(parts, self._value.spec.rank)) is None:
            refuse("a subscript that selects rows of a batch")
        return _record(Subscript(parts, given=self._value.spec), (self,), None)

    __iter__ = _refusing("iteration")
    __contains__ = _refusing("`in`")
    __bool__ = _refusing("a truth value (`if`, `and`, `not`)")
    __len__ = _refusing("len()")
    __int__ = _refusing("int()")
    __float__ = _refusing("float()")
    __index__ = _refusing("an index", "ops.gather(table, index)")
    __bytes__ = _refusing("bytes()")
    __fspath__ = _refusing("a path")
    __array__ = _refusing("NumPy")
    __setitem__ = _refusing("assignment to a part")

    def __str__(self) -> str:
        return _Text(repr(self))

    def __format__(self, spec: str) -> str:
        if spec:
            refuse(f"the format {spec!r}")
        return str(self)

    def __array_function__(self, function: Any, kinds: Any, args: Any, kwargs: Any) -> Any:
        """Handle `np.clip` of numbers; other functions need actual values."""
        if function is np.clip and len(args) == 3 and not kwargs and isinstance(args[0], Symbol):
            return clipped(*args)
        refuse(f"np.{function.__name__}", instead(function.__name__))

    def __array_ufunc__(self, function: Any, method: str, *xs: Any, **kwargs: Any) -> Any:
        """Handle NumPy's operators, including `array + x`, as Python's; other functions need actual values."""
        name = UFUNCS.get(function.__name__)
        if name is None or method != "__call__" or kwargs:
            refuse(f"np.{function.__name__}", instead(function.__name__))
        return binary(name, *xs) if len(xs) == 2 else _unary(name, *xs)

    __add__, __radd__ = _operator("add")
    __sub__, __rsub__ = _operator("sub")
    __mul__, __rmul__ = _operator("mul")
    __truediv__, __rtruediv__ = _operator("truediv")
    __floordiv__, __rfloordiv__ = _operator("floordiv")
    __mod__, __rmod__ = _operator("mod")
    __pow__, __rpow__ = _operator("pow")
    __and__, __rand__ = _operator("and")
    __or__, __ror__ = _operator("or")
    __xor__, __rxor__ = _operator("xor")
    __lt__, __gt__ = _operator("lt")[0], _operator("gt")[0]
    __le__, __ge__ = _operator("le")[0], _operator("ge")[0]
    __eq__, __ne__ = _operator("eq")[0], _operator("ne")[0]

    def __neg__(self) -> Any:
        return _unary("neg", self)

    def __invert__(self) -> Any:
        return _unary("invert", self)

    def __abs__(self) -> Any:
        return _unary("abs", self)


def part_of(x: Symbol, index: int) -> Any:
    """``x[index]`` of every element, also of the rows of a batch, where ``x[index]`` would select a row."""
    return _record(Subscript((index,), given=x._value.spec), (x,), None)


def refuse(what: str, instead: str = "") -> NoReturn:
    """Record that the function needs an actual value, and raise TraceError; `instead` is the op that does it."""
    text = refused(what, user_site(), instead)
    active = ACTIVE.get()
    if active is not None:
        active.refusals.append(text)
    raise TraceError(text)


def refused(what: str, where: str, instead: str = "") -> str:
    """The message of a refusal."""
    return (
        f"a traced function needs {what} of a value that exists only while the pipeline runs{at_line(where)}; "
        f"use {instead or 'ops for it'}, wrap the Python part in ops.py_function(fn, args, spec=...), "
        f"or map(fn, traced=False)"
    )


def _is_image(x: Any) -> bool:
    return isinstance(x, Symbol) and x._value.spec.layout is not None


def _unary(name: str, x: Symbol) -> Any:
    return _compute(Arithmetic(name, image=name not in ALIKE and _is_image(x)), x)


def clipped(x: Any, low: Any, high: Any) -> Any:
    """`x` limited to low..high, as `np.clip`."""
    x = x if low is None else binary("maximum", x, low)
    return x if high is None else binary("minimum", x, high)


def binary(name: str, left: Any, right: Any) -> Any:
    """An operator on two operands, at least one of them traced."""
    traced = [x._value.spec for x in (left, right) if isinstance(x, Symbol)]
    image = name not in ALIKE and any(spec.layout is not None for spec in traced)
    other = right if isinstance(left, Symbol) else left
    if isinstance(other, str):
        refuse("a comparison of bytes with str (compare with bytes: b'...')")
    if isinstance(other, Symbol):
        return _compute(Arithmetic(name, image=image), left, right)
    if isinstance(other, (bool, int, float, np.generic, bytes)):
        if isinstance(left, Symbol):
            return _compute(Arithmetic(name, right=other, image=image), left)
        return _compute(Arithmetic(name, left=other, image=image), right)
    if not isinstance(other, (np.ndarray, list, tuple)):
        return NotImplemented
    array = np.asarray(other)
    batched = next(x for x in (left, right) if isinstance(x, Symbol))
    if batched._batched and array.ndim > (batched._value.spec.rank or 0):
        refuse("arithmetic with an array that has a batch dimension")
    array = narrowed(array, traced)
    return _compute(Arithmetic(name, image=image), *((array, right) if isinstance(right, Symbol) else (left, array)))


def narrowed(x: Any, beside: Sequence[TensorSpec]) -> Any:
    """A captured array of float64 as float32, where it meets images, or integers that float32 holds."""
    if isinstance(x, (np.ndarray, list, tuple)) and any(s.layout is not None or is_narrow(s) for s in beside):
        array = np.asarray(x)
        return array.astype(np.float32) if array.dtype == np.float64 else array
    return x


def _compute(op: Arithmetic, *xs: Any) -> Any:
    specs = [x._value.spec if isinstance(x, Symbol) else spec_of(x) for x in xs]
    return _record(op.settled(*specs), xs, None)


def alike(name: str, a: Any, b: Any) -> Any:
    """`ops.minimum` and the like, on traced values and on arrays, with the same dtypes."""
    if isinstance(a, Symbol) or isinstance(b, Symbol):
        made = binary(name, a, b)
        if made is NotImplemented:
            raise PlanTypeError(f"{name} needs numbers, got {type(a).__name__} and {type(b).__name__}")
        return made
    left, right = (x if isinstance(x, (bool, int, float, np.generic)) else None for x in (a, b))
    arrays = [as_leaf(x) for x, number in ((a, left), (b, right)) if number is None]
    if not arrays:
        return OPERATORS[name](a, b)
    return run(Arithmetic(name, left=left, right=right).settled(*map(spec_of, arrays)), arrays, None)


def apply(op: Op, *xs: Any, seed: int | None = None, return_params: bool = False) -> Any:
    """Apply an op: record it inside a traced function, run it immediately on arrays.

    Args:
        op: the op with its parameters; a field named in its `traceable` may hold a traced host value.
        xs: its inputs: symbols, arrays, scalars or bytes.
        seed: identifies the draw; by default the call's number does. Calls with equal seeds draw the same for one
            element, also after a `zip`, but not in different inputs of it.
        return_params: also return what the op drew, last, in the form that it has as `Op.drawn`.

    Returns:
        One result, or a tuple for an op with several.
    """
    given, seed = seed, plain(seed)
    if seed is not None and not is_integer(seed):
        raise PlanTypeError(f"{op.name} needs seed to be an integer or None, got {given!r}")
    _check_parameters(op)
    _check_inputs(op, xs)
    op, traced = _normalized(op)
    if traced or ACTIVE.get() is not None or any(isinstance(x, Symbol) for x in xs):
        return _record(op, xs, seed, return_params)
    return run(op, xs, seed, return_params)


def _check_parameters(op: Op) -> None:
    """Refuse an array as a parameter: one number per element has to be a leaf of the element."""
    for name in op.traceable:
        value = getattr(op, name)
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, np.ndarray) and item.ndim:
                raise PlanTypeError(
                    f"{op.name} needs a number for {name}, got an array of shape {list(item.shape)}; "
                    f"a number per element has to be part of the element"
                )


def _check_inputs(op: Op, xs: Sequence[Any]) -> None:
    """Refuse structures: an op takes single values, and some ops a tuple of images."""
    for x in xs:
        kind = "dict" if isinstance(x, dict) else "list" if isinstance(x, list) and any(map(_is_symbol, x)) else ""
        if kind:
            parts = [f"x[{key!r}]" for key in (x if kind == "dict" else range(len(x)))]
            joint = any(f.name == "images" for f in fields(op))
            way = (
                f"give a tuple of images: {op.name}(({', '.join(parts)}))" if joint else f"give it {' or '.join(parts)}"
            )
            raise PlanTypeError(f"{op.name} needs {'images' if joint else 'a value'}, got a {kind}; {way[:300]}")


def _is_symbol(x: Any) -> bool:
    return isinstance(x, Symbol)


def _normalized(op: Op) -> tuple[Op, bool]:
    """Replace NumPy integers in the op's fields by Python's; also return whether a field holds a symbol.

    So equal calls make equal ops, and arithmetic with parameters does not overflow.
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


def _record(op: Op, xs: Sequence[Any], seed: int | None, return_params: bool = False) -> Any:
    active = ACTIVE.get()
    if active is None:
        raise TraceError(f"{op.name} got a traced value outside the function it belongs to{at_line(user_site())}")
    for x in xs:
        if isinstance(x, Symbol) and x._owner is not active:
            refuse("the use, in a function inside of it,")
    if active.calls == active.most:
        refuse(f"more than {active.most} operators")
    active.calls += 1
    line = user_site()
    batched = any(x._batched for x in xs if isinstance(x, Symbol)) if xs else active.batched
    if op.rows == "batch" and not batched:
        raise SpecError(
            f"{op.name} needs all rows of a batch at once, got one element{at_line(line)}; "
            f"put it into a map after batch: ds.batch(n).map(...)"
        )
    inputs = tuple(x._value if isinstance(x, Symbol) else Const(_constant(x)) for x in xs)
    op, args = _take_args(op)
    if op.stateful:  # else two calls that look the same would be merged
        op = replace(op, call=active.number(op.name))  # type: ignore[call-arg]
    params: tuple[Value, ...] = ()
    try:
        if op.parameters:
            site = active.site(op.name, seed) if op.random else ""
            draw = Draw(op, site, inputs, args, line=line)
            params = tuple(Item(draw, i) for i in range(len(op.parameters)))
        if any(value.spec.rank == 4 for value in inputs):
            op = over_frames(op, [value.spec for value in inputs])
        made = Apply(op, inputs, params, line)
    except PlanError as error:
        raise type(error)(f"{error}{at_line(line)}") from error.__cause__
    results: list[Value] = [made] if len(made.specs) == 1 else [Item(made, i) for i in range(len(made.specs))]
    if return_params:
        results.append(Apply(Drawn(op.drawn), (), params, line))
    first, *others = (Symbol(value, batched) for value in results)
    return (first, *others) if others else first


def _constant(x: Any) -> Any:
    return x if isinstance(x, (bool, int, float, bytes)) else as_leaf(x)


def _take_args(op: Op) -> tuple[Op, tuple[Value, ...]]:
    """Replace traced values in the op's fields by `Arg`s; return the op and the values."""
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
