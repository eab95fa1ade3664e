"""memory: the sizes of a chain's buffers, at most and while it runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...classes import dataclass
from ...extract.records.index import INDEXES
from ...flow.buffer_sizes import REFERENCE
from ...flow.order.shuffle_by_index import INDEX_BYTES, has_cheap_index
from ...flow.remote_reads import REMOTE
from ...flow.run import Run
from ...flow.stage.runner import IN_FLIGHT, WAITING
from ...graph.host_values import is_image
from ...graph.values import Input, topological
from ...options import Settings
from ...plan.batches import Batch
from ...plan.node import Node, walk
from ..lower.compile import LOWERINGS, without_trailing
from ..lower.lowerer import Lowerer
from ..pending import AHEAD, Pending, size_of
from ..place.placer import Placer
from ..rules.plan_rules import disabled_rules, rewrite

__all__ = ["MemoryReport", "StepMemory", "memory_report"]


@dataclass(frozen=True, slots=True)
class StepMemory:
    """The memory of one step.

    Attributes:
        step: the step in words, e.g. ``"shuffle(1000)"``.
        line: ``file:line`` where the user wrote it; empty for memory that belongs to no line.
        elements: held now.
        bytes: held now.
        most_elements: at most; None where it is not known before the data is read.
        most_bytes: at most, payloads alone; None where sizes are unknown.
    """

    step: str
    line: str = ""
    elements: int = 0
    bytes: int = 0
    most_elements: int | None = None
    most_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """The sizes of a chain's buffers, now and at most. Bytes are those of payloads, not of Python objects.

    Attributes:
        steps: one row for each step that holds elements, inputs first.
        running: whether it is of an iterator; a dataset holds nothing but full caches and indexes.
    """

    steps: tuple[StepMemory, ...]
    running: bool = False

    @property
    def bytes(self) -> int:
        """Bytes held now, in total."""
        return sum(step.bytes for step in self.steps)

    @property
    def most_bytes(self) -> int | None:
        """Bytes held at most, in total; None if a step's are unknown."""
        known = [step.most_bytes for step in self.steps]
        return None if None in known else sum(size or 0 for size in known)

    def __str__(self) -> str:
        rows = [("step", "elements", "bytes", "at most", "bytes at most", "line")]
        for s in self.steps:
            rows.append(
                (s.step, f"{s.elements:,}", f"{s.bytes:,}", _number(s.most_elements), _number(s.most_bytes), s.line)
            )
        rows.append(("total", "", f"{self.bytes:,}", "", _number(self.most_bytes), ""))
        widths = [max(len(row[i]) for row in rows) for i in range(6)]
        lines = []
        for row in rows:
            cells = [row[0].ljust(widths[0]), *(row[i].rjust(widths[i]) for i in range(1, 5)), row[5]]
            lines.append("  ".join(cells).rstrip())
        return "\n".join(lines)


def _number(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"


def memory_report(root: Node, settings: Settings, run: Run | None = None) -> MemoryReport:
    """Report the memory of a chain; with a run, that of its running buffers too. Reads no data."""
    steps = _planned(root, settings)
    for label, (elements, size) in ({} if run is None else run.buffer_usage()).items():
        row = next((i for i, step in enumerate(steps) if step.step == label), None)
        if row is None:  # of a dataset that was made at run time
            most = run.remote.budget.limit if run is not None and label == REMOTE else None
            steps.append(StepMemory(label, "", elements, size, None, most))
        else:
            found = steps[row]
            steps[row] = replace(found, elements=found.elements + elements, bytes=found.bytes + size)
    if INDEXES.nbytes:
        steps.append(StepMemory("indexes of record files (of this process)", "", 0, INDEXES.nbytes, 0, INDEXES.limit))
    return MemoryReport(tuple(steps), run is not None)


def _planned(root: Node, settings: Settings) -> list[StepMemory]:
    """The most that every buffer of a chain may hold, and the content of its full caches."""
    root, _ = rewrite(root, disabled_rules(settings))
    lowerer = Lowerer(settings, Placer(settings, dry=True), LOWERINGS)
    root, waits = without_trailing(root)
    trailing = 0 if waits is None else AHEAD if waits.size < 0 else waits.size
    last = lowerer.run(root)
    steps = []
    for node in walk(root, lambda node: id(node) in lowerer.done and not _read(node, lowerer)):
        made = _cached(node) if node.facts.in_memory and node.sources else None
        if made is None and _read(node, lowerer):
            made = _step(node, lowerer.done[id(node.sources[0])], lowerer, settings, trailing)
        if made is not None:
            steps.append(made)
    if waits is not None and trailing and not any(map(is_image, topological(last.values))):
        ahead = waits.buffer(settings)
        steps.append(_buffer(ahead.step, waits.line, ahead.elements, size_of(last.element.specs)))
    return steps


def _read(node: Node, lowerer: Lowerer) -> bool:
    """Whether a node has inputs and needs them: a full cache does not."""
    return bool(node.sources) and id(node.sources[0]) in lowerer.done


def _cached(node: Any) -> StepMemory:
    """A cache in memory, with the elements of its full passes."""
    held = [node.store.usage(filled.elements) for filled in list(node.store.filled.values())]
    count = node.source.cardinality
    most = _buffer(node.store.label, node.line, None if count < 0 else count, size_of(node.element.specs))
    return replace(most, elements=sum(n for n, _ in held), bytes=sum(size for _, size in held))


def _step(node: Node, source: Pending, lowerer: Lowerer, settings: Settings, trailing: int) -> StepMemory | None:
    buffer = node.buffer(settings)
    pending = lowerer.done[id(node)]
    if buffer is not None and (pending.flow, pending.above) != (source.flow, source.above):  # else its stage holds them
        indices = node.payload == "holds" and has_cheap_index(source.flow)
        each = INDEX_BYTES if indices else _physical(source) if buffer.sized else None
        return _buffer(buffer.step, node.line, buffer.elements, each)
    if not isinstance(node, Batch) or not any(map(is_image, topological(pending.values))):
        return None
    finished = trailing or pending.ready or AHEAD
    one = size_of(tuple(value.spec for value in pending.values))
    count = finished + IN_FLIGHT - 1 + WAITING  # the oldest in flight waits for room among the finished
    return _buffer(f"batch({node.size})", node.line, count, None if one is None else one * node.size)


def _buffer(step: str, line: str, most: int | None, each: int | None) -> StepMemory:
    total = 0 if most == 0 else None if most is None or each is None else most * each
    return StepMemory(step, line, 0, 0, most, total)


def _physical(source: Pending) -> int | None:
    """Bytes of one element as it flows, before deferred values are computed; None if unknown."""
    if source.references:
        return REFERENCE
    if source.batch is not None or source.unstack:
        return size_of(source.element.specs)
    inputs = {value.index: value.spec for value in topological(source.values) if isinstance(value, Input)}
    return size_of(tuple(inputs.values())) if len(inputs) == source.columns else None
