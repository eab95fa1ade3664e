"""manifest_offsets: the offsets of a manifest that are in use, read by ranges and kept for a while."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gpupipe.errors import DataError
from gpupipe.extract.records.index import INDEXES
from gpupipe.extract.records.manifest import BLOCK, Manifest
from gpupipe.extract.storage.ranges_ahead import Pool

__all__ = ["KEPT", "Offsets"]

KEPT = 256 << 10
"""Bytes of offsets that are kept at least, and four times what the last call of `spans` needed."""

_GAP, _MOST = 64 << 10, 4 << 20
"""Bytes of offsets that are read along where they are between two that are needed; bytes of one request."""

_Numbers = npt.NDArray[np.int64]


class _Part(NamedTuple):
    """Some blocks that are read by one request: their keys, and the bytes of the manifest."""

    keys: list[tuple[int, int]]
    start: int
    stop: int


class Offsets:
    """Where the records of a manifest start and end. One thread at a time uses it.

    Args:
        manifest: the manifest.
        pool: its threads make the requests, where there are several; None: the thread that calls.

    Attributes:
        requests: how many were made so far.
    """

    def __init__(self, manifest: Manifest, pool: Pool | None) -> None:
        self._manifest, self._pool = manifest, pool
        self._known: OrderedDict[tuple[int, int], npt.NDArray[np.uint64] | DataError] = OrderedDict()
        self.nbytes = 0
        self.requests = 0

    def spans(self, files: _Numbers, records: _Numbers) -> tuple[_Numbers, _Numbers, dict[int, DataError]]:
        """Return where records start and end.

        Args:
            files: number of the file of each: int64[N].
            records: number in its file: int64[N].

        Returns:
            The offsets of the first byte of each record and of the byte after it, int64[N] each; and the errors of
            those that the manifest cannot tell, by their index.
        """
        blocks = records // BLOCK
        mixed = files << 32 | blocks
        distinct, which = np.unique(mixed, return_inverse=True)
        wanted: list[tuple[int, int]] = [(key >> 32, key & 0xFFFF_FFFF) for key in distinct.tolist()]
        self._read([key for key in wanted if key not in self._known])
        starts, stops = np.zeros(len(files), np.int64), np.zeros(len(files), np.int64)
        errors: dict[int, DataError] = {}
        if not wanted:
            return starts, stops, errors
        rows_of = np.split(np.argsort(which, kind="stable"), np.cumsum(np.bincount(which))[:-1])
        for key, rows in zip(wanted, rows_of, strict=True):
            found = self._known[key]
            self._known.move_to_end(key)
            if isinstance(found, DataError):
                errors.update(dict.fromkeys(rows.tolist(), found))
                continue
            at = records[rows] - key[1] * BLOCK
            starts[rows], stops[rows] = found[at], found[at + 1]
        self._drop(4 * 8 * BLOCK * len(wanted))
        return starts, stops, errors

    def _read(self, missing: Sequence[tuple[int, int]]) -> None:
        parts = list(self._parts(missing))
        self.requests += len(parts)
        many = self._pool if len(parts) > 1 else None
        if many is None:
            answers: list[Any] = [self._ask(part.start, part.stop) for part in parts]
        else:
            asked = [_submitted(many, partial(self._ask, part.start, part.stop)) for part in parts]
            answers = [self._answer(one, part) for one, part in zip(asked, parts, strict=True)]
        for part, data in zip(parts, answers, strict=True):
            for key in part.keys:
                found = data if isinstance(data, DataError) else self._cut(key, part.start, data)
                self._known[key] = found
                self.nbytes += 1000 if isinstance(found, DataError) else found.nbytes

    def _parts(self, missing: Sequence[tuple[int, int]]) -> Iterator[_Part]:
        """The requests for some blocks: of those that are near to each other there is one."""
        last: _Part | None = None
        for key in sorted(missing):
            start, stop = self._manifest.where(*key)
            if last is not None and start <= last.stop + _GAP and stop - last.start <= _MOST:
                last.keys.append(key)
                last = _Part(last.keys, last.start, stop)
                continue
            if last is not None:
                yield last
            last = _Part([key], start, stop)
        if last is not None:
            yield last

    def _ask(self, start: int, stop: int) -> bytes | DataError:
        try:
            return self._manifest.read(start, stop)
        except DataError as error:
            return error.kept()

    def _answer(self, asked: Future[Any] | None, part: _Part) -> bytes | DataError:
        # What no thread has started is read here: waiting for one might never end.
        if asked is None or asked.cancel():
            return self._ask(part.start, part.stop)
        found: bytes | DataError = asked.result()
        return found

    def _cut(self, key: tuple[int, int], start: int, data: bytes) -> npt.NDArray[np.uint64] | DataError:
        """The offsets of a block. Bytes that are damaged are requested once more."""
        first, stop = self._manifest.where(*key)
        try:
            return self._manifest.offsets(*key, memoryview(data)[first - start : stop - start])
        except DataError:
            try:
                return self._manifest.offsets(*key, self._manifest.read(first, stop))
            except DataError as error:
                return error.kept()

    def _drop(self, needed: int) -> None:
        """Drop what was not used for longest, and every error: the next call tries again."""
        for key in [key for key, found in self._known.items() if isinstance(found, DataError)]:
            del self._known[key]
            self.nbytes -= 1000
        limit = min(max(KEPT, needed), INDEXES.limit)
        while self.nbytes > limit and self._known:
            _, gone = self._known.popitem(last=False)
            self.nbytes -= 1000 if isinstance(gone, DataError) else gone.nbytes


def _submitted(pool: Pool, ask: Callable[[], Any]) -> Future[Any] | None:
    try:
        return pool.submit(ask)
    except RuntimeError:  # the pool was shut down
        return None
