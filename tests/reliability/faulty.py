"""faulty: storage that fails now and then: a server of ranges on 127.0.0.1, and a disk."""

from __future__ import annotations

import gzip
import http.server
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

from gpupipe.extract.storage import files as storage
from tests.reliability.unlike import UNLIKE, send

HANG = 20.0
"""Seconds that a server keeps a request that hangs; it lets go of it when it ends."""

Reads = TypeVar("Reads", bound="Disk")
Fault = Callable[[int], "str | None"]
"""What becomes of a request, by its number from 1 on: a status, or nothing special (None), or one of

- "drop", "reset": the connection ends, or breaks, in the middle of the answer; "refuse": it breaks before one,
- "hang": there is no answer; "flip": a bit of it is wrong,
- "short": it has half the bytes and says so; "whole": it is the file, not the range;
"endless", "chunked", "gzip": it is the file, and does not say how long that is; "cut": "chunked" without its end,
- "replaced": it is of the file ``NAME.new``, as if that had taken the place of the other; "untold": without a version,
- one of `UNLIKE`, not what was asked for.
"""


def every(n: int, kind: str) -> Fault:
    """Every n-th request fails."""
    return lambda number: kind if number % n == 3 % n else None


@dataclass
class Faulty:
    """The files of a folder over HTTP.

    Attributes:
        folder: of the files.
        fault: what becomes of each GET.
        looking: what becomes of each HEAD.
        gets: requests for bytes so far.
        faults: how many of them failed.
        retry_after: what 429 says.
        delay: seconds that each request takes.
        most: requests at a time, so far.
        most_heads: HEADs at a time, so far.
        sent: bytes of files, so far.
        keeps: connections are kept for the next request, as HTTP/1.1 has it.
        version: headers that name the version of each file.
        new_version: those of the new files.
    """

    folder: Path
    fault: Fault = lambda number: None
    looking: Fault = lambda number: None
    gets: int = 0
    heads: int = 0
    faults: int = 0
    retry_after: str = "0.01"
    delay: float = 0.0
    most: int = 0
    most_heads: int = 0
    sent: int = 0
    keeps: bool = False
    version: dict[str, str] = field(default_factory=dict)
    new_version: dict[str, str] = field(default_factory=dict)
    port: int = 0
    _now: int = 0
    _heads_now: int = 0
    times: list[float] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _ended: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def serving(self) -> Iterator[Faulty]:
        """Serve until the end of the block."""
        pytest.importorskip("aiohttp", reason="fsspec's HTTP needs aiohttp")
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1" if outer.keeps else "HTTP/1.0"

            def do_GET(self) -> None:
                outer._answer(self, True)

            def do_HEAD(self) -> None:
                outer._answer(self, False)

            def log_message(self, format: str, *args: Any) -> None:
                return

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, request: Any, client_address: Any) -> None:
                return  # a client that went away

        with Server(("127.0.0.1", 0), Handler) as server:
            self.port = server.server_port
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            try:
                yield self
            finally:
                self._ended.set()
                server.shutdown()
                thread.join(20)

    def url(self, name: str) -> str:
        """The URL of a file."""
        return f"http://127.0.0.1:{self.port}/{name}"

    def _answer(self, request: http.server.BaseHTTPRequestHandler, body: bool) -> None:
        with self._lock:
            if body:
                self.gets += 1
                kind = self.fault(self.gets)
                self.faults += kind is not None
            else:
                self.heads += 1
                kind = self.looking(self.heads)
            self.times.append(time.monotonic())
            self._now += 1
            self._heads_now += not body
            self.most, self.most_heads = max(self.most, self._now), max(self.most_heads, self._heads_now)
        try:
            self._ended.wait(self.delay)
            self._send(request, body, kind)
        finally:
            with self._lock:
                self._now -= 1
                self._heads_now -= not body

    def _send(self, request: http.server.BaseHTTPRequestHandler, body: bool, kind: str | None) -> None:
        path = self.folder / request.path.partition("?")[0].lstrip("/")
        if kind in ("drop", "reset", "refuse", "hang"):
            request.close_connection = True
        if kind == "refuse":
            _reset(request)
            return
        if kind is not None and kind.isdigit():
            request.send_response(int(kind))
            if kind == "429":
                request.send_header("Retry-After", self.retry_after)
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        if not path.is_file():
            request.send_error(404)
            return
        if kind == "hang":
            self._ended.wait(HANG)
            return
        data = (path.with_name(f"{path.name}.new") if kind == "replaced" else path).read_bytes()
        version = {} if kind == "untold" else self.new_version if kind == "replaced" else self.version
        span = "" if kind == "whole" else request.headers.get("Range", "")
        first, _, last = span.removeprefix("bytes=").partition("-")
        if kind in ("endless", "chunked", "gzip", "cut"):
            _without_size(request, data, body, kind)
            return
        if kind in UNLIKE and body:
            send(request, version, *UNLIKE[kind](data, int(first or 0), int(last or len(data) - 1)))
            return
        size, data = len(data), data[int(first) : int(last) + 1] if span else data
        request.send_response(206 if span else 200)
        for name, value in version.items():
            request.send_header(name, value)
        if span:
            request.send_header("Content-Range", f"bytes {first}-{int(first) + len(data) - 1}/{size}")
        if kind == "short":
            data = data[: len(data) // 2]
        request.send_header("Content-Length", str(size if not body else len(data)))
        request.end_headers()
        if not body:
            return
        if kind == "flip":
            data = data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :]
        with self._lock:
            self.sent += len(data)
        request.wfile.write(data[: len(data) // 2] if kind in ("drop", "reset") else data)
        if kind == "reset":
            _reset(request)


def _without_size(request: http.server.BaseHTTPRequestHandler, data: bytes, body: bool, kind: str) -> None:
    """Answer with a whole file, without its length."""
    request.send_response(200)
    request.close_connection = True
    if kind == "gzip":
        data = gzip.compress(data)
        request.send_header("Content-Encoding", "gzip")
        request.send_header("Content-Length", str(len(data)))
    elif kind != "endless":
        request.send_header("Transfer-Encoding", "chunked")
        data = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (data[:7], data[7:])) + b"0\r\n\r\n"
        data = data[: -9 if kind == "cut" else None]
    request.end_headers()
    if body:
        request.wfile.write(data)


def _reset(request: http.server.BaseHTTPRequestHandler) -> None:
    """Break a connection (RST), instead of ending it."""
    request.wfile.flush()
    request.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    request.connection.close()


@dataclass
class Disk:
    """Stands in for the system's reads of one file: an error for some of them.

    Attributes:
        path: of the file.
        fails: says of a read, by its number and the bytes from `start` to `stop`, with which error it fails.
    """

    path: str
    fails: Callable[[int, int, int], int | None]
    reads: int = 0
    failed: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def install(self: Reads, monkeypatch: pytest.MonkeyPatch) -> Reads:
        """Wrap the two functions that read."""
        read, read_into = storage._pread, storage._pread_into

        def pread(fd: int, n: int, offset: int) -> bytes:
            return read(fd, self._looked(fd, n, offset), offset)

        def pread_into(fd: int, out: memoryview, offset: int) -> int:
            return read_into(fd, out[: self._looked(fd, len(out), offset)], offset)

        monkeypatch.setattr(storage, "_pread", pread)
        monkeypatch.setattr(storage, "_pread_into", pread_into)
        return self

    def _looked(self, fd: int, n: int, offset: int) -> int:
        if os.fstat(fd).st_ino != os.stat(self.path).st_ino:
            return n
        with self._lock:
            self.reads += 1
            number = self.reads
        return self.room(number, offset, n)

    def room(self, number: int, start: int, n: int) -> int:
        """How many of `n` bytes a read gives."""
        code = self.fails(number, start, start + n)
        if code is None:
            return n
        self.failed += 1
        raise OSError(code, os.strerror(code))


class System(Disk):
    """The same, where a test decides what comes of each read by its number: an error, a wait, or so many bytes."""

    def __init__(self, path: str, answer: Callable[[int], int | None]) -> None:
        super().__init__(path, lambda *_: None)
        self.answer = answer

    def room(self, number: int, start: int, n: int) -> int:
        """How many of `n` bytes a read gives."""
        limit = self.answer(number)
        return n if limit is None else min(n, limit)
