"""arrow: types and arrays of Arrow as types and values of columns, for Parquet, IPC files and Hugging Face datasets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

import numpy as np

from gpupipe.errors import MissingDependencyError, RecordError
from gpupipe.extract.tables.columns import NULL, Arrays, Column, Lists, Nulls, Same, Scalars, Slices, in_lists
from gpupipe.extract.tables.table import MOST_BYTES
from gpupipe.missing import LIBRARIES
from gpupipe.spec import Array, TensorSpec

__all__ = ["ENCODED", "arrow", "check_shared", "chosen", "column_of", "columns_of", "type_of"]

ENCODED = "bytes"
"""The field with the encoded image in a struct, as Hugging Face's image columns have it."""

_TENSOR, _BOOL8 = "arrow.fixed_shape_tensor", "arrow.bool8"


def arrow(who: str, module: str = "pyarrow") -> Any:
    """Import pyarrow, or a module of it.

    Raises:
        MissingDependencyError: it is not installed.
    """
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError as error:
        raise MissingDependencyError(
            f"{who} needs pyarrow, which is not installed; install it with: pip install {LIBRARIES['parquet']}"
        ) from error
    return {"pyarrow": pyarrow, "pyarrow.compute": pyarrow.compute, "pyarrow.parquet": pyarrow.parquet}[module]


def chosen(schema: Any, names: Sequence[str] | None) -> tuple[list[str], dict[str, TensorSpec | str]]:
    """The names of some columns of a schema, or of all, and their types; those that it lacks are left out.

    A name that several columns have has no type.
    """
    found = [name for name in (schema.names if names is None else names) if schema.names.count(name)]
    columns: dict[str, TensorSpec | str] = {}
    for name in found:
        several = schema.names.count(name) > 1
        columns[name] = "that several columns are called" if several else _of_field(schema.field(name))
    return list(columns), columns


def _number(kind: Any) -> Any:
    """The type of a boolean, an integer or a float in NumPy. pyarrow's own answer, `to_pandas_dtype`, needs pandas."""
    is_ = arrow("").types
    if is_.is_boolean(kind):
        return np.bool_
    letter = "f" if is_.is_floating(kind) else "u" if is_.is_unsigned_integer(kind) else "i"
    return np.dtype(f"{letter}{kind.bit_width // 8}").type


def _of_field(field: Any) -> TensorSpec | str:
    """The type of the values of a field; an extension type that pyarrow does not know is named in the metadata."""
    name = (field.metadata or {}).get(b"ARROW:extension:name")
    if name is None or isinstance(field.type, arrow("").BaseExtensionType):
        return type_of(field.type)
    return _of_extension(name.decode(errors="replace"), field.type)


def _of_extension(name: str, storage: Any) -> TensorSpec | str:
    """The type of an extension type of which only name and storage are known.

    Texts and binary values are given as bytes, whatever they mean: nothing of them is lost. Numbers alone may be in
    another unit, shape or order than the values that they stand for.
    """
    kind = storage.value_type if arrow("").types.is_dictionary(storage) else storage
    if _is_bytes(kind):
        return TensorSpec((), bytes)
    return (
        f"of the extension type {name!r}, of which gpupipe knows only that it is stored as {storage}; leave it out "
        "with columns=, or write what it is stored as (in pyarrow array.storage) or what it means as a plain column"
    )


def _of_tensor(kind: Any) -> TensorSpec | str:
    """The type of `fixed_shape_tensor`: its shape in the order of its permutation.

    A permutation that is not its own inverse is refused. In pyarrow (26, and those before), `from_numpy_ndarray` writes
    the inverse of what Arrow's specification says, and `to_numpy_ndarray` gives some numbers twice and others never:
    which order is meant is not known.
    """
    flat, shape, axes = type_of(kind.storage_type), tuple(kind.shape), _axes(kind)
    if isinstance(flat, str):
        return flat
    if flat.shape != (prod(shape),) or flat.dtype is bytes or sorted(axes) != list(range(len(shape))):
        return f"of type {kind}, which does not hold as many numbers as its shape has"
    if any(axes[axes[axis]] != axis for axis in axes):
        return (
            f"of type {kind}, whose permutation of more than two axes in a circle pyarrow writes and reads in "
            "different orders; leave it out with columns=, or write C-contiguous tensors, without a permutation"
        )
    return TensorSpec(tuple(shape[axis] for axis in axes), flat.dtype)


def _axes(kind: Any) -> list[int]:
    """Which axis of its storage each axis of a tensor is."""
    return list(range(len(kind.shape)) if kind.permutation is None else kind.permutation)


def type_of(kind: Any) -> TensorSpec | str:
    """The type of the values of an Arrow type, or why they have none, to follow "a column".

    Of extension types, tensors of one shape and booleans of 8 bits are what they mean; see `_of_extension` for others.
    """
    pa = arrow("")
    is_ = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        name = kind.extension_name
        if name == _TENSOR:
            return _of_tensor(kind)
        return TensorSpec((), np.bool_) if name == _BOOL8 else _of_extension(name, kind.storage_type)
    if is_.is_dictionary(kind):
        return type_of(kind.value_type)
    if is_.is_null(kind):
        return NULL
    if is_.is_boolean(kind) or is_.is_integer(kind) or is_.is_floating(kind):
        return TensorSpec((), _number(kind))
    if _is_bytes(kind) or (is_.is_struct(kind) and _encoded(kind) is not None):
        return TensorSpec((), bytes)
    if is_.is_fixed_size_list(kind) or is_.is_list(kind) or is_.is_large_list(kind):
        inner = _of_field(kind.value_field)
        if isinstance(inner, str):
            return f"of lists {inner}"
        if inner.shape is not None:
            fixed = is_.is_fixed_size_list(kind)
            several = len(inner.shape) > 0 and inner.dtype is bytes
            if not several and None not in inner.shape:
                return TensorSpec((kind.list_size if fixed else None, *inner.shape), inner.dtype)
    return (
        f"of type {kind}, which is neither a number nor bytes, nor a list or an array of such; "
        "leave it out with columns=, or convert it when the file is written"
    )


def _is_bytes(kind: Any) -> bool:
    is_ = arrow("").types
    plain = (is_.is_binary, is_.is_string, is_.is_large_binary, is_.is_large_string, is_.is_fixed_size_binary)
    return any(test(kind) for test in plain) or _is_view(kind)


def _is_view(kind: Any) -> bool:
    """Whether values are bytes of which each says where they are, so that several may be the same ones."""
    is_ = arrow("").types
    return any(getattr(is_, name)(kind) for name in ("is_binary_view", "is_string_view") if hasattr(is_, name))


def _encoded(kind: Any) -> int | None:
    """Which field of a struct has the encoded image; None if it has no such field."""
    for i in range(kind.num_fields):
        if kind.field(i).name == ENCODED and _is_bytes(kind.field(i).type):
            return i
    return None


def columns_of(arrays: Iterable[Any]) -> list[tuple[Column, Nulls]]:
    """The values of each Arrow array of a block, and which of them are null.

    Raises:
        RecordError: an array is not what its type says, or see `check_shared`.
    """
    arrays = list(arrays)
    check_shared(arrays)
    return [column_of(values) for values in arrays]


def check_shared(arrays: Iterable[Any]) -> None:
    """Refuse the arrays of a block whose rows share values that take too many bytes with a copy for each row.

    Raises:
        RecordError: all arrays together do.
    """
    total = sum(map(_shared, arrays))
    if total > MOST_BYTES:
        raise RecordError(
            f"a block of at most {MOST_BYTES} bytes is needed, got {total:.0f}, as its rows name the same values "
            "many times; write it with smaller blocks"
        )


def _shared(values: Any) -> float:
    """Bytes of those values of an array that several rows may share, with a copy for each row."""
    pa = arrow("")
    kind, is_ = values.type, pa.types
    if isinstance(values, pa.ChunkedArray):
        return sum(map(_shared, values.chunks))
    if isinstance(kind, pa.BaseExtensionType):
        return _shared(values.storage)
    if is_.is_struct(kind):
        return _shared(values.field(_encoded(kind)))
    if is_.is_fixed_size_list(kind) or is_.is_list(kind) or is_.is_large_list(kind):
        return _shared(_items(values)[0])
    if not (is_.is_dictionary(kind) or _is_view(kind)):
        return 0
    sizes = _sizes(values)
    return float(sizes.sum()) if isinstance(sizes, np.ndarray) else sizes * len(values)


def _sizes(values: Any) -> int | Array:
    """Bytes of each value of an array: one number, or a float for each, as products may be of any size."""
    pa = arrow("")
    kind, is_ = values.type, pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return _sizes(values.storage)
    if is_.is_struct(kind):
        return _sizes(values.field(_encoded(kind)))
    if is_.is_null(kind):
        return 0
    if is_.is_dictionary(kind):
        sizes = _sizes(values.dictionary)
        if not isinstance(sizes, np.ndarray):
            return sizes
        return np.asarray(pa.array(sizes).take(values.indices).fill_null(0).to_numpy(zero_copy_only=False))
    if _is_view(kind):
        sizes = np.frombuffer(values.buffers()[1], np.int32)[::4][values.offset : values.offset + len(values)]
        return np.where(values.is_valid().to_numpy(zero_copy_only=False), sizes, 0.0)
    if not is_.is_nested(kind) and not is_.is_fixed_size_binary(kind) and _is_bytes(kind):
        return np.diff(_slices(values).ends.astype(float))
    if not is_.is_nested(kind):
        return -(-int(kind.bit_width) // 8)
    inner, ends = _items(values)
    sizes = _sizes(inner)
    if isinstance(sizes, np.ndarray):
        return np.diff(np.concatenate([[0.0], np.cumsum(sizes)])[ends])
    return np.diff(ends.astype(float)) * sizes


def _items(values: Any) -> tuple[Any, Array]:
    """What is inside of the lists of an array, and where those of each start, and the end of the last."""
    if arrow("").types.is_fixed_size_list(values.type):
        n, count = values.type.list_size, len(values)
        return values.values.slice(values.offset * n, count * n), np.arange(count + 1) * n
    ends = values.offsets.to_numpy(zero_copy_only=False) if len(values) else np.zeros(1, np.int64)
    first, last = int(ends[0]), int(ends[-1])
    return values.values.slice(first, last - first), ends - first


def column_of(values: Any) -> tuple[Column, Nulls]:
    """The values of an Arrow array, and which of them are null.

    Raises:
        RecordError: the array is not what its type says.
    """
    pa = arrow("")
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
        if isinstance(values, pa.ChunkedArray):
            if values.num_chunks != 1:
                raise RecordError("a block of fewer bytes is needed; write the file again with smaller blocks")
            values = values.chunk(0)
    kind, is_ = values.type, pa.types
    if isinstance(kind, pa.BaseExtensionType):
        column, nulls = column_of(values.storage)
        return _meant(kind, column), nulls
    if is_.is_dictionary(kind):
        return column_of(values.dictionary_decode())
    if is_.is_struct(kind):
        field, of_struct = _encoded(kind), _nulls(values)
        column, nulls = column_of(values.field(field))
        return column, Nulls(_either(of_struct, nulls.whole))
    if is_.is_null(kind):  # no bytes stand for them, so there may be any number
        return Same(np.int8(0), len(values)), Nulls(np.broadcast_to(True, len(values)))
    nulls = Nulls(_nulls(values))
    if is_.is_boolean(kind) or is_.is_integer(kind) or is_.is_floating(kind):
        filled = values if nulls.whole is None else values.fill_null(False if is_.is_boolean(kind) else kind_zero(kind))
        return Scalars(filled.to_numpy(zero_copy_only=False)), nulls
    if _is_bytes(kind):
        return _slices(values), nulls
    inner = _fixed if is_.is_fixed_size_list(kind) else _variable
    column, bad = inner(values)
    if bad is not None and nulls.whole is not None:
        bad = bad & ~nulls.whole
    return column, Nulls(nulls.whole, bad)


def _meant(kind: Any, stored: Column) -> Column:
    """The values of an extension type, as `type_of` says."""
    if kind.extension_name == _BOOL8 and isinstance(stored, Scalars):
        return Scalars(stored.values != 0)
    if kind.extension_name != _TENSOR or not isinstance(stored, Scalars):
        return stored
    values = stored.values.reshape(len(stored), *kind.shape).transpose(0, *(axis + 1 for axis in _axes(kind)))
    return Arrays(np.ascontiguousarray(values)) if values.ndim > 1 else Scalars(values)


def kind_zero(kind: Any) -> Any:
    """Zero, as a scalar of an Arrow type of numbers."""
    return arrow("").scalar(_number(kind)(0), kind)


def _nulls(values: Any) -> Array | None:
    if not values.null_count:
        return None
    found: Array = values.is_null().to_numpy(zero_copy_only=False)
    return found


def _either(a: Array | None, b: Array | None) -> Array | None:
    return b if a is None else a if b is None else a | b


def _slices(values: Any) -> Slices:
    pa = arrow("")
    kind = values.type
    if pa.types.is_fixed_size_binary(kind):
        ends = (np.arange(len(values) + 1) + values.offset) * kind.byte_width
        return Slices(_data(values.buffers()[1]), ends)
    width: Any = np.int32 if pa.types.is_binary(kind) or pa.types.is_string(kind) else np.int64
    if _is_view(kind):
        values = values.cast(pa.large_binary())
    buffers = values.buffers()
    if not len(values):
        return Slices(b"", np.zeros(1, np.int64))
    ends = np.frombuffer(buffers[1], width)[values.offset : values.offset + len(values) + 1]
    return Slices(_data(buffers[2]), ends)


def _data(buffer: Any) -> Any:
    return b"" if buffer is None else buffer


def _fixed(values: Any) -> tuple[Column, Array | None]:
    """Lists of one length, and which of them hold a null."""
    n, count = values.type.list_size, len(values)
    items, ends = _items(values)
    inner, nulls = column_of(items)
    if isinstance(inner, Same) and n:  # a list with a null is bad, whatever stands for it
        return Same(np.zeros(0, np.int8), count), np.broadcast_to(True, count)
    if isinstance(inner, Same):
        return Arrays(np.zeros((count, 0), np.int8)), None
    bad: Array | None = None
    for found in (nulls.whole, nulls.inner):
        if found is not None:
            bad = _either(bad, np.asarray(found.reshape(count, n).any(1)))
    if isinstance(inner, Scalars):
        return Arrays(inner.values.reshape(count, n, *inner.values.shape[1:])), bad
    return Lists(inner, ends), bad


def _variable(values: Any) -> tuple[Column, Array | None]:
    """Lists of different lengths, and which of them hold a null."""
    items, ends = _items(values)
    inner, nulls = column_of(items)
    if isinstance(inner, Same):
        return Lists(Scalars(np.zeros(0, np.int8)), np.zeros_like(ends)), ends[1:] > ends[:-1]
    bad = None
    for found in (nulls.whole, nulls.inner):
        if found is not None:
            bad = _either(bad, in_lists(found, ends))
    return Lists(inner, ends), bad
