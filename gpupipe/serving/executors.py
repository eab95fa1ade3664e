"""executors: executors that stay warm and are lent to the threads of a server."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from ..classes import dataclass
from ..cpus import cpu_count
from ..errors import ClosedError
from ..flow.stage.assemble import Stage
from ..threads import Room
from ..transform.program import BatchFailed, Executor, Feed, WrongPixels

__all__ = ["WarmExecutors", "closed"]

WHOLE_BATCHES = 2
"""Executors of one stage for more than one image at a time: each uses all threads, so more of them gain nothing."""


def closed() -> ClosedError:
    """The error for a preprocessor that was closed."""
    return ClosedError("this preprocessor was closed; make a new one with gpupipe.preprocessor")


@dataclass(slots=True)
class _Shelf:
    """The executors of one stage and batch size.

    Attributes:
        rows: the batch size.
        most: how many may exist.
        count: how many exist.
        making: whether one is being made.
        shared: the one that all threads use at once, if it can be used so.
        idle: those that nobody uses, the warmest last.
    """

    rows: int
    most: int
    count: int = 0
    making: bool = False
    shared: Executor | None = None
    idle: list[Executor] = field(default_factory=list)


class WarmExecutors:
    """Executors by stage and batch size, made when they are first needed. Any number of threads may use them.

    One of DALI is lent to one thread at a time. For single images there may be as many as CPUs, each with one thread;
    for more images `WHOLE_BATCHES`. A thread that finds none waits for one. That of NumPy serves all threads at once,
    and computes a single image on the thread that asks.

    Args:
        capacity: the largest batch in rows; larger ones are given in parts.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._shelves: dict[tuple[int, bool], _Shelf] = {}
        self._room = Room()
        self._closed = False

    def run(self, stage: Stage, feed: Feed) -> list[Any]:
        """Compute a batch of a stage, which must live as long as this object.

        Raises:
            ClosedError: `close` was called.
            BatchFailed: some rows are bad.
            WrongPixels: a decoder gave wrong pixels.
        """
        shelf = self._shelf(stage, feed.size == 1)
        executor = self._taken(shelf) or self._made(shelf, stage)
        if executor.shared:
            return executor.run(feed)
        usable = False
        try:
            results = executor.run(feed)
            usable = True
            return results
        except (BatchFailed, WrongPixels):
            usable = True
            raise
        finally:  # after any other exception, such as Ctrl-C, a batch may be half done
            self._returned(shelf, executor, usable)

    def _shelf(self, stage: Stage, single: bool) -> _Shelf:
        key = id(stage), single
        shelf = self._shelves.get(key)
        if shelf is None:
            made = _Shelf(1, cpu_count()) if single else _Shelf(self.capacity, WHOLE_BATCHES)
            shelf = self._shelves.setdefault(key, made)
        return shelf

    def _taken(self, shelf: _Shelf) -> Executor | None:
        """Take an executor; wait while as many are in use as may exist. None: the caller is to make one."""
        with self._room:
            while not self._closed:
                if shelf.shared is not None:
                    return shelf.shared
                if shelf.idle:
                    return shelf.idle.pop()
                if shelf.count < shelf.most and not shelf.making:
                    shelf.count += 1
                    shelf.making = True
                    return None
                self._room.wait()
        raise closed()

    def _made(self, shelf: _Shelf, stage: Stage) -> Executor:
        assert stage.program is not None and stage.executor is not None
        made: list[Executor] = []
        try:
            made.append(stage.executor(stage.program, shelf.rows))
        finally:
            with self._room:
                shelf.making = False
                if not made:
                    shelf.count -= 1
                elif made[0].shared:
                    shelf.shared = made[0]
                late = self._closed
                self._room.notify_all()
            if late and made:
                made[0].close()
        return made[0]

    def _returned(self, shelf: _Shelf, executor: Executor, usable: bool) -> None:
        with self._room:
            keeps = usable and not self._closed
            if keeps:
                shelf.idle.append(executor)
            else:
                shelf.count -= 1
            self._room.notify_all()
        if not usable:
            executor.discard()
        elif not keeps:
            executor.close()

    def close(self) -> None:
        """Close every executor; those in use when they come back."""
        with self._room:
            self._closed = True
            found = [executor for shelf in self._shelves.values() for executor in shelf.idle]
            found += [shelf.shared for shelf in self._shelves.values() if shelf.shared is not None]
            for shelf in self._shelves.values():
                shelf.idle = []
            self._room.notify_all()
        for executor in found:
            executor.close()
