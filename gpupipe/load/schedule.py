"""schedule: which epoch an iterator runs, and which follow."""

from __future__ import annotations

from itertools import chain

from .progress import Numbers, Progress

__all__ = ["Schedule"]


class Schedule:
    """The epochs of an iterator.

    Args:
        numbers: of the epochs.
        progress: of the iterator.

    Attributes:
        loaded: a state was loaded, and its epoch is not open yet.
        started: an epoch was started, and is not at its end.
    """

    __slots__ = ("_coming", "_first", "_left", "_numbers", "loaded", "started")

    def __init__(self, numbers: Numbers, progress: Progress) -> None:
        self._numbers = numbers
        self._left = numbers(progress)  # those that were not started
        self._first: int | None = None  # the epoch of a state
        self._coming: int | None = None  # the one that was taken from them, and is not started yet
        self.loaded = False
        self.started = False

    def coming(self) -> int | None:
        """The next epoch, which stays the next one until it is started; None where there is none."""
        if self._coming is None:
            for self._coming in self._left:  # noqa: B020 : what a call of `next` returns could be lost
                break
        return self._coming

    def start(self) -> None:
        """Start the coming epoch."""
        self.loaded, self._coming, self.started = False, None, True

    def repair(self, progress: Progress) -> None:
        """Ask for the numbers again after an interrupt: a generator of numbers that was cut short gives none."""
        if (progress.epoch is None or self.loaded) and self._coming is None and not self.started:
            self._left = self._numbers(progress, self._first)

    def load(self, progress: Progress, ended: bool) -> None:
        """Go on with the epoch of a state, or where that had come to its end with the next one, if there is one.

        Raises:
            StateError: there is no such epoch.
        """
        epoch = progress.epoch
        if epoch is None:
            return
        if not ended:
            left = self._numbers(progress, epoch)
        else:
            left = self._numbers.after(progress, epoch)
            following = next(left, None)
            if following is None:
                progress.ended = True
            else:
                progress.enter(following)
                left = chain((following,), left)
        self._left, self._first, self._coming, self.loaded = left, epoch, None, not ended
