"""notes: what `explain()` says of a transform stage."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields

from ..candidate import name_of
from ..evaluate import is_image
from ..graph import Apply, Const, Draw, Input, Item, Value
from ..transform.array import has_cupy
from ..transform.choose import Choice
from ..transform.program import Program
from .batchwise import array_calls

__all__ = ["StageNote"]


@dataclass(frozen=True)
class StageNote:
    """One transform stage in words.

    Attributes:
        where: the executor.
        why: why this one.
        size: what a group is.
        reads: host values that enter.
        ops: what runs, in order.
        gives: what leaves.
        buffers: what finished groups hold.
    """

    where: str
    why: str
    size: str
    reads: tuple[str, ...]
    ops: tuple[str, ...]
    gives: tuple[str, ...]
    buffers: str

    @classmethod
    def of(
        cls, choice: Choice, program: Program, how: str, size: int, ready: int, leaves: Sequence[Value] = ()
    ) -> StageNote:
        """Describe a program, the groups it runs on, and the array code that makes its leaves of the results."""
        groups = {
            "batch": f"batches of {size}",
            "rows": f"micro-batches of {size}",
            "unstack": "the rows of each batch",
        }
        given = tuple(dict.fromkeys(filter(is_image, leaves))) or program.outputs
        sizes = [_bytes(value) for value in given]
        held = "unknown sizes"
        if None not in sizes:
            held = f"{size * sum(n or 0 for n in sizes) * ready:,} bytes in {ready} finished batches"
        return cls(
            choice.label,
            choice.why,
            groups[how],
            tuple(map(_text, program.inputs)),
            (
                *(_call(v) for v in program.values if isinstance(v, Apply)),
                *(f"{_call(v)} as array code ({_library(choice)})" for v in array_calls(leaves)),
            ),
            tuple(str(value.spec) for value in given),
            held,
        )


def _library(choice: Choice) -> str:
    """What runs array code where this executor's results are."""
    if choice.device_id is None:
        return "NumPy"
    return f"CuPy on GPU {choice.device_id}" if has_cupy() else "NumPy, since CuPy is missing: batches go to the host"


def _call(apply: Apply) -> str:
    """An op with its parameters and what it gives."""
    only = "" if apply.op.supports("reference") or apply.op.rows == "batch" else ", on DALI only"
    return f"{apply.op.name}{_parameters(apply)} -> {' and '.join(map(str, apply.specs))}{only}"


def _parameters(apply: Apply) -> str:
    """The static parameters of an op, those that differ from their defaults."""
    shown = []
    for f in fields(apply.op):
        if not f.repr:
            continue
        value = getattr(apply.op, f.name)
        if isinstance(value, functools.partial):
            value = value.func
        if f.default is not MISSING and value == f.default:
            continue
        text = name_of(value) if callable(value) else repr(value)
        shown.append(f"{f.name}={text if len(text) < 60 else text[:57] + '...'}")
    return f"({', '.join(shown)})" if shown else ""


def _text(value: Value) -> str:
    match value:
        case Item(value=Draw() as draw, index=i):
            kind = "drawn" if draw.site else "computed"
            return f"{draw.op.name}.{draw.op.parameters[i]} ({kind} on the host)"
        case Input():
            return f"{value.spec}"
        case Const():
            return f"constant {value.spec}"
        case _:
            return str(value.spec)


def _bytes(value: Value) -> int | None:
    shape = value.spec.shape
    if shape is None or None in shape:
        return None
    size = value.spec.dtype.itemsize
    for n in shape:
        size *= n or 0
    return int(size)
