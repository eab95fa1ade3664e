r"""manifest: the files of a data set in one file: names, sizes, tags, numbers of records, and where each record starts.

A process that has a manifest knows how many records there are and in which file each is, without asking for any of the
files. Offsets are read when they are needed, by ranges. The layout, all numbers little-endian::

    b"gpfiles\n"
    for every 1,024 records of a file, or what is left of it: uint64[records + 1], where each starts and the last one
        ends; and the CRC-32C of these, as uint64
    uint64[files] sizes, uint64[files] numbers of records, uint64[files] tags, names as UTF-8, each ended by a newline
    the scheme of the URLs that the tags come from (16 bytes, zeros behind it), the version of the layout,
    the CRC-32C of the two lines above, the number of files, the bytes of the names, the first line again (`END`)

The bytes are not trusted: each length is compared with the size of the file before it is used, names lead to no folder
above that of the data, and what is read at an offset has to be a record with the right checksums.
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
from dataclasses import field
from typing import Any, NoReturn
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt

from gpupipe.classes import dataclass
from gpupipe.errors import RecordError, shown_name
from gpupipe.extract.records.crc import crc32c
from gpupipe.extract.storage.files import OpenFile, Version
from gpupipe.extract.storage.glob import is_url
from gpupipe.extract.storage.remote import storage_of

__all__ = [
    "AGAIN",
    "BLOCK",
    "END",
    "MAGIC",
    "MOST_FILES",
    "VERSION",
    "Manifest",
    "folder_of",
    "name_trouble",
    "read_manifest",
    "scheme_of",
    "tag_of",
]

MAGIC = b"gpfiles\n"
"""How a manifest starts, and ends."""

VERSION = 1
"""Of the layout."""

END = struct.Struct("<16sIIQQ8s")  # scheme, version, CRC-32C, files, bytes of names, MAGIC
"""The last bytes."""

MOST_FILES = 1 << 24
"""Files of one manifest: 16 million."""

MOST_NAMES = 1 << 31
"""Bytes of all names."""

AGAIN = "make the manifest again: gpupipe index FILES --out MANIFEST"
"""What helps where a manifest does not fit its files."""

BLOCK = 1024
"""Records whose offsets are read, checked and kept together: 8 KiB."""

_TAIL = 1 << 20
"""Bytes that are read from the end at first: names and sizes of 10,000 files and more."""

_MOST_SIZE = 1 << 62

_PARTS = re.compile(r"((?:[\w+.-]+::)*[\w+.-]+://)(.*)", re.DOTALL)

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Manifest:
    """The files that a manifest lists.

    Attributes:
        path: of the manifest, a path or URL.
        paths: of the files, in the order of the manifest.
        sizes: bytes of each file: int64[files].
        counts: records of each file: int64[files].
        tags: of the version of each file that was indexed, 0 where it had none: uint64[files].
        scheme: of the URLs that the tags come from: a file that is reached in another way has other tags.
        digest: of names, sizes and counts, hex.
        version: the tag of the manifest itself, which must not change while it is used.
        starts: number of records before each file, and of all: int64[files + 1].
        blocks: number of blocks of offsets before each file, and of all: int64[files + 1].
    """

    path: str
    paths: tuple[str, ...]
    sizes: Numbers
    counts: Numbers
    tags: npt.NDArray[np.uint64]
    scheme: str
    digest: str
    version: str
    starts: Numbers = field(init=False)
    blocks: Numbers = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "starts", np.concatenate([[0], np.cumsum(self.counts)]))
        object.__setattr__(self, "blocks", np.concatenate([[0], np.cumsum(-(-self.counts // BLOCK))]))

    def __len__(self) -> int:
        return int(self.starts[-1])

    def __repr__(self) -> str:
        return f"<manifest {shown_name(self.path)!r} of {len(self.paths)} files>"

    def where(self, file: int, block: int) -> tuple[int, int]:
        """Return which bytes of the manifest hold a block of offsets of a file: the first, and the one after them."""
        before = int(self.starts[file]) + 2 * int(self.blocks[file])
        at = len(MAGIC) + 8 * (before + block * (BLOCK + 2))
        return at, at + 8 * (min(BLOCK, int(self.counts[file]) - block * BLOCK) + 2)

    def read(self, start: int, stop: int) -> bytes:
        """Read bytes of the manifest, with one request.

        Raises:
            DataError: it cannot be read, or was replaced.
        """
        return storage_of(self.path).read(self.path, start, stop - start, self.version)

    def offsets(self, file: int, block: int, data: bytes | memoryview) -> npt.NDArray[np.uint64]:
        """Check a block of offsets of a file: they are as they were written, ascend, and are within the file.

        Args:
            file: its number.
            block: the number of the block.
            data: the bytes that `where` names.

        Returns:
            uint64[records + 1].

        Raises:
            RecordError: the manifest is damaged there.
        """
        found = np.frombuffer(data[:-8], "<u8").astype(np.uint64)
        why = ""
        if crc32c(data[:-8]) != int.from_bytes(data[-8:], "little"):
            why = "its checksum does not match there"
        elif (found[1:] <= found[:-1]).any() or found[-1] > self.sizes[file] or (block == 0 and found[0] != 0):
            why = f"its offsets in {shown_name(self.paths[file])} make no sense"
        if why:
            _damaged(self.path, why, self.where(file, block)[0])
        return found

    def check(self, file: int) -> OpenFile:
        """Open a file, and compare its size and tag with those that it had when it was indexed.

        Raises:
            DataError: it is another version, is missing, or cannot be read.
        """
        path = self.paths[file]
        opened = OpenFile(storage_of(path), path)
        size, tag = int(self.sizes[file]), int(self.tags[file])
        listed = f"the manifest {shown_name(self.path)} lists"
        if opened.size != size:
            raise RecordError(
                f"{listed} {size:,} bytes, and the file has {opened.size:,}: it has changed since; {AGAIN}",
                file=path,
                stage="read",
            )
        if tag and self.scheme == scheme_of(path) and tag_of(path, opened) not in (0, tag):
            raise RecordError(
                f"{listed} another version of this file: its time or version differs, its size does not; {AGAIN}",
                file=path,
                stage="read",
            )
        return opened


def scheme_of(path: str) -> str:
    """Return the scheme of a URL, without those of caches before it; "file" for a local path."""
    return path.partition("://")[0].rpartition("::")[2][:16] if is_url(path) else "file"


def tag_of(path: str, opened: OpenFile) -> int:
    """Return a number for the version of a file: its time, or what its server says of it; 0 if that is nothing.

    The inode of a local file does not count: a copy with the same time is the same version.
    """
    told = opened.tag.partition("-")[2] if is_url(path) else str(Version.of_tag(opened.tag).mtime_ns)
    return int.from_bytes(hashlib.blake2b(told.encode(), digest_size=8).digest(), "little") if told else 0


def read_manifest(path: str, folder: str | None = None) -> Manifest:
    """Read a manifest but for the offsets: with two requests, three where it lists 20,000 files or more.

    Args:
        path: a path or URL.
        folder: where the files are, a path or URL; None: where the manifest is.

    Raises:
        DataError: it cannot be read, is damaged, or is something else.
    """
    opened = OpenFile(storage_of(path), path)
    size = opened.size
    if size < len(MAGIC) + END.size:
        _damaged(path, "it is too short to be one")
    tail = opened.read(max(0, size - _TAIL), min(size, _TAIL))
    scheme, version, crc, files, letters, magic = END.unpack_from(tail, len(tail) - END.size)
    if magic != MAGIC:
        _damaged(path, "it is something else, or was not written to its end")
    if version != VERSION:
        _damaged(path, f"it has version {version} of the layout, where this gpupipe reads {VERSION}")
    listed = 24 * files + letters
    if files > MOST_FILES or letters > MOST_NAMES or len(MAGIC) + listed + END.size > size:
        _damaged(path, "its lengths exceed its size")
    if listed + END.size > len(tail):
        tail = opened.read(size - END.size - listed, listed) + tail[-END.size :]
    body = memoryview(tail)[len(tail) - END.size - listed : len(tail) - END.size]
    if crc32c(body) != crc:
        _damaged(path, "its checksum does not match")
    numbers = np.frombuffer(body[: 24 * files], "<u8").reshape(3, files)
    counts = _checked(path, numbers, size, listed)
    where = folder_of(path) if folder is None else folder if folder.endswith("/") else f"{folder}/"
    names = _names(path, bytes(body[24 * files :]), files, where)
    return Manifest(
        path,
        tuple(f"{where}{name}" for name in names),
        numbers[0].astype(np.int64),
        counts,
        numbers[2].astype(np.uint64),
        scheme.rstrip(b"\0").decode("ascii", "replace"),
        hashlib.blake2b(memoryview(body[: 16 * files]).tobytes() + body[24 * files :], digest_size=16).hexdigest(),
        opened.tag,
    )


def _checked(path: str, numbers: Any, size: int, listed: int) -> Numbers:
    """The numbers of records, which fit into the files, and whose offsets fill the manifest."""
    sizes, counts, _ = numbers
    if (sizes > _MOST_SIZE).any() or (counts > sizes).any():
        _damaged(path, "its numbers of records exceed the sizes of the files")
    given: list[int] = counts.tolist()  # Python's integers do not overflow
    offsets = 8 * sum(count + 2 * -(-count // BLOCK) for count in given)
    if len(MAGIC) + offsets + listed + END.size != size:
        _damaged(path, "its numbers of records do not fit its size")
    found: Numbers = counts.astype(np.int64)
    return found


def _names(path: str, data: bytes, files: int, where: str) -> list[str]:
    names = data.decode("utf-8", "surrogateescape").split("\n")
    if len(names) != files + 1 or names.pop():
        _damaged(path, "it has another number of names than of files")
    for name in names:
        if trouble := name_trouble(name, where):
            _damaged(path, f"{shown_name(name)!r} {trouble}")
    if len(set(names)) < files:
        _damaged(path, "it names a file twice")
    return names


def name_trouble(name: str, folder: str) -> str:
    """Say why a name cannot be that of a file below a folder, a path or a URL; "" if it can.

    Clients of HTTP decode %2e before they follow .., and keep what comes after ? or # for themselves.
    """
    web = folder.startswith(("http://", "https://"))
    for form in (name, unquote(name)) if is_url(folder) else (name,):
        if not form or form.startswith(("/", "\\")) or "\0" in form or is_url(form) or ":" in form[:2]:
            return "is no name of a file in the folder of the data"
        if ".." in re.split(r"[/\\]", form):
            return "leads out of the folder of the data"
    return "is no name of a file on a web server" if web and re.search(r"[?#]", name) else ""


def folder_of(path: str) -> str:
    """Return the folder of a path or URL, with a slash at its end; "" for the present one."""
    parts = _PARTS.fullmatch(path)
    scheme, rest = ("", path.replace(os.sep, "/")) if parts is None else (parts[1], parts[2])
    if scheme.lower().endswith(("http://", "https://")):
        rest = rest.partition("?")[0]  # a signature may have slashes
    folder, slash, _ = rest.rpartition("/")
    return f"{scheme}{folder}{slash}"


def _damaged(path: str, why: str, offset: int | None = None) -> NoReturn:
    raise RecordError(
        f"a manifest is needed, as gpupipe index writes it: {why}; {AGAIN}", file=path, offset=offset, stage="read"
    )
