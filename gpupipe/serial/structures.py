"""structures: the type of an element as JSON: how its leaves are nested, and what each of them is.

Classes (NamedTuple, dataclass) are written by name. Reading one looks it up among the modules that the program has
imported, and imports nothing: a file must not decide what code runs.
"""

from __future__ import annotations

import sys
from collections import namedtuple
from typing import Any

from ..errors import PlanError, PlanTypeError
from ..ragged import RaggedSpec
from ..spec import LEAF, Structure, TensorSpec, is_dataclass_type

__all__ = ["Malformed", "spec_from_json", "spec_to_json", "structure_from_json", "structure_to_json"]

_ABSENT = Structure(type(None), count=0)


_DEEPEST = 200


_KEYS = (str, int, float, bool, type(None))


class Malformed(Exception):
    """What is read is no type of an element."""


def structure_to_json(structure: Structure) -> Any:
    """Write the nesting of an element.

    Raises:
        PlanError: a dict has keys that JSON cannot hold.
    """
    kind = structure.kind
    if kind is None:
        return "leaf"
    if kind is type(None):
        return None
    children = [structure_to_json(child) for child in structure.children]
    if kind is tuple:
        return {"tuple": children}
    if kind is dict:
        for key in structure.keys:
            if type(key) not in _KEYS:
                raise PlanError(f"elements in a file need dict keys that are text or numbers, got {key!r}")
        return {"dict": children, "keys": list(structure.keys)}
    names = structure.keys if is_dataclass_type(kind) else kind._fields
    return {"class": f"{kind.__module__}:{kind.__qualname__}", "fields": list(names), "children": children}


def structure_from_json(given: Any, depth: int = 0) -> Structure:
    """Read the nesting of an element.

    Raises:
        Malformed: it is none, or a class it names is not imported.
    """
    if given == "leaf":
        return LEAF
    if given is None:
        return _ABSENT
    if not isinstance(given, dict) or depth > _DEEPEST:
        raise Malformed("no structure")
    if "tuple" in given:
        children = _children(given["tuple"], depth)
        return Structure(tuple, (), children, _count(children))
    if "dict" in given:
        children, keys = _children(given["dict"], depth), given.get("keys")
        if not isinstance(keys, list) or len(keys) != len(children) or any(type(key) not in _KEYS for key in keys):
            raise Malformed("no keys of a dict")
        return Structure(dict, tuple(keys), children, _count(children))
    name, names = given.get("class"), given.get("fields")
    children = _children(given.get("children"), depth)
    if not isinstance(name, str) or not isinstance(names, list) or len(names) != len(children):
        raise Malformed("no class with fields")
    kind = _class(name, names)
    return Structure(kind, tuple(names) if is_dataclass_type(kind) else (), children, _count(children))


def _children(given: Any, depth: int) -> tuple[Structure, ...]:
    if not isinstance(given, list) or not given:
        raise Malformed("no children")
    return tuple(structure_from_json(child, depth + 1) for child in given)


def _count(children: tuple[Structure, ...]) -> int:
    return sum(child.count for child in children)


def _class(name: str, names: list[Any]) -> Any:
    """The class of this name if the program has it; a NamedTuple like it where it has not."""
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    if isinstance(found, type):
        if issubclass(found, tuple) and getattr(found, "_fields", None) == tuple(names):
            return found
        if is_dataclass_type(found) and list(getattr(found, "__dataclass_fields__", ())) == names:
            return found
    try:
        return namedtuple(path.rpartition(".")[2], names)
    except (TypeError, ValueError) as error:
        raise Malformed(f"no class {name!r}: {error}") from error


def spec_to_json(spec: TensorSpec) -> Any:
    """Write the type of one leaf.

    Raises:
        PlanTypeError: a leaf that files cannot hold, e.g. a dataset.
    """
    shape = None if spec.shape is None else list(spec.shape)
    dtype = None if spec.dtype is None else "bytes" if spec.dtype is bytes else spec.dtype.str
    if type(spec) is TensorSpec:
        return {"shape": shape, "dtype": dtype, "layout": spec.layout}
    if isinstance(spec, RaggedSpec):
        return {"shape": shape, "dtype": dtype, "ragged": spec.ragged_rank, "splits": spec.row_splits_dtype.str}
    raise PlanTypeError(f"elements in a file need arrays, numbers and bytes, got a {spec}; flat_map it first")


def spec_from_json(given: Any) -> TensorSpec:
    """Read the type of one leaf.

    Raises:
        Malformed: it is none.
    """
    if not isinstance(given, dict):
        raise Malformed("no spec")
    shape, dtype, layout = given.get("shape"), given.get("dtype"), given.get("layout")
    if shape is not None and not (isinstance(shape, list) and all(n is None or type(n) is int for n in shape)):
        raise Malformed("no shape")
    if not (dtype is None or isinstance(dtype, str)) or not (layout is None or isinstance(layout, str)):
        raise Malformed("no dtype or layout")
    try:
        if "ragged" in given:
            rank, splits = given["ragged"], given.get("splits")
            if type(rank) is not int or not isinstance(splits, str):
                raise Malformed("no ragged spec")
            dims = None if shape is None else tuple(shape)
            return RaggedSpec(dims, dtype, ragged_rank=rank, row_splits_dtype=splits)
        return TensorSpec(None if shape is None else tuple(shape), dtype, layout)
    except PlanError as error:
        raise Malformed(str(error)) from error
