"""structures: the type of an element as JSON: the nesting of its leaves, and the spec of each leaf.

Classes (NamedTuple, dataclass) are written by name. Reading one imports nothing and runs nothing: in a file that
anybody may have written it is one that the program has used itself, as its constructor gets values of the file.
"""

from __future__ import annotations

import json
import sys
from collections import namedtuple
from collections.abc import Callable
from types import ModuleType
from typing import Any

from ..errors import PlanError, PlanTypeError
from ..ragged import RaggedSpec
from ..spec import ABSENT, LEAF, Structure, TensorSpec, is_dataclass_type
from ..structure import used_class

__all__ = [
    "Malformed",
    "class_of_program",
    "imported_class",
    "json_object",
    "spec_from_json",
    "spec_to_json",
    "structure_from_json",
    "structure_to_json",
]

_DEEPEST = 200


_KEYS = (str, int, float, bool, type(None))


class Malformed(Exception):
    """Bytes or JSON that do not hold what the reader expects."""


def json_object(data: Any) -> dict[str, Any]:
    """Read the text of a JSON object.

    Raises:
        Malformed: the bytes are not one.
    """
    try:
        given = json.loads(bytes(data))
    except (ValueError, RecursionError) as error:
        raise Malformed(f"not JSON: {error}") from error
    if not isinstance(given, dict):
        raise Malformed("not a JSON object")
    return given


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
        return {"dict": children, "keys": [_key_to_json(key) for key in structure.keys]}
    names = structure.keys if is_dataclass_type(kind) else kind._fields
    return {"class": f"{kind.__module__}:{kind.__qualname__}", "fields": list(names), "children": children}


def _key_to_json(key: Any) -> Any:
    if type(key) in _KEYS:
        return key
    if type(key) is bytes:
        return {"bytes": key.hex()}
    if type(key) is tuple:
        return {"tuple": [_key_to_json(part) for part in key]}
    raise PlanError(
        f"elements in files and worker processes need dict keys of text, numbers, bytes or tuples of them, got {key!r}"
    )


def _key_from_json(given: Any, depth: int) -> Any:
    match given:
        case {"bytes": str(text), **rest} if not rest:
            try:
                return bytes.fromhex(text)
            except ValueError as error:
                raise Malformed("not the key of a dict") from error
        case {"tuple": list(parts), **rest} if not rest and depth < _DEEPEST:
            return tuple([_key_from_json(part, depth + 1) for part in parts])
        case _ if type(given) in _KEYS:
            return given
    raise Malformed("not the key of a dict")


def imported_class(module: str, path: str, names: list[Any]) -> Any:
    """Return the class of this name if the program has imported it, else a NamedTuple like it.

    Only what modules and classes hold is taken: `getattr` would run the `__getattr__` by which some import more.
    """
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = vars(found).get(part) if isinstance(found, (ModuleType, type)) else None
    return _checked(found, path, names)


def class_of_program(module: str, path: str, names: list[Any]) -> Any:
    """Return the class of this name if the program has used it in an element or a spec, else a NamedTuple like it."""
    return _checked(used_class(module, path), path, names)


def _checked(found: Any, path: str, names: list[Any]) -> Any:
    """The class, if it is one of elements with these fields, else a NamedTuple with them."""
    fields: Any = ()
    if isinstance(found, type) and (issubclass(found, tuple) or is_dataclass_type(found)):
        fields = getattr(found, "_fields" if issubclass(found, tuple) else "__dataclass_fields__", ())
    return found if names == list(fields) else namedtuple(path.rpartition(".")[2], names)


def structure_from_json(
    given: Any, find: Callable[[str, str, list[Any]], Any] = imported_class, depth: int = 0
) -> Structure:
    """Read the nesting of an element.

    Args:
        given: JSON, which may hold anything.
        find: returns the class for a module, a name in it and the names of its fields.
        depth: how deep this part is nested.

    Raises:
        Malformed: the JSON holds something else.
    """
    if given == "leaf":
        return LEAF
    if given is None:
        return ABSENT
    if not isinstance(given, dict) or depth > _DEEPEST:
        raise Malformed("not the nesting of an element")
    below = given.get("tuple", given.get("dict", given.get("children")))
    if not isinstance(below, list) or not below:
        raise Malformed("no children")
    children = tuple([structure_from_json(child, find, depth + 1) for child in below])
    count = sum(child.count for child in children)
    if "tuple" in given:
        return Structure(tuple, (), children, count)
    keys = given.get("keys" if "dict" in given else "fields")
    if not isinstance(keys, list) or len(keys) != len(children):
        raise Malformed("no keys, or no names of fields")
    if "dict" in given:
        return Structure(dict, tuple([_key_from_json(key, depth) for key in keys]), children, count)
    name = given.get("class")
    if not isinstance(name, str):
        raise Malformed("no class")
    module, _, path = name.partition(":")
    try:
        kind = find(module, path, keys)
    except (TypeError, ValueError) as error:
        raise Malformed(f"no class {name!r}: {error}") from error
    return Structure(kind, tuple(keys) if is_dataclass_type(kind) else (), children, count)


def spec_to_json(spec: TensorSpec) -> Any:
    """Write the type of one leaf.

    Raises:
        PlanTypeError: files cannot hold such a leaf, e.g. a dataset.
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
        Malformed: the JSON holds something else.
    """
    if not isinstance(given, dict):
        raise Malformed("not a spec")
    shape, dtype, layout = given.get("shape"), given.get("dtype"), given.get("layout")
    if shape is not None and not (isinstance(shape, list) and all(n is None or type(n) is int for n in shape)):
        raise Malformed("not a shape")
    if not (dtype is None or isinstance(dtype, str)) or not (layout is None or isinstance(layout, str)):
        raise Malformed("not a dtype or layout")
    try:
        if "ragged" in given:
            rank, splits = given["ragged"], given.get("splits")
            if type(rank) is not int or not isinstance(splits, str):
                raise Malformed("not a ragged spec")
            dims = None if shape is None else tuple(shape)
            return RaggedSpec(dims, dtype, ragged_rank=rank, row_splits_dtype=splits)
        return TensorSpec(None if shape is None else tuple(shape), dtype, layout)
    except PlanError as error:
        raise Malformed(str(error)) from error
