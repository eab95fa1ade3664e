"""difference: describe how two graphs differ that one function made in two calls.

Digests say whether two graphs are equal; this says where they differ, in words. Objects that a function creates in each
call, closures and callables, count as equal here if they look the same.
"""

from __future__ import annotations

import datetime
import enum
import functools
import types
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from pathlib import PurePath
from typing import Any

import numpy as np

from ..classes import dataclass
from ..ragged import Ragged
from .arithmetic import SIGNS, Arithmetic
from .classify import closure_of
from .op import Op
from .values import CONST_LIMIT, Apply, Const, Draw, Item, Value, topological

__all__ = ["Difference", "difference", "first_field", "same", "shown"]

_PLAIN = (
    bool, int, float, complex, str, bytes, bytearray, type(None), np.generic, np.dtype, PurePath, set, frozenset, range,
    slice, enum.Enum, datetime.date, datetime.time, datetime.timedelta,
)  # fmt: skip


_SAMPLE = 4096


_DEEP = 20


@dataclass(frozen=True, slots=True)
class Difference:
    """The first difference of two graphs or plans.

    Attributes:
        text: the first value, then the second.
        line: ``file:line`` of the user's code; "" if unknown.
        told: whether it is only logged, not refused.
    """

    text: str
    line: str
    told: bool = False


def difference(first: Sequence[Value], second: Sequence[Value]) -> Difference | None:
    """Compare two graphs value by value; None if they compute the same."""
    if [value.digest for value in first] == [value.digest for value in second]:
        return None
    before, after = topological(first), topological(second)
    numbers: tuple[dict[Value, int], dict[Value, int]] = ({}, {})
    for i, (a, b) in enumerate(zip(before, after, strict=False)):
        numbers[0][a], numbers[1][b] = i, i
        text = _unlike(a, b, *([known[x] for x in value.inputs] for known, value in zip(numbers, (a, b), strict=True)))
        if text is not None:
            return Difference(text, _line_of(a, before) or _line_of(b, after))
    if len(before) != len(after):
        more, rest = ("less", before) if len(before) > len(after) else ("more", after)
        extra = rest[min(len(before), len(after))]
        return Difference(f"{_named(extra)} {more} the second time", _line_of(extra, rest))
    if [numbers[0][value] for value in first] != [numbers[1][value] for value in second]:
        return Difference("results in a different order", "")
    return None


def _unlike(a: Value, b: Value, left: list[int], right: list[int]) -> str | None:
    """How two values differ, given the numbers of their inputs; None if they do not."""
    if type(a) is not type(b):
        return f"{_named(a)}, then {_named(b)}"
    if isinstance(a, Const) and isinstance(b, Const):
        return None if same(a.value, b.value) else f"{shown(a.value)}, then {shown(b.value)}"
    if (isinstance(a, Apply) and isinstance(b, Apply)) or (isinstance(a, Draw) and isinstance(b, Draw)):
        if type(a.op) is not type(b.op):
            return f"{a.op.name}, then {b.op.name}"
        found = first_field(a.op, b.op)
        if found is not None:
            return _of_op(a.op, found)
    if isinstance(a, Draw) and isinstance(b, Draw) and a.site != b.site:
        return f"{a.op.name} as the random call {a.site}, then {b.site}"
    if getattr(a, "index", 0) != getattr(b, "index", 0):
        return f"part {getattr(a, 'index', 0)}, then {getattr(b, 'index', 0)}"
    return None if left == right else f"{_named(a)} of one value, then of another"


def _of_op(op: Op, found: tuple[str, Any, Any]) -> str:
    name, before, after = found
    if isinstance(op, Arithmetic):
        if name == "operator":
            return f"{SIGNS.get(before, before)}, then {SIGNS.get(after, after)}"
        return f"{shown(before)}, then {shown(after)} in {SIGNS.get(op.operator, op.operator)}"
    return f"{op.name} with {name}={shown(before)}, then {shown(after)}"


def _named(value: Value) -> str:
    match value:
        case Const():
            return f"the constant {shown(value.value)}"
        case Apply() | Draw():
            return f"{value.op.name}"
        case Item():
            return _named(value.value)
        case _:
            return "a part of the element"


def _line_of(value: Value, order: Sequence[Value]) -> str:
    """The line that made a value; for a constant, the line that first uses it."""
    if value.line:
        return value.line
    return next((user.line for user in order if user.line and value in user.inputs), "")


def shown(value: Any) -> str:
    """A value as short text, for a message."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)} {_cut(np.array2string(value, threshold=6, edgeitems=2))}"
    if isinstance(value, np.generic):
        value = value.item()
    return _cut(repr(value))


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 60 else text[:57] + "..."


def first_field(a: Any, b: Any) -> tuple[str, Any, Any] | None:
    """Name and both values of the first field in which two dataclasses of one type differ."""
    for f in fields(a):
        before, after = getattr(a, f.name), getattr(b, f.name)
        if f.compare and not same(before, after):
            return f.name, before, after
    return None


def same(a: Any, b: Any, depth: int = 0) -> bool:
    """Whether two values look equal.

    Functions are compared by code and captured values, arrays of more than 1 MB by a sample, and objects of unknown
    types by class.
    """
    if a is b or depth > _DEEP:
        return True
    if type(a) is not type(b):
        return False
    pairs: list[tuple[Any, Any]]
    match a:
        case np.ndarray():
            return _same_array(a, b)
        case _ if isinstance(a, _PLAIN):
            return bool(a == b) or bool(a != a and b != b)  # NaN equals NaN here
        case tuple() | list():
            pairs = [(len(a), len(b)), *zip(a, b, strict=False)]
        case dict():
            pairs = [(list(a), list(b)), *zip(a.values(), b.values(), strict=False)]
        case types.FunctionType():
            pairs = [(a.__code__, b.__code__), (closure_of(a), closure_of(b))]
        case types.CodeType():
            return a.co_code == b.co_code and a.co_names == b.co_names and same(a.co_consts, b.co_consts, depth + 1)
        case types.MethodType():
            pairs = [(a.__func__, b.__func__), (a.__self__, b.__self__)]
        case functools.partial():
            pairs = [(a.func, b.func), (a.args, b.args), (a.keywords, b.keywords)]
        case Value():
            return difference([a], [b]) is None
        case Ragged():
            pairs = [(a.leaf_parts(), b.leaf_parts())]
        case type():
            return f"{a.__module__}.{a.__qualname__}" == f"{b.__module__}.{b.__qualname__}"
        case _ if is_dataclass(a):
            pairs = [(getattr(a, f.name, None), getattr(b, f.name, None)) for f in fields(a) if f.compare]
        case _:
            return True
    return all(same(left, right, depth + 1) for left, right in pairs)


def _same_array(a: Any, b: Any) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.nbytes > CONST_LIMIT:  # a dataset, possibly memory-mapped and as large as a disk
        if a.__array_interface__["data"] == b.__array_interface__["data"] and a.strides == b.strides:
            return True
        each = max(1, int(_SAMPLE ** (1 / a.ndim)))
        a, b = (x[tuple(slice(None, None, -(-n // each)) for n in x.shape)] for x in (a, b))
    return bool(np.array_equal(a, b, equal_nan=a.dtype.kind in "fc"))
