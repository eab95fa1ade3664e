"""ragged: rows of unequal length as one leaf (`Ragged`), and the type of such a leaf (`RaggedSpec`).

The layout is tf.RaggedTensor's: all rows stored end to end, and the offsets at which they start.
`Dataset.ragged_batch` and `io.parse_example` return it, `batch` makes it of leaves that are ragged already, and
`unbatch` splits it again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from .brief import brief, cut, fields_in_brief
from .classes import dataclass
from .errors import PlanError, PlanTypeError, SpecError
from .integers import is_integer, plain
from .spec import UNKNOWN, Compound, TensorSpec, as_dtype, as_leaf, read_only, spec_of

__all__ = ["Ragged", "RaggedSpec", "splits_dtype", "stack_arrays", "stack_ragged"]

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, init=False, eq=False, repr=False)
class Ragged(Compound):
    """Rows of unequal length, stored end to end. Immutable: its arrays are read-only views of those it was given.

    With a `Ragged` as `values` the rows are ragged themselves: one dimension more.

    Args:
        values: all rows, one after the other: ``dtype[total, ...]``, or a `Ragged` of `total` rows. Not copied: do not
            change the array afterwards.
        row_splits: row i is ``values[row_splits[i]:row_splits[i + 1]]``: int64 or int32 [rows + 1], the first 0, the
            last `total`, none smaller than the one before.

    Raises:
        PlanError: the splits do not fit the values.
        PlanTypeError: splits that are not integers, or values that are not an array.

    Example:
        >>> rows = Ragged([1, 2, 3], [0, 2, 2, 3])
        >>> rows.to_list()
        [[1, 2], [], [3]]
        >>> rows[0], len(rows), rows.row_lengths()
        (array([1, 2]), 3, array([2, 0, 1]))
        >>> rows.to_padded(-1)
        array([[ 1,  2],
               [-1, -1],
               [ 3, -1]])
    """

    values: Any
    row_splits: Array

    def __init__(self, values: Any, row_splits: Any) -> None:
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "row_splits", row_splits)
        self._check()

    def _check(self) -> None:
        values = self.values
        if not isinstance(values, Ragged):
            values = as_leaf([] if isinstance(values, tuple) and not values else values)
            if not isinstance(values, np.ndarray) or values.ndim == 0:
                raise PlanTypeError(f"Ragged needs an array of values, got {type(self.values).__name__}")
        splits = np.asarray(self.row_splits)
        if splits.dtype.kind not in "iu" or splits.ndim != 1:
            raise PlanTypeError(f"Ragged needs row_splits as a vector of integers, got {spec_of(as_leaf(splits))}")
        if splits.dtype not in (np.dtype(np.int64), np.dtype(np.int32)):
            splits = splits.astype(np.int64)
        if len(splits) == 0 or splits[0] != 0:
            first = splits[0] if len(splits) else "nothing"
            raise PlanError(f"Ragged needs row_splits that start with 0, got {first}")
        if (splits[1:] < splits[:-1]).any():
            at = int(np.flatnonzero(splits[1:] < splits[:-1])[0])
            raise PlanError(f"Ragged needs row_splits that ascend, got {splits[at + 1]} after {splits[at]}")
        if splits[-1] != len(values):
            raise PlanError(
                f"Ragged needs row_splits that end with {len(values)}, the number of values, got {splits[-1]}"
            )
        object.__setattr__(self, "values", read_only(values))
        object.__setattr__(self, "row_splits", read_only(splits))

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the values; object for byte strings."""
        found: np.dtype[Any] = self.flat_values.dtype
        return found

    @property
    def ragged_rank(self) -> int:
        """The number of dimensions after the first that have (or may have) unequal lengths, >= 1."""
        return 1 + (self.values.ragged_rank if isinstance(self.values, Ragged) else 0)

    @property
    def shape(self) -> tuple[int | None, ...]:
        """The number of rows, None for each ragged dimension, then the inner dimensions."""
        return (len(self), None, *self.values.shape[1:])

    @property
    def ndim(self) -> int:
        """Number of dimensions, ragged ones included."""
        return len(self.shape)

    @property
    def flat_values(self) -> Array:
        """The values without any splits: ``dtype[total, ...]``."""
        found: Array = self.values.flat_values if isinstance(self.values, Ragged) else self.values
        return found

    @property
    def nested_row_splits(self) -> tuple[Array, ...]:
        """The splits of every ragged dimension, outermost first."""
        return (self.row_splits, *(self.values.nested_row_splits if isinstance(self.values, Ragged) else ()))

    @property
    def nbytes(self) -> int:
        """Bytes of the values and splits; a byte string counts as its pointer."""
        return int(self.values.nbytes + self.row_splits.nbytes)

    def row_lengths(self) -> Array:
        """The length of each row: [rows], the dtype of the splits."""
        return np.diff(self.row_splits)

    def to_list(self) -> list[Any]:
        """Nested lists of Python values."""
        return [row.to_list() if isinstance(row, Ragged) else row.tolist() for row in self]

    def to_padded(self, fill: Any = None) -> Array:
        """One array, every row padded at its end to the longest: ``dtype[rows, longest, ...]``.

        Args:
            fill: the padding, in the dtype of the values; default 0, False or b"".

        Raises:
            PlanTypeError: `fill` does not fit the dtype exactly.
        """
        fill = _fill(fill, self.dtype)
        flat, splits = self.flat_values, self.nested_row_splits
        longest = [int(np.diff(one).max(initial=0)) for one in splits]
        out = np.full((len(self), *longest, *flat.shape[1:]), fill, flat.dtype)
        indices: tuple[Array, ...] = (np.arange(len(self)),)
        for one in splits:
            lengths = np.diff(one)
            inside = np.arange(one[-1]) - np.repeat(one[:-1], lengths)
            indices = (*(np.repeat(index, lengths) for index in indices), inside)
        out[indices] = flat
        return out

    def __len__(self) -> int:
        return len(self.row_splits) - 1

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))

    @overload
    def __getitem__(self, index: int) -> Any: ...

    @overload
    def __getitem__(self, index: slice) -> Ragged: ...

    def __getitem__(self, index: int | slice) -> Any:
        """Row `index`: an array, a `Ragged` where rows are ragged themselves; a `Ragged` of rows for a slice.

        Raises:
            IndexError: the index is out of range.
        """
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                return stack_ragged_rows([self[i] for i in range(start, stop, step)], self)
            splits = self.row_splits[start : max(stop, start) + 1]
            return Ragged(self.values[splits[0] : splits[-1]], splits - splits[0])
        index = range(len(self))[index]
        return self.values[int(self.row_splits[index]) : int(self.row_splits[index + 1])]

    def __array__(self, *args: Any, **kwargs: Any) -> Array:
        raise TypeError("a Ragged is not an array: use its rows, its flat_values, or to_padded()")

    def __repr__(self) -> str:
        rows = ", ".join(_row_in_brief(row) for row in self[:3])
        return cut(f"<Ragged {self.leaf_spec()} [{rows}{', ...' if len(self) > 3 else ''}]>")

    def leaf_spec(self) -> RaggedSpec:
        """The exact spec."""
        dtype = bytes if self.dtype == object else self.dtype
        return RaggedSpec(self.shape, dtype, ragged_rank=self.ragged_rank, row_splits_dtype=self.row_splits.dtype)

    def leaf_parts(self) -> tuple[Any, ...]:
        return (self.flat_values, *self.nested_row_splits)


def _row_in_brief(row: Any, edge: int = 3) -> str:
    """A row as nested lists; of a long row the first and last items, as NumPy prints arrays."""
    if not isinstance(row, (np.ndarray, Ragged)):
        return brief(row.item() if isinstance(row, np.generic) else row, 40)
    many = len(row) > 2 * edge
    kept = [*range(edge), *range(len(row) - edge, len(row))] if many else range(len(row))
    items = [_row_in_brief(row[i], max(1, edge - 1)) for i in kept]
    return f"[{', '.join([*items[:edge], '...', *items[edge:]] if many else items)}]"


@dataclass(frozen=True, slots=True)
class RaggedSpec(TensorSpec):
    """The type of a `Ragged` leaf.

    It counts as unknown (`known` is False): a function of such a leaf is ordinary Python, never traced.

    Attributes:
        shape: of the leaf; None for ragged dimensions and others that vary.
        dtype: of the values.
        ragged_rank: how many dimensions after the first are ragged, >= 1.
        row_splits_dtype: int64 or int32.
    """

    layout: str | None = field(default=None, init=False)
    ragged_rank: int = 1
    row_splits_dtype: Any = "int64"

    __repr__ = fields_in_brief
    __eq__ = TensorSpec.__eq__

    def _more(self) -> tuple[Any, ...]:
        return self.shape, self.ragged_rank, self.row_splits_dtype

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", as_dtype(self.dtype))
        object.__setattr__(self, "row_splits_dtype", splits_dtype("RaggedSpec", self.row_splits_dtype))
        shape = None if self.shape is None else tuple(None if n is None else int(n) for n in self.shape)
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "ragged_rank", plain(self.ragged_rank))
        if not is_integer(self.ragged_rank):
            raise PlanTypeError(f"RaggedSpec needs an integer for ragged_rank, got {self.ragged_rank!r}")
        if self.ragged_rank < 1 or (shape is not None and self.ragged_rank >= len(shape)):
            rank = "unknown" if shape is None else len(shape)
            raise PlanError(f"RaggedSpec needs 1 <= ragged_rank < rank ({rank}), got {self.ragged_rank}")

    def __str__(self) -> str:
        name = "?" if self.dtype is None else "bytes" if self.dtype is bytes else str(self.dtype)
        if self.shape is None:
            return f"ragged {name}[...]"
        ragged = range(1, self.ragged_rank + 1)
        dims = ["~" if i in ragged else "?" if n is None else str(n) for i, n in enumerate(self.shape)]
        return f"ragged {name}[{','.join(dims)}]"

    @property
    def known(self) -> bool:
        """Never: no function of a ragged leaf is traced."""
        return False

    def batched(self, size: int | None) -> TensorSpec:
        """The spec of `size` such leaves stacked: one ragged dimension more."""
        shape = None if self.shape is None else (size, None, *self.shape[1:])
        return RaggedSpec(shape, self.dtype, ragged_rank=self.ragged_rank + 1, row_splits_dtype=self.row_splits_dtype)

    def row(self) -> TensorSpec:
        """The spec of one row."""
        shape = None if self.shape is None else self.shape[1:]
        if self.ragged_rank == 1:
            return TensorSpec(shape, self.dtype)
        return RaggedSpec(shape, self.dtype, ragged_rank=self.ragged_rank - 1, row_splits_dtype=self.row_splits_dtype)

    def require(self, who: str, *, layout: str | None = None, dtype: Any = None) -> TensorSpec:
        """Raise: ops take arrays.

        Raises:
            SpecError: always.
        """
        raise SpecError(f"{who} needs an array, got a {self}; use it before ragged_batch, or to_padded()")

    def accepts(self, other: TensorSpec) -> bool:
        """Whether `other` is a ragged spec that fits this one."""
        return isinstance(other, RaggedSpec) and other.ragged_rank == self.ragged_rank and self._agrees(other)

    def relax(self, other: TensorSpec) -> TensorSpec:
        """The narrowest spec that accepts both (dtypes must agree)."""
        if not isinstance(other, RaggedSpec) or other.ragged_rank != self.ragged_rank:
            return UNKNOWN
        shape = None
        if self.shape is not None and other.shape is not None and len(self.shape) == len(other.shape):
            shape = tuple(a if a == b else None for a, b in zip(self.shape, other.shape, strict=True))
        splits = np.promote_types(self.row_splits_dtype, other.row_splits_dtype)
        return RaggedSpec(shape, self.dtype, ragged_rank=self.ragged_rank, row_splits_dtype=splits)

    def loose(self) -> TensorSpec:
        """The spec with every dimension unknown."""
        shape = None if self.shape is None else (None,) * len(self.shape)
        return RaggedSpec(shape, self.dtype, ragged_rank=self.ragged_rank, row_splits_dtype=self.row_splits_dtype)


def splits_dtype(who: str, given: Any) -> np.dtype[Any]:
    """Check the dtype of row splits.

    Raises:
        PlanTypeError: neither int64 nor int32.
    """
    dtype: np.dtype[Any] = np.dtype(np.void)
    with contextlib.suppress(TypeError, ValueError, SyntaxError):  # not a dtype: refused below
        dtype = np.dtype(given)
    if given is None or dtype not in (np.dtype(np.int64), np.dtype(np.int32)):
        raise PlanTypeError(f"{who} needs row_splits_dtype int64 or int32, got {given!r}")
    return dtype


def _fill(value: Any, dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "O":
        value = b"" if value is None else value.encode() if isinstance(value, str) else value
        if not isinstance(value, bytes):
            raise PlanTypeError(f"to_padded needs a byte string to fill byte strings, got {value!r}")
        return value
    if value is None:
        return np.zeros((), dtype)[()]
    try:
        with np.errstate(all="ignore"):
            fill = np.asarray(value).astype(dtype)
    except (TypeError, ValueError) as error:
        raise PlanTypeError(f"to_padded needs a number to fill {dtype}, got {value!r}") from error
    exact = fill.ndim == 0 and np.array_equal(fill, value, equal_nan=fill.dtype.kind == "f")
    if not exact and not (isinstance(value, float) and fill.ndim == 0 and fill.dtype.kind == "f"):
        raise PlanTypeError(f"to_padded needs one value that {dtype} holds exactly, got {value!r}")
    return fill[()]


def splits_of(lengths: Any, dtype: Any) -> Array:
    """Row splits from row lengths.

    Raises:
        OverflowError: more values than `dtype` can count.
    """
    splits = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=splits[1:])
    if splits[-1] > np.iinfo(dtype).max:
        raise OverflowError(f"{splits[-1]} values are more than row splits of dtype {np.dtype(dtype)} can count")
    return splits.astype(dtype, copy=False)


def stack_arrays(rows: Sequence[Array], ragged_rank: int, dtype: Any = "int64") -> Ragged:
    """Stack arrays that differ in their first `ragged_rank` dimensions into one `Ragged`.

    Args:
        rows: arrays of one rank > 0 and one dtype, equal in the dimensions after `ragged_rank`.
        ragged_rank: >= 1.
        dtype: of the splits.
    """
    values: Any = np.concatenate(
        [row.reshape(int(np.prod(row.shape[:ragged_rank])), *row.shape[ragged_rank:]) for row in rows]
    )
    for level in range(ragged_rank - 1, 0, -1):
        counts = [int(np.prod(row.shape[:level])) for row in rows]
        values = Ragged(values, splits_of(np.repeat([row.shape[level] for row in rows], counts), dtype))
    return Ragged(values, splits_of([len(row) for row in rows], dtype))


def stack_ragged(rows: Sequence[Ragged]) -> Ragged:
    """Stack several `Ragged` of one rank and dtype into one, with one ragged dimension more."""
    return Ragged(_joined(rows), splits_of([len(row) for row in rows], rows[0].row_splits.dtype))


def _joined(parts: Sequence[Any]) -> Any:
    """Concatenate the rows."""
    if not isinstance(parts[0], Ragged):
        return np.concatenate(parts)
    lengths = np.concatenate([part.row_lengths() for part in parts])
    return Ragged(_joined([part.values for part in parts]), splits_of(lengths, parts[0].row_splits.dtype))


def stack_ragged_rows(rows: Sequence[Any], like: Ragged) -> Ragged:
    """Stack rows of `like` into a `Ragged` of the same form; `rows` may be empty."""
    if not rows:
        return like[:0]
    return Ragged(_joined(rows), splits_of([len(row) for row in rows], like.row_splits.dtype))
