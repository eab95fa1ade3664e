"""traced: map and filter with traced functions on the host: parsing, labels, header checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...classes import dataclass
from ...errors import DataError
from ..access import RandomAccess, Through
from ..bad.found import as_before, bad_element
from ..check import truth
from ..element import Element
from ..run import Context, Flow, Run
from ..stall import SOMEWHERE, Watch, Where
from ..state.snapshot import State, part
from ..step import Running
from .host_program import HostProgram

__all__ = ["FilterFlow", "HostFlow"]


@dataclass(frozen=True, slots=True)
class HostFlow:
    """Computes new columns for every element."""

    source: Flow
    program: HostProgram

    def open(self, at: Context, state: State = None) -> Running:
        inner = as_before(at, self, self.source.open(at, part(state)))
        return Running(self._computed(inner, self.program.compile(at)), inner)

    def _computed(self, inner: Iterator[Element], compute: Callable[..., tuple[Any, ...]]) -> Iterator[Element]:
        for element in inner:
            value, stream, position = element
            if type(value) is not tuple:
                yield element
                continue
            try:
                yield compute(value, stream, position), stream, position
            except DataError as error:
                yield bad_element(error.at(stream.name, position, "map", stream.unit), stream, position, self)

    def access(self, at: Context) -> RandomAccess:
        return Through(self, at)


@dataclass(frozen=True, slots=True)
class FilterFlow:
    """The elements for which the predicate is True; holes are passed on."""

    source: Flow
    program: HostProgram
    where: Where = SOMEWHERE

    def open(self, at: Context, state: State = None) -> Running:
        inner = as_before(at, self, self.source.open(at, part(state)))
        return Running(self._kept(inner, self.program.compile(at), at.run), inner)

    def _kept(self, inner: Iterator[Element], compute: Callable[..., tuple[Any, ...]], run: Run) -> Iterator[Element]:
        watch, dropped, stopped = Watch(self.where), 0, run.stopped
        for element in inner:
            value, stream, position = element
            if stopped.on:
                return
            if type(value) is not tuple:
                run.need(element, "filter")
                yield element
                continue
            try:
                answer = compute(value, stream, position)[0]
                if answer if type(answer) is np.bool_ else truth(answer):
                    dropped = 0
                    yield element
                else:
                    dropped += 1
                    if dropped < 64 or not dropped & 1023:
                        watch.nothing(dropped)
            except DataError as error:
                bad = bad_element(error.at(stream.name, position, "filter", stream.unit), stream, position, self)
                run.need(bad, "filter")
                yield bad
