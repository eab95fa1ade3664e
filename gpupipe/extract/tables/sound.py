"""sound: what was looked at once and found to be sound, by version of a file: it is not looked at in every epoch."""

from __future__ import annotations

import threading
from collections import OrderedDict

from gpupipe.extract.storage.files import REMEMBERED
from gpupipe.extract.storage.forking import renew_lock

__all__ = ["SOUND", "Sound"]


class Sound:
    """What was found to be sound, by version of a file; of the least recent, some are forgotten. For all threads."""

    def __init__(self) -> None:
        self._known: OrderedDict[object, None] = OrderedDict()
        self._lock = threading.Lock()
        renew_lock(self)

    def __contains__(self, key: object) -> bool:
        with self._lock:
            return key in self._known

    def __len__(self) -> int:
        with self._lock:
            return len(self._known)

    def add(self, key: object) -> None:
        """Remember something."""
        with self._lock:
            self._known[key] = None
            self._known.move_to_end(key)
            while len(self._known) > REMEMBERED:
                self._known.popitem(last=False)


SOUND = Sound()
"""The parts of files that this process has looked at."""
