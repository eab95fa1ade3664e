"""common_type: the one type of elements that come from several inputs, learned from the first element of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...errors import PlanTypeError
from ...plan.node import ElementType
from ...spec import LEAF, Structure, describe
from ..pending import UNKNOWN, Pending

__all__ = ["common", "in_one_order", "unknown"]


def unknown(element: ElementType) -> bool:
    """Whether the type could not be learned: nothing was read, or there are no elements."""
    return element.structure is None or (element.structure == LEAF and element.specs == UNKNOWN.specs)


def common(name: str, line: str, elements: Sequence[ElementType]) -> ElementType:
    """The type that covers the elements of all inputs; inputs that turned out to be empty are left out.

    Args:
        name: the method that has these inputs.
        line: where the user wrote it.
        elements: the type of each input.

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
    """Reorder dicts that have the keys of the first input to its order; the inputs otherwise."""
    first = next((p.element.structure for p in inputs if not unknown(p.element)), None)
    if first is None or first.kind is not dict:
        return list(inputs)
    return [_with_keys(p, first) for p in inputs]


def _with_keys(pending: Pending, first: Structure) -> Pending:
    element = pending.element
    own = element.structure
    if own is None or own.kind is not dict or own.keys == first.keys or set(own.keys) != set(first.keys):
        return pending
    parts, start = {}, 0
    for key, child in zip(own.keys, own.children, strict=True):
        parts[key] = (child, range(start, start + child.count))
        start += child.count
    order = [leaf for key in first.keys for leaf in parts[key][1]]
    structure = Structure(dict, first.keys, tuple(parts[key][0] for key in first.keys), own.count)
    specs = tuple(element.specs[leaf] for leaf in order)
    values = tuple(pending.values[leaf] for leaf in order)
    return replace(pending, values=values, element=ElementType(structure, specs, element.batched))
