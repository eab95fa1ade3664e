"""spec: what a value is (`TensorSpec`) and how values are nested (`Structure`), without any value.

An element is a nested structure (tuple, NamedTuple, dict) of leaves; a leaf is a NumPy array, a NumPy scalar or
`bytes`. `bytes` stay Python objects: NumPy's `S` dtype drops trailing NULs, which would damage images.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import PlanError, PlanTypeError, SpecError

__all__ = [
    "UNKNOWN",
    "DType",
    "Structure",
    "TensorSpec",
    "as_dtype",
    "as_leaf",
    "flatten",
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
        if self.dtype is not None and other.dtype is not None and self.dtype != other.dtype:
            return False
        if self.shape is None or other.shape is None:
            return True
        return len(self.shape) == len(other.shape) and all(
            a is None or b is None or a == b for a, b in zip(self.shape, other.shape, strict=True)
        )

    def relax(self, other: TensorSpec) -> TensorSpec:
        """The narrowest spec that accepts both (dtypes must agree): what `concatenate` gives."""
        layout = self.layout if self.layout == other.layout else None
        dtype = self.dtype if other.dtype is not None else None
        if self.shape is None or other.shape is None or len(self.shape) != len(other.shape):
            return TensorSpec(None, dtype)
        shape = tuple(a if a == b else None for a, b in zip(self.shape, other.shape, strict=True))
        return TensorSpec(shape, dtype, layout)


UNKNOWN = TensorSpec(None, None)


@dataclass(frozen=True, slots=True)
class Structure:
    """The nesting of an element: what is left of it when every leaf is taken out.

    Attributes:
        kind: the class of this level (tuple, dict or a NamedTuple), None for a leaf, `type(None)` for an absent leaf.
        keys: the keys of a dict, in insertion order.
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
        """Put leaves back in place."""
        if self.kind is None:
            return leaves[0]
        if self.flat:
            return tuple(leaves)
        return self._build(iter(leaves))

    def _build(self, leaves: Iterator[Any]) -> Any:
        if self.kind is None:
            return next(leaves)
        if self.kind is type(None):
            return None
        parts = [child._build(leaves) for child in self.children]
        if self.kind is tuple:
            return tuple(parts)
        if self.kind is dict:
            return dict(zip(self.keys, parts, strict=True))
        return self.kind(*parts)

    def leaf_names(self, prefix: str = "") -> list[str]:
        """A name per leaf, as a user would write it: ``"[0]"``, ``"['label']"``, ``""`` for a lone leaf."""
        if self.kind is None:
            return [prefix]
        if self.kind is type(None):
            return []
        keys = self.keys if self.kind is dict else tuple(range(len(self.children)))
        return [
            name
            for key, child in zip(keys, self.children, strict=True)
            for name in child.leaf_names(f"{prefix}[{key!r}]")
        ]

    def __str__(self) -> str:
        return describe(self.unflatten(["*"] * self.count))


LEAF = Structure()
ABSENT = Structure(type(None), count=0)


def flatten(value: Any) -> tuple[list[Any], Structure]:
    """Take a structure apart into its leaves and what is left.

    tuple, NamedTuple and dict are structure, everything else is a leaf.

    Raises:
        PlanError: for sets and for empty structures.
    """
    leaves: list[Any] = []
    return leaves, _flatten(value, leaves)


def _flatten(value: Any, leaves: list[Any]) -> Structure:
    if value is None:
        return ABSENT
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
    return str(spec)


def as_leaf(value: Any) -> Any:
    """Turn one Python value into a leaf by NumPy's own rules: int -> int64, float -> float64, str -> UTF-8 bytes.

    Raises:
        PlanTypeError: for values that NumPy can only hold as objects.
        PlanError: for ragged lists and integers beyond 64 bits.
    """
    kind = type(value)
    if kind is bytes or (isinstance(value, np.generic) and value.dtype.kind in "biuf"):
        return value
    return _as_leaf(value, kind)


def _as_leaf(value: Any, kind: type[Any]) -> Any:
    if kind is np.ndarray:
        return _as_array(value)
    if kind is str:
        return value.encode()
    if isinstance(value, (memoryview, bytearray)):
        return bytes(value)
    if isinstance(value, (np.bytes_, np.str_)):
        return bytes(value) if isinstance(value, np.bytes_) else str(value).encode()
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
            out[place] = value.encode() if isinstance(value, str) else bytes(value)
        return out
    if array.dtype == object and any(isinstance(v, int) and not -(2**63) <= v < 2**64 for v in array.flat):
        raise PlanError(f"a leaf needs integers that fit 64 bits, got {_short(array)}")
    raise PlanTypeError(f"a leaf needs booleans, integers, floats or bytes, got {_short(array)} of dtype {array.dtype}")


def spec_of(leaf: Any) -> TensorSpec:
    """The exact spec of one leaf."""
    if isinstance(leaf, (bytes, memoryview)):
        return TensorSpec((), bytes)
    return TensorSpec(leaf.shape, bytes if leaf.dtype == object else leaf.dtype)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
