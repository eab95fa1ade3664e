"""inner: the datasets that belong to the elements of another one: how they are opened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ...errors import DataError, GpupipeError
from ..access import RandomAccess, access, from_list
from ..element import Element, Hole, is_element
from ..run import Context, Flow
from ..state.snapshot import Counted, State, int_part
from ..step import Running, close

__all__ = ["Inner", "inner_accesses", "open_inner"]


class Opener(Protocol):
    """Gives the elements of the dataset that belongs to an outer element.

    It may say as `python` whether what it opens calls Python for each element, and as `looks` whether to open it makes
    one of them.
    """

    def __call__(self, at: Context, outer: Element, /, state: State = None) -> Running:
        """Open it in a context, or go on behind a state."""
        ...


@dataclass(slots=True)
class Inner:
    """How to open the dataset that belongs to one outer element.

    Attributes:
        open: gives the elements of that dataset, for the context it is opened in and the outer element.
        flow: what is opened for every outer element alike; None where a function makes a dataset of each.
    """

    open: Opener
    flow: Flow | None = None


def open_inner(inner: Inner, at: Context, outer: Element, state: State = None) -> Running:
    """Open the dataset of an outer element, keyed by it. A hole gives a dataset of that one hole."""
    value, stream, position = outer
    if type(value) is not tuple:
        return alone(outer, state)
    try:
        return inner.open(at.inside(stream, position), outer, state)
    except DataError as error:
        hole = Hole(error.at(stream.name, position, "interleave", stream.unit))
        return alone((hole, stream, position), state)


def inside(at: Context, outer: Element) -> Context:
    """Where the flow of a traced function is opened for an outer element, which is its parameter."""
    value, stream, position = outer
    return at.inside(stream, position).with_param(value)


def alone(element: Element, state: State) -> Running:
    """One element, unless it was given before."""
    given = 0 if state is None else int_part(state, "n")
    return Counted(iter(() if given else (element,)), done=given)


def inner_accesses(source: Flow, inner: Inner, at: Context) -> list[RandomAccess]:
    """The inner datasets, in the order of the outer elements."""
    outer = source.open(at)
    try:
        return [_inner_access(inner, at, element) for element in outer if is_element(element)]
    finally:
        close(outer)


def _inner_access(inner: Inner, at: Context, outer: Element) -> RandomAccess:
    if type(outer[0]) is not tuple:
        return from_list([outer])
    if inner.flow is None:
        raise GpupipeError("a dataset that a function makes of each element has no places; please report it")
    return access(inner.flow, inside(at, outer))
