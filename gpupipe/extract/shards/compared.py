"""compared: the samples of an archive beside its index: one that lies elsewhere, or has another key, is an error.

An index is believed for every archive of its size and time. So what is read by it is compared with it: where a sample
starts, which key it has, and that no other one starts before the next.
"""

from __future__ import annotations

from typing import Any, Protocol

from gpupipe.errors import DataError, RecordError, shown_name
from gpupipe.extract.records.index import Indexes, RecordIndex
from gpupipe.extract.records.reading import BlockReader
from gpupipe.extract.shards.names import key_digest

__all__ = ["Compared", "Keyed"]


_NONE = "no sample starts here any more"


class Keyed(Protocol):
    """Reads samples, as a `Source`.

    Attributes:
        keys: of the items that `block` gave, None of damage; what could not be read has none, and is the last item.
            Whoever compares them takes them away.
    """

    keys: list[bytes | None]

    def block(self) -> list[Any]: ...


class Compared:
    """Some samples, compared with an index. The first that differs is an error, and the last item.

    Args:
        samples: reads them.
        reader: of the archive.
        index: of the archive.
        expected: the indices of the samples.
        indexes: those in memory; one that is wrong is dropped from them.
        hides: whether an error hides what follows.
    """

    def __init__(
        self,
        samples: Keyed,
        reader: BlockReader,
        index: RecordIndex,
        expected: range,
        indexes: Indexes[RecordIndex],
        hides: bool,
    ) -> None:
        self._samples, self._reader, self._index, self._indexes = samples, reader, index, indexes
        self._next, self._last = expected.start, expected.stop
        self._hides = hides
        self._done = False

    def block(self) -> list[Any]:
        """The next samples; none at the end."""
        if self._done:
            return []
        items = self._samples.block()
        keys, self._samples.keys = self._samples.keys, []
        for i, key in enumerate(keys):
            if not self._right(items[i][0], key):
                return [*items[:i], self._differs(items[i][0], self._wrong(items[i][0], key))]
            self._next += 1
        self._done = not items or len(keys) < len(items)
        if not items and self._next < self._last:
            return [self._differs(self._index.span(self._next)[0], _NONE)]
        return items

    def _right(self, offset: int, key: bytes | None) -> bool:
        """Whether a sample, or damage, is what the index lists next."""
        index, i = self._index, self._next
        if i == self._last or offset != index.span(i)[0]:
            return False
        if key is None or i in index.faults:
            return key is None and i in index.faults
        return index.digests is None or key_digest(key) == index.digests[i]

    def _wrong(self, offset: int, key: bytes | None) -> str:
        """How a sample, or damage, differs from what the index lists next."""
        index, i = self._index, self._next
        name = "damage" if key is None else f"sample {shown_name(key.decode(errors='surrogateescape'))!r}"
        if i == self._last:
            return f"another {name} starts at {offset}, which the index does not list"
        if offset != index.span(i)[0]:
            return f"{_NONE}, but {name} at {offset}"
        if (key is None) != (i in index.faults):
            return _NONE
        return f"the {name} starts here in place of the one that the index lists"

    def _differs(self, offset: int, what: str) -> tuple[int, DataError]:
        """The error of the first sample that differs."""
        self._done = True
        error: DataError
        try:
            self._reader.confirm()
        except DataError as changed:
            error = changed.kept()
        else:
            self._indexes.distrust(self._reader.path)
            reason = (
                f"{what}: the archive was changed after its headers were read, but its size and time were not; start a "
                "new iterator, and write new files beside the old ones"
            )
            at = self._index.span(min(self._next, self._last - 1))[0]  # of the sample that was asked for
            error = RecordError(reason, file=self._reader.path, offset=at, stage="read")
        return offset, error.hiding() if self._hides else error
