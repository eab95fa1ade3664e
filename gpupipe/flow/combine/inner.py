"""inner: how to open the dataset that belongs to an element of another dataset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ...classes import dataclass
from ...errors import DataError, GpupipeError
from ..access import RandomAccess, access, from_list
from ..bad.found import DATASETS, bad_element, hole_again, met, place_of
from ..element import Element, is_element
from ..run import Context, Flow
from ..sources.records import uncounted
from ..state.snapshot import Counted, State, int_part
from ..step import Running, close

__all__ = ["Inner", "failed_dataset", "inner_accesses", "open_inner"]


class Opener(Protocol):
    """Opens the dataset that belongs to an outer element.

    Optional attributes: `python`, whether that dataset calls Python for each element; `peeks`, whether opening it
    computes its first element.
    """

    def __call__(self, at: Context, outer: Element, /, state: State = None) -> Running:
        """Open the dataset in a context, from the start or from a state."""
        ...


@dataclass(slots=True)
class Inner:
    """How to open the dataset that belongs to one outer element.

    Attributes:
        open: opens the dataset, for a context and the outer element.
        flow: the flow of all the datasets; None where a function makes a dataset of each outer element.
        access: makes the access by index to such a dataset, in a context like that of `open`.
    """

    open: Opener
    flow: Flow | None = None
    access: Callable[[Context, Element], RandomAccess] | None = None


def open_inner(inner: Inner, at: Context, outer: Element, state: State = None) -> Running:
    """Open the dataset of an outer element, keyed by it. A hole becomes a dataset of that one hole."""
    value, stream, position = outer
    if type(value) is not tuple:
        at.run.need(outer, "the dataset that is made of it")
        return alone(outer, state)
    before = at.run.bad.found.of(DATASETS)
    found = met(before, place_of(stream, position), at.run.makes_again(stream)) if before else None
    if found is not None:
        return alone(hole_again(found, stream, position), state)
    try:
        return inner.open(at.inside(stream, position), outer, state)
    except DataError as error:
        failed = failed_dataset(outer, error)
        at.run.need(failed, "the dataset that is made of it")
        return alone(failed, state)


def failed_dataset(outer: Element, error: DataError) -> Element:
    """What stands in the place of a dataset that could not be made."""
    _, stream, position = outer
    return bad_element(error.at(stream.name, position, "interleave", stream.unit), stream, position, DATASETS)


def inside(at: Context, outer: Element) -> Context:
    """Return the context in which a traced function's flow is opened for an outer element, its parameter."""
    value, stream, position = outer
    return at.inside(stream, position).with_param(value)


def alone(element: Element, state: State) -> Running:
    """Open a dataset of one element; of none if the state says that it was given."""
    given = 0 if state is None else int_part(state, "n")
    return Counted(iter(() if given else (element,)), done=given)


def inner_accesses(source: Flow, inner: Inner, at: Context) -> list[RandomAccess]:
    """Return access to the inner datasets, in the order of the outer elements."""
    outer = source.open(at)
    try:
        return [_inner_access(inner, at, element) for element in outer if is_element(element)]
    finally:
        close(outer)


def _inner_access(inner: Inner, at: Context, outer: Element) -> RandomAccess:
    value, stream, position = outer
    if type(value) is not tuple:
        return from_list([outer])
    if inner.flow is not None:
        return access(inner.flow, inside(at, outer))
    if inner.access is None:
        raise GpupipeError("the datasets that a step makes of its elements have no access by index; please report it")
    try:
        return inner.access(at.inside(stream, position), outer)
    except DataError as error:
        if not error.lost:
            return from_list([failed_dataset(outer, error)])
        uncounted(at.run, error.at(stream.name, position, "interleave", stream.unit), stream)
        return from_list([])
