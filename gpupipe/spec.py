"""spec: the types of leaves (`TensorSpec`), and the conversion of values to leaves.

An element is a nested structure (tuple, NamedTuple, dict, dataclass) of leaves; a leaf is a NumPy array, a NumPy
scalar or `bytes`. `bytes` stay Python objects: NumPy's `S` dtype drops trailing NULs, which would damage images.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from .brief import fields_in_brief
from .classes import dataclass
from .errors import PlanError, PlanTypeError, SpecError
from .structure import (
    ABSENT,
    LEAF,
    Described,
    Structure,
    describe,
    field_names,
    flatten,
    flatten_like,
    is_dataclass_type,
    map_structure,
)

__all__ = [
    "ABSENT",
    "LEAF",
    "UNKNOWN",
    "Array",
    "Compound",
    "DType",
    "DatasetSpec",
    "Structure",
    "TensorSpec",
    "as_declared",
    "as_dtype",
    "as_leaf",
    "byte_array",
    "describe",
    "field_names",
    "flatten",
    "flatten_like",
    "is_dataclass_type",
    "map_structure",
    "own",
    "read_only",
    "same_dtype",
    "spec_of",
]

Array = npt.NDArray[Any]
DType = np.dtype[Any] | type[bytes]


def as_dtype(dtype: Any, who: str = "a spec") -> DType | None:
    """Convert anything that names a dtype to `np.dtype` or `bytes`; None stays None (unknown). `who` is for messages.

    Raises:
        PlanTypeError: for objects, complex numbers, dates and anything that is not a dtype.
    """
    if dtype is None:
        return None
    if isinstance(dtype, (np.ndarray, list)) or hasattr(type(dtype), "__gpupipe_symbol__"):
        raise PlanTypeError(f"{who} needs a dtype, got an array of values")
    if dtype is bytes or dtype is str or dtype == "string" or dtype == "bytes":
        return bytes
    try:
        found = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError) as error:  # NumPy parses a text, which may be from a file
        raise PlanTypeError(f"{who} needs a NumPy dtype or bytes, got {dtype!r}") from error
    if found.kind in "SUO":
        return bytes
    if found.kind not in "biuf":
        raise PlanTypeError(f"{who} needs a boolean, integer, float or bytes dtype, got {found}")
    native: np.dtype[Any] = found.newbyteorder("=")
    return native


def same_dtype(a: DType | None, b: DType | None) -> bool:
    """Whether two dtypes of specs are equal. To NumPy, None is another name of float64; here it is an unknown dtype."""
    return (a is None) is (b is None) and a == b


@dataclass(frozen=True, slots=True)
class TensorSpec(Described):
    """The type of one leaf.

    Attributes:
        shape: one entry per dimension, None where it varies; None instead of a tuple where the rank is unknown.
        dtype: a NumPy dtype, `bytes`, or None where unknown. A batch of byte strings has dtype `bytes` and rank 1.
        layout: the meaning of the dimensions of an image, ``"HWC"`` or ``"CHW"``, with a leading ``"T"`` for the frames
            of a clip, and with a leading ``"N"`` in a batch; None for anything else.
    """

    shape: tuple[int | None, ...] | None = ()
    dtype: Any = None
    layout: str | None = None

    __repr__ = fields_in_brief

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return same_dtype(self.dtype, other.dtype) and self._more() == other._more()

    def _more(self) -> tuple[Any, ...]:
        """What specs are compared by beside the dtype."""
        return self.shape, self.layout

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
        """Check that op `who` can take this; return the spec with its layout filled in.

        An array without a layout that has the right rank is taken for such an image: rank 3 for {HWC}.

        Raises:
            SpecError: names the op, what it needs and what it got.
        """
        if dtype is not None and not same_dtype(self.dtype, as_dtype(dtype)):
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
        """Whether every value of spec `other` fits this spec; an unknown part accepts everything."""
        if type(other) is not type(self) and not (
            self.shape is None and (self.dtype is None or same_dtype(self.dtype, other.dtype))
        ):
            return False
        return self._agrees(other)

    def _agrees(self, other: TensorSpec) -> bool:
        """Whether dtypes and shapes are equal where both are known."""
        if self.dtype is not None and other.dtype is not None and self.dtype != other.dtype:
            return False
        if self.shape is None or other.shape is None:
            return True
        return len(self.shape) == len(other.shape) and all(
            a is None or b is None or a == b for a, b in zip(self.shape, other.shape, strict=True)
        )

    def relax(self, other: TensorSpec) -> TensorSpec:
        """The narrowest spec that accepts both (dtypes must agree), as for `concatenate`."""
        if type(other) is not type(self):
            return TensorSpec(None, None)
        layout = self.layout if self.layout == other.layout else None
        dtype = self.dtype if other.dtype is not None else None
        if self.shape is None or other.shape is None or len(self.shape) != len(other.shape):
            return TensorSpec(None, dtype)
        shape = tuple(a if a == b else None for a, b in zip(self.shape, other.shape, strict=True))
        return TensorSpec(shape, dtype, layout)

    def loose(self) -> TensorSpec:
        """The spec with every dimension unknown: all that one element tells about the next."""
        return TensorSpec(None if self.shape is None else (None,) * len(self.shape), self.dtype)


UNKNOWN = TensorSpec(None, None)


class Compound:
    """A leaf that is neither array nor `bytes`: a nested dataset, or rows of unequal length."""

    __slots__ = ()

    def leaf_spec(self) -> TensorSpec:
        """The exact spec of this leaf."""
        raise NotImplementedError

    def leaf_parts(self) -> tuple[Any, ...]:
        """Plain data for the fingerprint."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class DatasetSpec(TensorSpec):
    """The type of a leaf that is a dataset itself, e.g. after `Dataset.window`.

    It counts as unknown (`known` is False): a function of such a leaf is ordinary Python, never traced.

    Attributes:
        element_spec: the structure of `TensorSpec` of its elements.
    """

    shape: tuple[int | None, ...] | None = field(default=(), init=False)
    dtype: Any = field(default=None, init=False)
    layout: str | None = field(default=None, init=False)
    element_spec: Any = UNKNOWN

    __repr__ = fields_in_brief

    __eq__ = TensorSpec.__eq__

    def _more(self) -> tuple[Any, ...]:
        return (self.element_spec,)

    def __post_init__(self) -> None:
        flatten(self.element_spec)  # raises if it is not a structure

    def __str__(self) -> str:
        return f"dataset of {describe(self.element_spec)}"

    def batched(self, size: int | None) -> TensorSpec:
        """Raise: datasets do not stack.

        Raises:
            PlanTypeError: always; says what to do instead.
        """
        raise PlanTypeError(
            f"batch needs arrays, numbers or bytes, got a {self}; batch the elements of each with "
            f"flat_map(lambda w: w.batch(n))"
        )

    def row(self) -> TensorSpec:
        """Raise: a dataset has no rows.

        Raises:
            SpecError: always.
        """
        raise SpecError(f"unbatch needs leaves with a first dimension, got a {self}; use flat_map(lambda w: w)")

    def accepts(self, other: TensorSpec) -> bool:
        """Whether `other` is a dataset spec, too, whose elements this spec accepts."""
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


def as_leaf(value: Any) -> Any:
    """Convert one Python value to a leaf by NumPy's rules: int -> int64, float -> float64; str -> UTF-8 bytes.

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
    if kind is list and value and isinstance(value[0], (bytes, str)):
        return byte_array(_all_bytes(value))
    for part in (value, *value) if kind is list else (value,):
        if isinstance(part, np.ndarray) and isinstance(part, np.ma.MaskedArray):
            raise PlanTypeError("a leaf needs values without a mask, got a masked array; fill it first: x.filled(0)")
    if isinstance(value, (memoryview, bytearray)):
        return bytes(value)
    if isinstance(value, (np.bytes_, np.str_)):
        return bytes(value) if isinstance(value, np.bytes_) else _encoded(str(value))
    try:
        array = np.asarray(value)
        if array.dtype.kind in "SU" and array.ndim:
            array = np.asarray(value, object)  # nested lists of strings: an S or U array would drop trailing NULs
    except ValueError:
        raise PlanError(f"a leaf needs a rectangular array, got {_short(value)}; pad it or use a tuple") from None
    except Exception as error:  # an array-like of a foreign library may raise anything
        raise PlanTypeError(f"a leaf needs something NumPy can hold, got {kind.__name__}: {error}") from None
    array = _as_array(array)
    return array[()] if array.ndim == 0 else array


def _all_bytes(values: list[Any]) -> list[Any]:
    """Convert a list of byte strings and texts; a list of one type costs one call for each item."""
    kinds = set(map(type, values))
    if kinds == {bytes}:
        return values
    if kinds == {str}:
        try:
            return [text.encode() for text in values]
        except UnicodeEncodeError:
            pass  # raised below for the item that fails
    return [as_leaf(item) for item in values]


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise PlanError(f"a leaf needs text that UTF-8 can hold, got {ascii(text)[:60]}; give bytes instead") from error


def read_only(leaf: Any) -> Any:
    """Make an array read-only, as a view, so that data which others still read cannot change; return other leaves."""
    if type(leaf) is not np.ndarray:
        return leaf
    view = leaf.view()
    view.flags.writeable = False
    return view


def own(leaf: Any) -> Any:
    """Copy an array, since a function may return the same buffer every time; return other leaves as they are."""
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
        for index, value in np.ndenumerate(array):
            out[index] = _encoded(value) if isinstance(value, str) else bytes(value)
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


def as_declared(value: Any, spec: TensorSpec) -> Any:
    """Convert one Python value to a leaf; Python floats take a declared float dtype.

    The caller checks everything else against the spec.
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
    """Whether a nested list contains values of some kinds."""
    if isinstance(value, (list, tuple)):
        return any(_holds(item, kinds) for item in value)
    return isinstance(value, kinds)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
