"""lmdb: the entries of an LMDB database in the order of their keys, or by key.

LMDB maps its file into memory. What can be checked beforehand is: that there is a file, that it is a database, and
that it is as long as its first pages say. But LMDB trusts all other pages: if they are damaged, or the file is
truncated while it is read, LMDB may end the process.
"""

from __future__ import annotations

import os
import threading
from array import array
from collections.abc import Iterator
from hashlib import blake2b
from itertools import pairwise
from typing import Any
from weakref import WeakValueDictionary

from gpupipe.errors import DataError, MissingDependencyError, RecordError
from gpupipe.extract.records.index import Indexes, Version, version_of
from gpupipe.extract.records.reading import BlockReader, Source
from gpupipe.extract.storage.files import LOCAL
from gpupipe.extract.storage.forking import renew_lock
from gpupipe.extract.storage.glob import is_url
from gpupipe.missing import LIBRARIES

from ...classes import dataclass

__all__ = ["Entry", "EntryReader", "Keys", "count_entries", "keys_of", "need_lmdb", "position_of", "read_entry"]

Entry = tuple[bytes, bytes]


_BLOCK = 1 << 20


_MOST = 4096  # entries of a block


_MOST_KEYS = 512 << 20
"""Bytes of the keys that access by index may hold of one database."""


def need_lmdb() -> Any:
    """The library.

    Raises:
        MissingDependencyError: it is not installed.
    """
    try:
        import lmdb
    except ImportError as error:
        raise MissingDependencyError(
            f"LMDBDataset needs lmdb, which is not installed; install it with: pip install {LIBRARIES['lmdb']}"
        ) from error
    return lmdb


def position_of(key: bytes) -> int:
    """The position of an entry: 63 bits that depend on its key alone, whatever else is in the database."""
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "little") >> 1


class Environment:
    """A database that is open, until its last user drops it.

    Attributes:
        lmdb: the library's object.
    """

    __slots__ = ("__weakref__", "lmdb")

    def __init__(self, lmdb: Any) -> None:
        self.lmdb = lmdb


class _Environments:
    """The open databases of this process: LMDB must not open one twice, nor use it in a forked child."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: WeakValueDictionary[tuple[int, int], Environment] = WeakValueDictionary()
        renew_lock(self)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """Close the parent's databases in a forked child, which has the same files mapped: nothing is written."""
        inherited, self._open = list(self._open.values()), WeakValueDictionary()
        for environment in inherited:
            environment.lmdb.close()

    def get(self, path: str) -> Environment:
        """The database at a path: a file, or a folder with ``data.mdb``.

        Raises:
            DataError: it is missing, no database, or truncated.
        """
        lmdb = need_lmdb()
        file = data_file(path)
        size, _ = LOCAL.size(file)
        status = os.stat(file)
        name = status.st_dev, status.st_ino
        with self._lock:
            found = self._open.get(name)
            if found is None:
                how = {"readonly": True, "lock": False, "create": False, "max_dbs": _MOST_NAMED}
                try:
                    found = self._open[name] = Environment(lmdb.open(path, subdir=file != path, **how))
                except lmdb.Error as error:
                    raise _failed(error, path, " (another part of this program has it open: close it there)") from error
        needed = (found.lmdb.info()["last_pgno"] + 1) * found.lmdb.stat()["psize"]
        if needed > size:
            reason = f"its first pages say that the database has {needed} bytes, the file has {size}: it is truncated"
            raise RecordError(reason, file=path, stage="read")
        return found


def data_file(path: str) -> str:
    """The file of a database, which may be named by its folder."""
    return os.path.join(path, "data.mdb") if os.path.isdir(path) else path


_environments = _Environments()


def _failed(error: Exception, path: str, twice: str = "") -> RecordError:
    text = str(error)
    hint = twice if "already open" in text else ""
    return RecordError(f"LMDB cannot read the database: {text}{hint}", file=path, stage="read")


_SUBDATA = 48
"""Bytes of what LMDB stores in the place of a value for a named database."""

_MOST_NAMED = 120
"""Named databases of which LMDB can say that they are some; what has their size behind so many is taken for one."""


def _named(environment: Environment, transaction: Any, key: bytes, value: bytes) -> bool:
    """Whether an entry is no value but a named database, which the main one lists among its entries."""
    if len(value) != _SUBDATA:
        return False
    lmdb = need_lmdb()
    try:
        environment.lmdb.open_db(key, txn=transaction, create=False)
    except lmdb.DbsFullError:
        return True
    except lmdb.Error:
        return False
    return True


def _refused(path: str, key: bytes) -> RecordError:
    reason = f"the entry {key[:100]!r} is a named database, and these are not read: write what it holds as entries"
    return RecordError(reason, file=path, stage="read")


def count_entries(path: str) -> int:
    """The number of entries of a database.

    Raises:
        DataError: it cannot be read.
    """
    entries: int = _environments.get(path).lmdb.stat()["entries"]
    return entries


def read_entry(path: str, key: bytes) -> bytes:
    """The value of a key.

    Raises:
        DataError: there is none, or it cannot be read.
    """
    environment, lmdb = _environments.get(path), need_lmdb()
    try:
        with environment.lmdb.begin() as transaction:
            value: bytes | None = transaction.get(key)
            named = value is not None and _named(environment, transaction, key, value)
    except lmdb.Error as error:
        raise _failed(error, path) from error
    if value is None:
        reason = f"the key {key[:100]!r} is gone: the database was changed; start a new iterator"
        raise RecordError(reason, file=path, stage="read")
    if named:
        raise _refused(path, key)
    return value


@dataclass(eq=False, repr=False, kw_only=True)
class EntryReader(BlockReader):
    """Iterates over (position, (key, value)) of one database, in the order of the keys.

    Each block is a transaction of its own, so no thread holds one. What cannot be read is one error, which is `lost`.

    Args:
        path: a file, or a folder with ``data.mdb``.
        block: bytes of keys and values that are read at once.
        readers: a pool whose threads read one block ahead.
        after: the key to start behind; None starts with the first.
        values: read the values; otherwise they are empty.
    """

    block: int = _BLOCK
    after: bytes | None = None
    values: bool = True

    def source(self) -> Source:
        """Open the database."""
        if is_url(self.path):
            reason = "LMDB needs its databases on a local disk, whose files it maps into memory; copy this one there"
            raise RecordError(reason, file=self.path, stage="read")
        return _Entries(self)


class _Entries:
    """Blocks of entries. `block` is called by one thread at a time."""

    def __init__(self, reader: EntryReader) -> None:
        self._path = reader.path
        self._most = reader.block
        self._values = reader.values
        self._after = reader.after
        self._done = False
        self._environment = _environments.get(reader.path)  # stays open between two blocks

    def block(self) -> list[tuple[int, Entry | DataError]]:
        out: list[tuple[int, Entry | DataError]] = []
        if self._done:
            return out
        lmdb = need_lmdb()
        try:
            environment = self._environment = _environments.get(self._path)  # another one in a forked child
            with environment.lmdb.begin() as transaction, transaction.cursor() as cursor:
                self._read(environment, transaction, cursor, out)
        except (lmdb.Error, DataError) as error:
            self._done = True
            failed = error if isinstance(error, DataError) else _failed(error, self._path)
            out.append((position_of(self._after or b""), failed.kept().hiding()))
        return out

    def _read(
        self, environment: Environment, transaction: Any, cursor: Any, out: list[tuple[int, Entry | DataError]]
    ) -> None:
        after = self._after
        there = cursor.first() if after is None else cursor.set_range(after)
        if there and after is not None and cursor.key() == after:
            there = cursor.next()
        size = 0
        while there and size < self._most and len(out) < _MOST:
            key, value = cursor.item() if self._values else (cursor.key(), b"")
            refused = _named(environment, transaction, key, value)
            out.append((position_of(key), _refused(self._path, key) if refused else (key, value)))
            size += len(key) + len(value)
            self._after = key
            there = cursor.next()
        self._done = not there


class Keys:
    """The keys of one database, by their place in its order.

    Attributes:
        nbytes: what they take in memory: their own bytes, and 8 for each.
    """

    def __init__(self, keys: bytes, ends: array[int]) -> None:
        self._keys = keys
        self._ends = ends

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, i: int) -> bytes:
        return self._keys[self._ends[i] : self._ends[i + 1]]

    def __iter__(self) -> Iterator[bytes]:
        return (self._keys[start:end] for start, end in pairwise(self._ends))

    @property
    def nbytes(self) -> int:
        return len(self._keys) + self._ends.itemsize * len(self._ends)


_known: Indexes[Keys] = Indexes()


def keys_of(path: str) -> Keys:
    """The keys of a database, listed once for each version of its file; no value is read.

    Raises:
        DataError: it cannot be read, or has more than 512 MiB of keys.
    """
    version: Version | None = version_of(data_file(path))
    found = None if version is None else _known.get(path, version)
    if found is not None:
        return found
    keys, ends = bytearray(), array("Q", [0])
    for _, item in EntryReader(path, values=False):
        if isinstance(item, DataError):
            raise item.again()
        keys += item[0]
        ends.append(len(keys))
        if len(keys) + 8 * len(ends) > _MOST_KEYS:
            reason = f"access by index lists all keys, and these have more than {_MOST_KEYS} bytes; read it in order"
            raise RecordError(reason, file=path, stage="read")
    found = Keys(bytes(keys), ends)
    if version is not None and version == version_of(data_file(path)):
        _known.put(path, version, found)
    return found
