"""common_type: the one type of elements that come from several inputs; the first element of each has to tell it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...errors import PlanTypeError
from ...plan.node import ElementType
from ...spec import LEAF, Structure, describe
from ..pending import UNKNOWN, Pending

__all__ = ["common", "in_one_order", "unknown"]


def unknown(element: ElementType) -> bool:
    """Whether not even the first element could tell the type: nothing was read, or there is none."""
    return element.structure is None or (element.structure == LEAF and element.specs == UNKNOWN.specs)


def common(name: str, line: str, elements: Sequence[ElementType]) -> ElementType:
    """The type of the elements of all inputs, those that turned out to have none left out.

    Args:
        name: the method that has these inputs.
        line: where the user wrote it.
        elements: one of each input.

    Raises:
        PlanTypeError: structures or dtypes differ.
    """
    known = [element for element in elements if not unknown(element)]
    if not known:
        return elements[0]
    first, *rest = known
    for other in rest:
        if first.structure != other.structure or any(
            a.dtype is not None and b.dtype is not None and a.dtype != b.dtype
            for a, b in zip(first.specs, other.specs, strict=True)
        ):
            raise PlanTypeError(
                f"{name} needs datasets of one structure and dtype, got {describe(first.nested)} and "
                f"{describe(other.nested)} (in the {name} at {line})"
            )
        specs = tuple(a.relax(b) for a, b in zip(first.specs, other.specs, strict=True))
        first = ElementType(first.structure, specs, first.batched and other.batched)
    return first


def in_one_order(inputs: Sequence[Pending]) -> list[Pending]:
    """The same inputs; dicts that have the keys of the first one have them in its order."""
    first = next((p.element.structure for p in inputs if not unknown(p.element)), None)
    if first is None or first.kind is not dict:
        return list(inputs)
    return [_with_keys(p, first) for p in inputs]


def _with_keys(pending: Pending, first: Structure) -> Pending:
    element = pending.element
    own = element.structure
    if own is None or own.kind is not dict or own.keys == first.keys or set(own.keys) != set(first.keys):
        return pending
    places, at = {}, 0
    for key, child in zip(own.keys, own.children, strict=True):
        places[key] = (child, range(at, at + child.count))
        at += child.count
    order = [place for key in first.keys for place in places[key][1]]
    structure = Structure(dict, first.keys, tuple(places[key][0] for key in first.keys), own.count)
    specs = tuple(element.specs[place] for place in order)
    values = tuple(pending.values[place] for place in order)
    return replace(pending, values=values, element=ElementType(structure, specs, element.batched))
