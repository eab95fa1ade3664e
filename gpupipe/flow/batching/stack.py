"""stack: rows stacked or padded into one array; errors name the element that does not fit."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...errors import DataError, ShapeError
from ...graph.op import Array
from ...ragged import Ragged, stack_ragged
from ...spec import Compound, as_leaf, byte_array, spec_of
from ..bad.found import BATCHES, bad_element
from ..element import BatchStream, Element, locate

__all__ = ["batch_of", "one_dtype", "pad_rows", "stack_rows"]

_MANY = 1 << 20
"""Bytes of a batch that is worth it."""

_LARGEST_SEEN = (32 << 20) - (64 << 10)
"""Bytes: glibc adapts to blocks of up to 32 MiB."""


def batch_of(rows: Sequence[Element], leaf: Callable[[int, tuple[Any, ...]], Any]) -> Element:
    """Make one element of several; a hole if they do not fit together.

    Args:
        rows: the elements.
        leaf: makes a leaf of the batch from its index and its column.
    """
    stream, position = BatchStream.of(rows), rows[0][2]
    try:
        columns = zip(*(row[0] for row in rows), strict=True)
        return tuple([leaf(i, column) for i, column in enumerate(columns)]), stream, position
    except DataError as error:
        return bad_element(error, stream, position, BATCHES)


def stack_rows(column: Sequence[Any], elements: Sequence[Element], leaf: str, who: str = "batch") -> Any:
    """Stack one leaf of some elements: array[B, ...]; byte strings become an object array, `Ragged` a `Ragged`.

    Raises:
        ShapeError: shapes or dtypes differ; names the leaf, both types and both elements.
    """
    first = column[0]
    kinds = set(map(type, column))
    if len(kinds) > 1 or not isinstance(first, (np.generic, bytes)):  # scalars of one type have one dtype
        one_dtype(column, elements, leaf, who)
    if isinstance(first, (bytes, memoryview)):
        if len(first) * len(column) > _MANY:
            _keep_freed_memory()
        return byte_array([bytes(row) for row in column])
    if isinstance(first, Compound):
        if not isinstance(first, Ragged):
            raise no_array(first, leaf, elements[0], who)
        for i, row in enumerate(column):
            if not isinstance(row, Ragged) or row.shape[1:] != first.shape[1:] or row.ragged_rank != first.ragged_rank:
                raise mismatch(leaf, first.shape, np.shape(row), elements[0], elements[i], who)
        return stack_ragged(column)
    if type(first) is np.ndarray:
        if len(kinds) > 1 or len({row.shape for row in column}) > 1:
            one_shape(column, elements, leaf, who)
        if first.dtype == object:
            return np.stack(column)
    elif len(kinds) > 1:  # a number, then arrays
        one_shape(column, elements, leaf, who)
    out = np.array(column)
    if out.dtype == object:
        one_shape(column, elements, leaf, who)
    return out


@functools.cache
def _keep_freed_memory() -> None:
    """Have glibc keep up to 64 MB of freed memory, once in a process.

    Byte strings of a batch have memory of their own, which is freed with the batch. glibc gives it back to the system
    and asks for it again for the next batch, page by page: for 256 records of 110 KB that takes 24 us a record, more
    than copying it. It does so until it has seen a large block freed, as it sees in most programs with arrays.

    `mallopt` would set the same two thresholds with the same effect: no page fault where there were 27 a record. But
    it overrides those that a user has set (``MALLOC_MMAP_THRESHOLD_``), which a freed block leaves alone, and it is not
    safe to call where other threads may allocate, as those of a chain do.
    """
    np.empty(_LARGEST_SEEN, np.uint8)


def one_shape(column: Sequence[Any], elements: Sequence[Element], leaf: str, who: str) -> None:
    """Refuse rows of several shapes.

    Raises:
        ShapeError: naming the leaf, both shapes and both elements.
    """
    shape = np.shape(column[0])
    for row, element in zip(column, elements, strict=True):
        if np.shape(row) != shape:
            raise mismatch(leaf, shape, np.shape(row), elements[0], element, who)


def one_dtype(column: Sequence[Any], elements: Sequence[Element], leaf: str, who: str) -> None:
    """Refuse rows of several dtypes: NumPy would turn numbers beside byte strings into bytes, and integers into floats.

    Raises:
        ShapeError: naming the leaf, both dtypes and both elements.
    """
    dtype = getattr(column[0], "dtype", None)
    # NumPy has one object for each dtype; a list costs half of what a generator does.
    if not any([getattr(row, "dtype", None) is not dtype for row in column]):  # noqa: C419
        return
    specs = [spec_of(as_leaf(row)) for row in column]
    i = next((i for i, spec in enumerate(specs) if spec.dtype != specs[0].dtype), 0)
    if i:
        name = f" for {leaf}" if leaf else ""
        got = f"{specs[i]} after {specs[0]} ({where(elements[0])})"
        error = ShapeError(f"needs elements of one dtype{name}, got {got}; convert them to one dtype")
        raise locate(error, *elements[i][1:], who)


def mismatch(
    leaf: str, first: Any, other: Any, one: Element, another: Element, who: str, what: str = "shape"
) -> DataError:
    """Make the error of elements that do not stack."""
    name = f" for {leaf}" if leaf else ""
    hint = "resize or crop them to one size, or use padded_batch" if what == "shape" else "reshape them in a map before"
    got = f"{tuple(other)} after {tuple(first)} ({where(one)})"
    return locate(ShapeError(f"needs elements of one {what}{name}, got {got}; {hint}"), *another[1:], who)


def where(element: Element) -> str:
    """The file and offset of an element, or whatever else identifies it, for messages."""
    _, stream, position = element
    return f"{stream.name} at {stream.unit} {position}"


def no_array(value: Compound, leaf: str, element: Element, who: str) -> DataError:
    """Make the error of a leaf of a type that never stacks."""
    name = f" for {leaf}" if leaf else ""
    return locate(ShapeError(f"needs arrays, numbers or bytes{name}, got a {value.leaf_spec()}"), *element[1:], who)


def pad_rows(
    column: Sequence[Any], elements: Sequence[Element], leaf: str, shape: tuple[int, ...] | None, value: Any
) -> Array:
    """Stack one leaf of some elements, each padded at its end.

    Args:
        column: the leaf of each element.
        elements: the elements, for messages.
        leaf: its name, for messages.
        shape: the target, -1 for the largest of these rows; None pads every dimension to the largest.
        value: the padding value.

    Raises:
        ShapeError: a row has another dtype or rank, or is larger than the target.
    """
    if isinstance(column[0], Compound):
        raise no_array(column[0], leaf, elements[0], "padded_batch")
    one_dtype(column, elements, leaf, "padded_batch")
    rows = [byte_scalar(row) if isinstance(row, (bytes, memoryview)) else np.asarray(row) for row in column]
    rank = rows[0].ndim
    if shape is not None and len(shape) != rank:
        wanted = f"needs elements of rank {len(shape)}, as the padded shape {{}} has"
        raise unfit(wanted, "give a shape of their rank", leaf, shape, rows[0], elements[0])
    for row, element in zip(rows, elements, strict=True):
        if row.ndim != rank:
            raise mismatch(leaf, rows[0].shape, row.shape, elements[0], element, "padded_batch", "rank")
    largest = [max(row.shape[i] for row in rows) for i in range(rank)]
    target = largest if shape is None else [largest[i] if n < 0 else n for i, n in enumerate(shape)]
    out = np.full((len(rows), *target), value, rows[0].dtype)
    for i, (row, element) in enumerate(zip(rows, elements, strict=True)):
        if shape is not None and any(n > m for n, m in zip(row.shape, target, strict=True)):
            hint = "crop them, or give a larger shape, with None where the largest of a batch decides"
            raise unfit("needs elements no larger than the padded shape {}", hint, leaf, shape, row, element)
        inside: tuple[Any, ...] = (i, *(slice(n) for n in row.shape))
        out[inside] = row[()]  # the byte string of an array of rank 0, else the array
    return out


def unfit(wanted: str, hint: str, leaf: str, shape: tuple[int, ...], row: Array, element: Element) -> DataError:
    """Make the error of a row that cannot be padded to a shape, which replaces ``{}`` in `wanted`."""
    wanted = wanted.format([None if n < 0 else n for n in shape])
    name = f" for {leaf}" if leaf else ""
    return locate(ShapeError(f"{wanted}{name}, got {row.shape}; {hint}"), *element[1:], "padded_batch")


def byte_scalar(value: Any) -> Array:
    """Make a 0-d object array of one byte string."""
    out = np.empty((), object)
    out[()] = bytes(value)
    return out
