"""schedule: the current epoch of an iterator, and those that follow."""

from __future__ import annotations

from itertools import chain

from .progress import Numbers, Progress

__all__ = ["Schedule"]


class Schedule:
    """The epochs of an iterator.

    Args:
        numbers: the numbers of the epochs.
        progress: the counts of the iterator.

    Attributes:
        loaded: whether a state was loaded whose epoch is not open yet.
        started: whether an epoch was started and has not ended.
    """

    __slots__ = ("_coming", "_first", "_left", "_numbers", "loaded", "started")

    def __init__(self, numbers: Numbers, progress: Progress) -> None:
        self._numbers = numbers
        self._left = numbers(progress)  # epochs that were not started
        self._first: int | None = None  # the epoch of a loaded state
        self._coming: int | None = None  # the next epoch, taken from `_left` and not started
        self.loaded = False
        self.started = False

    def coming(self) -> int | None:
        """Return the next epoch, the same one until it is started; None if there is none."""
        if self._coming is None:
            for self._coming in self._left:  # noqa: B020 : an interrupt after a call of `next` could lose its result
                break
        return self._coming

    def start(self) -> None:
        """Start the coming epoch."""
        self.loaded, self._coming, self.started = False, None, True

    def repair(self, progress: Progress) -> None:
        """Get the numbers again after an interrupt: a generator that was interrupted gives no more."""
        if (progress.epoch is None or self.loaded) and self._coming is None and not self.started:
            self._left = self._numbers(progress, self._first)

    def load(self, progress: Progress, ended: bool) -> None:
        """Resume the epoch of a state or, if it had ended, start with the next one.

        Raises:
            StateError: this iterator does not have that epoch.
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
