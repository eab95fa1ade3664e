"""host_values: the part of a graph that the host computes, and the boundary to the executor's part.

A graph has two sides. Host values (parsed features, labels, sizes, random parameters) are computed here with NumPy,
a batch at a time. Image values are computed by an executor; `boundary` says what it is fed. The host knows sizes before
any pixel exists, so all geometry is computed here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import numpy as np

from ..errors import DataError, ShapeError
from ..extract.images.headers import check_complete, check_decodable, check_pixels, read_header
from ..extract.images.jpeg import MOST_SCANNED, check_scans, is_progressive, jpeg_size
from ..random import BatchRng, hash64, mix64, mix64_array
from .op import Array, Op, drawn_for, height_and_width, unlike
from .values import Apply, Const, Draw, Identity, Input, Item, Value, topological

__all__ = ["HostValues", "boundary", "header_size", "is_batchwise", "is_image"]

_CHOSEN = hash64("verify")


def is_image(value: Value) -> bool:
    """Whether a value is computed by an executor (on the GPU, if there is one) rather than on the host."""
    waiting, seen = [value], set[int]()
    while waiting:  # not recursive: a chain written by a loop may have a thousand maps
        value = waiting.pop()
        value = value.value if isinstance(value, Item) else value
        if not isinstance(value, Apply) or id(value) in seen:
            continue
        seen.add(id(value))
        if value.op.rows == "batch" or value.op.domain == "image":
            return True
        if value.op.domain == "host":
            continue
        if any(x.spec.layout is not None for x in value.x):
            return True
        waiting += value.x
    return False


def is_batchwise(value: Value) -> bool:
    """Whether a value is a result of an op that needs all rows of a batch: array code that runs after the executor."""
    value = value.value if isinstance(value, Item) else value
    return isinstance(value, Apply) and value.op.rows == "batch"


def boundary(outputs: Iterable[Value]) -> tuple[list[Value], list[Value]]:
    """Split a graph between host and executor.

    Returns:
        The host values (columns, constants, drawn parameters) that the image values of `outputs` read, and those image
        values, inputs before users.
    """
    images = [value for value in topological(outputs, through_draws=False) if is_image(value)]
    inside = set(images)
    needed: dict[Value, None] = {}
    for value in images:
        for below in value.inputs:
            if below not in inside:
                needed[below] = None
    return list(needed), images


def header_size(data: Any, *, oriented: bool, max_pixels: int) -> tuple[int, int]:
    """Height and width of an encoded image, from its header; checks that it is complete and not a decompression bomb.

    Raises:
        DecodeError: it is not an image that executors decode, is truncated, or has more than `max_pixels` pixels.
    """
    if not oriented and len(data) > 4 and data[0] == data[-2] == 0xFF and data[1] == 0xD8 and data[-1] == 0xD9:
        # The common case: a complete JPEG, judging by its first and last bytes.
        height, width, channels, frame, bits = jpeg_size(data)
        rotated = False
        if bits != 8:
            check_decodable("jpeg", bits)
        if len(data) * height * width > MOST_SCANNED:
            check_scans(data, height * width, channels, is_progressive(frame))
    else:
        header = read_header(data, orientation=oriented)
        check_complete(data, header)
        check_decodable(header.format, header.bits)
        height, width, rotated = header.height, header.width, header.orientation >= 5
    check_pixels(height, width, max_pixels)
    return (width, height) if rotated else (height, width)


def _called(op: Op, line: str, rows: Sequence[tuple[Any, ...]]) -> list[Any]:
    """The results of an op of the host, on a line of the user's, for some rows.

    Raises:
        DataError: with a reason for each row for which the op raises one.
    """
    call = op.compiled(line)
    try:
        return [call(*row) for row in rows]
    except DataError as error:
        if error.rows:
            raise
        reasons = {}
        for number, row in enumerate(rows):
            try:
                call(*row)
            except DataError as found:
                reasons[number] = found.reason
        if not reasons:  # it is not raised again
            raise
        raise type(error).of_rows(reasons, stage=error.stage or op.stage) from error.__cause__


def _column_of(rows: Sequence[Any]) -> Array:
    """The values of a parameter as one array, of objects if their shapes differ."""
    try:
        return np.asarray(rows)
    except ValueError:
        column = np.empty(len(rows), object)
        column[:] = rows
        return column


class HostValues:
    """The host values of one batch, each computed once, on first use.

    Args:
        size: number of rows.
        column: returns column `i` as a list of `size` values.
        keys: returns uint64[size], the elements' keys (index -1) or those in a column.
        seed: of the chain.
        epoch: of the iterator.
        headers: returns int32[size,2], the sizes of encoded images if they were read before; None reads them here.
    """

    def __init__(
        self,
        size: int,
        column: Callable[[int], Sequence[Any]],
        keys: Callable[[int], Array],
        seed: int,
        epoch: int,
        headers: Callable[[Value], Array | None] = lambda value: None,
    ) -> None:
        self.size = size
        self._column = column
        self._keys = keys
        self._seed = seed
        self._epoch = epoch
        self._headers = headers
        self._rows: dict[Value, Sequence[Any]] = {}
        self._sizes: dict[Value, Array] = {}
        self._params: dict[Value, tuple[Array, ...]] = {}

    def one_in(self, every: int) -> Array:
        """Indices of the rows chosen when one element in `every` is, depending on seed, epoch and identity alone."""
        salt = np.array(mix64(mix64(self._seed, self._epoch), _CHOSEN), np.uint64)
        mixed = mix64_array(self._keys(-1), salt)
        return np.flatnonzero(mixed % np.uint64(every) == 0)

    def rows(self, value: Value) -> Sequence[Any]:
        """A host value, or one drawn parameter, with one entry per row."""
        found = self._rows.get(value)
        if found is None:
            found = self._rows[value] = self._compute(value)
        return found

    def _compute(self, value: Value) -> Sequence[Any]:
        match value:
            case Input():
                return self._column(value.index)
            case Const():
                return [value.value] * self.size
            case Identity():
                return cast(Sequence[Any], self._keys(value.index))
            case Item(value=Draw() as draw):
                return cast(Sequence[Any], self.params(draw)[value.index])
            case Item():
                return [row[value.index] for row in self.rows(value.value)]
            case Apply():
                arguments = [self.rows(below) for below in value.inputs]
                return _called(value.op, value.line, list(zip(*arguments, strict=True)))
            case _:
                raise TypeError(f"{value!r} is not a host value")

    def params(self, draw: Draw) -> tuple[Array, ...]:
        """The parameters of one call for the whole batch."""
        found = self._params.get(draw)
        if found is None:
            op = draw.op.bind(tuple(_column_of(self.rows(arg)) for arg in draw.args))
            site = hash64(draw.site) if draw.site else 0
            # Deterministic geometry needs no identity.
            keys = np.asarray(self.rows(draw.key), np.uint64) if draw.site else np.zeros(self.size, np.uint64)
            hw = self._sizes_for(draw.op, draw.x[0]) if draw.x else np.zeros((self.size, 2), np.int32)
            for other in draw.x[1:] if op.domain != "host" else ():
                if (other.spec.rank or 0) >= 2:  # a label next to an image has no size
                    self._check_sizes(draw, hw, self._sizes_for(draw.op, other))
            if op.rows == "batch":  # one draw for all rows, with the key of the first
                one = op.draw(BatchRng(self._seed, self._epoch, keys[:1], site), hw[:1])
                found = tuple(np.broadcast_to(param, (self.size, *param.shape[1:])) for param in one)
            else:
                found = drawn_for(op, BatchRng(self._seed, self._epoch, keys, site), hw)
            self._params[draw] = found
        return found

    @staticmethod
    def _check_sizes(draw: Draw, hw: Array, other: Array) -> None:
        """Several images that share one draw (image and mask) must have one size."""
        bad = np.flatnonzero((hw != other).any(axis=1)).tolist()
        if bad:
            reasons = {row: unlike(hw[row].tolist(), other[row].tolist()) for row in bad}
            raise ShapeError.of_rows(reasons, stage=draw.op.stage)

    def sizes(self, value: Value) -> Array:
        """Heights and widths, int32[size,2]; zeros unless the value is an image."""
        found = self._sizes.get(value)
        if found is None:
            found = self._sizes[value] = self._measure(value)
        return found

    def _measure(self, value: Value) -> Array:
        if isinstance(value, Item) and isinstance(value.value, Apply):
            height, width = height_and_width(value.spec)
            if height is None or width is None:
                return self.sizes(value.value)
            return np.array([[height, width]] * self.size, np.int32)
        if isinstance(value, Apply) and is_image(value):
            params = [np.asarray(self.rows(param)) for param in value.params]
            if value.op.decodes:
                return value.op.size(self.encoded_sizes(value), *params)
            if value.op.broadcasts:  # a flag beside an image has no size
                alike = [self.sizes(x) for x in value.x if x.spec.rank == value.spec.rank]
                largest: Array = np.max(alike or [self.sizes(value.x[0])], axis=0)
                return largest
            return value.op.size(self._sizes_for(value.op, value.x[0]), *params)
        if value.spec.layout is None and (value.spec.rank or 0) < 2:
            return np.zeros((self.size, 2), np.int32)
        return self._measured(value, value.spec.layout)

    def _measured(self, value: Value, layout: str | None) -> Array:
        first = layout.index("H") if layout else int(value.spec.rank == 4)  # a clip's frames come first
        rows = self.rows(value)
        shapes = [row.shape if type(row) is np.ndarray else np.shape(row) for row in rows]
        if len(set(shapes)) == 1:
            return np.tile(np.array(shapes[0][first : first + 2], np.int32), (self.size, 1))
        return np.array([shape[first : first + 2] for shape in shapes], np.int32).reshape(self.size, 2)

    def _sizes_for(self, op: Op, value: Value) -> Array:
        """The sizes of an input of a call, whose op may give the layout of an array without one."""
        if value.spec.layout is None and value.spec.rank in (3, 4) and not is_image(value):
            return self._measured(value, op.takes if value.spec.rank == 3 else "T" + op.takes)
        return self.sizes(value)

    def encoded_sizes(self, decode: Apply) -> Array:
        """Heights and widths of the encoded images of a decoder, int32[size,2]."""
        found = self._headers(decode)
        if found is not None:
            return found
        oriented = bool(getattr(decode.op, "exif_orientation", False))
        sizes = [header_size(row, oriented=oriented, max_pixels=1 << 62) for row in self.rows(decode.x[0])]
        return np.array(sizes, np.int32).reshape(self.size, 2)
