"""far_store: a storage that computes its files: a manifest of any size, and TFRecords of one length, after a delay.

The bytes are those that real files would have, checksums included, so all of gpupipe's code runs on them. Nothing is
stored, and a data set may have a billion records.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from crc32c import crc32c

from gpupipe.extract.records.crc import masked_crc32c
from gpupipe.extract.records.framing import OVERHEAD
from gpupipe.extract.records.manifest import BLOCK, END, MAGIC, VERSION

__all__ = ["MANIFEST", "Store", "stored"]

SCHEME = "computed"
MANIFEST = f"{SCHEME}://set/files.gpindex"
"""URL of the manifest."""


@dataclass
class Store:
    """A data set.

    Attributes:
        files: how many.
        each: records in a file.
        length: bytes of a record, header and checksums included.
        delay: seconds that an answer takes.
        requests: so far.
        sent: bytes, so far.
        opened: files that were asked for.
    """

    files: int
    each: int
    length: int
    delay: float = 0.0
    requests: int = 0
    sent: int = 0
    opened: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        head, payload = struct.pack("<Q", self.length - OVERHEAD), bytes(self.length - OVERHEAD)
        ends = [struct.pack("<I", masked_crc32c(part)) for part in (head, payload)]
        self._record = head + ends[0] + payload + ends[1]
        sizes = np.full(self.files, self.each * self.length, "<u8")
        numbers = np.stack([sizes, np.full(self.files, self.each, "<u8"), np.zeros(self.files, "<u8")]).tobytes()
        text = "".join(f"photos-{i:05d}-of-{self.files:05d}.tfrecord\n" for i in range(self.files)).encode()
        last = END.pack(SCHEME.encode(), VERSION, crc32c(numbers + text), self.files, len(text), MAGIC)
        self._tail = numbers + text + last
        blocks = [self._block(number) for number in range(-(-self.each // BLOCK))]
        self._offsets = b"".join(blocks)  # those of one file: all are alike

    def _block(self, number: int) -> bytes:
        first = number * BLOCK
        data = (np.arange(first, min(first + BLOCK, self.each) + 1, dtype="<u8") * self.length).tobytes()
        crc: int = crc32c(data)
        return data + crc.to_bytes(8, "little")

    def size(self, path: str) -> int:
        """Bytes of a file."""
        if path.endswith(".gpindex"):
            return len(MAGIC) + self.files * len(self._offsets) + len(self._tail)
        return self.each * self.length

    def bytes_of(self, path: str, start: int, stop: int) -> bytes:
        """Compute some bytes of a file."""
        if not path.endswith(".gpindex"):
            return _repeated(self._record, start, stop)
        pieces, at = [], start
        offsets = len(MAGIC) + self.files * len(self._offsets)
        while at < stop:
            if at < len(MAGIC):
                piece = MAGIC[at:stop]
            elif at < offsets:
                piece = _repeated(self._offsets, at - len(MAGIC), min(stop, offsets) - len(MAGIC))
            else:
                piece = self._tail[at - offsets : stop - offsets]
            pieces.append(piece)
            at += len(piece)
        return b"".join(pieces)

    def asked(self, path: str, sent: int) -> None:
        """Count a request, and wait as long as an answer takes."""
        with self._lock:
            self.requests += 1
            self.sent += sent
            if not path.endswith(".gpindex"):
                self.opened.add(path)
        time.sleep(self.delay)


def _repeated(pattern: bytes, start: int, stop: int) -> bytes:
    """Bytes `start` to `stop` of a pattern that is repeated."""
    first = start // len(pattern)
    whole = pattern * (-(-stop // len(pattern)) - first)
    return whole[start - first * len(pattern) : stop - first * len(pattern)]


_NOW: list[Store] = []


@contextmanager
def stored(store: Store) -> Iterator[Store]:
    """Have fsspec find a data set under the URLs of its scheme, until the end of the block."""
    import fsspec

    class Computed(fsspec.AbstractFileSystem):  # type: ignore[misc]
        """Reads from the data set of the block."""

        protocol = SCHEME
        cachable = False

        def info(self, path: str, **_: Any) -> dict[str, Any]:
            _NOW[-1].asked(path, 0)
            return {"name": path, "size": _NOW[-1].size(path), "type": "file"}

        def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
            first = start or 0
            stop = _NOW[-1].size(path) if end is None else end
            _NOW[-1].asked(path, stop - first)
            return _NOW[-1].bytes_of(path, first, stop)

    fsspec.register_implementation(SCHEME, Computed, clobber=True)
    _NOW.append(store)
    try:
        yield store
    finally:
        _NOW.pop()
