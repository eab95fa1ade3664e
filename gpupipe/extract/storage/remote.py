"""remote: files named by a URL (``s3://``, ``gs://``, ``https://``, ``memory://``, ...), reached through fsspec.

Nothing is kept open: every read is one request for a range of bytes, in the calling thread. A request takes
milliseconds, so reading ahead in many threads pays off here, and following references one by one does not. Transient
failures are retried, see `retry`; a request whose answer is too short is made a second time. The answers of HTTP
servers are compared with what was asked for, see `http_answers`; of others the length is.
"""

from __future__ import annotations

import os
import re
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from http import HTTPStatus
from typing import Any

from gpupipe.errors import (
    DataError,
    DirectoryError,
    GpupipeError,
    MissingDependencyError,
    MissingFileError,
    PlanError,
    RecordError,
    caused,
    shown_name,
    text_of,
)
from gpupipe.extract.storage.files import LOCAL, REMEMBERED, Storage, changed, short, translated
from gpupipe.extract.storage.forking import renew_lock
from gpupipe.extract.storage.glob import INDEX_SUFFIX, is_url, is_wild, matching, unescaped
from gpupipe.extract.storage.http_answers import FileVersion, entries_of, is_http, read_range, unexpected
from gpupipe.extract.storage.list_of_copies import share_list
from gpupipe.extract.storage.retry import asked, passes, status_of
from gpupipe.extract.storage.without_size import WITHOUT_SIZE, whole
from gpupipe.missing import LIBRARIES
from gpupipe.urls import chosen_by, cleaned

__all__ = ["RemoteStorage", "expand_url", "files_below", "remote_storage", "storage_of"]

_PARTS = re.compile(r"((?:[\w+.-]+::)*[\w+.-]+://)(.*?)(::.*)?", re.DOTALL)


_STAMPS = "etag generation checksum md5 mtime modified LastModified last_modified updated created".split()


DEEPEST = 100
"""Folders within folders that are listed: a server may list one in itself."""

_WHOLE = "whole-"
"""How the tag of a file begins whose size the server does not report."""


class RemoteStorage:
    """Files of one fsspec file system. Every method may be called from several threads at once.

    Args:
        url: of any file in the file system.

    Attributes:
        caches: whether it keeps local copies of another one's files, e.g. ``filecache::``.
        files: the file system; None until it is opened.
        origin: that other one; else the file system itself.

    Raises:
        MissingDependencyError: fsspec, or the package it needs for this scheme, is not installed.
        PlanError: fsspec does not know the scheme.
    """

    random_reads = False
    files: Any = None
    origin: Any = None

    def __init__(self, url: str) -> None:
        try:
            from fsspec.core import _un_chain, get_filesystem_class, url_to_fs
            from fsspec.implementations.cached import CachingFileSystem
        except ImportError as error:
            raise MissingDependencyError(
                f"files named by a URL need fsspec, which is not installed, for {shown_name(url)!r}; "
                f"install it with: pip install {LIBRARIES['remote']}"
            ) from error
        self._url_to_fs, self._links_of = url_to_fs, _un_chain
        refused: GpupipeError | None = None
        try:
            self.caches = issubclass(get_filesystem_class(_un_chain(url, {})[0][1]), CachingFileSystem)
        except ImportError as error:
            refused = _lacking(error, url)
        except ValueError as error:
            text = f"a URL needs a scheme that fsspec knows, got {shown_name(url)!r}: {cleaned(str(error), url)}"
            refused = caused(PlanError(text), error, url)
        if refused is not None:
            raise refused
        self._lock = threading.Lock()
        self._known: OrderedDict[str, tuple[int, str, FileVersion]] = OrderedDict()
        # Of files whose version was told with data: the version, and how many there were that were told with data only.
        self._told: OrderedDict[str, tuple[FileVersion, int]] = OrderedDict()
        renew_lock(self)

    def open(self, name: str) -> None:
        """Open the file system, as the first request to it does: that of an archive is read, that of FTP says hello.

        Args:
            name: of a file in it, for messages.

        Raises:
            MissingDependencyError: the package it needs for this scheme is not installed.
            RecordError, MissingFileError, DirectoryError: the archive is missing or damaged, or nobody answers.
        """
        if self.files is None:
            files = asked(_translated, name, None, self._open, name)
            self.origin = files.fs if self.caches else files
            self.files = files

    def _open(self, name: str) -> Any:
        try:
            files, _ = self._url_to_fs(name)
        except ImportError as error:
            lacking = _lacking(error, name)
        else:
            if self.caches:
                share_list(files)
            return files
        raise lacking

    def size(self, name: str) -> tuple[int, str]:
        """Ask for the size in bytes, and for a tag made of the size, versions and times that the storage reports.

        Raises:
            MissingFileError, DirectoryError: the URL is not a file.
            RecordError: the storage does not answer, or reports no size of a file that is too long to read at once.
        """
        return self._looked_at(name)[:2]

    def _looked_at(self, name: str) -> tuple[int, str, FileVersion]:
        self.open(name)
        info = asked(_translated, name, None, self._info, self.path(name))
        if info.get("type") == "directory":
            raise DirectoryError("a file is needed, got a directory; name the files in it", file=name, stage="read")
        size = info.get("size")
        version = FileVersion.told(size, info)
        told = isinstance(size, int) and size >= 0
        if told and (size or not is_http(self.origin)):  # a server that makes a file when it gives it may say 0 before
            tag = "-".join([str(version), *(str(info[key]) for key in _STAMPS if info.get(key) is not None)])
            if tag == str(size) and (changes := self._told.get(name, (version, 0))[1]):
                tag += f"-{changes}"
        else:
            body, tag = self._whole(name)
            size = len(body)
        with self._lock:
            self._known[name] = size, tag, version
            self._known.move_to_end(name)
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        return size, tag, version

    def read(self, name: str, offset: int, n: int, tag: str | None = None) -> bytes:
        """Read exactly `n` bytes from `offset`, with one request.

        The tag is compared with the one `size` last returned: asking the server before each range would double the
        number of requests.

        Raises:
            RecordError: the file is too short, was replaced, or the storage does not answer.
            MissingFileError, DirectoryError: the URL is not a file.
        """
        if n <= 0:
            return b""
        with self._lock:
            known = self._known.get(name)
        size, now, version = known or self._looked_at(name)
        if tag is not None and tag != now:
            raise changed(name, tag, now)
        if offset + n > size:  # before asking: a wrong length must not cost its bytes
            raise short(name, offset, n, max(size - offset, 0))
        if now.startswith(_WHOLE):
            return self._of_whole(name, now)[offset : offset + n]
        path = self.path(name)
        for _ in range(2):  # a broken connection may look like the end of the file
            data = asked(_translated, name, offset, self._range, path, name, offset, n, (size, now, version))
            if len(data) == n:
                return data
            self._drop_copy(path)
        raise short(name, offset, n, len(data))

    def _of_whole(self, name: str, tag: str) -> bytes:
        """What a file holds whose size the server does not report; it is asked for again if it is no longer kept."""
        body = WITHOUT_SIZE.get(name, tag.removeprefix(_WHOLE))
        if body is None:
            body, found = self._whole(name)
            if found != tag:
                raise changed(name, tag, found)
        return body

    def _whole(self, name: str) -> tuple[bytes, str]:
        """Read a file to its end, and keep it; what it holds, and a tag of that."""
        body = asked(_translated, name, None, whole, self.files, self.path(name), name)
        return body, _WHOLE + WITHOUT_SIZE.add(name, body)

    def readinto(self, name: str, offset: int, out: memoryview, tag: str | None = None) -> None:
        """Fill all of `out` from `offset`, with the same errors."""
        out[:] = self.read(name, offset, len(out), tag)

    @property
    def reads_ahead(self) -> bool:
        """Whether ranges of a file may be requested before they are needed: a cache would fetch it for each of them."""
        return not self.caches

    def ahead(self, name: str, offset: int, n: int) -> bool:
        """No: it keeps nothing between two requests. Who needs a range soon requests it in another thread."""
        return False

    def confirm(self, name: str, tag: str) -> None:
        """Nothing: it would be a request, and every read compares the tag."""

    def _drop_copy(self, path: str) -> None:
        """Have a cache fetch a file again, whose download broke off; ``simplecache`` cannot."""
        if self.caches:
            with suppress(OSError, KeyError):  # a copy that cannot be dropped stays too short, which is the error
                self.files.pop_from_cache(path)

    def _info(self, path: str) -> Any:
        self.files.invalidate_cache(path)
        # A cache answers by a listing of the folder, which over HTTP has no sizes.
        return self.origin.info(path)

    def _range(self, path: str, name: str, offset: int, n: int, known: tuple[int, str, FileVersion]) -> bytes:
        size, _, version = known

        def told(found: FileVersion, may_lack: bool) -> None:
            """Compare answers with bytes with one another: a server, or a proxy, may tell more or less without them."""
            with self._lock:
                before = self._told.get(name)
                first, changes = (version, 0) if version.etag or version.time else before or (found, 0)
                if not first.differs(found):
                    if first.compares(found):
                        self._told[name] = first, changes
                        self._told.move_to_end(name)
                        if len(self._told) > REMEMBERED:
                            self._told.popitem(last=False)
                    elif before is not None and before[0] == first and not may_lack:
                        what = f"the server tells no version with these bytes, which was {first} before"
                        raise unexpected(f"{what}: they may be of another file", name, offset)
                    return
                self._told[name] = found, changes + 1  # whoever reads the first version finds another tag
                self._known.pop(name, None)
            raise changed(name, str(first), str(found))

        if is_http(self.files):
            return read_range(self.files, path, name, offset, n, size, version, told)
        try:
            data: bytes = self.files.cat_file(path, start=offset, end=offset + n)
        except (TypeError, KeyError):
            # fsspec's list of copies, which another thread may read anew, lacks one that was fetched a moment ago.
            if not self.caches:
                raise
            data = self.files.cat_file(path, start=offset, end=offset + n)
        if len(data) > n and len(data) == size:  # a server may answer a range with the whole file
            return data[offset : offset + n]
        if len(data) > n:
            raise unexpected(f"the storage sends more than was asked for, {len(data)} bytes, not {n}", name, offset)
        return data

    def path(self, name: str) -> str:
        """Return the name of a file in `files`: its URL without the scheme."""
        try:
            return str(self._links_of(name, {})[0][0])
        except (ImportError, ValueError) as error:
            failed = caused(_translated(error, name), error, name)
        raise failed


class _Remote:
    """Folders of an fsspec file system, as paths without the scheme."""

    def __init__(self, storage: RemoteStorage, scheme: str, rest: str) -> None:
        self._files, self._origin, self._path_of = storage.files, storage.origin, storage.path
        self._around = scheme, rest

    def entries(self, folder: str) -> list[tuple[str, bool, bool]]:
        if folder.count("/") > DEEPEST:
            raise PlanError(
                f"a folder needs a path of at most {DEEPEST} parts, got {shown_name(self._url(folder))!r}: does one "
                "list itself, by a link? Name the files, or the folders in it"
            )
        try:
            return asked(_unlisted, self._url(folder), None, self._entries, folder)
        except DataError as error:
            if isinstance(error.__cause__, (FileNotFoundError, NotADirectoryError, PermissionError)):
                return []
            raise

    def _entries(self, folder: str) -> list[tuple[str, bool, bool]]:
        path = self._path(folder)
        if is_http(self._origin):
            url = f"{self._around[0].rpartition('::')[2]}{folder}"
            return [(name, is_folder, False) for name, is_folder in entries_of(self._origin, path, url)]
        listed = self._files.ls(path, detail=True)
        named = [(str(info["name"]).rstrip("/").rpartition("/")[2], info.get("type") == "directory") for info in listed]
        return [(name, is_folder, False) for name, is_folder in named if name]

    def exists(self, path: str) -> bool:
        """Whether there is such a file. fsspec's own `exists` answers False if the server is busy."""
        try:
            asked(_translated, self._url(path), None, self._files.info, self._path(path))
        except DataError as error:
            if error.__cause__ is not None and error.passing:
                raise
            if isinstance(error, MissingFileError):
                return False
            if not self._files.exists(self._path(path)):  # for which it may ask in another way
                if is_wild(path):
                    return False
                raise  # that access is denied does not say that there is no such file
        return True

    def is_folder(self, path: str) -> bool:
        return True  # a file has no entries either way: asking would cost a request for each part of the path

    def plain(self, name: str) -> str:
        return unescaped(name) if is_http(self._origin) else name

    def _path(self, path: str) -> str:
        return self._path_of(self._url(path))

    def _url(self, path: str) -> str:
        scheme, rest = self._around
        return f"{scheme}{path.rstrip('/')}{rest}"


def _unlisted(error: BaseException, name: str, offset: int | None = None) -> DataError:
    return DataError(cleaned(text_of(error), name))


_Lists = Callable[[str], list[tuple[str, str]]]


def _listing(lists: _Lists) -> _Lists:
    """Make a PlanError of whatever a client library raises."""

    @wraps(lists)
    def listed(url: str) -> list[tuple[str, str]]:
        try:
            return lists(url)
        except (PlanError, MissingDependencyError):
            raise
        except Exception as error:
            what = error.reason if isinstance(error, DataError) else cleaned(text_of(error), url)
            failed = caused(PlanError(f"{shown_name(url)!r} cannot be listed: {what}"), error, url)
        raise failed

    return listed


@_listing
def expand_url(pattern: str) -> list[tuple[str, str]]:
    """List (URL, stable name) of everything that matches, by the rules of `expand` for local files.

    Raises:
        MissingDependencyError: fsspec, or its package for this scheme, is not installed.
        PlanError: fsspec does not know the scheme, or the storage cannot be listed.
    """
    folders, (scheme, text, rest) = _folders(pattern)
    if text and folders.exists(text):
        name = folders.plain(text.rstrip("/").rpartition("/")[2] or text)
        return [(pattern, name + chosen_by(pattern))]
    paths = matching(text, folders, os.fsencode)
    return [(_whole(scheme, path, rest), name + chosen_by(pattern)) for path, name in paths]


@_listing
def files_below(url: str) -> list[tuple[str, str]]:
    """List (URL, path below the folder) of all files of a folder, whose name is taken as it is, and of those in it.

    The path has no escapes. Folders whose names start with a dot are left out, and so are saved indexes, as `**` does.

    Raises:
        MissingDependencyError, PlanError: as `expand_url`.
    """
    folders, (scheme, text, rest) = _folders(url)
    root = f"{text.rstrip('/')}/"
    found, open_ones, seen = list[str](), [root], {root}
    while open_ones:
        here = open_ones.pop()
        for name, is_folder, _ in folders.entries(here):
            path = f"{here}{name}"
            if not is_folder:
                found.extend([] if name.endswith(INDEX_SUFFIX) else [path])
            elif not name.startswith(".") and (inner := f"{path}/") not in seen:
                seen.add(inner)
                open_ones.append(inner)
    found.sort(key=lambda path: os.fsencode(folders.plain(path)))
    return [(_whole(scheme, path, rest), folders.plain(path[len(root) :])) for path in found]


def _whole(scheme: str, path: str, rest: str) -> str:
    """The URL of a listed file. The query of the folder is added to that of a link that has one."""
    return f"{scheme}{path}{rest.replace('?', '&', 1) if '?' in path and rest.startswith('?') else rest}"


def _folders(url: str) -> tuple[_Remote, tuple[str, str, str]]:
    """The folders of the file system of a URL, and its scheme, its path and what follows that."""
    storage = remote_storage(url)
    storage.open(url)
    parts = _PARTS.fullmatch(url)
    assert parts is not None  # the caller has checked that it is a URL
    scheme, text, rest = parts[1], parts[2], parts[3] or ""
    if is_http(storage.origin):  # a signature is no pattern, and belongs to each of the files
        text, mark, query = text.partition("?")
        rest = f"{mark}{query}{rest}"
    return _Remote(storage, scheme, rest), (scheme, text, rest)


def storage_of(name: str) -> Storage:
    """Return the storage a file is in: this machine's, or the one that the scheme of its URL names.

    Raises:
        MissingDependencyError: the name is a URL, and fsspec or its package for this scheme is not installed.
    """
    return remote_storage(name) if is_url(name) else LOCAL


_LOCK = threading.Lock()


_STORAGES: dict[tuple[str, str], RemoteStorage] = {}


def remote_storage(url: str) -> RemoteStorage:
    """Return the storage of a URL, one for each scheme and host, so that connections are reused.

    Raises:
        MissingDependencyError, PlanError: as `RemoteStorage`.
    """
    parts = _PARTS.fullmatch(url)
    if parts is None:
        raise PlanError(f"a URL is scheme://path, got {shown_name(url)!r}")
    key = parts[1] + parts[2].partition("/")[0], parts[3] or ""
    with _LOCK:
        found = _STORAGES.get(key)
    if found is None:
        fresh = RemoteStorage(url)  # outside the lock: it may import a client library
        with _LOCK:
            found = _STORAGES.setdefault(key, fresh)
    return found


def _lacking(error: ImportError, url: str) -> MissingDependencyError:
    """The error for a scheme whose package is missing, which the text names, e.g. s3fs."""
    text = f"{shown_name(url)!r} needs a package that is not installed: {cleaned(str(error), url)}"
    return caused(MissingDependencyError(text), error, url)


_NO_FILE = (404, 410)
"""HTTP statuses that say that there is no such file."""


def _answer(status: int) -> str:
    """What a server answered, and what may be the reason."""
    phrase = f" {HTTPStatus(status).phrase}" if status in list(HTTPStatus) else ""
    hint = "; a signed URL may have expired, or the credentials may not do" if status in (400, 401, 403) else ""
    return f"the server answers {status}{phrase}{hint}"


def _translated(error: BaseException, name: str, offset: int | None = None) -> DataError:
    """Translate an exception of a file system, which raises whatever its client library does."""
    while isinstance(error, FileNotFoundError) and error.__cause__ is not None:  # fsspec's for answers without a file
        status = status_of(error.__cause__)
        if status is not None and status not in _NO_FILE and not passes(error.__cause__):
            return RecordError(_answer(status), file=name, offset=offset, stage="read")
        if not (passes(error) or isinstance(error.__cause__, FileNotFoundError)):
            break
        error = error.__cause__
    if isinstance(error, (FileNotFoundError, IsADirectoryError)):
        return translated(error, name, offset)
    return RecordError(f"cannot be read: {cleaned(text_of(error), name)}", file=name, offset=offset, stage="read")
