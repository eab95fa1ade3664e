"""calls: the arguments of a call of an op, before it is recorded or run: checked, made plain, traced ones taken out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from ..errors import PlanTypeError, SpecError
from ..integers import plain
from ..spec import as_leaf
from .frames import over_frames
from .op import Arg, Op, check_area, check_flag
from .values import Apply, Const, Item, Value

__all__ = ["applied", "check_inputs", "check_parameters", "normalized", "take_args", "value_of"]

_FLAGS: dict[type[Op], tuple[str, ...]] = {}
"""The fields of each kind of op that are True or False."""

_PLAIN = frozenset({int, float, bool, str, type(None)})


def check_parameters(op: Op) -> None:
    """Refuse a flag that is none, and an array: one number per element has to be a leaf of the element."""
    kind = type(op)
    if kind not in _FLAGS:
        _FLAGS[kind] = tuple(field.name for field in fields(op) if field.type in ("bool", bool))
    for name in _FLAGS[kind]:
        check_flag(op.name, name, getattr(op, name))
    for name in op.traceable:
        value = getattr(op, name)
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, np.ndarray) and item.ndim:
                raise PlanTypeError(
                    f"{op.name} needs a number for {name}, got an array of shape {list(item.shape)}; "
                    f"a number per element has to be part of the element"
                )


def check_inputs(op: Op, xs: Sequence[Any]) -> None:
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
    return hasattr(type(x), "__gpupipe_symbol__")


def normalized(op: Op) -> tuple[Op, bool]:
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
        traced = traced or any(_is_symbol(item) for item in (value if isinstance(value, tuple) else (value,)))
    return replace(op, **changed) if changed else op, traced


def take_args(op: Op) -> tuple[Op, tuple[Value, ...]]:
    """Replace traced values in the op's fields by `Arg`s; return the op and the values."""
    args: list[Value] = []

    def taken(name: str, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(taken(name, item) for item in value)
        if not _is_symbol(value):
            return value
        if name not in op.traceable:
            raise SpecError(f"{op.name} needs a plain value for {name}, got a traced one")
        args.append(value._value)
        return Arg(len(args) - 1)

    changed = {f.name: taken(f.name, getattr(op, f.name)) for f in fields(op)}
    return (replace(op, **changed), tuple(args)) if args else (op, ())


def applied(op: Op, inputs: tuple[Value, ...], params: tuple[Value, ...], line: str) -> list[Value]:
    """The results of an op on images, or on the frames of clips."""
    if any(value.spec.rank == 4 for value in inputs):
        op = over_frames(op, [value.spec for value in inputs])
    made = Apply(op, inputs, params, line)
    check_area(op, [value.spec for value in inputs], made.specs)
    return [made] if len(made.specs) == 1 else [Item(made, i) for i in range(len(made.specs))]


def value_of(x: Any) -> Value:
    """The value of a symbol, or a constant."""
    if _is_symbol(x):
        found: Value = x._value
        return found
    return Const(x if isinstance(x, (bool, int, float, bytes)) else as_leaf(x))
