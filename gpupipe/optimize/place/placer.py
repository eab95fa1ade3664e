"""placer: computes pending values: on the host if they are host work only, else in a transform stage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from functools import partial, reduce
from typing import Any

from ...classes import dataclass
from ...errors import GpupipeError, MissingDependencyError, PlanError
from ...flow.maps.host_program import HeaderCheck, HostProgram
from ...flow.maps.known_bad import KnownBadFlow
from ...flow.maps.read_payloads import ReadPayloadsFlow
from ...flow.maps.traced import HostFlow
from ...flow.measured import measured
from ...flow.run import Flow
from ...flow.stage.flow import StageFlow
from ...flow.stall import Where
from ...graph.host_values import is_batchwise, is_image
from ...graph.values import Apply, Input, Item, Value, topological
from ...options import Settings, parse_device
from ...plan.node import Node
from ...transform import array
from ...transform.choose import (
    Choice,
    choose_for,
    load_libraries,
    make_executor,
    refuse_unsupported,
    resolve_device,
    threads_of,
)
from ...transform.machine import cupy_libraries
from ...transform.program import Executor, Program
from ...transform.recording import recorded
from ..pending import AHEAD, Pending
from ..rules.graph_rules import optimize_values
from .batchwise import array_calls, executed, needed_by_later_rows
from .split_host import (
    Prepared,
    columns_read,
    input_of,
    loose,
    needed_for_size,
    needed_on_host,
    passes,
    prepare,
    replaced,
    taken_from_gpu,
)
from .stage_report import StageNote
from .to_host import DELIVERY, ON_ROWS, PY_FUNCTION, SIZES

__all__ = ["MICRO_BATCH", "Placer"]

Reader = tuple[str, str] | None
"""What reads results on the host, and its line; None where that is a step of the chain."""

MICRO_BATCH = 32
"""Rows per group where no batch ends the stage."""


@dataclass
class Placer:
    """Places pending chains.

    Attributes:
        settings: of the run.
        dry: nothing will run: an executor that this machine lacks is described, not refused.
        notes: one per transform stage, in the order in which they were placed.
        fired: how often each rule fired.
        at: the step that reads the placed values, for notes.
        troubles: reasons why stages cannot run here, each with the line of its first op; only if `dry`.
        made: whether elements of datasets that a function makes at run time are delivered.
    """

    settings: Settings
    dry: bool = False
    notes: list[StageNote] = field(default_factory=list)
    fired: dict[str, int] = field(default_factory=dict)
    at: Node | None = None
    troubles: dict[str, str] = field(default_factory=dict)
    made: bool = False
    _choice: Choice | None = None
    _trouble: str = ""

    def choice(self) -> Choice:
        """The executor of this chain, chosen when the first image needs one."""
        if self._choice is None:
            try:
                self._choice = resolve_device(self.settings)
            except GpupipeError as error:
                if not self.dry:
                    raise
                self._trouble = str(error)
                self._choice = wished(self.settings, f"the options say so; it cannot run here: {error}")
        return self._choice

    def has_gpu(self) -> bool:
        """Whether images are computed on a GPU. A chain without images also runs on a machine without its executor."""
        try:
            return self.choice().device_id is not None
        except GpupipeError:
            return False  # an image that needs the executor raises the error

    def gpu_memory(self, node: Node) -> str:
        """Where a step keeps images, in words: in the memory of a GPU; if `dry`, perhaps why it cannot run here.

        Raises:
            PlanError: images are not computed on a GPU.
            MissingDependencyError: CuPy is not installed.
        """
        choice = self.choice()
        error: GpupipeError | None = None
        who = f"{node.describe()} at {node.line}"
        if choice.device_id is None:
            error = PlanError(
                f"{who} needs an NVIDIA GPU and DALI, got {choice.label} ({choice.why}); use cache(), which keeps the "
                "elements on the host"
            )
        elif not array.has_cupy():
            error = MissingDependencyError(
                f"{who} needs CuPy, which is not installed; pip install {cupy_libraries()}, or use cache(), which "
                "keeps the elements on the host"
            )
        if error is not None and not self.dry:
            raise error
        trouble = self._trouble or ("" if error is None else str(error))
        if trouble:
            self.troubles.setdefault(trouble, node.line)
            return f"in the memory of a GPU, which cannot run here: {trouble}"
        return f"in the memory of GPU {choice.device_id}"

    def hand_over(self) -> Callable[[Any], Any]:
        """The function that copies host leaves to the GPU on which a batch is delivered."""
        from ...transform.array import to_device

        device_id = self.choice().device_id
        assert device_id is not None
        return partial(to_device, device_id=device_id)

    def place(self, pending: Pending, deliver: bool = False, label: str = "map", keeps: bool = False) -> Pending:
        """Compute every leaf, so that the chain's columns are its leaves.

        Args:
            pending: the chain.
            deliver: whether the results go to the user, who gets batches on the images' device; else host arrays.
            label: the node that needs the values.
            keeps: whether that node takes images where they were computed, also if they are not batches.
        """
        if self.settings.bad_records is not None:
            pending = replace(pending, flow=KnownBadFlow(pending.flow))
        if pending.placed:
            return pending
        values, fired = optimize_values(
            pending.values, self._disabled(pending.values), self.settings.decoding.approximate_decode
        )
        self.count(fired)
        pending = self._cut(self._cut_after_batchwise(replace(pending, values=values)))
        if pending.batch is None and not pending.unstack and not any(map(is_image, topological(pending.values))):
            return self._on_host(pending)
        return self._stage(pending, deliver, label, keeps=keeps)

    def _disabled(self, values: Sequence[Value]) -> tuple[str, ...]:
        """Rules that are not applied: those that the options name, and where the executor has no use for them."""
        disabled = self.settings.disabled_rules
        if not any(map(is_image, topological(values))):
            return disabled
        if self.has_gpu():
            disabled = (*disabled, "fuse_resize_flip")
        return disabled if self._is_fast() else (*disabled, "fuse_decode_resize_crop")

    def _is_fast(self) -> bool:
        try:
            return self.choice().executor == "fast"
        except GpupipeError:
            return False  # as for `has_gpu`

    def count(self, fired: dict[str, int]) -> None:
        """Add to how often each rule fired."""
        for name, count in fired.items():
            self.fired[name] = self.fired.get(name, 0) + count

    def fetched(self, pending: Pending, needed: Sequence[Value]) -> Flow:
        """The flow of a chain with the payloads of all references that `needed` reads, fetched ahead."""
        columns = {value.index for value in topological(needed) if isinstance(value, Input)} & pending.references
        if not columns:
            return pending.flow
        return measured(ReadPayloadsFlow(pending.flow, tuple(sorted(columns))), "payloads of the records")

    def _on_host(self, pending: Pending) -> Pending:
        program = HostProgram(pending.values, self.settings.max_pixels, self.settings.decoding.strict_images)
        flow = _computed(self.fetched(pending, pending.values), program)
        steps = pending.steps
        work = [value.op.name for value in topological(pending.values) if isinstance(value, Apply)]
        if work:
            steps = (*steps, f"host: {', '.join(work)}")
        return replace(Pending.columns_of(flow, pending.element, steps), on_gpu=_stay(pending))

    def _cut(self, pending: Pending) -> Pending:
        """Compute image values that host work needs (`py_function` on an image) as columns, in a stage of their own."""
        while True:
            host = needed_on_host(pending.values)
            needed = host or needed_for_size(pending.values)
            if not needed:
                return pending
            kept = sorted(columns_read(pending.values))
            outputs = (*needed, *(input_of(pending.values, i) for i in kept))
            inner = replace(pending, values=outputs, batch=None, above=(), element=loose(outputs))
            reader = (PY_FUNCTION, _reads(pending.values, host)) if host else (SIZES, _line(needed[0]))
            staged = self._stage(inner, False, "py_function", len(kept), reader)
            moved: dict[Value, Value] = {value: Input(i, value.spec) for i, value in enumerate(needed)}
            columns = {i: len(needed) + n for n, i in enumerate(kept)}
            values = replaced(pending.values, moved, columns)
            pending = replace(
                pending,
                flow=staged.flow,
                columns=staged.columns,
                values=values,
                steps=staged.steps,
                references=frozenset(),
                on_gpu=staged.on_gpu,
            )

    def _cut_after_batchwise(self, pending: Pending) -> Pending:
        """Compute ops on batches as columns where ops on rows follow, which take the batch apart again."""
        while True:
            needed = needed_by_later_rows(pending.values)
            if not needed:
                return pending
            inner = replace(pending, values=needed, element=loose(needed))
            staged = self._stage(self._cut(inner), False, "map", reader=(ON_ROWS, _reads(pending.values, needed)))
            moved: dict[Value, Value] = {value: Input(i, value.spec) for i, value in enumerate(needed)}
            pending = Pending(
                staged.flow,
                len(needed),
                replaced(pending.values, moved, {}),
                pending.element,
                unstack=True,
                ready=pending.ready,
                steps=staged.steps,
            )

    def _refused(self, choice: Choice, program: Program) -> str:
        """Refuse a program that the executor cannot run; if `dry`, note the reason and return it as text."""
        text, trouble = "", self._trouble
        try:
            refuse_unsupported(choice, program)
        except PlanError as error:
            if not self.dry:
                raise
            text, trouble = f", but {error}", trouble or str(error)
        if trouble:
            line = next((value.line for value in program.values if isinstance(value, Apply)), "")
            self.troubles.setdefault(trouble, line)
        return text

    def _stage(
        self, pending: Pending, deliver: bool, label: str, kept: int = 0, reader: Reader = None, keeps: bool = False
    ) -> Pending:
        """A transform stage: host work before it, the graph in it, the nodes above it on top.

        `reader` says what needs the results on the host, and its line, if that is not a step of the chain.
        """
        prepared = prepare(pending.values)
        # Images that are computed but not delivered need no output; delivered ones need one each.
        program = Program(images) if (images := executed(prepared.values)) else None
        how = "unstack" if pending.unstack else "rows" if pending.batch is None else "batch"
        flow, host = self._host_before(pending, prepared, program)
        choice = choose_for(program, self.choice(), self.settings) if program else None
        (size, drop), label = pending.batch or (MICRO_BATCH, False), "batch" if pending.batch else label
        make, steps, where = None, pending.steps, Where(f"{label}({size})", pending.line)
        on_gpu = choice is not None and choice.device_id is not None
        stays = on_gpu and ((deliver and how != "rows") or keeps)
        if program is not None and choice is not None:
            note = StageNote.of(choice, program, how, size, pending.ready or AHEAD, prepared.values, stays)
            make, note = self._maker(choice, note)
            self.notes.append(note if stays or not on_gpu else self._copied(note, deliver, reader))
            where = Where(f"stage {len(self.notes)}: {choice.label}", _line_of(program))
            steps = (*steps, f"{where.step}{self._refused(choice, program)}")
        elif arrays := array_calls(prepared.values):
            steps = (*steps, f"array code on the host: {', '.join(call.op.name for call in arrays)}")
        stage = StageFlow(
            source=flow,
            outputs=prepared.values,
            names=_names(pending, prepared, kept),
            how=how,
            size=size,
            drop=drop,
            aligned=pending.aligned,
            ignores=pending.ignores,
            executor=make,
            load=partial(load_libraries, choice) if choice else None,
            headers=prepared.headers,
            ready=pending.ready or AHEAD,
            label=label,
            where=where,
            to_device=self.hand_over() if stays else None,
            to_host=on_gpu and not stays,
            program=program,
            host=host if how == "unstack" else None,
            shares_memory=choice is not None and choice.runs_dali and not on_gpu,
        )
        flow = reduce(lambda flow, step: step(flow), pending.above, _measured(stage))
        there = frozenset(range(len(prepared.values))) if stays and not kept else _stay(pending)
        placed = Pending(flow, len(prepared.values), prepared.values, pending.element, steps=steps) if kept else None
        return replace(placed or Pending.columns_of(flow, pending.element, steps), on_gpu=there)

    def _host_before(self, pending: Pending, prepared: Prepared, program: Program | None) -> tuple[Flow, HostProgram]:
        """The flow into a stage, and its host work, which the flow does unless the stage takes rows apart first."""
        there = frozenset[int]()
        if program is not None and pending.references and not pending.unstack:
            there = taken_from_gpu(prepared, program, pending.references)
        read = [value for value in prepared.host_values if not (isinstance(value, Input) and value.index in there)]
        flow = self.fetched(pending, read)
        host = HostProgram(prepared.columns, self.settings.max_pixels, self.settings.decoding.strict_images, there)
        if pending.unstack or passes(prepared.columns, pending.columns):
            return flow, host
        return _computed(flow, host), host

    def _maker(self, choice: Choice, note: StageNote) -> tuple[Callable[[Program, int], Executor], StageNote]:
        """The maker of a stage's executors, and the stage's note with their number of threads, if that was counted."""
        threads, counted = threads_of(choice, self.settings)
        if counted:
            note = replace(note, size=f"{note.size}; {threads} thread{'s' * (threads > 1)} ({counted})")
        decoding, verifies = self.settings.decoding, self.settings.verify > 0
        make = recorded(
            lambda program, size: make_executor(choice, program, size, min(threads, size), decoding, verifies)
        )
        return make, note

    def _copied(self, note: StageNote, deliver: bool, reader: Reader) -> StageNote:
        """The note of a stage whose results are read on the host, with their reader and its line."""
        node = self.at
        of_node = ("", "") if node is None else (DELIVERY if deliver else node.name, node.line)
        return note.copied_to_host(*(reader or of_node), None if reader else node)


def _names(pending: Pending, prepared: Prepared, kept: int) -> tuple[str, ...]:
    """The names of the leaves that a stage computes, for messages."""
    known = None if kept else pending.element.structure
    return tuple(known.leaf_names() if known else [""] * len(prepared.values))


def _measured(stage: StageFlow) -> Flow:
    """A stage, as the thread that asks for its elements sees it."""
    where = stage.where
    if stage.program is None:
        return measured(stage, where.step, where.line)
    return measured(stage, f"{where.step}, finished", where.line, "queue")


def _line_of(program: Program) -> str:
    """The line of the first op of a program."""
    return next((value.line for value in program.values if isinstance(value, Apply)), "")


def _computed(flow: Flow, program: HostProgram) -> Flow:
    """A host program on a flow."""
    calls = [value for value in program.values if isinstance(value, Apply)]
    names = list(dict.fromkeys(call.op.name for call in calls))
    if any(isinstance(output, HeaderCheck) for output in program.outputs):
        names.append("image headers")
    computed = HostFlow(flow, program)
    if not names:
        return computed
    line, kind = calls[0].line if calls else "", "python" if "py_function" in names else "host"
    return measured(computed, f"host: {', '.join(names)}", line, kind)


def wished(settings: Settings, why: str) -> Choice:
    """The executor that the options ask for, whether or not this machine has it."""
    kind, number = parse_device(settings.device)
    if kind == "gpu":
        return Choice("dali-gpu", number or 0, why)
    return Choice("dali-cpu", None, why)


def _reads(values: Sequence[Value], needed: Sequence[Value]) -> str:
    """The line of the first call that reads one of the `needed` values and is not one of them."""
    calls = (v for v in topological(values) if isinstance(v, Apply) and v not in needed and not is_batchwise(v))
    return next((call.line for call in calls if any(x in needed for x in call.x)), "")


def _line(value: Value) -> str:
    made = value.value if isinstance(value, Item) else value
    return made.line if isinstance(made, Apply) else ""


def _stay(pending: Pending) -> frozenset[int]:
    """The leaves that are columns on a GPU, passed on unchanged."""
    leaves = enumerate(pending.values)
    return frozenset(i for i, value in leaves if isinstance(value, Input) and value.index in pending.on_gpu)
