"""numpy: .npy and .npz files; a row is an item along the first axis, and nothing is ever unpickled.

Arrays that are not compressed are read in blocks of some rows. A compressed member of an .npz file cannot be read from
its middle: it is one block, as are those beside it. Members lie one behind the other, so that all of them together
expand to no more than the bytes of the file can.

The checksum of a member of an .npz file is of the whole member, and no row is given before it was compared. So before
the first block of a member that is not compressed all of it is read once, in pieces; that it is sound is remembered of
each version of a file. Where it is not, all rows of its file are bad, as of a compressed one.
"""

from __future__ import annotations

import io
import struct
import sys
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod
from typing import Any, ClassVar

import numpy as np

from gpupipe.errors import RecordError
from gpupipe.extract.storage.files import OpenFile
from gpupipe.extract.tables.byte_file import ByteFile
from gpupipe.extract.tables.columns import Arrays, Column, Nulls, Scalars, Texts
from gpupipe.extract.tables.sound import SOUND
from gpupipe.extract.tables.table import MOST_BYTES, MOST_ROWS, Format, Table
from gpupipe.spec import Array, TensorSpec

from ...classes import dataclass

__all__ = ["Npy"]

_BLOCK = 256 << 10
"""Bytes of the rows that are read at once."""

_PIECE = 4 << 20
"""Bytes of a member that are read at once to compute its checksum."""

_HEADER = 10_000 + 12
"""Bytes of the longest header: what NumPy itself accepts, and the magic before it."""

_LOCAL = 30
"""Bytes of the shortest header of a member."""

_EXPANDS = 1032  # a byte of deflate expands to 1032 bytes at most


@dataclass(frozen=True)
class Npy(Format):
    """NumPy's files: one array (.npy), or several of one length (.npz). The content tells which, not the name."""

    name: ClassVar[str] = "NumpyDataset"

    def open(self, path: str, names: Sequence[str] | None = None) -> Table:
        file = self.opened(path)
        head = file.read(0, min(file.size, 8))
        with self.opening(file, "a damaged one"):
            if head[:6] == b"\x93NUMPY":
                return _Npy(self, file, {"": _Member.at(file, 0, file.size)}, names)
            if head[:2] == b"PK":
                archive = _archive(file)
                return _Npy(self, file, _members(file, archive), names, archive)
        raise self.damaged(file, "one that is neither .npy nor .npz")


@dataclass(frozen=True, slots=True)
class _Stored:
    """The bytes of a member that is not compressed.

    Attributes:
        name: of the member, for messages.
        offset: of the first byte in the file.
        size: how many they are.
        crc: their CRC-32, as the directory of the file says.
    """

    name: str
    offset: int
    size: int
    crc: int

    def wrong(self, file: OpenFile) -> str:
        """Read all of them, and say how their checksum differs; "" if it does not.

        Raises:
            DataError: they cannot be read.
        """
        found = 0
        for at in range(0, self.size, _PIECE):
            found = zlib.crc32(file.read(self.offset + at, min(_PIECE, self.size - at)), found)
        return self.compared(found)

    def compared(self, found: int) -> str:
        """Say how a checksum differs from theirs; "" if it does not."""
        if found == self.crc:
            return ""
        return (
            f"the member {self.name!r} of CRC-32 {self.crc:08x} is needed, as the file says, got one of {found:08x}: "
            "its bytes were changed after they were written; copy the file again, or write it anew"
        )


@dataclass(frozen=True)
class _Member:
    """One array in a file.

    Attributes:
        shape: of the array.
        dtype: of the array.
        odd: why its rows cannot be read, to follow "a column"; "" if they can.
        offset: of its first byte in the file; for a compressed member of its first byte after decompression.
        packed: the member, if it is compressed.
        stored: the bytes with a checksum, if it is a member of an .npz file that is not compressed.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    odd: str
    offset: int
    packed: str = ""
    stored: _Stored | None = None

    @classmethod
    def at(cls, file: OpenFile, offset: int, size: int) -> _Member:
        """The array whose .npy is at an offset, and may have so many bytes.

        Raises:
            RecordError: it is cut off.
            ValueError: it is not one.
        """
        return cls.of(file.read(offset, min(size, _HEADER)), size, offset)

    @classmethod
    def of(cls, head: bytes, size: int, offset: int = 0, packed: str = "") -> _Member:
        """The array whose .npy starts with these bytes, of `size`."""
        stream = io.BytesIO(head)
        version = np.lib.format.read_magic(stream)
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
        if read is None:
            raise ValueError(f"a .npy of version 1.0 or 2.0 is needed, got {version}")
        shape, fortran, dtype = read(stream)
        odd = _odd(shape, fortran, dtype)
        # Objects are pickled, each into a byte at least; of rows without bytes there may be any number.
        needed = prod(shape) * (1 if dtype.hasobject else dtype.itemsize)
        if any(not 0 <= n < 1 << 62 for n in shape) or (not needed and shape and shape[0] > MOST_ROWS):
            raise ValueError(f"the shape {shape}")
        if needed > size - stream.tell():
            raise ValueError(f"an array of {needed} bytes with {size - stream.tell()}; it may be cut off")
        return cls(shape, dtype, odd, offset + stream.tell(), packed)

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return prod(self.shape[1:]) * self.dtype.itemsize

    @property
    def spec(self) -> TensorSpec | str:
        """The type of its rows, or why they have none."""
        if self.odd:
            return self.odd
        return TensorSpec(self.shape[1:], bytes if self.dtype.kind in "SU" else self.dtype)

    def column(self, data: bytes | bytearray) -> Column:
        """Some of its rows."""
        values: Array = np.frombuffer(data, self.dtype).reshape(-1, *self.shape[1:])
        if self.dtype.kind == "b":  # a byte may be anything in a damaged file
            values = values.view(np.uint8) != 0
        elif self.dtype.kind in "SU":
            if self.dtype.kind == "U" and values.view(self.dtype.byteorder + "u4").max(initial=0) > sys.maxunicode:
                raise RecordError("a text of Unicode is needed, got a number that is none of its characters")
            return Texts(values)
        values = values.astype(self.dtype.newbyteorder("="), copy=False)
        return Scalars(values) if values.ndim == 1 else Arrays(values)


def _odd(shape: tuple[int, ...], fortran: bool, dtype: np.dtype[Any]) -> str:
    if dtype.hasobject:
        return "of Python objects, which could only be unpickled, and that may run any code; save numbers or bytes"
    if dtype.kind not in "biufSU" or (dtype.itemsize > 8 and dtype.kind == "f"):
        return f"of {dtype}, which is neither a number nor bytes; convert it when the file is written"
    if dtype.kind in "SU" and len(shape) > 1:
        return f"of {dtype} with more than one axis; save one array for each"
    if not shape:
        return "without axes, which has no rows"
    if fortran and len(shape) > 1:
        return "in Fortran order, whose rows are scattered; save np.ascontiguousarray(it)"
    if prod(shape[1:]) * dtype.itemsize == 0:
        return "with rows of 0 bytes"
    return ""


class _Ended(ByteFile):
    """A file that remembers what was read last up to its end: of a zip archive, the record that ends it."""

    end = b""

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        if self.tell() == self._file.size and data:
            self.end = data
        return data


def _archive(file: OpenFile) -> zipfile.ZipFile:
    """Open an .npz file.

    Raises:
        Exception: it is damaged, or its members are not one behind the other.
    """
    ended = _Ended(file)
    archive = zipfile.ZipFile(ended)
    infos = sorted(archive.infolist(), key=lambda info: info.header_offset)
    (count,) = struct.unpack_from("<H", ended.end, ended.end.rindex(b"PK\5\6") + 10)
    if count not in (len(infos), 0xFFFF):  # which stands for any number from that on
        raise ValueError(f"a directory of {len(infos)} members, of which the end of the file says {count}")
    for one, other in pairwise(infos):
        if one.header_offset + _LOCAL + one.compress_size > other.header_offset:
            raise ValueError(f"the member {one.filename!r}, which overlaps {other.filename!r}")
    return archive


def _members(file: OpenFile, archive: zipfile.ZipFile) -> dict[str, _Member]:
    """The arrays of an .npz file.

    Raises:
        Exception: it is damaged.
    """
    found: dict[str, _Member] = {}
    for info in archive.infolist():
        name = info.filename.removesuffix(".npy")
        if info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"the member {name!r}, which is encrypted or compressed in another way than deflate")
        if name in found:
            raise ValueError(f"two members {name!r}")
        if info.compress_type == zipfile.ZIP_STORED:
            head = file.read(info.header_offset, _LOCAL)
            start = info.header_offset + _LOCAL + sum(struct.unpack_from("<HH", head, 26))
            stored = _Stored(name, start, info.file_size, info.CRC)
            found[name] = replace(_Member.at(file, start, info.file_size), stored=stored)
            continue
        if info.file_size > _EXPANDS * info.compress_size + 1024:
            raise ValueError(
                f"the member {name!r}, which claims to expand from {info.compress_size} bytes to {info.file_size}"
            )
        with archive.open(info) as stream:
            found[name] = _Member.of(stream.read(_HEADER), info.file_size, packed=info.filename)
    return found


class _Npy(Table):
    fills = False

    def __init__(
        self,
        form: Npy,
        file: OpenFile,
        found: Mapping[str, _Member],
        names: Sequence[str] | None,
        archive: zipfile.ZipFile | None = None,
    ) -> None:
        chosen = {name: found[name] for name in (found if names is None else names) if name in found}
        lengths = {member.shape[0] for member in (chosen or found).values() if member.shape}
        if len(lengths) != 1:
            what = (
                f"arrays of different lengths, {sorted(lengths)}; choose some with columns=" if lengths else "no rows"
            )
            raise form.damaged(file, f"one with {what}")
        (rows,) = lengths
        self._members, self._file, self._archive = chosen, file, archive
        self._wrong: dict[_Stored, str] = {}  # members whose checksums were compared, and how they differ
        each = max([member.row_bytes for member in chosen.values()], default=1)
        packed = any(member.packed for member in chosen.values())
        most = max(rows, 1) if packed else max(1, _BLOCK // max(each, 1))
        sizes = [min(most, rows - start) for start in range(0, rows, most)]
        super().__init__(file, {name: member.spec for name, member in chosen.items()}, sizes, form.defaults)

    def load(self, block: int) -> Sequence[tuple[Column, Nulls]]:
        start, stop = self.starts[block : block + 2].tolist()
        if sum(member.row_bytes for member in self._members.values()) * (stop - start) > MOST_BYTES:
            raise RecordError(f"at most {MOST_BYTES} bytes of compressed arrays are needed; save them uncompressed")
        return [(member.column(self._bytes(member, start, stop)), Nulls()) for member in self._members.values()]

    def _bytes(self, member: _Member, start: int, stop: int) -> bytes | bytearray:
        n = (stop - start) * member.row_bytes
        if not member.packed:
            at = member.offset + start * member.row_bytes
            whole = b"" if member.stored is None else self._checked(member.stored)
            if whole and member.stored is not None:
                return whole[at - member.stored.offset :][:n]
            return self._file.read(at, n)
        assert self._archive is not None
        with self._archive.open(member.packed) as stream:
            stream.read(member.offset)
            data = bytearray(n)
            for at in range(0, n, _PIECE):
                data[at : at + _PIECE] = stream.read(min(_PIECE, n - at))
            if len(data) != n:
                raise RecordError(f"{n} bytes of the member {member.packed!r} are needed, got {len(data)}")
            while stream.read(_PIECE):  # at the end of the member, its checksum is compared
                pass
            return data

    def _checked(self, stored: _Stored) -> bytes:
        """Compare the checksum of a member, unless that was done; all of its bytes if they were read for it, or none.

        Raises:
            RecordError: it differs.
            DataError: the member cannot be read.
        """
        key = self._file.path, self._file.tag, stored
        whole = b""
        if stored not in self._wrong:
            if key in SOUND:
                self._wrong[stored] = ""
            elif stored.size <= _BLOCK:
                whole = self._file.read(stored.offset, stored.size)
                self._wrong[stored] = stored.compared(zlib.crc32(whole))
            else:
                self._wrong[stored] = stored.wrong(self._file)
        if self._wrong[stored]:
            raise RecordError(self._wrong[stored])
        SOUND.add(key)
        return whole
