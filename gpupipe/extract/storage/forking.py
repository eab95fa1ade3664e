"""forking: what a forked child can use of its parent, and what it must leave alone.

A lock that another thread holds at the moment of a fork stays locked forever in the child, which lacks that thread. So
objects that live as long as the process and are shared by threads get a new lock in the child. Objects whose
destructor waits for a lock or a thread are never destroyed there.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

__all__ = ["keep_forever", "renew_lock"]

_OWNERS: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


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
