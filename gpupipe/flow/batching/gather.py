"""gather: the base class of steps that gather consecutive elements: windows and rebatch.

Like `batch`, they apply `on_error` to holes: "raise" passes the error on at once, "skip" leaves the hole out and takes
a later element, "replace" takes the last good element in its place.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator

from ..element import Element
from ..own_bytes import keep
from ..run import Context, Flow
from ..state.checkpoints import CheckpointedInput
from ..state.snapshot import State, fast_forward, int_part, part, replayed
from ..step import Running

__all__ = ["Gathering", "gathered"]


def gathered(make: Callable[[State], Running], at: Context, state: State) -> Running:
    """Open a step that gathers elements; under "replace" by replaying: no state holds the last good element."""
    return replayed(lambda: make(None), at, state) if at.run.settings.on_error == "replace" else make(state)


class Gathering(Running):
    """A step that gathers consecutive elements. Its state starts before the oldest element that it holds.

    After a restore that element and all later ones are made again, as they were.

    Args:
        source: the input.
        at: where it is opened.
        state: what `snapshot` returned.
        aligned: something is zipped to the output: holes are gathered like other elements.

    Attributes:
        input: the input, with its checkpoints.
        elements: the items of the input, with `on_error` applied unless the step is aligned.
        held: the elements that are held, oldest first, with their numbers in the input.
    """

    def __init__(self, source: Flow, at: Context, state: State, aligned: bool) -> None:
        self.input = CheckpointedInput(source, at, part(state))
        self.source = self.input.inner
        aligned = aligned and at.run.settings.on_error != "replace"
        self.elements = map(keep, self.input.items) if aligned else at.run.policy().sifted(self.input.items)
        self.held = self.input.again(self.elements)
        self.items = self.run(at)
        if state is not None and "errors" in state:  # of an earlier version: passed on since the oldest element
            fast_forward(self.items, int_part(state, "errors"), at)

    @abstractmethod
    def run(self, at: Context) -> Iterator[Element]:
        """Yield the elements of this step."""

    def oldest(self) -> int:
        """Return the number of the oldest element that is held, or of the next one if none is."""
        return self.held[0][1] if self.held else self.input.count

    def checkpoint(self) -> None:
        """Take a checkpoint of the input if one is due."""
        if self.input.due():
            self.input.checkpoint(self.oldest())

    def snapshot(self) -> State:
        """The input's state before the oldest element that is held."""
        return {"source": self.input.state(self.oldest())}
