"""unlike: answers of an HTTP server that are not what was asked for, or say it in an unusual way."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from http.server import BaseHTTPRequestHandler

__all__ = ["UNLIKE", "Body", "send"]

Body = list[bytes] | Iterator[bytes]
"""The pieces of a body: of a list the length is said, of an iterator it is not."""

PAGE = b"<html>Please log in.</html>\n"
GZIP = {"Content-Encoding": "gzip"}


def _place(first: int, last: int, size: int) -> dict[str, str]:
    return {"Content-Range": f"bytes {first}-{last}/{size}"}


def _flood(data: bytes) -> Iterator[bytes]:
    """A body that starts as it should, and has no end."""
    yield data
    while True:
        yield bytes(1 << 20)


@cache
def _bomb() -> bytes:
    """256 MB of zeros, compressed."""
    packer = zlib.compressobj(1, wbits=31)
    return b"".join([*(packer.compress(bytes(1 << 20)) for _ in range(256)), packer.flush()])


UNLIKE: dict[str, Callable[[bytes, int, int], tuple[int, dict[str, str], Body]]] = {
    "elsewhere": lambda d, a, z: (206, _place(max(a - 999, 0), z - 999, len(d)), [d[max(a - 999, 0) : z - 998]]),
    "less": lambda d, a, z: (206, _place(a, (a + z) // 2, len(d)), [d[a : (a + z) // 2 + 1]]),
    "no place": lambda d, a, z: (206, {}, [d[a : z + 1]]),
    "odd place": lambda d, a, z: (206, {"Content-Range": f"bytes {a}-{'9' * 5000}/*"}, [d[a : z + 1]]),
    "parts": lambda d, a, z: (206, {"Content-Type": "multipart/byteranges; boundary=x"}, [d[a : z + 1]]),
    "of a longer file": lambda d, a, z: (206, _place(a, z, len(d) + 1), [d[a : z + 1]]),
    "of a file": lambda d, a, z: (206, {"Content-Range": f"bytes {a}-{z}/*"}, [d[a : z + 1]]),
    "long": lambda d, a, z: (206, _place(a, z, len(d)), [d[a : z + 1], b"thirteen more"]),
    "flood": lambda d, a, z: (206, _place(a, z, len(d)), _flood(d[a : z + 1])),
    "flood of a file": lambda d, a, z: (200, {}, _flood(d)),
    "flood of an error": lambda d, a, z: (403, {}, _flood(PAGE)),
    "empty place": lambda d, a, z: (206, {"Content-Range": ""}, [d[a : z + 1]]),
    "in chunks": lambda d, a, z: (206, _place(a, z, len(d)), iter([d[a : z + 1]])),
    "file in chunks": lambda d, a, z: (200, {}, iter([d[:a], d[a:]])),
    "half in chunks": lambda d, a, z: (200, {}, iter([d[: len(d) // 2]])),
    "login": lambda d, a, z: (200, {}, [(PAGE * (len(d) // len(PAGE) + 1))[: min(z + 1 - a, len(d) - 1)]]),
    "short login": lambda d, a, z: (200, {}, [PAGE]),
    "nothing": lambda d, a, z: (204, {}, []),
    "gzip range": lambda d, a, z: (206, {**_place(a, z, len(d)), **GZIP}, [gzip.compress(d)[a : z + 1]]),
    "gzip of a range": lambda d, a, z: (206, {**_place(a, z, len(d)), **GZIP}, [gzip.compress(d[a : z + 1])]),
    "gzip of a file": lambda d, a, z: (200, GZIP, [gzip.compress(d)]),
    "bomb": lambda d, a, z: (200, GZIP, [_bomb()]),
    "loop": lambda d, a, z: (302, {"Location": "?again"}, []),
    "no status": lambda d, a, z: (0, {}, [b"hello\r\n\r\n"]),
}
"""By name: status, headers and body of the answer to a request for bytes `a` to `z` of a file."""


def send(
    request: BaseHTTPRequestHandler, version: dict[str, str], status: int, headers: dict[str, str], body: Body
) -> None:
    """Send such an answer, with the headers that name the version of the file."""
    request.close_connection = True
    told = {"Transfer-Encoding": "chunked"}
    if isinstance(body, list):
        told = {} if status == 204 else {"Content-Length": str(sum(map(len, body)))}
    if status:
        request.send_response(status)
        for name, value in {**version, **headers, **told}.items():
            request.send_header(name, value)
        request.end_headers()
    for piece in filter(None, body):
        request.wfile.write(piece if isinstance(body, list) else b"%x\r\n%b\r\n" % (len(piece), piece))
    if not isinstance(body, list):
        request.wfile.write(b"0\r\n\r\n")
