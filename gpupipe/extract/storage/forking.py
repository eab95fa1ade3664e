"""forking: what a forked child can use of its parent, and what it must leave alone.

A lock that another thread holds at the moment of a fork stays locked forever in the child, which lacks that thread. So
objects that live as long as the process and are shared by threads get a new lock in the child. Objects whose
destructor waits for a lock or a thread are never destroyed there. The locks of modules that are being imported cannot
be renewed: forks wait for a long import (`no_forks`).
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["keep_forever", "no_forks", "renew_lock"]

PATIENCE = 30.0
"""Seconds for which a fork waits: an import that takes longer may be waiting for the thread that forks."""

_OWNERS: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


_LONG = threading.RLock()
_FORKING = threading.local()


@contextmanager
def no_forks() -> Iterator[None]:
    """Let forks by other threads wait until the block is done."""
    with _LONG:
        yield


def _wait() -> None:
    _FORKING.waited = False
    _FORKING.waited = _LONG.acquire(timeout=PATIENCE)


def _release() -> None:
    if getattr(_FORKING, "waited", False):
        _FORKING.waited = False
        _LONG.release()


def renew_lock(owner: Any, name: str = "_lock") -> None:
    """Give `owner`, which must compare by identity, a new lock of the same kind in every child forked from now on."""
    _OWNERS[owner] = name


def keep_forever(*things: Any) -> None:
    """Keep objects alive until the process is gone, past the end of the interpreter: their destructors never run."""
    import ctypes  # needed in a child only

    for thing in things:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _renew() -> None:
    reentrant = type(threading.RLock())
    for owner, name in list(_OWNERS.items()):
        setattr(owner, name, threading.RLock() if isinstance(getattr(owner, name), reentrant) else threading.Lock())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
    os.register_at_fork(before=_wait, after_in_parent=_release, after_in_child=_release)
