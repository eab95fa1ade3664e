"""unbatch: the rows of batches as elements, and as the groups that a graph runs on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...classes import dataclass
from ...errors import DataError, ShapeError
from ...random import mix64
from ..bad.found import BATCHES, bad_element
from ..element import BatchStream, Element, Raised, Stream
from ..run import Context, Flow, Run
from ..state.checkpoints import CheckpointedInput
from ..state.snapshot import State, fast_forward, int_part, part
from ..step import Running
from .batcher import Group

__all__ = ["RowsOfBatch", "UnbatchFlow"]


class RowsOfBatch:
    """Makes a group of the rows of each batch, for a graph that runs on existing batches.

    Args:
        source: batches.
        compute: host work on each row, as `HostProgram.compile` returns it.
        run: its `on_error` says what becomes of a row that fails there.
        step: the flow.
        whole: a batch with a bad row becomes a hole, whatever `on_error` says.
    """

    regroups = False
    lags = False
    known: Sequence[Element] = ()

    def __init__(
        self,
        source: Iterator[Element],
        compute: Callable[..., tuple[Any, ...]],
        run: Run,
        step: Flow,
        whole: bool = False,
    ) -> None:
        self._step = step
        self._whole = whole
        self._source = source
        self._compute = compute
        self._run = run
        self._ready: deque[Group | Element] = deque()

    def next(self) -> Group | Element | None:
        """Return the next batch as a group, a hole as it is, or None at the end."""
        while not self._ready:
            element = next(self._source, None)
            if element is None or type(element[0]) is not tuple:
                return element
            try:
                self._ready.extend(self._group(element))
            except ShapeError as error:
                error.at(element[1].name, element[2], "map", element[1].unit)
                return bad_element(error, *element[1:], BATCHES)
        return self._ready.popleft()

    @property
    def clean(self) -> bool:
        """Whether everything made of the last batch was returned."""
        return not self._ready

    def _group(self, element: Element) -> Iterator[Group | Element]:
        rows: list[Element] = []
        policy = self._run.policy()
        for columns, stream, position in unstack(element):
            try:
                rows += policy.good((self._compute(columns, stream, position), stream, position))
            except DataError as error:
                hole = bad_element(error.at(stream.name, position, "map", stream.unit), stream, position, self._step)
                if self._whole or self._run.lacks(hole):
                    yield hole[0], *element[1:]
                    return
                for item in policy.bad(hole):
                    if type(item[0]) is tuple:
                        rows.append(item)
                    else:
                        yield item
        if rows:
            yield Group(rows, whole=element)


def unstack(element: Element) -> list[Element]:
    """Take a batch apart into its rows, with the identities they had before batching.

    Raises:
        ShapeError: the leaves differ in their number of rows.
    """
    columns, stream, position = element
    sizes = {len(column) for column in columns if type(column) is not tuple}
    if len(sizes) != 1:
        raise ShapeError(f"needs batches of one length, got {sorted(sizes)}", stage="map")
    size = sizes.pop()
    spread = [row_identities(c[0], c[1], size) if type(c) is tuple else c for c in columns]
    return [
        (row, *identity)
        for row, identity in zip(zip(*spread, strict=True), row_identities(stream, position, size), strict=True)
    ]


def row_identities(stream: Stream, position: int, size: int) -> list[tuple[Stream, int]]:
    """Return the identities of the rows of a batch."""
    if isinstance(stream, BatchStream) and len(stream.rows) == size:
        return stream.rows
    alike = mix64(stream.alike, position)
    inner = Stream(mix64(stream.key, position), stream.name, stream.unit, alike, stream.scope)
    return [(inner, i) for i in range(size)]


@dataclass(frozen=True, slots=True)
class UnbatchFlow:
    """The rows of each element, with the identities they had."""

    source: Flow
    names: tuple[str, ...]

    def open(self, at: Context, state: State = None) -> Running:
        return _Unbatched(self, at, state)


class _Unbatched(Running):
    def __init__(self, flow: UnbatchFlow, at: Context, state: State) -> None:
        self._names = flow.names
        self._run = at.run
        self._input = CheckpointedInput(flow.source, at, part(state))
        self.source = self._input.inner
        self._rows: deque[Element] = deque()
        self._given = 0  # rows of the last element
        if state is not None:
            fast_forward(self, int_part(state, "given"), at)

    def __next__(self) -> Element:
        source = self._input
        while not self._rows:
            if source.due():
                source.checkpoint(source.count)
            self._given = 0
            element = next(source.items)
            if type(element[0]) is not tuple:
                if not isinstance(element[1], BatchStream) or type(element[0]) is Raised:
                    self._run.need(element, "unbatch")
                    return element
                element[0].batch = element[0].batch or element[1:]
                self._rows.extend((element[0], *identity) for identity in element[1].rows)  # a hole for each row
                continue
            sizes = [len(column) if getattr(column, "shape", None) else -1 for column in element[0]]
            if len(set(sizes)) != 1 or sizes[0] < 0:
                error = DataError(
                    f"unbatch needs leaves with equal numbers of rows, got {dict(zip(self._names, sizes, strict=True))}"
                )
                return bad_element(
                    error.at(element[1].name, element[2], "unbatch", element[1].unit), *element[1:], BATCHES
                )
            if sizes[0]:
                self._rows.extend(unstack(element))
        self._given += 1
        return self._rows.popleft()

    def snapshot(self) -> State:
        """The input's state before the batch whose rows are being given, and how many of them were given."""
        if not self._rows:
            return {"source": self._input.state(), "given": 0}
        return {"source": self._input.state(self._input.count - 1), "given": self._given}
