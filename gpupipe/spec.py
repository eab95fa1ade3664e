"""spec: what a value is (`TensorSpec`) and how values are nested (`Structure`), without any value.

An element is a nested structure (tuple, NamedTuple, dict, dataclass) of leaves; a leaf is a NumPy array, a NumPy
scalar or `bytes`. `bytes` stay Python objects: NumPy's `S` dtype drops trailing NULs, which would damage images.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import PlanError, PlanTypeError, SpecError

__all__ = [
    "UNKNOWN",
    "Compound",
    "DType",
    "DatasetSpec",
    "Structure",
    "TensorSpec",
    "as_declared",
    "as_dtype",
    "as_leaf",
    "flatten",
    "flatten_like",
    "is_dataclass_type",
    "map_structure",
    "read_only",
    "spec_of",
]

Array = npt.NDArray[Any]
DType = np.dtype[Any] | type[bytes]


def as_dtype(dtype: Any) -> DType | None:
    """Turn whatever names a dtype into `np.dtype` or `bytes`; None stays None (unknown).

    Raises:
        PlanTypeError: for objects, complex numbers, dates and anything that is no dtype.
    """
    if dtype is None:
        return None
    if dtype is bytes or dtype is str or dtype == "string" or dtype == "bytes":
        return bytes
    try:
        found = np.dtype(dtype)
    except TypeError as error:
        raise PlanTypeError(f"a spec needs a NumPy dtype or bytes, got {dtype!r}") from error
    if found.kind in "SUO":
        return bytes
    if found.kind not in "biuf":
        raise PlanTypeError(f"a spec needs a boolean, integer, float or bytes dtype, got {found}")
    native: np.dtype[Any] = found.newbyteorder("=")
    return native


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """The type of one leaf.

    Attributes:
        shape: one entry per dimension, None where it varies; None instead of a tuple where the rank is unknown.
        dtype: a NumPy dtype, `bytes`, or None where unknown. A batch of byte strings has dtype `bytes` and rank 1.
        layout: the meaning of the dimensions of an image, ``"HWC"`` or ``"CHW"``, with a leading ``"N"`` in a batch;
            None for anything else.
    """

    shape: tuple[int | None, ...] | None = ()
    dtype: Any = None
    layout: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", as_dtype(self.dtype))
        if self.shape is not None:
            try:
                shape = tuple(None if n is None else int(n) for n in self.shape)
            except TypeError as error:
                raise PlanTypeError(f"TensorSpec needs a shape of integers or None, got {self.shape!r}") from error
            if any(n is not None and n < 0 for n in shape):
                raise PlanError(f"TensorSpec needs dimensions >= 0 or None, got {self.shape!r}")
            object.__setattr__(self, "shape", shape)
            if self.layout is not None and len(self.layout) != len(shape):
                raise PlanError(
                    f"layout {self.layout!r} has {len(self.layout)} dimensions, shape {shape} has {len(shape)}"
                )

    def __str__(self) -> str:
        name = "?" if self.dtype is None else "bytes" if self.dtype is bytes else str(self.dtype)
        dims = "[...]" if self.shape is None else "[" + ",".join("?" if n is None else str(n) for n in self.shape) + "]"
        return name + ("" if dims == "[]" else dims) + (f"{{{self.layout}}}" if self.layout else "")

    @property
    def rank(self) -> int | None:
        """Number of dimensions, None where unknown."""
        return None if self.shape is None else len(self.shape)

    @property
    def known(self) -> bool:
        """Whether dtype and rank are known, which is what tracing needs."""
        return self.dtype is not None and self.shape is not None

    def require(self, who: str, *, layout: str | None = None, dtype: Any = None) -> TensorSpec:
        """Check that this is what op `who` needs; answer the spec with its layout filled in.

        An array of rank 3 without a layout is taken for an image {HWC}.

        Raises:
            SpecError: naming the op, what it needs and what it got.
        """
        if dtype is not None and self.dtype != as_dtype(dtype):
            raise SpecError(f"{who} needs {TensorSpec((), dtype)}, got {self}")
        if layout is None:
            return self
        if self.dtype is bytes:
            raise SpecError(
                f"{who} needs an image {{{layout}}}, got {self}; decode it first, e.g. with ops.decode_jpeg"
            )
        if self.layout is None and self.rank == len(layout):
            return replace(self, layout=layout)
        if self.layout != layout:
            hint = "; add a channel axis to the array" if self.rank == len(layout) - 1 else ""
            hint = "; move the channels with ops.transpose" if self.layout and len(self.layout) == len(layout) else hint
            raise SpecError(f"{who} needs an image {{{layout}}}, got {self}{hint}")
        return self

    def batched(self, size: int | None) -> TensorSpec:
        """The spec of `size` such values stacked."""
        if self.shape is None:
            return replace(self, layout=None)
        return TensorSpec((size, *self.shape), self.dtype, None if self.layout is None else "N" + self.layout)

    def row(self) -> TensorSpec:
        """The spec of one row: the inverse of `batched`."""
        if self.shape is None:
            return self
        if not self.shape:
            raise SpecError(f"unbatch needs values with a batch dimension, got the scalar {self}")
        layout = self.layout[1:] if self.layout is not None and self.layout.startswith("N") else None
        return TensorSpec(self.shape[1:], self.dtype, layout)

    def accepts(self, other: TensorSpec) -> bool:
        """Whether a value of spec `other` is also one of this spec; an unknown part accepts everything."""
        if type(other) is not type(self) and not (self.shape is None and self.dtype in (None, other.dtype)):
            return False
        if self.dtype is not None and other.dtype is not None and self.dtype != other.dtype:
            return False
        if self.shape is None or other.shape is None:
            return True
        return len(self.shape) == len(other.shape) and all(
            a is None or b is None or a == b for a, b in zip(self.shape, other.shape, strict=True)
        )

    def relax(self, other: TensorSpec) -> TensorSpec:
        """The narrowest spec that accepts both (dtypes must agree): what `concatenate` gives."""
        if type(other) is not type(self):
            return TensorSpec(None, None)
        layout = self.layout if self.layout == other.layout else None
        dtype = self.dtype if other.dtype is not None else None
        if self.shape is None or other.shape is None or len(self.shape) != len(other.shape):
            return TensorSpec(None, dtype)
        shape = tuple(a if a == b else None for a, b in zip(self.shape, other.shape, strict=True))
        return TensorSpec(shape, dtype, layout)

    def loose(self) -> TensorSpec:
        """The spec with every dimension unknown: what one element tells about the next."""
        return TensorSpec(None if self.shape is None else (None,) * len(self.shape), self.dtype)


UNKNOWN = TensorSpec(None, None)


class Compound:
    """A leaf that is neither array nor `bytes`: a nested dataset, rows of unequal length. It says its own spec."""

    __slots__ = ()

    def leaf_spec(self) -> TensorSpec:
        """The exact spec of this leaf."""
        raise NotImplementedError

    def leaf_parts(self) -> tuple[Any, ...]:
        """Plain data that tells it from others: what fingerprints are made of."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class DatasetSpec(TensorSpec):
    """The type of a leaf that is a dataset itself, e.g. of `Dataset.window`.

    It counts as unknown (`known` is False): a function of such a leaf is ordinary Python, never traced.

    Attributes:
        element_spec: the structure of `TensorSpec` of its elements.
    """

    shape: tuple[int | None, ...] | None = field(default=(), init=False)
    dtype: Any = field(default=None, init=False)
    layout: str | None = field(default=None, init=False)
    element_spec: Any = UNKNOWN

    def __post_init__(self) -> None:
        flatten(self.element_spec)  # a structure, or an error that says so

    def __str__(self) -> str:
        return f"dataset of {describe(self.element_spec)}"

    def batched(self, size: int | None) -> TensorSpec:
        """Datasets do not stack.

        Raises:
            PlanTypeError: always; says what to do instead.
        """
        raise PlanTypeError(
            f"batch needs arrays, numbers or bytes, got a {self}; batch the elements of each with "
            f"flat_map(lambda w: w.batch(n))"
        )

    def row(self) -> TensorSpec:
        """A dataset has no rows.

        Raises:
            SpecError: always.
        """
        raise SpecError(f"unbatch needs leaves with a first dimension, got a {self}; use flat_map(lambda w: w)")

    def accepts(self, other: TensorSpec) -> bool:
        """Whether `other` is a dataset, too, of elements that this one's spec accepts."""
        if not isinstance(other, DatasetSpec):
            return False
        (mine, structure), (theirs, same) = flatten(self.element_spec), flatten(other.element_spec)
        if structure == LEAF and mine[0] == UNKNOWN:
            return True
        return structure == same and all(a.accepts(b) for a, b in zip(mine, theirs, strict=True))

    def relax(self, other: TensorSpec) -> TensorSpec:
        """The narrowest spec that accepts both."""
        if not isinstance(other, DatasetSpec):
            return UNKNOWN
        (mine, structure), (theirs, same) = flatten(self.element_spec), flatten(other.element_spec)
        if structure != same:
            return DatasetSpec(UNKNOWN)
        return DatasetSpec(structure.unflatten([a.relax(b) for a, b in zip(mine, theirs, strict=True)]))

    def loose(self) -> TensorSpec:
        """The spec with every dimension of its elements unknown."""
        return DatasetSpec(map_structure(lambda spec: spec.loose(), self.element_spec))


@dataclass(frozen=True, slots=True)
class Structure:
    """The nesting of an element: what is left of it when every leaf is taken out.

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

    def __post_init__(self) -> None:
        flat = self.kind is tuple and all(child.kind is None for child in self.children)
        object.__setattr__(self, "flat", flat)

    def unflatten(self, leaves: Sequence[Any]) -> Any:
        """Put leaves back in place.

        Dataclasses are made by their constructor. Where leaves are no values (specs, texts, traced symbols) it is not
        called: what it checks of an array would fail there.
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
        """A name per leaf, as a user writes it: ``"[0]"``, ``"['label']"``, ``".image"``, ``""`` for a lone leaf."""
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
    """Whether instances of a class are taken apart as dataclasses.

    Not where they are what leaves are described by (gpupipe's own), nor where NumPy can read them as an array.
    """
    return (
        hasattr(kind, "__dataclass_fields__")
        and not issubclass(kind, TensorSpec)
        and kind.__module__.partition(".")[0] != "gpupipe"
        and not hasattr(kind, "__array__")
    )


@lru_cache(maxsize=256)
def field_names(kind: type[Any]) -> tuple[str, ...]:
    """The fields of a dataclass, in order.

    Raises:
        PlanError: its constructor does not take exactly its fields, so that it cannot be made again from them.
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
    """Whether a leaf is a value, not what stands for one."""
    return not isinstance(leaf, (TensorSpec, str)) and not hasattr(type(leaf), "__gpupipe_symbol__")


def flatten(value: Any) -> tuple[list[Any], Structure]:
    """Take a structure apart into its leaves and what is left.

    tuple, NamedTuple, dict and dataclass are structure, everything else is a leaf.

    Raises:
        PlanError: for sets, for empty structures, and for a dataclass that cannot be made again from its fields.
    """
    leaves: list[Any] = []
    return leaves, _flatten(value, leaves)


_LEAVES = (np.ndarray, np.generic, bytes, int, float, str, list)
"""What most leaves are: asked first, since a test for `Mapping` is slow."""


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
        return Structure(kind, names, children, sum(child.count for child in children))
    leaves.append(value)
    return LEAF


def map_structure(fn: Callable[[Any], Any], value: Any) -> Any:
    """Apply `fn` to every leaf."""
    leaves, structure = flatten(value)
    return structure.unflatten([fn(leaf) for leaf in leaves])


def describe(spec: Any) -> str:
    """A structure of specs as one line of text."""
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


def as_leaf(value: Any) -> Any:
    """Turn one Python value into a leaf by NumPy's own rules: int -> int64, float -> float64, str -> UTF-8 bytes.

    Raises:
        PlanTypeError: for values that NumPy can only hold as objects, and for masked arrays.
        PlanError: for ragged lists and integers beyond 64 bits.
    """
    kind = type(value)
    if kind is bytes or (isinstance(value, np.generic) and value.dtype.kind in "biuf"):
        return value
    return _as_leaf(value, kind)


def _as_leaf(value: Any, kind: type[Any]) -> Any:
    if kind is np.ndarray:
        return _as_array(value)
    if isinstance(value, Compound):
        return value
    if kind is str:
        return _encoded(value)
    for part in (value, *value) if kind is list else (value,):
        if isinstance(part, np.ndarray) and isinstance(part, np.ma.MaskedArray):
            raise PlanTypeError("a leaf needs values without a mask, got a masked array; fill it first: x.filled(0)")
    if isinstance(value, (memoryview, bytearray)):
        return bytes(value)
    if isinstance(value, (np.bytes_, np.str_)):
        return bytes(value) if isinstance(value, np.bytes_) else _encoded(str(value))
    if kind is list and value and isinstance(value[0], (bytes, str)):
        return byte_array([as_leaf(item) for item in value])
    try:
        array = np.asarray(value)
        if array.dtype.kind in "SU" and array.ndim:
            array = np.asarray(value, object)  # nested lists of strings: the same with every trailing NUL
    except ValueError as error:
        raise PlanError(f"a leaf needs a rectangular array, got {_short(value)}; pad it or use a tuple") from error
    except Exception as error:  # an array-like of a foreign library may raise anything
        raise PlanTypeError(f"a leaf needs something NumPy can hold, got {kind.__name__}") from error
    array = _as_array(array)
    return array[()] if array.ndim == 0 else array


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise PlanError(f"a leaf needs text that UTF-8 can hold, got {ascii(text)[:60]}; give bytes instead") from error


def read_only(leaf: Any) -> Any:
    """The same leaf, an array as a view that cannot be written to: nobody changes data that others still read."""
    if type(leaf) is not np.ndarray:
        return leaf
    view = leaf.view()
    view.flags.writeable = False
    return view


def own(leaf: Any) -> Any:
    """The leaf, an array as a copy: a function that fills one buffer again and again may have returned it."""
    return leaf.copy() if type(leaf) is np.ndarray else leaf


def byte_array(values: Sequence[bytes]) -> Array:
    """An object array of byte strings (a NumPy `S` array would drop trailing NULs)."""
    array = np.empty(len(values), object)
    array[:] = values
    return array


def _as_array(array: Array) -> Array:
    if array.dtype.kind in "biuf":
        return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
    if array.dtype.kind in "SU" or (array.dtype == object and all(isinstance(v, (bytes, str)) for v in array.flat)):
        out = np.empty(array.shape, object)
        for place, value in np.ndenumerate(array):
            out[place] = _encoded(value) if isinstance(value, str) else bytes(value)
        return out
    if array.dtype == object and any(isinstance(v, int) and not -(2**63) <= v < 2**64 for v in array.flat):
        raise PlanError(f"a leaf needs integers that fit 64 bits, got {_short(array)}")
    raise PlanTypeError(f"a leaf needs booleans, integers, floats or bytes, got {_short(array)} of dtype {array.dtype}")


def spec_of(leaf: Any) -> TensorSpec:
    """The exact spec of one leaf."""
    if isinstance(leaf, (bytes, memoryview)):
        return TensorSpec((), bytes)
    if isinstance(leaf, Compound):
        return leaf.leaf_spec()
    return TensorSpec(leaf.shape, bytes if leaf.dtype == object else leaf.dtype)


def flatten_like(value: Any, structure: Structure) -> list[Any] | None:
    """The parts of a value where a structure has its leaves, whatever they are; None if the value is nested otherwise.

    A list stands for a tuple, as in tf.data, and where the structure has a leaf a tuple is an array.
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


def as_declared(value: Any, spec: TensorSpec) -> Any:
    """Turn one Python value into a leaf of a declared dtype: Python floats have no precision of their own.

    Everything else stays what it is, for whoever checks it against the spec.
    """
    leaf = as_leaf(value)
    if isinstance(value, (float, list, tuple)) and not isinstance(spec.dtype, type) and spec.dtype is not None:
        array = np.asarray(leaf)
        if array.dtype == np.float64 and spec.dtype.kind == "f" and not _holds(value, np.ndarray | np.generic):
            with np.errstate(over="ignore"):
                cast = array.astype(spec.dtype)
            if np.array_equal(np.isinf(cast), np.isinf(array)):
                return cast[()] if cast.ndim == 0 else cast
    return leaf


def _holds(value: Any, kinds: Any) -> bool:
    """Whether a nested list has such values in it."""
    if isinstance(value, (list, tuple)):
        return any(_holds(item, kinds) for item in value)
    return isinstance(value, kinds)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
