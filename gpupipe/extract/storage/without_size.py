"""without_size: remote files whose server does not say how long they are: read as a whole, and kept in memory.

A server that makes or compresses its answer on the way (``Transfer-Encoding: chunked``, ``Content-Encoding: gzip``) has
no length to report, and often no ranges; one that makes it when it is asked for it may say 0 to a HEAD.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

from gpupipe.errors import RecordError
from gpupipe.extract.storage.forking import renew_lock
from gpupipe.extract.storage.http_answers import is_http, read_whole

__all__ = ["WITHOUT_SIZE", "Bodies", "whole"]

MOST_BYTES = 1 << 28
"""Bytes of the longest file that is read as a whole."""

KEPT_BYTES = 1 << 28
"""Bytes of all files that are kept; those used longest ago are asked for again."""

_PIECE = 1 << 20


class Bodies:
    """What files hold, the last ones in full and of all a tag of their content. Any thread may use it.

    Args:
        most: bytes that are kept.
    """

    def __init__(self, most: int = KEPT_BYTES) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._bodies: OrderedDict[str, tuple[bytes, str]] = OrderedDict()
        self._bytes = 0
        renew_lock(self)

    def add(self, name: str, body: bytes) -> str:
        """Keep a file; returns a tag that changes with its content."""
        tag = f"{len(body)}-{blake2b(body, digest_size=16).hexdigest()}"
        with self._lock:
            self._drop(name)
            self._bodies[name] = body, tag
            self._bytes += len(body)
            while self._bytes > self._most and len(self._bodies) > 1:
                self._drop(next(iter(self._bodies)))
        return tag

    def get(self, name: str, tag: str) -> bytes | None:
        """The content that had this tag, if it is still kept."""
        with self._lock:
            body, found = self._bodies.get(name, (None, ""))
            if body is None or found != tag:
                return None
            self._bodies.move_to_end(name)
            return body

    def clear(self) -> None:
        """Forget what files hold."""
        with self._lock:
            self._bodies.clear()
            self._bytes = 0

    def _drop(self, name: str) -> None:
        body, _ = self._bodies.pop(name, (b"", ""))
        self._bytes -= len(body)


WITHOUT_SIZE = Bodies()
"""Those of this process, by URL."""


def whole(files: Any, path: str, name: str) -> bytes:
    """Read a file to its end, whose length nobody knows.

    Args:
        files: the fsspec file system.
        path: of the file in it.
        name: of the file, for errors.

    Raises:
        RecordError: the file has more than `MOST_BYTES`.
    """
    if is_http(files):
        body = read_whole(files, path, name, MOST_BYTES)
    else:
        with files.open(path, "rb", block_size=0) as stream:
            body = b"".join(_pieces(stream))
    if len(body) > MOST_BYTES:
        raise RecordError(
            "the server does not report its size, so it is read as a whole, and it has more than "
            f"{MOST_BYTES:,} bytes: download it, and read the copy",
            file=name,
            stage="read",
        )
    return body


def _pieces(stream: Any) -> Iterator[bytes]:
    """All bytes of a stream, or more than `MOST_BYTES`."""
    came = 0
    while came <= MOST_BYTES and (piece := stream.read(_PIECE)):
        came += len(piece)
        yield piece
