"""closing: how a step closes what it reads from."""

from __future__ import annotations

from types import GeneratorType
from typing import Any

__all__ = ["close"]


def close(iterator: Any) -> None:
    """Close an iterator that can be closed. A generator that runs in another thread ends when that lets go of it.

    No generator of a step says ``yield from``: CPython marks one that is closed there as running and puts its mark back
    afterwards. Where two threads close it at once, the later of them marks what the other has freed (3.11: the process
    is brought down). One that a user wrote may, hence the look: a mark that says running is left alone.
    """
    closer = getattr(iterator, "close", None)
    if closer is None or (isinstance(iterator, GeneratorType) and iterator.gi_running):
        return
    try:
        closer()
    except ValueError as error:
        # A generator that another thread is in refuses before any of its code runs: no frame is below this one.
        inner = None if error.__traceback__ is None else error.__traceback__.tb_next
        if inner is not None or not isinstance(iterator, GeneratorType):
            raise
    except RecursionError:
        # Closing nests twice as many calls as asking for an element. What is further down ends with the last reference
        # to it, and what has a thread there is told by the run, too.
        return
