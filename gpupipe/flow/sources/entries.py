"""entries: the entries of one LMDB database, in the order of their keys or by index."""

from __future__ import annotations

import base64
from collections.abc import Generator
from typing import Any

from ...classes import dataclass
from ...errors import DataError, StateError
from ...extract.shards.lmdb import EntryReader, Keys, count_entries, keys_of, position_of, read_entry
from ..access import AsItWas, RandomAccess, from_list
from ..bad.found import as_before, bad_element
from ..element import Element, Stream
from ..run import Context
from ..state.snapshot import Counted, State
from ..step import Running, close
from .readers import element_of, path_of
from .records import uncounted

__all__ = ["EntriesFlow"]


@dataclass(frozen=True, slots=True)
class EntriesFlow:
    """The entries of the database that an outer element names.

    Attributes:
        source: has the one outer element.
        column: which of its columns is the path.
        ahead: whether a thread reads ahead.
    """

    source: Any
    column: int
    ahead: bool = False

    def open(self, at: Context, state: State = None) -> Running:
        path = path_of(self, at)
        if path is None:
            return Counted(iter(()))
        after = None if state is None or state["after"] is None else _key(state["after"])
        reader = EntryReader(path, after=after, readers=at.run.readers if self.ahead else None)
        return as_before(at, None, _Entries(reader, at.stream("entries", path, "key"), state))

    def access(self, at: Context) -> RandomAccess:
        path = path_of(self, at)
        if path is None:
            return from_list([])
        stream = at.stream("entries", path, "key")
        try:
            return AsItWas(_ByIndex(path, count_entries(path), stream), at)
        except DataError as error:
            uncounted(at.run, error.kept().hiding(), stream)
            return from_list([])


class _Entries(Running):
    """The entries behind a key. The state is the key of the last one, and whether the rest was lost there."""

    def __init__(self, reader: EntryReader, stream: Stream, state: State) -> None:
        self._reader = reader
        self._blocks = reader.blocks()
        self._after = reader.after
        self._lost = state is not None and bool(state.get("lost"))
        self.items = self._elements(stream)
        if self._lost:
            self.items.close()

    def _elements(self, stream: Stream) -> Generator[Element, None, None]:
        for block in self._blocks:
            for item in block:
                element = element_of(item, stream)
                if type(element[0]) is tuple:
                    self._after = element[0][0]
                else:
                    self._lost = element[0].error.lost
                yield element

    def lose(self) -> None:
        self._lost = True
        self.items.close()

    def snapshot(self) -> State:
        """The key of the last entry, as base64."""
        after = None if self._after is None else base64.b64encode(self._after).decode()
        return {"after": after, "lost": True} if self._lost else {"after": after}

    def ready(self) -> bool:
        """Whether the next block can be had without waiting."""
        return self._reader.ready()

    def close(self) -> None:
        self._reader.close()
        close(self.items)
        close(self._blocks)


def _key(text: Any) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (TypeError, ValueError) as error:
        raise StateError(f"load_state_dict needs the key of an entry as base64, got {text!r:.80}") from error


class _ByIndex(RandomAccess):
    """The entries of a database by the place of their key, which are listed when the first one is asked for."""

    def __init__(self, path: str, size: int, stream: Stream) -> None:
        self.size = size
        self._path = path
        self._stream = stream
        self._keys: Keys | None = None

    def one(self, index: int) -> Element:
        if self._keys is None:
            self._keys = keys_of(self._path)
        key = self._keys[index]
        position = position_of(key)
        try:
            return (key, read_entry(self._path, key)), self._stream, position
        except DataError as error:
            return bad_element(error.at(self._stream.name, position, "read", "key"), self._stream, position)
