"""last: the last element that a cache gave, by which a resume tells whether it is over the same elements.

A state over a cache counts elements. The cache may be another one by the time it is loaded: filled by another run while
other elements could be read, or lost and filled again. Where rows were left out of it, others follow the same count.
"""

from __future__ import annotations

import zlib

from ...errors import StateError
from ...log import logger
from ..element import BatchStream, Element, element_keys, is_replacement
from ..run import Context
from ..state.snapshot import State

__all__ = ["check_last", "last_of"]


def last_of(element: Element | None) -> dict[str, State]:
    """The part of a state that identifies the last element given: its own place, or those of its rows."""
    if element is None:
        return {}
    _, stream, position = element
    rows = ([*stream.streams], [*stream.positions]) if isinstance(stream, BatchStream) else ([stream], [position])
    replaced = bytes(map(is_replacement, rows[0]))
    return {"last": zlib.crc32(replaced, zlib.crc32(element_keys(*rows).tobytes()))}


def check_last(element: Element | None, state: State, at: Context, who: str) -> None:
    """Compare the last element before the place of a state with that which was there.

    Args:
        element: the last one; None if none was given.
        state: of the cache; those of earlier versions do not identify an element.
        at: the context of the pass.
        who: which cache, for messages.

    Raises:
        StateError: it is another one; with `Options.resume_without` a warning says so instead.
    """
    if element is None or at.run.stopped.on or state.get("last") in (None, last_of(element)["last"]):
        return
    found = (
        f"{who} needs the elements that were there when the state was taken, got others: it was filled while other "
        "elements could be read, so rows would be lost or come twice"
    )
    if not at.run.settings.resume_without:
        raise StateError(f"{found}; start the epoch again, or continue all the same with Options(resume_without=True)")
    logger.warning("%s", found)
