"""place: compute what is pending: on the host if all of it is host work, else in a transform stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..errors import GpupipeError
from ..evaluate import is_image
from ..flow.base import Flow
from ..flow.fetch import FetchFlow
from ..flow.host import HeaderCheck, HostFlow, HostProgram
from ..flow.stage import StageFlow
from ..graph import Apply, Const, Draw, Identity, Input, Item, Value, topological
from ..options import Settings, parse_device
from ..plan.node import Element
from ..transform.choose import Choice, make_executor, resolve_device
from ..transform.program import Program
from .graph_rules import optimize_values
from .pending import Pending

__all__ = ["MICRO_BATCH", "Placer", "StageNote"]

MICRO_BATCH = 32
"""Rows of a group where no batch ends the stage."""


@dataclass(frozen=True)
class StageNote:
    """What `explain()` says of one transform stage."""

    label: str
    where: str
    why: str
    size: str
    ops: tuple[str, ...]
    reads: tuple[str, ...]
    gives: tuple[str, ...]
    rules: tuple[str, ...]
    buffers: str


@dataclass
class Placer:
    """Places pending chains.

    Attributes:
        settings: of the run.
        dry: nothing will run: an executor that this machine does not have is described, not refused.
        notes: one per transform stage, in the order in which they were placed.
    """

    settings: Settings
    dry: bool = False
    notes: list[StageNote] = field(default_factory=list)
    fired: dict[str, int] = field(default_factory=dict)
    _choice: Choice | None = None

    def choice(self) -> Choice:
        """The executor of this chain, decided when the first image needs one."""
        if self._choice is None:
            try:
                self._choice = resolve_device(self.settings)
            except GpupipeError as error:
                if not self.dry:
                    raise
                self._choice = wished(self.settings, f"but it cannot run here: {error}")
        return self._choice

    def place(self, pending: Pending, deliver: bool = False, label: str = "map") -> Pending:
        """Compute every leaf, so that the chain's columns are its leaves.

        Args:
            pending: the chain.
            deliver: whether the results go to the user, who gets them where the images are; else host arrays.
            label: the node that needs the values.
        """
        if pending.placed:
            return pending
        values, fired = optimize_values(pending.values, self.settings.disabled_rules)
        self._fired(fired)
        pending = self._cut(replace(pending, values=values))
        if pending.batch is None and not pending.unstack and not any(map(is_image, topological(pending.values))):
            return self._on_host(pending)
        return self._stage(pending, deliver, label)

    def _fired(self, fired: dict[str, int]) -> None:
        for name, count in fired.items():
            self.fired[name] = self.fired.get(name, 0) + count

    def fetched(self, pending: Pending, needed: Sequence[Value]) -> Flow:
        """The flow with the payloads of every reference that `needed` reads, fetched ahead."""
        columns = {value.index for value in topological(needed) if isinstance(value, Input)} & pending.references
        return FetchFlow(pending.flow, tuple(sorted(columns))) if columns else pending.flow

    def _on_host(self, pending: Pending) -> Pending:
        flow = HostFlow(self.fetched(pending, pending.values), HostProgram(pending.values, self.settings.max_pixels))
        steps = pending.steps
        work = [value.op.name for value in topological(pending.values) if isinstance(value, Apply)]
        if work:
            steps = (*steps, f"host: {', '.join(work)}")
        return Pending.columns_of(flow, pending.element, steps)

    def _cut(self, pending: Pending) -> Pending:
        """Make columns of image values that host work needs (`py_function` on an image), in a stage of their own."""
        while True:
            needed = _needed_on_host(pending.values)
            if not needed:
                return pending
            kept = sorted(_columns_read(pending.values))
            outputs = (*needed, *(_input(pending.values, i) for i in kept))
            inner = replace(pending, values=outputs, batch=None, above=(), element=_loose(outputs))
            staged = self._stage(inner, False, "py_function", kept=len(kept))
            moved: dict[Value, Value] = {value: Input(i, _as_column(value)) for i, value in enumerate(needed)}
            places = {i: len(needed) + n for n, i in enumerate(kept)}
            values = _replaced(pending.values, moved, places)
            pending = replace(
                pending,
                flow=staged.flow,
                columns=staged.columns,
                values=values,
                steps=staged.steps,
                references=frozenset(),
            )

    def _stage(self, pending: Pending, deliver: bool, label: str, kept: int = 0) -> Pending:
        """A transform stage: host work in front of it, the graph in it, the nodes above it on top."""
        prepared = _prepare(pending.values)
        images = tuple(dict.fromkeys(value for value in prepared.values if is_image(value)))
        # Images that are computed but not delivered need no output; those delivered need one each.
        program = Program(images) if images else None
        flow = self.fetched(pending, prepared.host_values)
        if pending.unstack:
            how = "unstack"
        else:
            how = "rows" if pending.batch is None else "batch"
        host = HostProgram(prepared.columns, self.settings.max_pixels)
        if how != "unstack" and not _passes(prepared.columns, pending.columns):
            flow = HostFlow(flow, host)
        choice = self.choice() if program else None
        size, drop = pending.batch or (MICRO_BATCH, False)
        label = "batch" if pending.batch else label
        make, to_device = None, None
        if program is not None and choice is not None:
            make = _Maker(choice, self.settings.threads)
            to_device = _device_hand_over(choice, deliver and how != "rows")
        names = (
            pending.element.structure.leaf_names()
            if pending.element.structure and not kept
            else [""] * len(prepared.values)
        )
        stage: Flow = StageFlow(
            source=flow,
            outputs=prepared.values,
            names=tuple(names),
            how=how,
            size=size,
            drop=drop,
            executor=make,
            headers=prepared.headers,
            ready=pending.ready,
            label=label,
            to_device=to_device,
            to_host=program is not None and choice is not None and choice.device_id is not None and to_device is None,
            program=program,
            host=host if how == "unstack" else None,
        )
        steps = pending.steps
        if program is not None and choice is not None:
            self._note(choice, label, how, size, program, prepared, pending)
            steps = (*steps, f"stage {len(self.notes)}: {choice.label}")
        element = pending.element
        for step in pending.above:
            stage = step(stage)
        if kept:
            return Pending(stage, len(prepared.values), prepared.values, element, steps=steps)
        return Pending.columns_of(stage, element, steps)

    def _note(
        self, choice: Choice, label: str, how: str, size: int, program: Program, prepared: Prepared, pending: Pending
    ) -> None:
        ops = tuple(
            f"{value.op.name}{describe_params(value)} -> {value.spec}"
            for value in program.values
            if isinstance(value, Apply)
        )
        gives = tuple(str(value.spec) for value in program.outputs)
        per = sum(_bytes(value) or 0 for value in program.outputs)
        known = all(_bytes(value) is not None for value in program.outputs)
        buffers = (
            f"{size * per * (pending.ready + 1):,} bytes in {pending.ready + 1} finished batches"
            if known
            else "unknown sizes"
        )
        what = {"batch": f"batches of {size}", "rows": f"micro-batches of {size}", "unstack": "the rows of each batch"}[
            how
        ]
        self.notes.append(
            StageNote(
                label,
                choice.label,
                choice.why,
                what,
                ops,
                tuple(_text(value) for value in program.inputs),
                gives,
                tuple(sorted(self.fired)),
                buffers,
            )
        )


@dataclass(frozen=True)
class _Maker:
    """Makes executors of one kind."""

    choice: Choice
    threads: int

    def __call__(self, program: Program, size: int) -> Any:
        return make_executor(self.choice, program, size, self.threads)


def wished(settings: Settings, why: str) -> Choice:
    """What the options ask for, on whatever machine has it."""
    kind, number = parse_device(settings.device)
    if kind == "gpu":
        return Choice("dali-gpu", number or 0, why)
    return Choice("dali-cpu", None, why)


def _device_hand_over(choice: Choice, deliver: bool) -> Any:
    """What puts host leaves beside the images of a batch that is delivered on a GPU."""
    if choice.device_id is None or not deliver:
        return None
    from ..transform.array import to_device

    return _ToDevice(to_device, choice.device_id)


@dataclass(frozen=True)
class _ToDevice:
    put: Any
    device_id: int

    def __call__(self, array: Any) -> Any:
        return self.put(array, self.device_id)


@dataclass(frozen=True)
class Prepared:
    """A pending graph with its host part moved in front of the stage.

    Attributes:
        values: the leaves, over the new columns.
        columns: what the host computes for each element.
        headers: for each (bytes, oriented) the column of image sizes.
        host_values: what the host reads, over the old columns.
    """

    values: tuple[Value, ...]
    columns: tuple[Value | HeaderCheck, ...]
    headers: tuple[tuple[tuple[Value, bool], int], ...]
    host_values: tuple[Value, ...]


def _prepare(values: tuple[Value, ...]) -> Prepared:
    """Move host work in front of the stage: one column for each host value that the graph, a draw or a leaf reads."""
    order = topological(values)
    late = _drawn(order)
    used: dict[Value, None] = {}

    def note(value: Value) -> None:
        if not isinstance(value, (Const, Draw, Identity)) and not is_image(value) and value not in late:
            used[value] = None

    for value in order:
        if is_image(value) or isinstance(value, Draw) or value in late:
            for below in value.inputs:
                note(below)
    for value in values:
        note(value)
    columns: list[Value | HeaderCheck] = list(used)
    moved: dict[Value, Value] = {value: Input(i, value.spec) for i, value in enumerate(used)}
    identities: dict[int, int] = {}
    for value in order:
        if isinstance(value, Identity) and value.index >= 0 and value.index not in identities:
            identities[value.index] = len(columns)
            columns.append(Input(value.index, value.spec))
    checks: dict[tuple[Value, bool], HeaderCheck] = {}
    for value in order:
        if isinstance(value, Apply) and value.op.decodes and value.x[0] not in late:
            oriented = bool(getattr(value.op, "exif_orientation", False))
            checks.setdefault((value.x[0], oriented), HeaderCheck(value.x[0], oriented, value.op.name))
    new = _replaced(values, moved, {}, identities)
    headers = []
    for (data, oriented), check in checks.items():
        headers.append(((moved.get(data, data), oriented), len(columns)))
        columns.append(check)
    return Prepared(new, tuple(columns), tuple(headers), tuple(used))


def _drawn(order: Sequence[Value]) -> set[Value]:
    """Host values that depend on a draw or on an image: computed when the batch is there."""
    late: set[Value] = set()
    for value in order:
        if isinstance(value, Item) and isinstance(value.value, Draw):
            late.add(value)
        elif not isinstance(value, Draw) and not is_image(value):
            if any(below in late or isinstance(below, (Draw, Identity)) or is_image(below) for below in value.inputs):
                late.add(value)
    return late


def _replaced(
    values: Sequence[Value],
    moved: dict[Value, Value],
    places: dict[int, int],
    identities: dict[int, int] | None = None,
) -> tuple[Value, ...]:
    """Replace values by columns, top-down: what is below a replaced value disappears."""
    done: dict[Value, Value] = {}
    for value in topological(values):
        if value in moved:
            done[value] = moved[value]
        elif isinstance(value, Input) and value.index in places:
            done[value] = Input(places[value.index], value.spec)
        elif isinstance(value, Identity) and value.index >= 0:
            table = places if identities is None else identities
            done[value] = Identity(table.get(value.index, value.index))
        else:
            inputs = value.inputs
            new = tuple(done[below] for below in inputs)
            done[value] = value if new == inputs else value.rebuild(new)
    return tuple(done[value] for value in values)


def _passes(columns: Sequence[Value | HeaderCheck], count: int) -> bool:
    """Whether the new columns are the old ones."""
    return len(columns) == count and all(isinstance(c, Input) and c.index == i for i, c in enumerate(columns))


def _needed_on_host(values: Sequence[Value]) -> tuple[Value, ...]:
    """Image values that host ops read, lowest first: those below which there is no such op."""
    order = topological(values)
    tainted: set[Value] = set()  # depends on a host op that read an image
    needed: dict[Value, None] = {}
    for value in order:
        if any(below in tainted for below in value.inputs):
            tainted.add(value)
            continue
        if isinstance(value, Apply) and not is_image(value):
            images = [below for below in value.x if is_image(below)]
            if images:
                tainted.add(value)
                needed.update(dict.fromkeys(images))
    return tuple(needed)


def _columns_read(values: Sequence[Value]) -> set[int]:
    read = {value.index for value in topological(values) if isinstance(value, Input)}
    return read | {value.index for value in topological(values) if isinstance(value, Identity) and value.index >= 0}


def _input(values: Sequence[Value], index: int) -> Value:
    for value in topological(values):
        if isinstance(value, Input) and value.index == index:
            return value
    return Input(index, Identity(index).spec)


def _as_column(value: Value) -> Any:
    return value.spec


def _loose(values: Sequence[Value]) -> Element:
    from ..spec import Structure

    structure = Structure(tuple, (), tuple(Structure() for _ in values), len(values))
    return Element(structure, tuple(value.spec for value in values))


def describe_params(apply: Apply) -> str:
    """The static parameters of an op, those that differ from their defaults."""
    from dataclasses import MISSING, fields

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
