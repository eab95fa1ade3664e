"""symbols: placeholders that a traced function is called with, which record the operations applied to them.

Every operation that needs an actual value is recorded as a refusal, so that an `except` in the function cannot hide it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import field, replace
from typing import Any, ClassVar, NoReturn

import numpy as np

from ..classes import dataclass
from ..errors import PlanError, PlanTypeError, SpecError, TraceError
from ..integers import is_integer, plain
from ..spec import TensorSpec, as_leaf, spec_of
from ..structure import Carrier
from .arithmetic import ALIKE, OPERATORS, Arithmetic, is_narrow
from .calls import applied, check_inputs, check_parameters, normalized, take_args, value_of
from .drawn import Drawn, Measured
from .eager import Use, run, run_together
from .gather import Gather
from .host_values import is_image
from .numpy_names import METHODS, UFUNCS, instead
from .op import Op
from .shapes import Subscript, checked_key, row_key
from .sites import at_line, user_site
from .values import Apply, Draw, Input, Item, Value

__all__ = [
    "ACTIVE",
    "TEXT",
    "Symbol",
    "Trace",
    "active_trace",
    "alike",
    "apply",
    "apply_together",
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
            return _one(Gather(wraps=True), self, key)
        parts = checked_key(key)
        if parts is None:
            refuse("a subscript", "ops.gather(x, indices, axis)" if isinstance(key, (Symbol, list, np.ndarray)) else "")
        if self._batched and (parts := row_key(parts, self._value.spec.rank)) is None:
            refuse("a subscript that selects rows of a batch", "x[..., key] for a part of each row")
        return _one(Subscript(parts, given=self._value.spec), self)

    __iter__ = _refusing("iteration")
    __contains__ = _refusing("`in`")
    __bool__ = _refusing("a truth value (`if`, `and`, `not`)")
    __len__ = _refusing("len()")
    __int__ = _refusing("int()")
    __float__ = _refusing("float()")

    def __index__(self) -> NoReturn:
        if self._value.spec.dtype is bytes:  # what `open` asks for first
            refuse("a path or an index", "gp.io.read_file(path)")
        refuse("an index", "ops.gather(table, index)")

    __bytes__ = _refusing("bytes()")
    __fspath__ = _refusing("a path", "gp.io.read_file(path)")
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
    return _one(Subscript((index,), given=x._value.spec), x)


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


def _one(op: Op, *xs: Any) -> Any:
    """The only result of an op."""
    return _record(op, xs, None)[0]


def _compute(op: Arithmetic, *xs: Any) -> Any:
    specs = [x._value.spec if isinstance(x, Symbol) else spec_of(x) for x in xs]
    return _one(op.settled(*specs), *xs)


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
    if any(isinstance(x, Carrier) for x in xs):
        return _carried(op, xs, seed, return_params)
    op, seed, traced = _prepared(op, xs, seed)
    if not traced:
        return run(op, xs, seed, return_params)
    first, *others = _record(op, xs, seed, return_params)
    return (first, *others) if others else first


def apply_together(
    op: Op,
    xs: Sequence[Any],
    uses: Sequence[Use] = (),
    *,
    of: Sequence[Any] = (),
    seed: int | None = None,
    return_params: bool = False,
) -> list[Any]:
    """Apply an op, and others with what it drew: the results of all, in one list.

    Args:
        op: as in `apply`, like its other arguments; arrays are one element.
        xs: its inputs.
        uses: for each other op how it is made of `op`, and its inputs. It takes the parameters of `op`, and, if it has
            one more, the size of the image.
        of: images of one size, which draws get; () for those that are the inputs.
        seed: as in `apply`.
        return_params: as in `apply`; what was drawn comes before the results of the others.
    """
    op, seed, traced = _prepared(op, xs, seed)
    values = [*of, *xs, *(x for _, inputs in uses for x in inputs)]
    if traced or any(isinstance(x, Symbol) for x in values):
        return _record(op, xs, seed, return_params, uses, of)
    return run_together(op, xs, uses, of, seed, return_params)


def _carried(op: Op, xs: Sequence[Any], seed: int | None, return_params: bool) -> Any:
    """Apply an op to what a carrier, the first input, has for it."""
    first, *others = xs
    if not op.still or return_params or not isinstance(first, Carrier) or any(isinstance(x, Carrier) for x in others):
        kind = next(type(x).__name__ for x in xs if isinstance(x, Carrier))
        raise PlanTypeError(
            f"{op.name} needs single values, got a {kind}, whose boxes, keypoints and masks it cannot keep in step; "
            f"give it the image alone, as in dataclasses.replace(s, image=ops.{op.name}(s.image)) if that is meant"
        )
    return first.through(lambda x: apply(op, x, *others, seed=seed))


def _prepared(op: Op, xs: Sequence[Any], seed: int | None) -> tuple[Op, int | None, bool]:
    """The op and the seed, checked and made plain; and whether the call is part of a trace."""
    given, seed = seed, plain(seed)
    if seed is not None and not is_integer(seed):
        raise PlanTypeError(f"{op.name} needs seed to be an integer or None, got {given!r}")
    check_parameters(op)
    check_inputs(op, xs)
    op, traced = normalized(op)
    return op, seed, traced or ACTIVE.get() is not None or any(isinstance(x, Symbol) for x in xs)


def _record(
    op: Op,
    xs: Sequence[Any],
    seed: int | None,
    return_params: bool = False,
    uses: Sequence[Use] = (),
    of: Sequence[Any] = (),
) -> list[Any]:
    active = ACTIVE.get()
    if active is None:
        raise TraceError(f"{op.name} got a traced value outside the function it belongs to{at_line(user_site())}")
    every = [x for x in (*xs, *of, *(x for _, inputs in uses for x in inputs)) if isinstance(x, Symbol)]
    if any(x._owner is not active for x in every):
        refuse("the use, in a function inside of it,")
    if active.calls == active.most:
        refuse(f"more than {active.most} operators")
    active.calls += 1
    line = user_site()
    batched = any(x._batched for x in every) if xs else active.batched
    if op.rows == "batch" and not batched:
        raise SpecError(
            f"{op.name} needs all rows of a batch at once, got one element{at_line(line)}; "
            f"put it into a map after batch: ds.batch(n).map(...)"
        )
    inputs = tuple(map(value_of, xs))
    op, args = take_args(op)
    if op.stateful:  # else two calls that look the same would be merged
        op = replace(op, call=active.number(op.name))  # type: ignore[call-arg]
    params: tuple[Value, ...] = ()
    sized = tuple(map(value_of, of)) or inputs
    try:
        if op.parameters:
            site = active.site(op.name, seed) if op.random else ""
            draw = Draw(op, site, sized, args, line=line)
            params = tuple(Item(draw, i) for i in range(len(op.parameters)))
        results = applied(op, inputs, params, line)
        if return_params:
            results.append(Apply(Drawn(op.drawn), (), params, line))
        for make, others in uses:
            use = make(op)
            more = () if len(use.parameters) == len(params) else (Item(Draw(Measured(), "", sized[:1], line=line), 0),)
            results += applied(use, tuple(map(value_of, others)), (*params, *more), line)
    except PlanError as error:
        raise type(error)(f"{error}{at_line(line)}") from error.__cause__
    return [Symbol(value, batched) for value in results]
