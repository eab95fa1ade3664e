"""read_payloads: the payloads of references, read ahead by the reader thread after a shuffle of the references."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from itertools import islice
from time import perf_counter
from typing import Any

from ...classes import dataclass
from ...errors import DataError
from ...extract.records.reference import Extent, Reference, in_memory, read_ahead, read_many
from ...extract.storage.files import OpenFile, Version
from ...threads import DaemonPool
from ...transform.cached_array import CachedArray
from ..access import RandomAccess, Through, waits
from ..bad.found import bad_element
from ..element import Element, Stream, is_element
from ..run import Context, Flow
from ..sources.readers import overwritten
from ..state.checkpoints import CheckpointedInput
from ..state.snapshot import State, part
from ..step import Running, close

__all__ = ["ReadPayloadsFlow"]

AT_ONCE = 8
"""Records that are read at once: those of the first job, and of every one where no thread reads ahead."""


MOST = 64
"""Records of a job, to which jobs grow: for each the GIL changes hands several times."""


ENOUGH = 4 << 20
"""Bytes after which a job gets no more elements. Three jobs wait while the elements of a fourth are given."""


JOBS = 3


COLD = 64
"""Jobs whose records the disk is asked for ahead, after one that needed it. In memory a record of 110 KB is read in 20
us, and asking for it takes 4."""


LOOK = 8
"""Of so many jobs one record is looked at while all come from memory: it takes 2 us, and a record of 100 bytes 2."""


SLOW = 1e-4
"""Seconds a record that tell of a disk where the system does not say what is in memory. A busy CPU takes as long."""


_RECORDS = frozenset((Reference, Extent))


@dataclass(frozen=True, slots=True)
class ReadPayloadsFlow:
    """Replaces the references in some columns by their payloads."""

    source: Flow
    columns: tuple[int, ...]

    def open(self, at: Context, state: State = None) -> Running:
        return _Fetching(self, at, state)

    def access(self, at: Context) -> RandomAccess:
        return Through(self, at)


class _Fetching(Running):
    def __init__(self, flow: ReadPayloadsFlow, at: Context, state: State) -> None:
        self._columns = flow.columns
        self._input = CheckpointedInput(flow.source, at, part(state), step=flow)
        self._flow = flow
        self._run = at.run
        self._readers = at.run.readers  # once: how many CPUs a thread may use can change
        self._jobs: deque[Future[list[Element]]] = deque()
        self._ready: deque[Element] = deque()
        self._held = [element for element, _ in self._input.recovered]  # taken; the first `_given` were given
        self._again = iter(self._held.copy())
        self._most = AT_ONCE  # elements of the next job
        self._given = 0
        self._cold = 0  # jobs for which the disk is asked ahead
        self._looks = 0  # jobs until a record is looked at
        self._says = True  # the system says what is in memory
        self._at, self._taken = at, 0
        self._files: dict[tuple[str, str], tuple[Stream, int]] = {}  # last element of each version that was read

    def __next__(self) -> Element:
        while not self._ready:
            if self._readers is None:
                self._ready.extend(self._fetch(self._some()))
            else:
                self._ask(self._readers)
                if self._jobs:
                    self._ready.extend(self._jobs.popleft().result())
                self._ask(self._readers)
            if not self._ready and not self._jobs:
                return self._changed()
        self._given += 1
        return self._ready.popleft()

    def _changed(self) -> Element:
        """An error for a file that was changed while its payloads were read; StopIteration if there is none."""
        while self._files and not self._run.stopped.on:
            (path, tag), last = self._files.popitem()
            for error in overwritten(OpenFile.of(path, Version.of_tag(tag)), *last):
                return error
        raise StopIteration

    def snapshot(self) -> State:
        """The input's state, and the records that are fetched ahead, without their payloads."""
        held, count = self._held[self._given :], self._input.count
        return {
            "source": self._input.holding(
                range(count - len(held), count), held, step="the step that reads the payloads"
            )
        }

    def _ask(self, readers: DaemonPool) -> None:
        while len(self._jobs) < JOBS and (elements := self._some()):
            try:
                self._jobs.append(readers.submit(self._fetch, elements))
            except RuntimeError:
                if not self._run.stopped.on:
                    raise
                return  # the run was closed, and the pool with it: nobody wants the elements

    def _some(self) -> list[Element]:
        """Take the next elements; none at the end."""
        del self._held[: self._given]
        self._given = 0
        if self._input.due():
            self._input.checkpoint(self._input.count - len(self._held))
        elements = self._job(self._again)
        if not elements:
            elements = self._come() if self._run.asked else self._job(self._input.items)
            self._held += elements
            self._ask_disk(elements)
        return elements

    def _job(self, items: Iterator[Element]) -> list[Element]:
        """Take elements to be read together: more of small ones than of large ones, and few at first."""
        elements: list[Element] = []
        size = 0
        while size < ENOUGH:
            some = list(islice(items, AT_ONCE))
            elements += some
            if len(some) < AT_ONCE or len(elements) >= self._most:
                break
            size += self._bytes(some)
        if elements and self._readers is not None:
            self._most = min(2 * self._most, MOST)
        return elements

    def _values(self, elements: list[Element]) -> list[Any]:
        """What the columns hold that are read."""
        rows = [row for row, _, _ in elements if type(row) is tuple]
        return [row[i] for i in self._columns for row in rows]

    def _bytes(self, elements: list[Element]) -> int:
        """The bytes that reading some elements gives."""
        values = self._values(elements)
        arrays = [one.array.nbytes for one in values if type(one) is CachedArray]
        total: int = sum([one.length for one in values if type(one) in _RECORDS], start=sum(arrays))
        return total

    def _ask_disk(self, elements: list[Element]) -> None:
        """Ask the disk for the records of some elements, if records come from it now."""
        if not self._cold and self._looks:
            self._looks -= 1
            return
        wanted = [one for one in self._values(elements) if type(one) in _RECORDS]
        if not wanted:
            return
        self._looks = LOOK - 1
        there = in_memory(wanted[0]) if self._says else True
        if there is None:
            self._says = False  # `_fetch` looks at the clock
        if not there:
            self._cold = COLD
        if self._cold:
            self._cold -= 1
            read_ahead(wanted)

    def _come(self) -> list[Element]:
        """Take elements whose places have come; one at least, if this step holds none."""
        elements: list[Element] = []
        while len(elements) < AT_ONCE:
            if (self._held or elements) and waits(self._at, self._taken):
                break
            element = next(self._input.items, None)
            if element is None:
                break
            self._taken += is_element(element)
            elements.append(element)
        return elements

    def _fetch(self, elements: list[Element]) -> list[Element]:
        """Read the payloads of some elements; only those of the first ones if the run is stopped meanwhile."""
        out: list[Element] = []
        for start in range(0, len(elements), AT_ONCE):
            if out and self._run.stopped.on:
                break
            out += self._read(elements[start : start + AT_ONCE])
        return out

    def _read(self, elements: list[Element]) -> list[Element]:
        """Read all payloads of some elements at once; one that cannot be read makes its element a hole."""
        for i in self._columns:
            kinds = [type(columns[i]) if type(columns) is tuple else None for columns, _, _ in elements]
            for row, kind in enumerate(kinds):
                if kind is CachedArray:
                    columns, stream, position = elements[row]
                    elements[row] = (*columns[:i], columns[i].read(), *columns[i + 1 :]), stream, position
            wanted = [row for row, kind in enumerate(kinds) if kind in _RECORDS]
            started = perf_counter()
            payloads = read_many([elements[row][0][i] for row in wanted])
            if not self._says and perf_counter() - started > SLOW * len(wanted):
                self._cold = COLD
            for row, payload in zip(wanted, payloads, strict=True):
                columns, stream, position = elements[row]
                if isinstance(payload, DataError):
                    error = payload.at(stream.name, position, "read", stream.unit)
                    elements[row] = bad_element(error, stream, position, self._flow)
                else:
                    reference = columns[i]
                    if reference.tag is not None:
                        self._files[reference.path, reference.tag] = stream, position
                    elements[row] = (*columns[:i], payload, *columns[i + 1 :]), stream, position
        return elements

    def close(self) -> None:
        """Cancel the jobs and close the input."""
        for job in self._jobs:
            job.cancel()
        self._jobs.clear()
        close(self._input.inner)
