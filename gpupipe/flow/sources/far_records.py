"""far_records: the records that a manifest lists, in order or by index, wherever their files are.

Which records come next is known, as they are asked for by index, so their bytes are requested before they are needed.
Where the records that are asked for are most of some ranges of 4 MiB (in file order, or in the windows of a shuffle),
these ranges are read, each once as long as they fit into `HELD`; else each record is a request of its own.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from ...classes import dataclass
from ...errors import DataError, RecordError
from ...extract.records.crc import footer_at, header_at, masked_crc32c
from ...extract.records.framing import FOOTER, HEADER, OVERHEAD, WRONG_PAYLOAD
from ...extract.records.manifest import AGAIN, Manifest
from ...extract.records.manifest_offsets import Offsets
from ...extract.storage.files import OpenFile
from ...extract.storage.longest import longest, too_long
from ...extract.storage.names import Names
from ...extract.storage.patterns import is_url, stable_names
from ...extract.storage.pieces import Piece, Pieces
from ...extract.storage.remote import storage_of
from ...extract.storage.sharing import handed_over
from ...graph.op import Array
from ..access import AsItWas, RandomAccess
from ..bad.found import as_before, bad_element
from ..element import Element, Stream
from ..run import PEEKING, Context
from ..state.snapshot import State
from ..step import Running
from .arrays import listed, named_streams
from .readers import overwritten

__all__ = ["FarRecords", "FarRecordsFlow"]

RANGE = 4 << 20
"""Bytes of a range that holds several records."""

HELD = 4
"""The ranges may hold this part of `Options.host_memory`: a fourth."""

AHEAD = 1024
"""Records that are requested before they are needed, as far as `HELD` allows: a rank that uses 300 a second does not
wait for an answer that takes 3 seconds."""


@dataclass(frozen=True, slots=True)
class FarRecordsFlow:
    """The records of the files of a manifest, one file after the other."""

    manifest: Manifest

    def open(self, at: Context, state: State = None) -> Running:
        return as_before(at, None, listed(FarRecords(self, at), state))

    def access(self, at: Context) -> RandomAccess:
        return AsItWas(FarRecords(self, at), at)


class _Wanted(NamedTuple):
    """A record that was asked for.

    Attributes:
        file: number of its file.
        start: offset of its header.
        stop: offset of the byte after it.
        pieces: that hold its bytes, in order; none if they are read when they are needed.
        error: why the manifest does not tell where it is.
    """

    file: int
    start: int
    stop: int
    pieces: list[Piece]
    error: DataError | None


class FarRecords(RandomAccess):
    """The records of a manifest by index. Nothing is asked for before the first element.

    Attributes:
        parts: records of each file.
        offsets: where records start, as far as it is known.
    """

    def __init__(self, flow: FarRecordsFlow, at: Context) -> None:
        self._manifest, self._at = flow.manifest, at
        self.size = len(flow.manifest)
        self.parts = flow.manifest.counts
        self.offsets = Offsets(flow.manifest, at.run.remote.pool if is_url(flow.manifest.path) else None)
        self._names: Names | None = None
        self._files: dict[int, OpenFile | DataError] = {}
        self._lock = threading.Lock()
        self._asking: dict[int, threading.Lock] = {}  # files that are being compared
        self._streams: dict[int, Stream] = {}

    def pick(self, blocks: Iterator[Array]) -> Iterator[Element]:
        manifest, run = self._manifest, self._at.run
        pieces = None
        if manifest.paths and storage_of(manifest.paths[0]).reads_ahead:
            pieces = Pieces(run.remote.pool, run.settings.host_memory // HELD)
            run.track_buffer(pieces, "from_manifest")
        wanted = self._wanted(blocks, pieces)
        ahead: deque[_Wanted] = deque()
        most = 1 if PEEKING.get() is not None or pieces is None else AHEAD
        try:
            while True:
                while len(ahead) < most and (not ahead or pieces is None or pieces.held < pieces.limit):
                    one = next(wanted, None)
                    if one is None:
                        break
                    ahead.append(one)
                if not ahead:
                    return
                one = ahead.popleft()
                yield self._element(one, pieces)
        finally:
            if pieces is not None:
                pieces.close()

    def changed(self) -> Iterator[Element]:
        for number, file in list(self._files.items()):
            if isinstance(file, OpenFile):
                yield from overwritten(file, self._stream(number), file.size)

    def _wanted(self, blocks: Iterator[Array], pieces: Pieces | None) -> Iterator[_Wanted]:
        starts_of_files = self._manifest.starts
        for block in blocks:
            files = np.searchsorted(starts_of_files, block, side="right") - 1
            starts, stops, errors = self.offsets.spans(files, block - starts_of_files[files])
            at = 0
            for count, whole in _plans(self._manifest, files, starts, stops, pieces):
                rows = slice(at, at + count)
                some = zip(files[rows].tolist(), starts[rows].tolist(), stops[rows].tolist(), strict=True)
                for i, (file, start, stop) in enumerate(some, at):
                    error = errors.get(i)
                    found = [] if error is not None else self._pieces(file, start, stop, whole, pieces)
                    yield _Wanted(file, start, stop, found, error)
                at += count

    def _pieces(self, file: int, start: int, stop: int, whole: bool, pieces: Pieces | None) -> list[Piece]:
        """Request what holds a record."""
        if pieces is None or stop - start - OVERHEAD > longest():
            return []
        spans = [(start, stop)]
        if whole:
            first, last, size = start // RANGE, (stop - 1) // RANGE, int(self._manifest.sizes[file])
            spans = [(i * RANGE, min((i + 1) * RANGE, size)) for i in range(first, last + 1)]
        return [pieces.want((file, a, b), partial(self._read, file, a, b), a, b) for a, b in spans]

    def _read(self, file: int, start: int, stop: int) -> bytes:
        """Read bytes of a file, in any thread; before its first ones it is compared with the manifest.

        Raises:
            DataError: it cannot be read, or differs.
        """
        opened = self._open(file)
        if isinstance(opened, DataError):
            raise opened.again()
        return opened.read(start, stop - start)

    def _open(self, file: int) -> OpenFile | DataError:
        """A file, compared with the manifest when it is first used; the threads that need it ask the server once."""
        found = self._files.get(file)
        if found is not None:
            return found
        with self._lock:
            lock = self._asking.setdefault(file, threading.Lock())
        with lock:
            found = self._files.get(file)
            if found is None:
                try:
                    found = self._manifest.check(file)
                except DataError as error:
                    found = error.kept()
                if isinstance(found, OpenFile) or not found.passing:
                    self._files[file] = found
        with self._lock:
            self._asking.pop(file, None)
        return found

    def _stream(self, file: int) -> Stream:
        """The stream of a file's records: that of `TFRecordDataset(files)`, so its random draws are the same."""
        found = self._streams.get(file)
        if found is None:
            path = self._manifest.paths[file]
            if self._names is None:
                self._names = Names(stable_names(self._manifest.paths))
            (outer,) = named_streams(self._at, self._names, [file], [path])
            found = self._streams[file] = self._at.inside(outer, 0).stream("records", path, "offset")
        return found

    def _element(self, one: _Wanted, pieces: Pieces | None) -> Element:
        stream = self._stream(one.file)
        try:
            if one.error is not None:
                raise one.error.again()
            opened = self._open(one.file)
            if isinstance(opened, DataError):
                raise opened.again()
            if one.stop - one.start - OVERHEAD > longest():
                raise too_long(opened.path, one.start, one.stop - one.start - OVERHEAD)
            return (self._payload(one, opened, pieces),), stream, one.start
        except DataError as error:
            return bad_element(error.kept().at(stream.name, one.start, "read", "offset"), stream, one.start)

    def _payload(self, one: _Wanted, opened: OpenFile, pieces: Pieces | None) -> bytes | memoryview:
        """The payload of a record, whose checksums match. Bytes that are damaged are requested once more.

        Raises:
            DataError: it cannot be read, or is damaged.
        """
        data = None
        if pieces is not None and one.pieces:
            data = _joined(one, pieces)
            pieces.release(one.pieces)
        if data is None or _wrong(data):
            data = opened.read(one.start, one.stop - one.start)
        why = _wrong(data)
        if why:
            raise RecordError(why, file=opened.path, offset=one.start, stage="read")
        payload: bytes | memoryview = handed_over(memoryview(data)[HEADER : len(data) - FOOTER])
        return payload


def _joined(one: _Wanted, pieces: Pieces) -> bytes | None:
    """The bytes of a record, out of the pieces that hold it; None if one of these cannot be read."""
    found = []
    for piece in one.pieces:
        data = pieces.data(piece)
        if data is None:
            return None
        if len(one.pieces) == 1 and piece.start == one.start and piece.stop == one.stop:
            return data
        found.append(data[max(one.start - piece.start, 0) : one.stop - piece.start])
    return b"".join(found)


def _wrong(data: bytes) -> str:
    """Why some bytes are not one whole record; "" if they are."""
    if len(data) >= OVERHEAD:
        length, stored = header_at(data)
        if length == len(data) - OVERHEAD and masked_crc32c(data[:8]) == stored:
            payload = memoryview(data)[HEADER : HEADER + length]
            return "" if masked_crc32c(payload) == footer_at(data, HEADER + length)[0] else WRONG_PAYLOAD
    return f"no record of this length starts here: it was damaged when it was indexed, or has changed since; {AGAIN}"


def _plans(
    manifest: Manifest, files: Array, starts: Array, stops: Array, pieces: Pieces | None
) -> Iterator[tuple[int, bool]]:
    """Cut records that are asked for into groups, each small enough to be held.

    Args:
        manifest: has the sizes of the files.
        files: number of the file of each: int64[N].
        starts: offset of each: int64[N].
        stops: offset after each: int64[N].
        pieces: what is held; None where nothing is.

    Yields:
        How many records a group has, and whether it is read by ranges of several records.
    """
    if pieces is None:
        yield len(files), False
        return
    sums, limit = np.cumsum(stops - starts), pieces.limit
    at = 0
    while at < len(files):
        before = int(sums[at - 1]) if at else 0
        end = max(at + 1, int(np.searchsorted(sums, before + limit // 4, side="right")))
        some = slice(at, end)
        ends = np.stack([starts[some] // RANGE, (stops[some] - 1) // RANGE], 1)
        ranges = np.unique(np.stack([np.repeat(files[some], 2), ends.reshape(-1)], 1), axis=0)
        firsts = ranges[:, 1] * RANGE
        lasts = np.minimum(firsts + RANGE, manifest.sizes[ranges[:, 0]])
        keys = zip(ranges[:, 0].tolist(), firsts.tolist(), lasts.tolist(), strict=True)
        new = sum(key[2] - key[1] for key in keys if not pieces.has(key))
        yield end - at, int((lasts - firsts).sum()) <= limit and new <= 4 * (int(sums[end - 1]) - before)
        at = end
