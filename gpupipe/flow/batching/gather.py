"""gather: what steps that gather elements share.

Like a batch, all of them decide here by `on_error` what a hole does: "raise" passes its error on at once, "skip" leaves
it out and fills up from what follows, "replace" lets the last good element stand in.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterator

from ..element import Element
from ..run import Context, Flow
from ..state.checkpoints import CheckpointedInput
from ..state.snapshot import State, fast_forward, int_part, part, replayed
from ..step import Running

__all__ = ["Gathering", "gathered"]


def gathered(make: Callable[[State], Running], at: Context, state: State) -> Running:
    """A step that gathers elements, opened. Under "replace" it may need the last good element, which no state holds."""
    return replayed(lambda: make(None), at, state) if at.run.settings.on_error == "replace" else make(state)


class Gathering(Running):
    """A step that gathers elements. Its state begins in front of the oldest one that it holds.

    What is held is read once more, and so are errors that were passed on since: those are passed over.

    Args:
        source: the input.
        at: where it is opened.
        state: what `snapshot` gave.

    Attributes:
        input: what the elements come from.
    """

    def __init__(self, source: Flow, at: Context, state: State) -> None:
        self.input = CheckpointedInput(source, at, part(state))
        self.source = self.input.inner
        self._errors: deque[int] = deque()  # numbers of the errors that were passed on
        self.items = self.run(at)
        if state is not None:
            fast_forward(self.items, int_part(state, "errors"), at)

    @abstractmethod
    def run(self, at: Context) -> Iterator[Element]:
        """The elements."""

    @abstractmethod
    def oldest(self) -> int:
        """The number of the first element that is held; that of the next one if none is."""

    def passed(self) -> None:
        """Note that what was taken last is an error that is passed on."""
        self._errors.append(self.input.count - 1)

    def checkpoint(self) -> None:
        """Take a checkpoint of the input, if it is time."""
        oldest = self.oldest()
        while self._errors and self._errors[0] < oldest:
            self._errors.popleft()
        if self.input.due():
            self.input.checkpoint(oldest)

    def snapshot(self) -> State:
        """Where the input stood before the oldest element that is held, and how many errors were passed on since."""
        oldest = self.oldest()
        return {"source": self.input.state(oldest), "errors": sum(place >= oldest for place in self._errors)}
