"""http_answers: requests to HTTP servers, whose answers are compared with what was asked for.

fsspec gives the bytes of an answer alone, and all of them. But a server, or a proxy, may answer a range with another
one, with a page of its own, with another version of the file, or without end. So status and headers are looked at here,
and no more is read than was asked for.
"""

from __future__ import annotations

import html
import re
import sys
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import unquote, urljoin

from gpupipe.errors import RecordError, shown_line
from gpupipe.extract.storage.files import SAID, changed

from ...classes import dataclass

__all__ = ["FileVersion", "entries_of", "is_http", "read_range", "read_whole", "unexpected"]

MOST_LISTED = 1 << 26
"""Bytes of the longest page that lists a folder."""

_SPAN = re.compile(r"bytes\s+(\d{1,19})-(\d{1,19})/(\d{1,19}|\*)", re.IGNORECASE)

# What fsspec takes for links: addresses in the text, too.
_LINK = re.compile(r"""<a\b[^<>]*?\shref\s*=\s*["']([^"'<>]+)|(https?://[-\w@:%.+~#?&/=]+)""", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class FileVersion:
    """What a server says of the version of a file.

    Attributes:
        size: in bytes; None where it is not said.
        etag: "" where it is not said; one that starts with ``W/`` is weak, other bytes may have the same.
        time: of the last change, as the server writes it; "" where it is not said.
    """

    size: int | None
    etag: str = ""
    time: str = ""

    @classmethod
    def told(cls, size: int | None, headers: Mapping[str, Any]) -> FileVersion:
        """The version that the headers of an answer tell."""
        return cls(size, str(headers.get("ETag") or ""), str(headers.get("Last-Modified") or ""))

    @property
    def is_strong(self) -> bool:
        """Whether no other bytes have the same ETag."""
        return self.etag != "" and not self.etag.startswith("W/")

    def differs(self, other: FileVersion) -> bool:
        """Whether another version has other bytes, as far as both tell."""
        if self.size is not None and other.size is not None and self.size != other.size:
            return True
        if self.is_strong and other.is_strong:
            return self.etag != other.etag
        if self.time and other.time:
            return self.time != other.time
        return bool(self.etag and other.etag) and self.etag.removeprefix("W/") != other.etag.removeprefix("W/")

    def compares(self, other: FileVersion) -> bool:
        """Whether both tell something by which `differs` knows more than the size."""
        return bool(self.etag and other.etag) or bool(self.time and other.time)

    def __str__(self) -> str:
        size = [] if self.size is None else [str(self.size)]
        return "-".join(filter(None, (*size, self.etag, "" if self.is_strong else self.time)))


def is_http(files: Any) -> bool:
    """Whether a file system of fsspec is that of HTTP servers."""
    module = sys.modules.get("fsspec.implementations.http")
    return module is not None and isinstance(files, module.HTTPFileSystem)


Told = Callable[[FileVersion, bool], None]


def read_range(
    files: Any, url: str, name: str, offset: int, n: int, size: int, version: FileVersion, told: Told
) -> bytes:
    """Read `n` bytes from `offset` of one version of a file, with one request; fewer where the answer has fewer.

    Args:
        files: fsspec's file system of HTTP.
        url: of the file in it.
        name: of the file, for errors.
        offset: of the first byte.
        n: at least 1.
        size: of the whole file, in bytes.
        version: of the file.
        told: called with the version that the answer tells, and whether it may lack what others told: the ETag of a
            compressed file is none of the file.

    Raises:
        RecordError: the file has another version; or the answer is not what was asked for, which may pass.
        Exception: what fsspec and aiohttp raise.
    """
    return _sync(files, _range, url, name, offset, n, size, version, told)


def read_whole(files: Any, url: str, name: str, most: int) -> bytes:
    """Read a file to its end; of one that is longer, more than `most` bytes.

    Raises:
        RecordError: the answer has no file, which may pass.
        Exception: what fsspec and aiohttp raise.
    """
    return _sync(files, _whole, url, name, most)


def entries_of(files: Any, url: str, folder: str) -> list[tuple[str, bool]]:
    """List (name, is a folder) of the links on the page of a folder that lead into it: not up, deeper or elsewhere.

    Args:
        files: fsspec's file system of HTTP.
        url: of the page.
        folder: its URL without a query; it ends with a slash.

    Raises:
        RecordError: the page is too long, or there is none, which may pass.
        Exception: what fsspec and aiohttp raise.
    """
    page = _sync(files, _whole, url, folder, MOST_LISTED, "text/html")
    if len(page) > MOST_LISTED:
        raise RecordError(f"the list of the folder has more than {MOST_LISTED:,} bytes", file=folder, stage="read")
    links = (found[1] or found[2] for found in _LINK.finditer(page.decode(errors="ignore")))
    names: dict[tuple[str, str], str] = {}  # by what they mean: a page may spell one file in several ways
    for link in links:
        name = _name_in(folder, html.unescape(link).strip())
        path, _, query = name.partition("?")
        names.setdefault((unquote(path), query), name)
    return [(name.rstrip("/"), name.endswith("/")) for name in names.values() if name]


def _name_in(folder: str, link: str) -> str:
    """The name of what a link leads to, a slash behind that of a folder; "" if that does not lie in `folder` itself."""
    try:
        scheme, _, target = urljoin(folder, link).partition("://")
    except ValueError:  # it is no URL
        return ""
    here = folder.partition("://")[2]
    if scheme not in ("http", "https") or not target.startswith(here):
        return ""
    name = target[len(here) :].partition("#")[0]
    plain = unquote(name.partition("?")[0].removesuffix("/"))
    return "" if plain in ("", ".", "..") or "/" in plain or "\\" in plain else name


def unexpected(reason: str, name: str, offset: int | None) -> RecordError:
    """Make the error for an answer that is not what was asked for; another try may get a right one."""
    error = RecordError(reason, file=name, offset=offset, stage="read")
    error.passing = True
    return error


def _sync(files: Any, ask: Callable[..., Coroutine[Any, Any, bytes]], *args: Any) -> bytes:
    """Make a request in the thread of fsspec."""
    from fsspec.asyn import sync

    answered: Any = sync(files.loop, ask, files, *args)
    data: bytes = answered
    return data


async def _range(
    files: Any, url: str, name: str, offset: int, n: int, size: int, version: FileVersion, told: Told
) -> bytes:
    last = offset + n - 1
    asked = f"bytes={offset}-{last}"

    def wrong(what: str) -> RecordError:
        return unexpected(f"the server answers {asked} with {what}", name, offset)

    async with await _answer(files, url, name, {"Range": asked, "Accept-Encoding": "identity"}) as answer:
        is_range, headers = _is_range(answer, url, name), answer.headers
        place = headers.get("Content-Range", "").strip() if is_range else ""
        span = _SPAN.fullmatch(place)
        found = FileVersion.told(None if span is None or span[3] == "*" else int(span[3]), headers)
        encoding = headers.get("Content-Encoding", "").lower() or "identity"
        if encoding != "identity":  # the ETag may be that of the compressed file
            found = replace(found, etag="")
        if found != version and version.differs(found):
            raise changed(name, str(version), str(found), url)
        told(replace(found, size=size), encoding != "identity")
        if is_range:
            if encoding != "identity":
                raise wrong(f"a range of what {_shown(encoding, url)} made of the file")
            if span is None or (int(span[1]), int(span[2])) != (offset, last):
                raise wrong(_shown(place, url) or "no Content-Range")
            data, came = await _part(answer, 0, n, n)
        else:  # the whole file: where its length is said, no more of it is read than the range
            length = answer.content_length if encoding == "identity" else None
            if length == size:
                return (await _part(answer, offset, n, last))[0]
            data, came = (b"", length) if length is not None else await _part(answer, offset, n, size)
            if came < size or length is not None:
                raise wrong(f"{came} bytes that are not the file, which has {size}")
        if came > (n if is_range else size):
            raise unexpected(f"the server sends more than was asked for, {asked}", name, offset)
        return data


async def _whole(files: Any, url: str, name: str, most: int, kind: str = "") -> bytes:
    """Read an answer to its end, or beyond `most` bytes; nothing of one that says that it is of another kind."""
    async with await _answer(files, url, name, {}) as answer:
        if _is_range(answer, url, name):
            raise unexpected("the server answers with a range, where none was asked for", name, None)
        said = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        return b"" if kind and said not in (kind, "") else (await _part(answer, 0, most + 1, most))[0]


async def _answer(files: Any, url: str, name: str, headers: Mapping[str, str]) -> Any:
    """Make a request; its answer as a context, which gives up what was not read. Nothing of the body was read yet.

    Raises:
        RecordError: the answer is no HTTP.
        Exception: what fsspec and aiohttp raise.
    """
    session = await files.set_session()
    given = {**files.kwargs, "headers": {**files.kwargs.get("headers", {}), **headers}}
    try:
        return await session.get(files.encode_url(url), **given)
    except Exception as error:
        if any(kind.__name__ == "HttpProcessingError" for kind in type(error.__cause__).__mro__):
            said = _shown(getattr(error, "message", ""), url)
            raise unexpected(f"the answer of the server is no HTTP: {said}", name, None) from error
        raise


def _is_range(answer: Any, url: str, name: str) -> bool:
    """Whether an answer has a range of a file; else it has a file.

    Raises:
        RecordError: it has neither.
        Exception: what aiohttp raises; FileNotFoundError of a file that is not there.
    """
    status: int = answer.status
    if status == 404:
        raise FileNotFoundError(url)
    answer.raise_for_status()
    if status not in (200, 206):
        raise unexpected(f"the server answers {status}, without a file", name, None)
    return status == 206


async def _part(answer: Any, start: int, n: int, most: int) -> tuple[bytes, int]:
    """Read an answer to its end, or beyond `most` bytes; `n` bytes of it from `start` on, and how many were read."""
    pieces: list[bytes] = []
    came, stop = 0, start + n
    while came <= most and (piece := await answer.content.readany()):
        if came < stop and came + len(piece) > start:
            pieces.append(piece[max(start - came, 0) : stop - came])
        came += len(piece)
    return b"".join(pieces), came


def _shown(text: str, url: str) -> str:
    """What a server says, for messages. It may say what it was asked."""
    return shown_line(text[:SAID], url)[:200]
