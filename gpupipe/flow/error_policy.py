"""error_policy: what steps that gather elements do with bad ones, by `on_error`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .element import Element, Hole, keep, stand_in
from .run import Run

__all__ = ["raised", "sifted"]


def raised(element: Element) -> Element:
    """A hole that was already decided to be raised: every step passes it on and none counts it."""
    hole = Hole(element[0].error, element[0].known)
    hole.raised = True
    return hole, element[1], element[2]


def sifted(source: Iterator[Element], run: Run) -> Iterator[Element]:
    """Good elements that may be held for long, and holes on their way to being raised; the others leave here."""
    on_error = run.settings.on_error
    early: list[Element] = []  # holes before the first good element, under "replace"
    last: Any = None
    for element in source:
        if run.stopped.is_set():
            return
        value = element[0]
        if type(value) is not Hole:
            good = keep(element)
            if on_error == "replace":
                last = good[0]
                for hole in early:
                    yield stand_in(last, hole)
                early.clear()
            yield good
        elif value.raised or on_error == "raise":
            yield element if value.raised else raised(element)
        else:
            run.leave_out(element)
            if on_error == "replace" and last is None:
                early.append(element)
            elif on_error == "replace":
                yield stand_in(last, element)
