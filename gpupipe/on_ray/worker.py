"""worker: what runs in a Ray worker: the elements of a segment, by their numbers.

Element n of an epoch is a function of the chain, the files, the seed, the epoch and n. So Ray may run a segment again,
after a worker or a node has died: the same elements come once more.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextvars import copy_context
from dataclasses import replace
from typing import Any, NamedTuple

from ..classes import dataclass
from ..errors import BadRecord, DataError, PlanError
from ..extract.images.decode import MOST_PIXELS
from ..extract.storage.waiting import LIMITS
from ..flow.bad.records import Action
from ..flow.element import Element, Failure, Hole, Raised, Stream, is_replacement
from ..flow.own_bytes import own_bytes
from ..flow.run import Context, Run
from ..flow.step import close
from ..load.agreement import differences
from ..load.state import StateHeader
from ..optimize.lower.compile import lower_in
from ..optimize.lower.length import length
from ..optimize.rules.plan_rules import PLAN_RULES, rewrite
from ..optimize.rules.select_rules import choose_rows, sink_selects
from ..options import Options, Settings
from ..plan.index import Select, Sliced
from ..plan.node import ElementType, Node
from ..serial.errors import remote_from_json, remote_to_json

__all__ = ["Answer", "Chain", "Introduction", "Maker", "part_of", "received"]


@dataclass(frozen=True, slots=True)
class Chain:
    """What a worker needs to know.

    Attributes:
        plan: the chain.
        options: its options.
        part: of the trainer, for comparison; see `part_of`.
    """

    plan: Node
    options: Options
    part: dict[str, Any]


class Introduction(NamedTuple):
    """What a worker says first.

    Attributes:
        node: the name of its machine, and its process.
        wrong: what it has that the trainer has not, in words; "" if nothing.
        size: the number of elements of an epoch; negative where it has no end.
        executor: what computes images there.
    """

    node: str
    wrong: str
    size: int
    executor: Any


class Failed(NamedTuple):
    """An element that failed.

    Attributes:
        raised: whether it is a `Raised`, else a `Hole`.
        error: as JSON.
        lost: the file is lost behind it; see `DataError`.
        passing: a retry may help.
        known: see `Failure`.
        ignored: see `Failure`.
        batch: see `Failure`.
    """

    raised: bool
    error: dict[str, Any]
    lost: bool
    passing: bool
    known: bool
    ignored: bool
    batch: tuple[Stream, int] | None


class Answer(NamedTuple):
    """An element of a segment, on its way.

    Attributes:
        value: its columns, or `Failed`.
        stream: with `position`, its identity, so that steps of the trainer draw what they would draw elsewhere.
        position: in the stream.
        bad: all bad elements that this segment left out or replaced so far.
        type: of the elements.
    """

    value: Any
    stream: Stream
    position: int
    bad: tuple[BadRecord, ...]
    type: ElementType


def part_of(plan: Node, settings: Settings) -> dict[str, Any]:
    """What a trainer and its workers must have in common, as JSON."""
    head = StateHeader(plan, settings).head()
    return {
        "format": [head["gpupipe_state"], head["law"], getattr(sys.modules["gpupipe"], "__version__", "")],
        "steps": head["steps"],
        "functions": head["code"],
        "files": head["files"],
        "options": head["options"],
    }


def sent(element: Element) -> tuple[Any, Stream, int]:
    """An element as it travels: it owns its bytes, and errors are data."""
    value, stream, position = element
    if type(value) is tuple:
        return own_bytes(value), stream, position
    error = value.error
    failed = Failed(
        isinstance(value, Raised),
        remote_to_json(error),
        error.lost,
        error.passing,
        value.known,
        value.ignored,
        value.batch,
    )
    return failed, stream, position


def received(answer: Answer) -> Element:
    """The element of an answer."""
    failed = answer.value
    if not isinstance(failed, Failed):
        return answer.value, answer.stream, answer.position
    error: DataError = remote_from_json(failed.error)
    error.lost, error.passing = failed.lost, failed.passing
    hole: Failure = (Raised if failed.raised else Hole)(error, failed.known)
    hole.ignored, hole.batch = failed.ignored, failed.batch
    return hole, answer.stream, answer.position


class Quiet(Run):
    """A run that lists bad elements; the run of the trainer counts and logs them."""

    def leave_out(
        self, element: Element, verb: Action | None = None, always: bool = False, reported: bool = True
    ) -> None:
        self.note(element, verb or ("replaced" if self.settings.on_error == "replace" else "left out"), reported)


class Maker:
    """Makes segments of a chain, in one Ray worker.

    Args:
        chain: what to make.
    """

    def __init__(self, chain: Chain) -> None:
        settings = chain.options.resolve()
        self._plan = chain.plan
        self._settings = replace(settings, error_manifest=None, max_bad=None)
        self._learned: dict[int, ElementType] = {}
        try:
            mine = part_of(chain.plan, settings)
            self._wrong = "" if mine == chain.part else differences(mine, chain.part, "the trainer")
        except (DataError, PlanError) as error:
            self._wrong = f"cannot look at the files: {error}"

    def introduce(self) -> Introduction:
        """Say who this is, and how many elements there are."""
        node = f"{os.uname().nodename if hasattr(os, 'uname') else 'a machine'}, process {os.getpid()}"
        if self._wrong:
            return Introduction(node, self._wrong, 0, None)
        executor = StateHeader(self._plan, self._settings).head()["executor"]
        return Introduction(node, "", length(self._plan, self._settings), executor)

    def segment(self, epoch: int, start: int, stop: int) -> Iterator[Answer | str]:
        """Make elements `start` to `stop` of an epoch; or say in words why this worker must not."""
        if self._wrong:
            yield self._wrong
            return
        found = self._found(epoch, start, stop)
        unsure = self._settings.on_error == "replace"
        for number, answer in enumerate(found, start):
            if unsure and isinstance(answer.value, tuple):
                rows = getattr(answer.stream, "streams", [answer.stream])
                if is_replacement(rows[0]):
                    answer = self._as_in_order(epoch, start, number, answer)
                unsure = all(map(is_replacement, rows))
            yield answer

    def _as_in_order(self, epoch: int, start: int, number: int, answer: Answer) -> Answer:
        """An element whose first rows are bad: what replaces them is the last good row before the segment."""
        back = 1
        while start:
            first = max(0, start - back)
            before = list(self._found(epoch, first, number + 1))
            rows = [row for one in before[:-1] for row in getattr(one.stream, "streams", [one.stream])]
            if not first or not all(map(is_replacement, rows)):
                return before[-1]._replace(bad=answer.bad)
            back *= 4
        return answer

    def _found(self, epoch: int, start: int, stop: int) -> Iterator[Answer]:
        """Run the chain for some elements. What it reads has limits of its own, in a context of its own."""
        context = copy_context()
        run = Quiet(self._settings, ranked=True)
        items: Any = None
        try:
            items, kind = context.run(self._opened, run, epoch, start, stop)
            while (element := context.run(next, items, None)) is not None:
                yield Answer(*sent(element), tuple(run.bad.kept), kind)
        finally:
            if items is not None:
                context.run(close, items)
            run.close()

    def _chosen(self, start: int, stop: int) -> Node:
        """The chain of some elements, whose batches are cut one after the other, as in a loop.

        Under "replace", elements by their numbers are made each by itself otherwise.
        """
        others = [rule.__name__ for rule in PLAN_RULES if rule not in (sink_selects, choose_rows)]
        return rewrite(Select(self._plan, Sliced(start, 1, stop - start)), others)[0]

    def _opened(self, run: Run, epoch: int, start: int, stop: int) -> tuple[Any, ElementType]:
        LIMITS.set(run.limits)
        MOST_PIXELS.set(self._settings.max_pixels)
        run.bad.start()
        at = Context(run, epoch)
        lowered = lower_in(self._chosen(start, stop), self._settings, at, self._learned)
        self._learned = lowered.learned
        return lowered.flow.open(at), lowered.element
