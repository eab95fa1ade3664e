"""recording: what the transform stages of a chain are fed, kept for running their programs again.

A `Recording` is set in a context (`RECORDING`). Where none is set, nothing is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import field
from typing import Any

from ..classes import dataclass
from .program import Executor, Feed, Program

__all__ = ["RECORDING", "Fed", "Recording", "recorded"]

Maker = Callable[[Program, int], Executor]


@dataclass(slots=True)
class Fed:
    """A program, and the batches that it was given.

    Attributes:
        program: of a stage.
        feeds: its batches that succeeded, in order.
    """

    program: Program
    feeds: list[Feed] = field(default_factory=list)


@dataclass(slots=True)
class Recording:
    """The stages of a chain that ran.

    Attributes:
        rows: how many to keep of each stage, at least, if there are as many.
        stages: in the order in which they began.
    """

    rows: int
    stages: list[Fed] = field(default_factory=list)

    def of(self, program: Program) -> Fed:
        """What a program is fed; the same for each pass."""
        found = next((fed for fed in self.stages if fed.program.digest == program.digest), None)
        if found is None:
            found = Fed(program)
            self.stages.append(found)
        return found


RECORDING: ContextVar[Recording | None] = ContextVar("gpupipe_recording", default=None)
"""The recording of the chains that this context opens."""


def recorded(make: Maker) -> Maker:
    """A maker of executors that keep what they are fed, if the context has a recording; else the same maker."""
    recording = RECORDING.get()
    if recording is None:
        return make
    return lambda program, size: _Recorder(make(program, size), recording.of(program), recording.rows, size)


class _Recorder(Executor):
    """An executor that keeps the batches which succeed.

    Args:
        executor: that runs them.
        fed: where they are kept.
        rows: how many rows to keep.
        batch_size: the largest batch.
    """

    def __init__(self, executor: Executor, fed: Fed, rows: int, batch_size: int) -> None:
        super().__init__(executor.label, batch_size)
        self._executor = executor
        self._fed = fed
        self._rows = rows
        self.busy = executor.busy
        self.on_gpu = executor.on_gpu

    def _start(self, feed: Feed) -> Feed:
        self._executor.submit(feed)
        return feed

    def _finish(self, flight: Feed) -> list[Any]:
        results = self._executor.collect()
        if sum(feed.size for feed in self._fed.feeds) < self._rows:
            self._fed.feeds.append(flight.on_host())
        return results

    def close(self) -> None:
        self._executor.close()
