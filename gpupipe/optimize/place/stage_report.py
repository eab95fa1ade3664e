"""stage_report: the description of a transform stage in `explain()`."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import MISSING, fields, replace

from ...classes import dataclass
from ...extract.images.region import region_decoder
from ...graph.classify import name_of
from ...graph.frames import Frames
from ...graph.host_values import is_image
from ...graph.op import Op
from ...graph.values import Apply, Const, Draw, Input, Item, Value
from ...ops._shared.one_size import OneSize
from ...plan.node import Node
from ...transform import array
from ...transform.choose import Choice
from ...transform.program import Program
from ..pending import size_of
from .batchwise import array_calls
from .to_host import ToHost

__all__ = ["StageNote"]


@dataclass(frozen=True)
class StageNote:
    """One transform stage in words.

    Attributes:
        where: the executor.
        why: the reason for choosing it.
        size: the groups that it computes.
        reads: host values that enter.
        ops: the operations, in order.
        gives: the specs of the results.
        buffers: the memory of finished groups.
        gpu: ordinal of the GPU that results are on; None for the host.
        to_host: the results copied to the host, if any are.
        decodes: whether DALI decodes images in it, which `Options.verify` checks.
        each: for `to_host`, the unit of results ("batch", "element" or "row") and its bytes; None if unknown.
    """

    where: str
    why: str
    size: str
    reads: tuple[str, ...]
    ops: tuple[str, ...]
    gives: tuple[str, ...]
    buffers: str
    gpu: int | None
    each: tuple[str, int | None]
    to_host: ToHost | None = None
    decodes: bool = False

    def copied_to_host(self, reader: str, line: str, node: Node | None = None) -> StageNote:
        """The note of a stage whose results are read on the host; see `ToHost`."""
        assert self.gpu is not None
        return replace(self, to_host=ToHost(self.gpu, reader, line, node, *self.each))

    @classmethod
    def of(
        cls,
        choice: Choice,
        program: Program,
        how: str,
        size: int,
        ready: int,
        leaves: Sequence[Value] = (),
        stays: bool = True,
    ) -> StageNote:
        """Describe a program, the groups it runs on, and the array code that makes the leaves from its results.

        `stays` says whether array code gets the results on the device that computed them.
        """
        groups = {
            "batch": f"batches of {size}",
            "rows": f"micro-batches of {size}",
            "unstack": "the rows of each batch",
        }
        given = tuple(dict.fromkeys(filter(is_image, leaves))) or program.outputs
        row = size_of([value.spec for value in given])
        held = "unknown sizes" if row is None else f"{size * row * ready:,} bytes in {ready} finished batches"
        each = {"batch": ("batch", row and row * size), "rows": ("element", row), "unstack": ("row", row)}[how]
        return cls(
            choice.label,
            choice.why,
            groups[how],
            tuple(map(_text, program.inputs)),
            (
                *(_call(v) + _windows(choice, v.op) for v in program.values if isinstance(v, Apply) and _is_call(v)),
                *(f"{_call(v)} as array code ({_library(choice, stays)})" for v in array_calls(leaves)),
            ),
            tuple(str(value.spec) for value in given),
            held,
            choice.device_id,
            each,
            decodes=choice.runs_dali
            and any(isinstance(v, Apply) and v.op.decodes and not v.op.before_graph for v in program.values),
        )


def _library(choice: Choice, stays: bool) -> str:
    """The library that runs array code on the device of the executor's results."""
    if choice.device_id is None or not stays:
        return "NumPy"
    if array.has_cupy():
        return f"CuPy on GPU {choice.device_id}"
    return "NumPy, since CuPy is missing: batches go to the host"


def _windows(choice: Choice, op: Op) -> str:
    """The library that decodes windows for an op of the executor "fast"; "" for any other."""
    if choice.executor != "fast" or not (op.decodes and op.supports("fast")):
        return ""
    return ", by nvImageCodec" if region_decoder() else ", by simplejpeg: nvImageCodec, which DALI brings, is faster"


def _is_call(apply: Apply) -> bool:
    """Whether an op is one that the user called or the optimizer made, rather than a comparison of sizes."""
    return not isinstance(apply.op, OneSize)


def _call(apply: Apply) -> str:
    """An op with its parameters and the specs of its results."""
    only = "" if apply.op.supports("reference") or apply.op.rows == "batch" else ", on DALI only"
    return f"{apply.op.name}{_parameters(apply)} -> {' and '.join(map(str, apply.specs))}{only}"


def _parameters(apply: Apply) -> str:
    """The static parameters of an op that differ from their defaults."""
    shown = []
    op = apply.op.op if isinstance(apply.op, Frames) else apply.op
    for f in fields(op):
        if not f.repr:
            continue
        value = getattr(op, f.name)
        if isinstance(value, functools.partial):
            value = value.func
        if f.default is not MISSING and value == f.default:
            continue
        text = name_of(value) if callable(value) else repr(value)
        shown.append(f"{f.name}={text if len(text) < 60 else text[:57] + '...'}")
    return f"({', '.join(shown)})" if shown else ""


def _text(value: Value) -> str:
    match value:
        case Item(value=Draw(op=OneSize() as op)):
            return f"sizes of the images of {op.stage} (compared on the host)"
        case Item(value=Draw() as draw, index=i):
            kind = "drawn" if draw.site else "computed"
            return f"{draw.op.name}.{draw.op.parameters[i]} ({kind} on the host)"
        case Input():
            return f"{value.spec}"
        case Const():
            return f"constant {value.spec}"
        case _:
            return str(value.spec)
