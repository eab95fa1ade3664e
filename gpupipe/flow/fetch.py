"""fetch: payloads behind a shuffle of references, read ahead by the reader threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass

from ..errors import DataError
from ..extract.tfrecord import Reference
from .base import Context, Element, Flow, Hole
from .elements import close

__all__ = ["FetchFlow"]

AT_ONCE = 8
"""Records of one job: one hand-over of the GIL for many."""

JOBS = 3


@dataclass(frozen=True, slots=True)
class FetchFlow:
    """Elements with the payloads of some columns in place of references."""

    source: Flow
    columns: tuple[int, ...]

    def open(self, at: Context) -> Iterator[Element]:
        return _Fetching(self, at)


class _Fetching:
    def __init__(self, flow: FetchFlow, at: Context) -> None:
        self._columns = flow.columns
        self._inner = flow.source.open(at)
        self._run = at.run
        self._jobs: deque[Future[list[Element]]] = deque()
        self._ready: deque[Element] = deque()
        self._more = True

    def __iter__(self) -> Iterator[Element]:
        return self

    def __next__(self) -> Element:
        while not self._ready:
            self._ask()
            if not self._jobs:
                raise StopIteration
            self._ready.extend(self._jobs.popleft().result())
            self._ask()
        return self._ready.popleft()

    def _ask(self) -> None:
        while self._more and len(self._jobs) < JOBS:
            elements: list[Element] = []
            for element in self._inner:
                elements.append(element)
                if len(elements) == AT_ONCE:
                    break
            else:
                self._more = False
            if elements:
                self._jobs.append(self._run.readers.submit(self._fetch, elements))

    def _fetch(self, elements: list[Element]) -> list[Element]:
        return [self._one(element) for element in elements]

    def _one(self, element: Element) -> Element:
        columns, stream, position = element
        if type(columns) is Hole:
            return element
        try:
            row = list(columns)
            for i in self._columns:
                if type(row[i]) is Reference:
                    row[i] = row[i].read()
            return tuple(row), stream, position
        except DataError as error:
            return Hole(error.at(stream.name, position, "read", stream.unit)), stream, position

    def close(self) -> None:
        """Drop what was asked for and close the input."""
        self._more = False
        for job in self._jobs:
            job.cancel()
        self._jobs.clear()
        close(self._inner)
