"""first_blocks: the sizes of many JPEGs and the means of their first 8x8 pixels, read together with NumPy.

Of a batch this takes a fifth of the time of one file after the other. It understands the headers that most encoders
write; all others are read one by one, with the same result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gpupipe.errors import DecodeError
from gpupipe.extract.images.first_block import BLOCK, MOST_BITS, mean_of_first_block
from gpupipe.extract.images.jpeg import jpeg_size

__all__ = ["facts_of_jpegs"]

_Ints = npt.NDArray[np.int64]
_Bools = npt.NDArray[np.bool_]
_Bytes = npt.NDArray[np.uint8]


_HEAD = 4096
"""Bytes of a file in which its header is expected; an ICC profile takes 3 KB."""


_AT_ONCE = 256  # files


_FEW = 48  # files that are read one by one: the calls of NumPy take 0.5 ms, whatever their number


_MOST_SEGMENTS = 20


_HUFFMAN, _QUANTIZERS, _SCAN = 0xC4, 0xDB, 0xDA


_USUAL = np.zeros(256, bool)
_USUAL[[0xC0, 0xC1, _HUFFMAN, _SCAN, _QUANTIZERS, 0xDD, *range(0xE0, 0xEE), 0xFE]] = True


_NAMES_RGB = np.frombuffer(b"RGB", np.uint8)


_LEFT = np.arange(39, 23, -1)  # of 40 bits, how many follow a word of 1, 2, ... 16 bits


def facts_of_jpegs(files: Sequence[Any]) -> tuple[_Ints, npt.NDArray[np.float64]]:
    """Read the headers of JPEGs.

    Args:
        files: the encoded images, of any type with the buffer protocol.

    Returns:
        int64[N,2], their heights and widths as stored, 0 where the header is damaged; and float64[N], the results of
        `mean_of_first_block`, NaN where it returns None or the image is smaller than 8x8.
    """
    sizes, means = np.zeros((len(files), 2), np.int64), np.full(len(files), np.nan)
    rest = np.ones(len(files), bool)
    for start in range(0, len(files), _AT_ONCE):
        some = files[start : start + _AT_ONCE]
        part = slice(start, start + len(some))
        if len(some) > _FEW and all(
            type(file) is bytes or (type(file) is memoryview and file.format == "B") for file in some
        ):
            rest[part] = ~_read(some, sizes[part], means[part])
    for row in np.flatnonzero(rest).tolist():
        sizes[row], means[row] = _one(files[row])
    means[sizes.min(axis=1) < BLOCK] = np.nan
    return sizes, means


def _one(file: Any) -> tuple[tuple[int, int], float]:
    try:
        height, width, *_ = jpeg_size(file)
    except DecodeError:
        return (0, 0), np.nan
    mean = mean_of_first_block(file)
    return (height, width), np.nan if mean is None else mean


def _read(files: Sequence[Any], sizes: _Ints, means: npt.NDArray[np.float64]) -> _Bools:
    """Read headers of the usual form; return of which files it did."""
    heads = [file[:_HEAD] for file in files]
    lengths = np.fromiter(map(len, heads), np.int64, len(heads))
    data = np.frombuffer(b"".join([*heads, bytes(32)]), np.uint8)
    first = lengths.cumsum() - lengths
    markers, places, good = _walk(data, first + 2)
    frames = (markers == 0xC0) | (markers == 0xC1)
    codes, quantizers = markers == _HUFFMAN, markers == _QUANTIZERS
    good &= (frames.sum(axis=0) == 1) & codes.any(axis=0) & quantizers.any(axis=0)
    frame, code, quantizer, scan = (_first(kind, places) for kind in (frames, codes, quantizers, markers == _SCAN))
    frame = _taken(data, frame + 2, 16)
    begin = scan + 2 + _pair(data, scan + 2)
    good &= (begin + 10 <= first + lengths) & _is_plain(frame, _taken(data, scan + 4, 2))
    # The tables of Y come first, as in most files.
    table = _taken(data, quantizer + 4, 2)
    which = data.take(scan + 6, mode="clip") >> 4
    good &= (table[:, 0] == frame[:, 10]) & (_taken(data, code + 4, 1)[:, 0] == which)
    ids = data.take(places + 4, mode="clip")  # of several tables with one id the last counts: read one by one
    good &= (quantizers & (ids & 15 == frame[:, 10])).sum(axis=0) == 1
    good &= (codes & (ids == which)).sum(axis=0) == 1
    level, known = _first_levels(data, code + 5, begin)
    good &= known
    sizes[:] = np.where(good[:, None], frame[:, 3:7:2] * 256 + frame[:, 4:8:2], 0)
    means[:] = np.where(good, level * (table[:, 1] / 8) + 128, np.nan)
    return good


def _walk(data: _Bytes, at: _Ints) -> tuple[_Bytes, _Ints, _Bools]:
    """Find the segments up to the first scan: markers[S,N], their places[S,N], and where all are usual ones."""
    good, going = np.ones(len(at), bool), np.ones(len(at), bool)
    markers, places = [], []
    for _ in range(_MOST_SEGMENTS):
        word = data.take(at[:, None] + np.arange(4), mode="clip")
        marker = word[:, 1]
        length = word[:, 2].astype(np.int64) * 256 + word[:, 3]
        good &= (word[:, 0] == 0xFF) & _USUAL[marker] & (length >= 2)
        markers.append(marker)
        places.append(at)
        going &= good & (marker != _SCAN)
        if not going.any():
            break
        at = at + (2 + length) * going
    return np.array(markers), np.array(places), good & ~going


def _first(chosen: _Bools, places: _Ints) -> _Ints:
    """The place of the first chosen segment of each file."""
    found: _Ints = places[chosen.argmax(axis=0), np.arange(chosen.shape[1])]
    return found


def _taken(data: _Bytes, at: _Ints, count: int) -> _Ints:
    """Some bytes from a place of each file on: int64[N,count]."""
    return data.take(at[:, None] + np.arange(count), mode="clip").astype(np.int64)


def _pair(data: _Bytes, at: _Ints) -> _Ints:
    """The number of two bytes at a place of each file."""
    high, low = _taken(data, at, 2).T
    pair: _Ints = high * 256 + low
    return pair


def _is_plain(frame: _Ints, scan: _Ints) -> _Bools:
    """Whether frames have 8 bits and one or three components, the first of them Y, with which the scan starts.

    Args:
        frame: int64[N,16], the frames from their length on.
        scan: int64[N,2], the number of components of the scans, and the id of the first.
    """
    count, sampling = frame[:, 7], frame[:, 9:16:3]
    finest = ((sampling >> 4 <= sampling[:, :1] >> 4) & (sampling & 15 <= sampling[:, :1] & 15)).all(axis=1)
    colour = (count == 3) & finest & (frame[:, 8:15:3] != _NAMES_RGB).any(axis=1)
    whole = (frame[:, 0] * 256 + frame[:, 1] >= 8 + 3 * count) & frame[:, 3:5].any(axis=1) & frame[:, 5:7].any(axis=1)
    plain: _Bools = (frame[:, 2] == 8) & ((count == 1) | colour) & whole & (scan[:, 1] == frame[:, 8])
    return plain


def _first_levels(data: _Bytes, code: _Ints, begin: _Ints) -> tuple[_Ints, _Bools]:
    """Decode the first number of each scan, and where that is possible.

    Args:
        data: all headers.
        code: the places of the codes: how many words of each length there are.
        begin: the places of the scans' data.
    """
    scan = _taken(data, begin, 5)
    bits = scan @ (1 << np.arange(32, -1, -8))
    counts = _taken(data, code, 16)
    beyond = (counts << _LEFT).cumsum(axis=1)  # the first word of the next length, as 40 bits
    inside = bits[:, None] < beyond
    rows, chosen = np.arange(len(bits)), inside.argmax(axis=1)
    many, left = counts[rows, chosen], _LEFT[chosen]
    word = (bits - beyond[rows, chosen] + (many << left)) >> left
    place = code + 16 + counts.cumsum(axis=1)[rows, chosen] - many + word
    size = data.take(place, mode="clip").astype(np.int64)
    # After ff a zero is stuffed; that is read one by one.
    known = inside.any(axis=1) & (scan != 0xFF).all(axis=1) & (place < begin) & (size <= MOST_BITS)
    size = np.minimum(size, MOST_BITS)
    level = (bits >> (left - size)) & ((1 << size) - 1)
    return np.where(level >= 1 << size >> 1, level, level - (1 << size) + 1), known
