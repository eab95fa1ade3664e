"""join: zip and concatenate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from ...classes import dataclass
from ...graph.op import Array
from ..access import Picked, RandomAccess, access, joined
from ..element import Element, Hole, Raised
from ..run import Context, Flow
from ..state.checkpoints import CheckpointedInput
from ..state.snapshot import State, int_part, part
from ..step import Running, close

__all__ = ["ConcatenateFlow", "ZipFlow"]


@dataclass(frozen=True, slots=True)
class ConcatenateFlow:
    """One input after the other.

    Attributes:
        branches: per input the number of its first branch.
    """

    inputs: Sequence[Flow]
    branches: Sequence[int]

    def open(self, at: Context, state: State = None) -> Running:
        return _Concatenated(self, at, state)

    def access(self, at: Context) -> RandomAccess:
        parts = zip(self.inputs, self.branches, strict=True)
        return joined([access(source, at.in_branch(first)) for source, first in parts])


class _Concatenated(Running):
    def __init__(self, flow: ConcatenateFlow, at: Context, state: State) -> None:
        self._flow = flow
        self._at = at
        self._number = 0 if state is None else int_part(state, "input")
        if state is not None and state["open"]:
            self.source = flow.inputs[self._number].open(at.in_branch(flow.branches[self._number]), part(state))
        self.items = self._concatenated()

    def _concatenated(self) -> Iterator[Element]:
        inputs = self._flow.inputs
        while self._number < len(inputs):
            inner = self.source
            if inner is None:
                at = self._at.in_branch(self._flow.branches[self._number])
                inner = self.source = inputs[self._number].open(at)
            try:
                yield from inner
            finally:
                close(inner)
            self.source = None
            self._number += 1

    def snapshot(self) -> State:
        """The index of the current input, and its state."""
        source = None if self.source is None else self.source.snapshot()
        return {
            "input": self._number,
            "open": self.source is not None,
            "source": source,
        }


@dataclass(frozen=True, slots=True)
class ZipFlow:
    """The columns of several inputs side by side, followed by the identities of all inputs but the first.

    If one of them is a hole, so is the result.
    """

    inputs: Sequence[Flow]
    branch: int

    def open(self, at: Context, state: State = None) -> Running:
        states = [None] * len(self.inputs) if state is None else state["inputs"]
        return _Zipped(
            [
                CheckpointedInput(source, at.in_zip(self.branch, i), part)
                for i, (source, part) in enumerate(zip(self.inputs, states, strict=True))
            ]
        )

    def access(self, at: Context) -> RandomAccess:
        return _ZippedAccess(self, at)


class _Zipped(Running):
    def __init__(self, inputs: list[CheckpointedInput]) -> None:
        self._inputs = inputs
        self._held = 0  # inputs whose element was taken for an unfinished tuple
        self.items = self._zipped()

    def _zipped(self) -> Iterator[Element]:
        first, *others = [chain((one for one, _ in source.again()), source.items) for source in self._inputs]
        try:
            for element in first:
                value, stream, position = element
                hole: Hole | None = None
                columns: list[Any] = []
                if type(value) is tuple:
                    columns += value
                elif type(value) is Raised:
                    yield element
                    continue
                else:
                    hole = value
                identities = []
                for other in others:
                    while True:
                        part = next(other, None)
                        if part is None:
                            return
                        more = part[0]
                        if type(more) is tuple:
                            columns += more
                            identities.append(part[1:])
                            break
                        if type(more) is Hole:
                            hole = hole or more
                            break
                        self._held = others.index(other) + 1
                        yield part
                        self._held = 0
                yield ((*columns, *identities) if hole is None else hole), stream, position
        finally:
            for source in self._inputs:
                close(source.inner)

    def snapshot(self) -> State:
        """The inputs' states; after an error in the middle of a tuple, the inputs before it are one element back."""
        return {
            "inputs": [
                source.state(source.count - 1 if j < self._held else None) for j, source in enumerate(self._inputs)
            ]
        }

    def close(self) -> None:
        """Close the inputs."""
        close(self.items)
        for source in self._inputs:
            close(source.inner)


class _ZippedAccess(RandomAccess):
    """The elements of several inputs side by side, by index."""

    def __init__(self, flow: ZipFlow, at: Context) -> None:
        self._flow = flow
        self._at = at
        self._parts = [access(source, at.in_zip(flow.branch, i)) for i, source in enumerate(flow.inputs)]
        self.size = min(part.size for part in self._parts)

    def pick(self, blocks: Iterator[Array]) -> Iterator[Element]:
        for block in blocks:
            picked = [Picked(part, iter([block])) for part in self._parts]
            found = replace(self._flow, inputs=picked).open(self._at)
            try:
                yield from found
            finally:
                close(found)

    def changed(self) -> Iterator[Element]:
        return chain.from_iterable(part.changed() for part in self._parts)
