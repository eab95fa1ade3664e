"""gather: the base class of steps that gather consecutive elements: windows and rebatch.

Like `batch`, they apply `on_error` to holes: "raise" passes the error on at once, "skip" leaves the hole out and takes
a later element, "replace" takes the last good element in its place.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
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

    After a restore that element and all later ones are read again; errors passed on since then are skipped.

    Args:
        source: the input.
        at: where it is opened.
        state: what `snapshot` returned.
        aligned: something is zipped to the output: holes are gathered like other elements.

    Attributes:
        input: the input, with its checkpoints.
        elements: the items of the input, with `on_error` applied unless the step is aligned.
    """

    def __init__(self, source: Flow, at: Context, state: State, aligned: bool) -> None:
        self.input = CheckpointedInput(source, at, part(state))
        self.source = self.input.inner
        aligned = aligned and at.run.settings.on_error != "replace"
        self.elements = map(keep, self.input.items) if aligned else at.run.policy().sifted(self.input.items)
        self._errors: deque[int] = deque()  # their numbers in the input
        self.items = self.run(at)
        if state is not None:
            fast_forward(self.items, int_part(state, "errors"), at)

    @abstractmethod
    def run(self, at: Context) -> Iterator[Element]:
        """Yield the elements of this step."""

    @abstractmethod
    def oldest(self) -> int:
        """Return the number of the oldest element that is held, or of the next one if none is."""

    def passed(self) -> None:
        """Record that the last item taken is an error, which is passed on."""
        self._errors.append(self.input.count - 1)

    def checkpoint(self) -> None:
        """Take a checkpoint of the input if one is due."""
        oldest = self.oldest()
        while self._errors and self._errors[0] < oldest:
            self._errors.popleft()
        if self.input.due():
            self.input.checkpoint(oldest)

    def snapshot(self) -> State:
        """The input's state before the oldest element that is held, and how many errors were passed on since."""
        oldest = self.oldest()
        return {"source": self.input.state(oldest), "errors": sum(number >= oldest for number in self._errors)}
