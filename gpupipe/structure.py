"""structure: the nesting of values: tuples, NamedTuples, dicts and dataclasses of leaves."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, fields
from functools import lru_cache
from itertools import repeat
from typing import Any
from weakref import WeakSet

import numpy as np

from .brief import fields_in_brief
from .classes import dataclass
from .errors import PlanError

__all__ = [
    "ABSENT",
    "LEAF",
    "Carrier",
    "Described",
    "Structure",
    "describe",
    "field_names",
    "flatten",
    "flatten_like",
    "is_dataclass_type",
    "map_structure",
    "used_class",
]


class Described:
    """The base of descriptions of leaves, such as specs, which are not leaves themselves."""

    __slots__ = ()


class Carrier:
    """The base of gpupipe's dataclasses that are structure as users' are, and that ops take in place of a value."""

    __slots__ = ()

    def through(self, call: Callable[[Any], Any]) -> Any:
        """The same with `call` applied to the value in whose place ops take this."""
        raise TypeError(f"{type(self).__name__} does not define through")


@dataclass(frozen=True, slots=True)
class Structure:
    """The nesting of an element without its leaves.

    Attributes:
        kind: the class of this level (tuple, dict, a NamedTuple or a dataclass), None for a leaf, `type(None)` for an
            absent leaf.
        keys: the keys of a dict, in insertion order; the names of a dataclass's fields.
        children: the structures below.
        count: how many leaves are below.
    """

    kind: Any = None
    keys: tuple[Any, ...] = ()
    children: tuple[Structure, ...] = ()
    count: int = 1
    flat: bool = field(init=False, compare=False, repr=False)

    __repr__ = fields_in_brief

    def __post_init__(self) -> None:
        flat = self.kind is tuple and all(child.kind is None for child in self.children)
        object.__setattr__(self, "flat", flat)

    def unflatten(self, leaves: Sequence[Any]) -> Any:
        """Restore the nesting around leaves.

        Dataclasses are made by their constructor, except around leaves that are not values (specs, texts, traced
        symbols), for which its checks would fail.
        """
        if self.kind is None:
            return leaves[0]
        if self.flat:
            return tuple(leaves)
        return self._build(iter(leaves), bool(leaves) and not _is_value(leaves[0]))

    def _build(self, leaves: Iterator[Any], raw: bool) -> Any:
        if self.kind is None:
            return next(leaves)
        if self.kind is type(None):
            return None
        parts = [child._build(leaves, raw) for child in self.children]
        if self.kind is tuple:
            return tuple(parts)
        if self.kind is dict:
            return dict(zip(self.keys, parts, strict=True))
        if not is_dataclass_type(self.kind):
            return self.kind(*parts)
        if not raw:
            return self.kind(**dict(zip(self.keys, parts, strict=True)))
        made = object.__new__(self.kind)
        for name, part in zip(self.keys, parts, strict=True):
            object.__setattr__(made, name, part)
        return made

    def leaf_names(self, prefix: str = "") -> list[str]:
        """A name per leaf, as a user writes it: ``"[0]"``, ``"['label']"``, ``".image"``, ``""`` for a single leaf."""
        if self.kind is None:
            return [prefix]
        if self.kind is type(None):
            return []
        if is_dataclass_type(self.kind):
            steps = [f".{key}" for key in self.keys]
        else:
            steps = [f"[{key!r}]" for key in (self.keys if self.kind is dict else range(len(self.children)))]
        return [
            name
            for step, child in zip(steps, self.children, strict=True)
            for name in child.leaf_names(f"{prefix}{step}")
        ]

    def __str__(self) -> str:
        return describe(self.unflatten(["*"] * self.count))


LEAF = Structure()
ABSENT = Structure(type(None), count=0)


def is_dataclass_type(kind: Any) -> bool:
    """Whether instances of a class are flattened as dataclasses.

    Of gpupipe's own classes only a `Carrier` is. Specs are not, nor are classes that NumPy can convert to an array.
    """
    return (
        hasattr(kind, "__dataclass_fields__")
        and not issubclass(kind, Described)
        and (kind.__module__.partition(".")[0] != "gpupipe" or issubclass(kind, Carrier))
        and not hasattr(kind, "__array__")
    )


@lru_cache(maxsize=256)
def field_names(kind: type[Any]) -> tuple[str, ...]:
    """The fields of a dataclass, in order.

    Raises:
        PlanError: its constructor does not take exactly its fields, so it cannot be rebuilt from them.
    """
    given = fields(kind)
    for one in given:
        if not one.init:
            raise PlanError(
                f"an element needs dataclasses whose constructor takes every field, got {kind.__qualname__} with "
                f"{one.name!r}, declared init=False; make it a property"
            )
    names = tuple(one.name for one in given)
    if not names:
        raise PlanError(f"an element needs at least one leaf, got the empty dataclass {kind.__qualname__}")
    try:
        inspect.signature(kind).bind(**dict.fromkeys(names))
    except TypeError as error:
        raise PlanError(
            f"an element needs dataclasses whose constructor takes their fields ({', '.join(names)}), got "
            f"{kind.__qualname__}: {error}"
        ) from error
    return names


def _is_value(leaf: Any) -> bool:
    """Whether a leaf is a value, not a description or a symbol of one."""
    return not isinstance(leaf, (Described, str)) and not hasattr(type(leaf), "__gpupipe_symbol__")


_USED: WeakSet[type] = WeakSet()
"""The NamedTuples and dataclasses of elements and specs that the program has given to gpupipe."""


def used_class(module: str, path: str) -> type | None:
    """The class of this name that the program has used in an element or a spec; None if there is none."""
    return next((kind for kind in list(_USED) if (kind.__module__, kind.__qualname__) == (module, path)), None)


def flatten(value: Any) -> tuple[list[Any], Structure]:
    """Split a value into its leaves and its structure.

    tuple, NamedTuple, dict and dataclass are structure, everything else is a leaf.

    Raises:
        PlanError: for sets, for empty structures, and for a dataclass that cannot be rebuilt from its fields.
    """
    leaves: list[Any] = []
    return leaves, _flatten(value, leaves)


_LEAVES = (np.ndarray, np.generic, bytes, int, float, str, list)
"""The types of most leaves, tested first, as a test for `Mapping` is slow."""


def _flatten(value: Any, leaves: list[Any]) -> Structure:
    if value is None:
        return ABSENT
    if isinstance(value, _LEAVES):
        leaves.append(value)
        return LEAF
    if isinstance(value, tuple):
        children = tuple(_flatten(item, leaves) for item in value)
        kind: Any = type(value) if hasattr(value, "_fields") else tuple
        if not children:
            raise PlanError("an element needs at least one leaf, got the empty tuple ()")
        if kind is not tuple and kind not in _USED:
            _USED.add(kind)
        return Structure(kind, (), children, sum(child.count for child in children))
    if isinstance(value, Mapping):
        if not value:
            raise PlanError("an element needs at least one leaf, got the empty dict {}")
        children = tuple(_flatten(item, leaves) for item in value.values())
        return Structure(dict, tuple(value), children, sum(child.count for child in children))
    if isinstance(value, (set, frozenset)):
        raise PlanError("an element needs an ordered structure (tuple or dict), got a set")
    kind = type(value)
    if is_dataclass_type(kind):
        names = field_names(kind)
        children = tuple(_flatten(getattr(value, name), leaves) for name in names)
        if kind not in _USED:
            _USED.add(kind)
        return Structure(kind, names, children, sum(child.count for child in children))
    leaves.append(value)
    return LEAF


def map_structure(fn: Callable[[Any], Any], value: Any) -> Any:
    """Apply `fn` to every leaf."""
    leaves, structure = flatten(value)
    return structure.unflatten([fn(leaf) for leaf in leaves])


def describe(spec: Any) -> str:
    """Describe a structure of specs in one line."""
    if isinstance(spec, tuple):
        inner = ", ".join(describe(item) for item in spec)
        return f"({inner},)" if len(spec) == 1 else f"({inner})"
    if isinstance(spec, Mapping):
        return "{" + ", ".join(f"{key!r}: {describe(item)}" for key, item in spec.items()) + "}"
    kind: Any = type(spec)
    if is_dataclass_type(kind):
        parts = ", ".join(f"{name}={describe(getattr(spec, name))}" for name in field_names(kind))
        return f"{kind.__qualname__}({parts})"
    return str(spec)


def flatten_like(value: Any, structure: Structure) -> list[Any] | None:
    """The parts of a value where a structure has leaves; None if the value has another structure.

    A list counts as a tuple, as in tf.data; a tuple where the structure has a leaf counts as an array.
    """
    parts: list[Any] = []
    return parts if _take_apart(value, structure, parts) else None


def _take_apart(value: Any, structure: Structure, parts: list[Any]) -> bool:
    if structure.kind is None:
        parts.append(value)
        return value is not None
    if structure.kind is type(None):
        return value is None
    if structure.kind is dict:
        if not isinstance(value, Mapping) or set(value) != set(structure.keys):
            return False
        items: Sequence[Any] = [value[key] for key in structure.keys]
    elif is_dataclass_type(structure.kind):
        if type(value) is not structure.kind:
            return False
        items = [getattr(value, name) for name in structure.keys]
    elif type(value) is structure.kind or (structure.kind is tuple and type(value) is list):
        items = value
    else:
        return False
    return len(items) == len(structure.children) and all(map(_take_apart, items, structure.children, repeat(parts)))
