"""padding: the shape and value that each leaf is padded to and with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import index
from typing import Any, NamedTuple

import numpy as np

from ..errors import PlanError, PlanTypeError
from ..spec import Structure, TensorSpec, is_dataclass_type
from .node import ElementType

__all__ = ["Padding", "padded_shapes", "padding", "padding_values"]

Shape = tuple[int, ...] | None


class Padding(NamedTuple):
    """How the elements of a batch are padded.

    Attributes:
        shapes: the target shape of each leaf, -1 for the largest of the batch; None where the rank is not known.
        values: the fill value of each leaf.
        specs: of the padded leaves.
    """

    shapes: tuple[Shape, ...]
    values: tuple[Any, ...]
    specs: tuple[TensorSpec, ...]


def padding(node: Any, element: ElementType) -> Padding:
    """How a step that pads (with `shapes`, `values`, `given`) pads elements of a type, defaults filled in.

    Raises:
        PlanError: the user's arguments do not fit elements whose type was not known when the chain was written.
    """
    shapes, values = node.shapes, node.values
    if node.given is not None and element.known:
        try:
            shapes, values = padded_shapes(node.given[0], element), padding_values(node.given[1], element)
        except PlanError as error:
            raise type(error)(f"{error} (in the {node.name} at {node.line})") from error
    default = padded_shapes(None, element)
    shapes = tuple(b if a is None else a for a, b in zip(shapes or default, default, strict=True))
    specs = tuple(
        spec if shape is None else TensorSpec(tuple(None if n < 0 else n for n in shape), spec.dtype, spec.layout)
        for spec, shape in zip(element.specs, shapes, strict=True)
    )
    return Padding(shapes, padding_values(None, element) if values is None else values, specs)


def padded_shapes(given: Any, element: ElementType) -> tuple[Shape, ...]:
    """One target shape per leaf, -1 for "the largest of the batch"; None where the rank is not known.

    Raises:
        PlanError: a rank differs, or a static dimension is smaller than the data's.
        PlanTypeError: the structure differs.
    """
    if given is None:
        return tuple(
            None if spec.shape is None else tuple(-1 if n is None else n for n in spec.shape) for spec in element.specs
        )
    assert element.structure is not None
    parts = _parts("padded_shapes", given, element.structure)
    shapes = tuple(None if part is None else _shape(part) for part in parts)
    for shape, spec in zip(shapes, element.specs, strict=True):
        _check(shape, spec)
    return shapes


def _parts(who: str, given: Any, structure: Structure) -> Iterator[Any]:
    """The parts of an argument that is nested like the element, one for each leaf; None stands for the default."""
    if given is None:  # the defaults for all leaves of this part, as in tf.data
        yield from [None] * structure.count
    elif structure.kind is None:
        yield given
    elif structure.kind is not type(None):
        for part, child in zip(_children(who, given, structure), structure.children, strict=True):
            yield from _parts(who, part, child)


def _children(who: str, given: Any, structure: Structure) -> list[Any]:
    """The direct parts of an argument that is nested like the element."""
    if structure.kind is dict:
        if not isinstance(given, Mapping) or set(given) != set(structure.keys):
            raise PlanTypeError(
                f"padded_batch needs {who} as a dict with the keys {list(structure.keys)}, got {given!r}"
            )
        return [given[key] for key in structure.keys]
    if is_dataclass_type(structure.kind):
        if type(given) is not structure.kind:
            raise PlanTypeError(f"padded_batch needs {who} as a {structure.kind.__qualname__}, got {given!r}")
        return [getattr(given, name) for name in structure.keys]
    if not isinstance(given, tuple) or len(given) != len(structure.children):
        raise PlanTypeError(f"padded_batch needs {who} as a tuple of {len(structure.children)}, got {given!r}")
    return list(given)


def _shape(given: Any) -> Shape:
    if isinstance(given, np.ndarray) and given.ndim == 1:
        given = given.tolist()
    if not isinstance(given, (list, tuple)):
        raise PlanTypeError(f"padded_batch needs a shape, a list of sizes or None, got {given!r}")
    try:
        sizes = [-1 if n is None else index(n) for n in given]
    except TypeError:
        raise PlanTypeError(f"padded_batch needs whole numbers or None as sizes, got {given!r}") from None
    if any(n < -1 for n in sizes):
        raise PlanError(f"padded_batch needs sizes >= 0, or -1 or None for the largest, got {given!r}")
    return tuple(sizes)


def _check(shape: Shape, spec: TensorSpec) -> None:
    if shape is None or spec.shape is None:
        return
    if len(shape) != len(spec.shape):
        raise PlanError(f"padded_batch needs a padded shape of rank {len(spec.shape)} for {spec}, got {list(shape)}")
    if any(n is not None and 0 <= m < n for m, n in zip(shape, spec.shape, strict=True)):
        raise PlanError(f"padded_batch needs padded shapes no smaller than the data, got {list(shape)} for {spec}")


def padding_values(given: Any, element: ElementType) -> tuple[Any, ...]:
    """One fill value per leaf, in its dtype.

    Raises:
        PlanTypeError: a value does not fit the leaf's dtype exactly, or the structure differs.
    """
    values = [given] * len(element.specs)  # one value serves all leaves
    if element.structure is not None and (isinstance(given, (tuple, Mapping)) or is_dataclass_type(type(given))):
        values = list(_parts("padding_values", given, element.structure))
    return tuple(_fill(value, spec) for value, spec in zip(values, element.specs, strict=True))


def _fill(value: Any, spec: TensorSpec) -> Any:
    if spec.dtype is bytes:
        value = b"" if value is None else value.encode() if isinstance(value, str) else value
        if not isinstance(value, bytes):
            raise PlanTypeError(f"padded_batch needs a byte string to fill {spec}, got {value!r}")
        return value
    if spec.dtype is None:
        return 0 if value is None else value
    if value is None:
        return np.zeros((), spec.dtype)[()]
    typed = isinstance(value, (np.generic, np.ndarray))
    with np.errstate(all="ignore"):
        try:
            fill = np.asarray(value).astype(spec.dtype)
        except (TypeError, ValueError) as error:
            raise PlanTypeError(f"padded_batch needs a number to fill {spec}, got {value!r}") from error
    exact = np.array_equal(fill, value, equal_nan=fill.dtype.kind == "f") and not (
        typed and np.asarray(value).dtype != spec.dtype
    )
    if not exact and not (isinstance(value, float) and fill.dtype.kind == "f"):
        raise PlanTypeError(f"padded_batch needs a value of dtype {spec.dtype} to fill {spec}, got {value!r}")
    return fill[()]
