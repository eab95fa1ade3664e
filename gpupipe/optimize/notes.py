"""notes: what `explain()` says of a transform stage."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields

from ..graph import Apply, Const, Draw, Input, Item, Value
from ..transform.choose import Choice
from ..transform.program import Program

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
    def of(cls, choice: Choice, program: Program, how: str, size: int, ready: int) -> StageNote:
        """Describe a program and the groups it runs on."""
        groups = {
            "batch": f"batches of {size}",
            "rows": f"micro-batches of {size}",
            "unstack": "the rows of each batch",
        }
        sizes = [_bytes(value) for value in program.outputs]
        held = "unknown sizes"
        if None not in sizes:
            held = f"{size * sum(n or 0 for n in sizes) * (ready + 1):,} bytes in {ready + 1} finished batches"
        return cls(
            choice.label,
            choice.why,
            groups[how],
            tuple(map(_text, program.inputs)),
            tuple(f"{v.op.name}{_parameters(v)} -> {v.spec}" for v in program.values if isinstance(v, Apply)),
            tuple(str(value.spec) for value in program.outputs),
            held,
        )


def _parameters(apply: Apply) -> str:
    """The static parameters of an op, those that differ from their defaults."""
    shown = []
    for f in fields(apply.op):
        value = getattr(apply.op, f.name)
        if f.default is not MISSING and value == f.default:
            continue
        text = repr(value)
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
