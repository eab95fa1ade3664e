"""forking: what a forked child can use of its parent, and what it must leave alone.

A lock that another thread holds at the moment of a fork is held for ever in the child: the thread is not there. What
lives as long as the process, and is used by threads, gets a new lock. What waits for a lock or a thread when it is
destroyed is never destroyed.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

__all__ = ["keep_for_ever", "renew_lock"]

_OWNERS: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


def renew_lock(owner: Any, name: str = "_lock") -> None:
    """Give `owner`, which is equal to nothing else, a new lock of the same kind in every child forked from now on."""
    _OWNERS[owner] = name


def keep_for_ever(*things: Any) -> None:
    """Keep objects alive until the process is gone, through the end of the interpreter: no destructor of them runs."""
    import ctypes  # needed in a child alone

    for thing in things:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _renew() -> None:
    reentrant = type(threading.RLock())
    for owner, name in list(_OWNERS.items()):
        setattr(owner, name, threading.RLock() if isinstance(getattr(owner, name), reentrant) else threading.Lock())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
