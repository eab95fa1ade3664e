"""list_of_copies: fsspec's list of the copies that a cache keeps, as threads may share it.

``filecache::`` and ``blockcache::`` keep a list of what they have fetched, in memory and in a file, and read, change
and write it without a lock. Where two threads do so at a time, one's entry is lost: its file is fetched again, or a
file of ``blockcache::`` cannot be closed (KeyError).
"""

from __future__ import annotations

import threading
from typing import Any

from gpupipe.extract.storage.forking import renew_lock
from gpupipe.log import logger

__all__ = ["CHANGES", "ListOfCopies", "share_list"]


class ListOfCopies:
    """The list of one file system, which is changed, written and read anew by one thread at a time.

    Looking an entry up waits for nobody. Between a change and its save another thread may still read the file anew,
    every 10 seconds at most: then that entry is missing, and its file is fetched again (`RemoteStorage` asks twice).

    Args:
        real: fsspec's.
    """

    def __init__(self, real: Any) -> None:
        self._real = real
        self._lock = threading.RLock()  # removing an entry saves the list
        renew_lock(self)

    def __getattr__(self, name: str) -> Any:
        if name == "_real":  # a copy that is being made has none yet
            raise AttributeError(name)
        return getattr(self._real, name)

    def load(self) -> None:
        """Read the list from the file."""
        with self._lock:
            self._real.load()

    def save(self) -> None:
        """Write all entries to the file, and take over those in it."""
        with self._lock:
            self._real.save()

    def update_file(self, path: str, entry: Any) -> None:
        """Add an entry in memory."""
        with self._lock:
            self._real.update_file(path, entry)

    def on_close_cached_file(self, file: Any, path: str) -> None:
        """Note which blocks of a file are there."""
        with self._lock:
            self._real.on_close_cached_file(file, path)

    def pop_file(self, path: str) -> Any:
        """Remove the entry of a file."""
        with self._lock:
            return self._real.pop_file(path)

    def clear_expired(self, expiry_time: int) -> Any:
        """Remove old entries."""
        with self._lock:
            return self._real.clear_expired(expiry_time)


_LOCK = threading.Lock()


CHANGES = ("load", "save", "update_file", "on_close_cached_file", "pop_file", "clear_expired")
"""The methods of fsspec's list that change it."""


def share_list(files: Any) -> None:
    """Let threads share the list of `files`, a CachingFileSystem of fsspec; that of ``simplecache::`` stays empty.

    fsspec has no public name for it: it is the attribute that has the methods of such a list. If there is none, the
    log says so.
    """
    with _LOCK:
        own = object.__getattribute__(files, "__dict__")  # other attributes of `files` are those of what it caches
        found = [
            (name, real) for name, real in list(own.items()) if all(hasattr(type(real), change) for change in CHANGES)
        ]
        for name, real in found:
            if not isinstance(real, ListOfCopies):
                own[name] = ListOfCopies(real)
    if not found:
        logger.warning(
            "%s of this version of fsspec keeps its list of copies where gpupipe does not find it: threads that change "
            "it at a time may lose an entry, whose file is fetched again; use a version that gpupipe was tested with",
            type(files).__name__,
        )
