"""prime: look at the first element of a flow and keep it, so that its type is known to what is built on it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from ..spec import TensorSpec, spec_of
from .base import Context, Element, Flow, Hole
from .elements import Wrapped, close

__all__ = ["PrimedFlow"]


class PrimedFlow:
    """A flow whose first pass was opened early. The pass that was looked at is handed out once, then it opens anew."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self._at: Context | None = None
        self._head: list[Element] = []
        self._rest: Any = None

    def look(self, at: Context) -> tuple[TensorSpec, ...] | None:
        """The specs of the first good element, dimensions left open; None if there is none."""
        self._at = at
        self._rest = self.flow.open(at)
        at.run.on_close(lambda wait: self._close() if wait else None)
        for element in self._rest:
            self._head.append(element)
            if type(element[0]) is not Hole:
                return tuple(loose(spec_of(column)) for column in element[0])
        return None

    def open(self, at: Context) -> Iterator[Element]:
        """The pass that was looked at if it is the one asked for, else a new one."""
        rest, head = self._rest, self._head
        if rest is not None and self._at is not None and (self._at.key, self._at.epoch) == (at.key, at.epoch):
            self._rest, self._head = None, []
            return Wrapped(chain(head, rest), rest)
        self._close()
        return self.flow.open(at)

    def _close(self) -> None:
        rest, self._rest, self._head = self._rest, None, []
        close(rest)


def loose(spec: TensorSpec) -> TensorSpec:
    """The spec with every dimension unknown: the next element may have another size."""
    return spec.loose()
