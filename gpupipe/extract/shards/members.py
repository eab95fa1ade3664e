"""members: the members of a tar archive in order, without their payloads; what is damaged is an error in its place.

After a damaged header the next good one is searched, a block of 512 bytes at a time. Blocks of zeros end an archive;
those that `cat` joined are read one after another, as GNU tar does with ``--ignore-zeros``.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpupipe.errors import DataError, RecordError, shown_name
from gpupipe.extract.records.framing import SEARCHED, sniff
from gpupipe.extract.shards.header import (
    BLOCK,
    DIRECTORY,
    ENDS,
    EXTENDED,
    FIELDS,
    REFUSED,
    SPARSE,
    Header,
    find_header,
    long_name,
    pax,
    quick_size,
    read_header,
)
from gpupipe.extract.shards.window import Window

from ...classes import dataclass

__all__ = ["Damage", "Member", "Members"]

_MOST_EXTENDED = 1 << 20
"""Bytes of a payload that describes the next member: a name, or pax records."""


_SEARCH = 256 << 10
"""Bytes that are searched at once."""


_ZEROS = bytes(BLOCK)


Member = tuple[int, bytes, int, int, str]
"""Offset of its first header, name (of a directory with a slash at the end), offset and bytes of its payload, and what
it is if its bytes cannot be read, else "". A plain tuple: a named one would cost as much as reading the header."""


@dataclass(frozen=True, slots=True)
class Damage:
    """A part of the archive that is not a member."""

    offset: int
    error: DataError


class Members:
    """The members of an archive, or of a part of one.

    Args:
        window: the bytes of the archive.
        path: the file, for errors.
        start: offset of the first member.
        stop: offset to end before; None reads to the end.

    Attributes:
        at: the offset of the next header.
        last: the offset of the last member.
    """

    def __init__(self, window: Window, path: str, start: int = 0, stop: int | None = None) -> None:
        self._window = window
        self._path = path
        self.at = self.last = start
        self._limit = window.limit if stop is None else stop
        self._reach = 0  # where the padding of the last member ends
        self._done = False

    @property
    def cut_off(self) -> int:
        """Bytes that the last member, with its padding, is longer than the archive, once its end is reached."""
        return max(self._reach - self._window.limit, 0)

    def __iter__(self) -> Iterator[Member | Damage]:
        """The members and what is damaged, in order.

        Raises:
            DataError: a header cannot be read; the iteration ends. `at` is its offset.
        """
        window, unpack, quick = self._window, FIELDS.unpack_from, quick_size
        view, base, end = window.data, window.base, window.end
        while True:
            at = self.at
            if view is not window.data:
                view, base, end = window.data, window.base, window.end
            if base <= at and at + BLOCK <= end and at + BLOCK <= self._limit:
                fields = unpack(view, at - base)
                size = quick(fields, view[at - base : at - base + BLOCK])
                data = at + BLOCK
                if 0 <= size <= self._limit - data:
                    self.last = at
                    self.at = self._reach = data + (size + BLOCK - 1) // BLOCK * BLOCK
                    yield at, fields[0].partition(b"\0")[0], data, size, ""
                    continue
            item = self._next()
            if item is None:
                return
            yield item

    def _next(self) -> Member | Damage | None:
        """The next member of any kind, or what is damaged; None at the end."""
        first = self.at
        if self._done:
            return None
        name: bytes | None = None
        records: dict[bytes, bytes] = {}
        while True:
            at = self.at
            block = self._window.view(at, BLOCK) if at < self._limit else memoryview(b"")
            if len(block) < BLOCK:
                return self._end(first, at, block)
            header = read_header(block)
            if header is None:
                if first == at and block == _ZEROS:
                    if not self._skip_zeros():
                        return self._damaged(first, at, b"", "only zeros follow")
                    first = self.at
                    continue
                return self._damaged(first, at, bytes(block[:16]))
            if header.type[0] not in EXTENDED:
                break
            problem = self._extended_problem(header)
            if problem:
                return self._damaged(first, at, b"", problem)
            data = bytes(self._window.view(at + BLOCK, header.size))
            try:
                if header.type == b"L":
                    name = long_name(data)
                elif header.type in b"xX":
                    records.update(pax(data))
                elif header.type == b"g":
                    self._check_global(pax(data))
            except ValueError as error:
                return self._damaged(first, at, b"", f"the pax header is malformed: {error}")
            self.at = at + BLOCK + _padded(header.size)
        return self._member(first, at, header, block, name, records)

    def _member(
        self, first: int, at: int, header: Header, block: memoryview, name: bytes | None, records: dict[bytes, bytes]
    ) -> Member | Damage:
        """The member of a header and the extended headers before it, or the damage."""
        size, kind = header.size, header.type
        name = header.name if name is None else name
        refused = REFUSED.get(kind, "")
        if records:
            name = records.get(SPARSE + b"name", records.get(b"path", name))
            if SPARSE in records or SPARSE + b"name" in records:
                refused = REFUSED[b"S"]
            if b"size" in records:
                try:
                    size = int(records[b"size"])
                except ValueError:
                    size = -1
        elif kind == b"S" and block[482]:
            at = self._after_sparse(at)
        data = at + BLOCK
        if kind in ENDS or kind == DIRECTORY:
            size = 0
        if size < 0 or data + size > self._limit:
            shown = shown_name(name.decode(errors="surrogateescape"))
            left = max(self._limit - data, 0)
            return self._damaged(
                first, at, b"", f"{shown!r} needs {size} bytes, the archive has at most {left} after its header"
            )
        self.last = first
        self.at = self._reach = data + _padded(size)
        return first, name + b"/" if kind == DIRECTORY else name, data, size, refused

    def _after_sparse(self, at: int) -> int:
        """The offset of the last of the blocks that list the parts of an old GNU sparse file."""
        while True:
            at += BLOCK
            block = self._window.view(at, BLOCK) if at + BLOCK <= self._limit else b""
            if len(block) < BLOCK or not block[504]:  # where it is missing, the archive ends before the payload
                return at

    def _extended_problem(self, header: Header) -> str:
        """Why the payload of an extended header cannot be read; "" if it can."""
        if header.size > _MOST_EXTENDED:
            return (
                f"a header for a long name or pax records may have {_MOST_EXTENDED} bytes, this one says {header.size}"
            )
        if self.at + BLOCK + header.size > self._limit:
            return f"a header for a long name or pax records needs {header.size} bytes, the archive ends before"
        return ""

    def _check_global(self, records: dict[bytes, bytes]) -> None:
        for key in (b"path", b"size"):
            if key in records:
                raise ValueError(f"it gives all members one {key.decode()}")

    def _end(self, first: int, at: int, block: memoryview) -> Damage | None:
        """The end of the archive, which is good where a header may start."""
        self._done = True
        if at == 0 and sniff(bytes(block[:16])):
            return self._damaged(first, at, bytes(block[:16]))
        if any(block):
            reason = f"the archive ends inside the header of a member, {BLOCK - len(block)} bytes are missing"
        elif first < at:
            reason = "the archive ends after the header of a long name or pax records, the member is missing"
        else:
            return None
        return Damage(first, RecordError(reason, file=self._path, offset=first, stage="read"))

    def _skip_zeros(self) -> bool:
        """Move to the next block that is not zero, or to the end; False if neither is near."""
        at, last = self.at, self.at + SEARCHED
        while at < self._limit:
            if at >= last:
                return False
            view = self._window.view(at, min(_SEARCH, self._limit - at))
            whole = len(view) - len(view) % BLOCK
            data = bytes(view[:whole])
            zeros = len(data) - len(data.lstrip(b"\0"))
            at += zeros - zeros % BLOCK
            if zeros < whole or not whole:
                break
        self.at = at
        return True

    def _damaged(self, first: int, at: int, head: bytes, problem: str = "") -> Damage:
        """Make the error for what starts at `first`, whose header at `at` is bad, and move to the next good header."""
        known = sniff(head) if at == 0 and head else None
        if known is not None:
            self._done = True
            reason = f"a tar archive is needed, this is {known}"
            return Damage(first, RecordError(reason, file=self._path, offset=first, stage="read").hiding())
        found, unread = self._seek(at + BLOCK)
        what = problem or "the header of a member and its checksum do not match"
        if found is not None:
            where = f"{found - first} bytes are skipped"
        elif unread:
            where = f"no member starts within {SEARCHED} bytes, what follows is left unread"
        else:
            where = "no further member follows"
        hint = " (is this a tar archive?)" if at == 0 and not problem else ""
        self._done = found is None
        self.at = first if found is None else found
        return Damage(first, RecordError(f"{what}; {where}{hint}", file=self._path, offset=first, stage="read"))

    def _seek(self, at: int) -> tuple[int | None, bool]:
        """Search for the next good header from `at`; also whether the search ended before the archive does."""
        last = at + SEARCHED
        while at < self._limit:
            if at >= last:
                return None, True
            view = self._window.view(at, min(_SEARCH, self._limit - at))
            if len(view) < BLOCK:
                break
            found = find_header(view, at, self._limit)
            if found is not None:
                return at + found, False
            at += len(view) - len(view) % BLOCK
        return None, False


def _padded(size: int) -> int:
    return -(-size // BLOCK) * BLOCK
