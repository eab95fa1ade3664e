"""same: whether a full cache has the elements that were there when a state was taken (`../bad/passes.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any, Protocol

from ...errors import StateError
from ...log import logger
from ..bad.passes import Given, Pass, full_pass
from ..element import Element
from ..run import Context
from ..state.snapshot import State, int_part
from ..step import close

__all__ = ["FullPass", "read_after", "refuse"]


class FullPass(Protocol):
    """A full pass that is kept in memory or in a file."""

    @property
    def name(self) -> str:
        """Identifies the contents, for the states of a process or of all."""
        ...

    @property
    def label(self) -> str:
        """The cache, for messages."""
        ...

    @property
    def bad(self) -> list[Any] | None:
        """The elements that were bad when it was filled, see `FoundBad.inside`; None if not all are known."""
        ...

    @property
    def fill(self) -> int:
        """Identifies the pass that filled it, see `Pass`."""
        ...

    def kept(self, at: Context) -> Iterator[Element]:
        """Iterate over the elements with the keys that they have in the cache."""
        ...


def read_after(kept: FullPass, at: Context, state: State) -> None:
    """Note that a full pass is read, if it has the elements that were there when a state was taken.

    Args:
        kept: the pass.
        at: the context in which the cache is opened.
        state: of the cache; None at the start, which may be before a position that is found by counting.

    Raises:
        StateError: they are others; with `Options.resume_without` a warning says so instead.
    """
    bad, run, cache = kept.bad, at.run, (at.drawing.key, kept.name)
    run.bad.found.enters(at.inner_scope, at)
    expected = run.bad.found.before(cache)
    if state is not None and "mark" in state:  # the cache was being filled
        expected = Pass(False, int_part(state, "n"), int_part(state, "mark"), int_part(state, "bad"))
    if expected is not None and not (run.stopped.on or _is(kept, expected, at)):
        refuse(kept.label, at, "it was filled while other elements could be read")
    run.bad.found.reads(cache, bad, at.inner_scope)


def refuse(label: str, at: Context, why: str) -> None:
    """Give up a resume over other elements of a cache.

    Raises:
        StateError: always, but with `Options.resume_without` a warning says so instead.
    """
    found = (
        f"{label} needs the elements that were there when the state was taken, got others: {why}, so rows would be "
        "lost or come twice"
    )
    if not at.run.settings.resume_without:
        raise StateError(f"{found}; start the epoch again, or continue all the same with Options(resume_without=True)")
    logger.warning("%s", found)


def _is(kept: FullPass, expected: Pass, at: Context) -> bool:
    if expected.full:
        own = kept.fill == expected.more != 0
        if not expected.mark:
            return own
        return kept.bad is None or own or full_pass(kept.bad) == replace(expected, more=0)
    if expected.more and kept.bad is not None and expected.more != Given(lambda: kept.bad).bad:
        return False
    given = Given()
    elements = kept.kept(at.neutral())
    try:
        for element in islice(elements, expected.count):
            given.add(element)
    finally:
        close(elements)
    return (given.count, given.mark) == (expected.count, expected.mark)
