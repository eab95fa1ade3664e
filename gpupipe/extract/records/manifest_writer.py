"""manifest_writer: the headers of many files, walked once and written down as a manifest."""

from __future__ import annotations

import os
import tempfile
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from gpupipe.errors import PlanError, RecordError, caused, shown_name, text_of
from gpupipe.extract.records.crc import crc32c
from gpupipe.extract.records.index import RecordIndex, build_index
from gpupipe.extract.records.manifest import (
    BLOCK,
    END,
    MAGIC,
    MOST_FILES,
    VERSION,
    folder_of,
    name_trouble,
    scheme_of,
    tag_of,
)
from gpupipe.extract.storage.files import OpenFile, Storage
from gpupipe.extract.storage.glob import INDEX_SUFFIX, is_url
from gpupipe.extract.storage.remote import remote_storage, storage_of
from gpupipe.extract.storage.replacing import named_errors, replacing
from gpupipe.threads import DaemonPool
from gpupipe.urls import cleaned

__all__ = ["NAME", "Listed", "absolute", "default_place", "write_manifest"]

NAME = f"files{INDEX_SUFFIX}"
"""The name of a manifest in the folder of its files; no wildcard matches it."""

_REMOTE = 32
"""Files that are read at a time, where they are on a server."""

_RANGE = 4 << 20
"""Bytes of one request to a server."""

_JUMP = 64 << 10
"""Bytes of one request behind a record that is longer than half a range."""


class Listed(NamedTuple):
    """What a manifest lists.

    Attributes:
        files: how many.
        records: in all of them.
        bytes: of all of them.
        damaged: records that cannot be read, as far as their headers tell; they count as records.
        folder: that the names are relative to, with a slash at its end.
    """

    files: int
    records: int
    bytes: int
    damaged: int
    folder: str


def default_place(paths: Sequence[str]) -> str:
    """Return where the manifest of some files is looked for first: the folder that has all of them, under `NAME`."""
    return f"{_common(absolute(paths))}{NAME}"


def absolute(paths: Sequence[str]) -> list[str]:
    """Return paths that do not depend on the present folder; URLs as they are."""
    return [path if is_url(path) else os.path.abspath(path).replace(os.sep, "/") for path in paths]


def write_manifest(
    paths: Sequence[str], out: str, workers: int, told: Callable[[int], None] = lambda done: None
) -> Listed:
    """Walk the headers of files, and write their manifest. It is there as a whole, or not at all.

    Of a local file no payload is read. A file on a server is read in ranges of 4 MiB, of which those are left out that
    hold nothing but a part of one record.

    Args:
        paths: uncompressed TFRecord files, each once; URLs, or local paths.
        out: of the manifest, a path or URL.
        workers: local files that are read at a time; of remote ones it is 32.
        told: called with the number of files that are done.

    Raises:
        PlanError: the files have no folder in common, or there are too many.
        DataError: a file cannot be read to its end, is no TFRecord file, or changes meanwhile.
        OSError: the manifest cannot be written.
    """
    if not paths:
        raise PlanError("index needs files, got none")
    if len({scheme_of(path) for path in paths}) != 1:
        raise PlanError("index needs files that are all reached in the same way, got URLs of several schemes or paths")
    if len(paths) > MOST_FILES:
        raise PlanError(f"index needs {MOST_FILES:,} files at most, got {len(paths):,}; make several manifests")
    paths = absolute(paths)
    folder = folder_of(absolute([out])[0])
    if not all(path.startswith(folder) for path in paths):
        folder = _common(paths)
    names = [path[len(folder) :] for path in paths]
    _check_names(names, folder)
    if not is_url(out):
        with named_errors(out), replacing(out) as file:
            return _write(file, paths, names, folder, workers, told)
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch) / NAME
        with open(made, "wb") as file:
            listed = _write(file, paths, names, folder, workers, told)
        _upload(made, out)
    return listed


def _check_names(names: Sequence[str], folder: str) -> None:
    """Refuse names that no manifest may have.

    Raises:
        PlanError: names one.
    """
    seen: set[str] = set()
    for name in names:
        if "\n" in name:
            raise PlanError(f"index needs names of one line, got {shown_name(name)!r}")
        if trouble := name_trouble(name, folder):
            where = shown_name(folder)
            shown = shown_name(f"{folder}{name}").removeprefix(where)
            raise PlanError(f"index needs names of files: {shown!r} {trouble} ({where}); rename it")
        if name in seen:
            raise PlanError(f"index needs each file once, got {shown_name(name)!r} twice")
        seen.add(name)


def _write(
    file: IO[bytes], paths: Sequence[str], names: Sequence[str], folder: str, workers: int, told: Callable[[int], None]
) -> Listed:
    file.write(MAGIC)
    sizes, counts, tags, damaged = [], [], [], 0
    pool = DaemonPool(_REMOTE if is_url(paths[0]) else workers, "gpupipe-index")
    waiting: deque[Future[Any]] = deque()
    left, done = iter(paths), False
    try:
        for number in range(len(paths)):
            while len(waiting) < 2 * _REMOTE and (path := next(left, None)) is not None:
                waiting.append(pool.submit(partial(_walked, path)))
            index, size, tag = waiting.popleft().result()
            _write_offsets(file, index)
            sizes.append(size)
            counts.append(len(index))
            tags.append(tag)
            damaged += len(index.faults)
            told(number + 1)
        done = True
    finally:
        pool.close(wait=done)
    numbers = np.array([sizes, counts, tags], "<u8").tobytes()
    text = "".join(f"{name}\n" for name in names).encode("utf-8", "surrogateescape")
    scheme = scheme_of(paths[0]).encode()[:16]
    file.write(numbers + text)
    file.write(END.pack(scheme, VERSION, crc32c(numbers + text), len(paths), len(text), MAGIC))
    return Listed(len(paths), sum(counts), sum(sizes), damaged, folder)


def _write_offsets(file: IO[bytes], index: RecordIndex) -> None:
    offsets = index.offsets.astype("<u8")
    for first in range(0, len(index), BLOCK):
        data = offsets[first : first + BLOCK + 1].tobytes()
        file.write(data + crc32c(data).to_bytes(8, "little"))


def _walked(path: str) -> tuple[RecordIndex, int, int]:
    """The index of a file, its size and its tag."""
    storage = storage_of(path)
    opened = OpenFile(storage, path)
    index = build_index(path, _Ranges(storage) if is_url(path) else storage)
    if index.failure is not None:
        raise index.failure.again()
    if 0 in index.faults:
        error = index.faults[0]
        raise RecordError(f"{error.reason}; index needs uncompressed TFRecord files", file=path, offset=0, stage="read")
    if OpenFile(storage, path).tag != opened.tag:
        raise RecordError("it changed while its headers were read; index it again", file=path, stage="read")
    return index, opened.size, tag_of(path, opened)


class _Held(NamedTuple):
    """A range of one version of a file."""

    name: str = ""
    tag: str | None = None
    start: int = 0
    data: bytes = b""


class _Ranges:
    """Another storage, of which a file is read from front to back: in large ranges, of which the last one is held."""

    random_reads = False
    reads_ahead = False

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._size = "", 0
        self._held = _Held()  # replaced as a whole, since another thread may read it

    def size(self, name: str) -> tuple[int, str]:
        found = self._storage.size(name)
        self._size = name, found[0]
        return found

    def read(self, name: str, offset: int, n: int, tag: str | None = None) -> bytes:
        if n <= 0:
            return b""
        held = self._held
        end = held.start + len(held.data)
        if (name, tag) != (held.name, held.tag) or offset < held.start or offset + n > end:
            known, size = self._size
            if known != name:
                size = self.size(name)[0]
            far = offset > end + _RANGE // 2
            more = min(_JUMP if far else _RANGE, size - offset)
            held = self._held = _Held(name, tag, offset, self._storage.read(name, offset, max(n, more), tag))
        at = offset - held.start
        return held.data[at : at + n]

    def readinto(self, name: str, offset: int, out: memoryview, tag: str | None = None) -> None:
        out[:] = self.read(name, offset, len(out), tag)

    def ahead(self, name: str, offset: int, n: int) -> bool:
        """No: the range that holds it may come with the next request."""
        return False

    def confirm(self, name: str, tag: str) -> None:
        self._storage.confirm(name, tag)


def _common(paths: Sequence[str]) -> str:
    """The folder that has all files, with a slash at its end.

    Raises:
        PlanError: there is none.
    """
    folders = sorted({folder_of(path) for path in paths})
    first, last = folders[0].split("/")[:-1], folders[-1].split("/")[:-1]
    same = 0
    while same < min(len(first), len(last)) and first[same] == last[same]:
        same += 1
    common = "".join(f"{part}/" for part in first[:same])
    if not common or common.endswith("://"):
        raise PlanError(
            f"index needs files below one folder, got {shown_name(paths[0])!r} and {shown_name(paths[-1])!r}; make a "
            "manifest for each"
        )
    return common


def _upload(made: Path, out: str) -> None:
    """Copy a file to a URL.

    Raises:
        PlanError: it is not there as a whole afterwards.
    """
    storage = remote_storage(out)
    try:
        storage.open(out)
        storage.files.put_file(str(made), storage.path(out))
        size = storage.size(out)[0]
        if size != made.stat().st_size:
            raise OSError(f"{size} bytes are there, not {made.stat().st_size}")
    except Exception as error:  # each file system raises what its client library raises
        text = (
            f"index needs a place where it may write, got {shown_name(out)!r}: {cleaned(text_of(error), out)}; write "
            "it to a disk with --out, and copy it there"
        )
        failed = caused(PlanError(text), error, out)
    else:
        return
    raise failed
