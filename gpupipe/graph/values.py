"""values: a user's function as data. Values know how they are computed and never hold pixels.

    Input       a column of the element that enters the graph
    Identity    the key of an element (its own, or that of another input of a zip)
    Const       a number or a small array, captured when the function was traced
    Draw        host parameters of a batch: random numbers, windows, sizes
    Apply       an op applied to values; deterministic, given its parameters
    Item        one result of a value that has several

Values are compared by digest, which is computed once, from the digests of their inputs; so comparing graphs takes
constant time. The line of user code that made a value is remembered and not compared.
"""

from __future__ import annotations

import functools
import hashlib
import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..brief import brief, cut
from ..errors import PlanError, PlanTypeError
from ..spec import Compound, TensorSpec, spec_of
from .classify import closure_of
from .op import Op

__all__ = ["Apply", "Const", "Draw", "Identity", "Input", "Item", "Value", "digest_of", "substitute", "topological"]

Array = npt.NDArray[Any]


CONST_LIMIT = 1 << 20
"""Largest captured array, in bytes; captured arrays are copied and made read-only. Larger ones are compared by address,
and arrays of more bytes or text by their elements' identity."""


def digest_of(*parts: Any, loose: bool = False) -> bytes:
    """A 16-byte digest of nested plain data, ops, arrays and values; equal in every process where all is plain.

    Args:
        parts: the data.
        loose: compare objects that are neither plain data nor functions by type. Otherwise they are compared by
            identity, so the owner of the digest has to keep them alive.
    """
    hasher = hashlib.blake2b(digest_size=16)
    stack: list[Any] = [parts]
    seen: set[int] = set()
    while stack:
        part = stack.pop()
        if isinstance(part, Value):
            hasher.update(b"V" + part.digest)
        elif isinstance(part, bytes):
            hasher.update(b"B%d:" % len(part) + part)
        elif isinstance(part, (tuple, list)):
            hasher.update(b"T%d:" % len(part))
            if set(map(type, part)) == {str}:  # what is done with each below, at once: a list of files is long
                hasher.update("".join([f"str={text!r};" for text in part]).encode())
            else:
                stack.extend(reversed(part))
        elif isinstance(part, dict):
            hasher.update(b"D%d:" % len(part))
            stack.extend(item for pair in reversed(part.items()) for item in reversed(pair))
        elif isinstance(part, np.ndarray):
            _add_array(hasher, part)
        elif isinstance(part, Compound):
            stack.append((type(part), part.leaf_parts()))
        elif is_dataclass(part) and not isinstance(part, type) and not (callable(part) and not isinstance(part, Op)):
            hasher.update(f"O{type(part).__module__}.{type(part).__qualname__}:".encode())
            stack.extend(getattr(part, f.name) for f in reversed(fields(part)) if f.compare)
        elif isinstance(part, types.FunctionType):
            hasher.update(f"F{part.__module__}.{part.__qualname__}:".encode())
            if id(part) not in seen:  # a function may capture itself
                seen.add(id(part))
                stack.append(_function_parts(part, loose))
        elif isinstance(part, types.CodeType):
            hasher.update(b"C" + part.co_code + repr(part.co_names).encode())
            stack.append(part.co_consts)
        elif isinstance(part, types.MethodType):
            stack.append((part.__func__, _comparable(part.__self__, loose)))
        elif isinstance(part, functools.partial):
            captured = [_comparable(value, loose) for value in (*part.args, *part.keywords.values())]
            stack.append(("partial", part.func, captured, list(part.keywords)))
        elif isinstance(part, type):
            hasher.update(f"K{part.__module__}.{part.__qualname__}:".encode())
        elif callable(part):
            hasher.update(f"I{type(part).__module__}.{_comparable(part, loose)}:".encode())
        else:
            hasher.update(f"{type(part).__name__}={part!r};".encode())
    return hasher.digest()


def _add_array(hasher: Any, array: Array) -> None:
    hasher.update(f"A{array.dtype.str}{array.shape}:".encode())
    if array.nbytes > CONST_LIMIT:  # a dataset, not a constant: compared by memory address
        hasher.update(f"{array.__array_interface__['data'][0]}{array.strides}".encode())
    elif array.dtype == object and sum(len(x) for x in array.flat if isinstance(x, (bytes, str))) > CONST_LIMIT:
        hasher.update(np.fromiter(map(id, array.flat), np.uint64, array.size).tobytes())  # as above, by its elements
    elif array.dtype == object:
        hasher.update(repr(array.tolist()).encode())
    else:
        hasher.update(np.ascontiguousarray(array).tobytes())


def _function_parts(fn: types.FunctionType, loose: bool) -> tuple[Any, ...]:
    """A function's code and captured values; re-evaluated lambdas share code, so chains built in a loop are equal."""
    return (fn.__code__, [_comparable(value, loose) for value in closure_of(fn)])


def _comparable(value: Any, loose: bool) -> Any:
    """The part of a captured object that is compared: its value if it is plain, else its identity."""
    if isinstance(value, (bool, int, float, str, bytes, type(None), np.ndarray, np.generic, types.FunctionType, type)):
        return value
    if isinstance(value, (types.MethodType, functools.partial)):
        return value
    if isinstance(value, tuple):
        return tuple(_comparable(item, loose) for item in value)
    return f"{type(value).__qualname__}" if loose else f"{type(value).__qualname__} {id(value)}"


class Value:
    """Base of all values of a graph."""

    __slots__ = ("digest", "line", "spec")

    digest: bytes
    spec: TensorSpec
    line: str

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The values that this one is computed from."""
        return ()

    def rebuild(self, inputs: tuple[Value, ...]) -> Value:
        """This computation on other inputs."""
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Value) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


class Input(Value):
    """Column `index` of the element that enters the graph."""

    __slots__ = ("index",)

    def __init__(self, index: int, spec: TensorSpec) -> None:
        self.index, self.spec, self.line = index, spec, ""
        self.digest = digest_of("input", index, spec)

    def __repr__(self) -> str:
        return f"Input({self.index}: {self.spec})"


class Identity(Value):
    """The key of the element, or (index >= 0) a key that is stored in a column."""

    __slots__ = ("index",)

    def __init__(self, index: int = -1) -> None:
        self.index, self.spec, self.line = index, TensorSpec((), "uint64"), ""
        self.digest = digest_of("identity", index)

    def __repr__(self) -> str:
        return f"Identity({self.index})"


OWN = Identity()


class Const(Value):
    """A captured constant: a Python number (weakly typed, as in NumPy), bytes, or an array of at most 1 MB."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        if isinstance(value, np.ndarray):
            if value.nbytes > CONST_LIMIT:
                raise PlanError(
                    f"a traced function captures arrays of at most {CONST_LIMIT} bytes, got {value.nbytes}; "
                    f"make it a feature of the dataset (zip it in) or use a plain Python function"
                )
            value = value.copy()
            value.flags.writeable = False
            self.spec = spec_of(value)
        elif isinstance(value, (bool, int, float, np.generic)):
            array = np.asarray(value)
            if array.dtype == object:
                raise PlanError(f"a constant needs to fit 64 bits, got {value!r}")
            self.spec = spec_of(array)
        elif isinstance(value, bytes):
            self.spec = TensorSpec((), bytes)
        else:
            raise PlanTypeError(f"a traced function can hold numbers, arrays and bytes, got {type(value).__name__}")
        self.value, self.line = value, ""
        self.digest = digest_of("const", type(value).__name__, str(getattr(value, "dtype", "")), value)

    def __repr__(self) -> str:
        return f"Const({brief(self.value, 60)})"


class Draw(Value):
    """The host parameters of one op call, for a batch: what `op.draw` returns.

    Attributes:
        op: the op as the user called it; traced fields hold `Arg(n)`.
        site: the name of this random call in the chain; "" where nothing random is drawn.
        x: the inputs of the call; `draw` gets the size of the first.
        args: the traced host values that the `Arg`s refer to.
        key: the identity that the numbers depend on.
    """

    __slots__ = ("args", "key", "op", "site", "x")

    def __init__(
        self, op: Op, site: str, x: tuple[Value, ...], args: tuple[Value, ...] = (), key: Value = OWN, line: str = ""
    ) -> None:
        self.op, self.site, self.x, self.args, self.key, self.line = op, site, x, args, key, line
        self.spec = TensorSpec((), "float32")
        self.digest = digest_of("draw", op, site, x, args, key)

    @property
    def inputs(self) -> tuple[Value, ...]:
        return (*self.x, *self.args, self.key)

    def rebuild(self, inputs: tuple[Value, ...]) -> Value:
        n = len(self.x)
        return Draw(self.op, self.site, inputs[:n], inputs[n:-1], inputs[-1], self.line)

    def __repr__(self) -> str:
        return f"Draw({self.op.name} {self.site})"


class Apply(Value):
    """An op applied to values.

    Attributes:
        x: its inputs.
        params: its host parameters, `Item`s of a `Draw`.
        specs: one spec per result; the Apply itself stands for a single result.
    """

    __slots__ = ("op", "params", "specs", "x")

    def __init__(self, op: Op, x: tuple[Value, ...], params: tuple[Value, ...] = (), line: str = "") -> None:
        inferred = op.infer(*(value.spec for value in x))
        self.specs = inferred if isinstance(inferred, tuple) else (inferred,)
        self.spec = self.specs[0]
        self.op, self.x, self.params, self.line = op, x, params, line
        self.digest = digest_of("apply", op, x, params)

    @property
    def inputs(self) -> tuple[Value, ...]:
        return (*self.x, *self.params)

    def rebuild(self, inputs: tuple[Value, ...]) -> Value:
        n = len(self.x)
        return Apply(self.op, inputs[:n], inputs[n:], self.line)

    def __repr__(self) -> str:
        return cut(f"{self.op.name}({', '.join(map(_name, self.x))})", 300)


class Item(Value):
    """Result `index` of a value that has several (an Apply with several specs, or a Draw)."""

    __slots__ = ("index", "value")

    def __init__(self, value: Apply | Draw, index: int) -> None:
        self.value, self.index, self.line = value, index, value.line
        self.spec = value.specs[index] if isinstance(value, Apply) else value.spec
        self.digest = digest_of("item", value, index)

    @property
    def inputs(self) -> tuple[Value, ...]:
        return (self.value,)

    def rebuild(self, inputs: tuple[Value, ...]) -> Value:
        (value,) = inputs
        if not isinstance(value, (Apply, Draw)):
            raise TypeError(f"an Item needs a value with several results, got {value!r}")
        return Item(value, self.index)

    def __repr__(self) -> str:
        return f"{_name(self.value)}[{self.index}]"


def _name(value: Value) -> str:
    """A value without its inputs: written as a tree, a graph with shared parts can be exponentially long."""
    if isinstance(value, Item):
        return f"{_name(value.value)}[{value.index}]"
    return f"{value.op.name}(...)" if isinstance(value, Apply) else repr(value)


def topological(outputs: Iterable[Value], *, through_draws: bool = True) -> list[Value]:
    """Every value that `outputs` depend on, each once, inputs before users.

    Args:
        outputs: the values to start from.
        through_draws: whether to include the inputs of a Draw, which needs their sizes and never their pixels.
    """
    order: dict[Value, None] = {}
    stack = list(outputs)[::-1]
    while stack:
        value = stack.pop()
        inputs = () if isinstance(value, Draw) and not through_draws else value.inputs
        waiting = [x for x in inputs if x not in order]
        if waiting:
            stack += [value, *reversed(waiting)]
        else:
            order[value] = None
    return list(order)


def rewrite_values(outputs: Sequence[Value], rule: Callable[[Value], Value]) -> tuple[Value, ...]:
    """Rebuild the graph from its inputs up, applying `rule` once to each rebuilt value."""
    done: dict[Value, Value] = {}
    for value in topological(outputs):
        inputs = value.inputs
        new = tuple(done[below] for below in inputs)
        done[value] = rule(value if new == inputs else value.rebuild(new))
    return tuple(done[output] for output in outputs)


def substitute(outputs: Sequence[Value], columns: Sequence[Value], own: Value = OWN) -> tuple[Value, ...]:
    """Put `columns` in place of the Inputs, and `own` in place of the element's identity."""

    def rule(value: Value) -> Value:
        if isinstance(value, Input):
            return columns[value.index]
        if isinstance(value, Identity) and value.index < 0:
            return own
        return value

    return rewrite_values(outputs, rule)
