"""retry: requests to a storage that fail for a moment are made again.

A server that is busy, a connection that breaks, a network disk that hiccups: seconds later the same request is
answered, and a record that was left out for it would be lost for nothing. So the storages make every request here:
up to `TRIES` times, with pauses that double. What no patience mends (a name that is not there, a right that is missing)
fails at once. Pauses are drawn by the system, not by the generators that elements are drawn with.
"""

from __future__ import annotations

import errno
import math
import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

from gpupipe.errors import DataError, shown_name
from gpupipe.extract.storage.forking import renew_lock
from gpupipe.extract.storage.waiting import bounded, pause
from gpupipe.log import logger

__all__ = ["GIVEN_UP", "TRIES", "again", "asked", "passes"]

TRIES = 6
"""How often a request is made, the first time included."""


PAUSE = 0.1
"""Seconds before the second try; each later pause is twice the one before, half to one and a half times that drawn."""


LONGEST = 30.0
"""Seconds of a server's ``Retry-After`` that are waited; beyond that it is asked again all the same."""


_LASTING = frozenset(
    getattr(errno, name)
    for name in (
        "ENOENT EACCES EPERM EISDIR ENOTDIR EINVAL ENAMETOOLONG ELOOP EBADF EFAULT EFBIG EOVERFLOW ENXIO ENODEV ENOSYS "
        "EOPNOTSUPP ESPIPE EROFS"
    ).split()
    if hasattr(errno, name)
)
"""What the system says of names, rights and kinds of files: it will say the same in a second."""


_STATUS = frozenset({408, 425, 429})


_LASTING_STATUS = frozenset({501, 505})


_NAMES = frozenset(
    "TimeoutError HTTPException ClientConnectionError ClientPayloadError HTTPClientError IncompleteReadError "
    "ServiceRequestError ServiceResponseError TransportError ProtocolError".split()
)
"""Errors of a connection that are no OSError, by the names that asyncio, http, aiohttp, botocore, azure, httpx, google
and urllib3 give them: none of these is imported here."""


_drawn = random.SystemRandom()


_T = TypeVar("_T")


class GivenUp:
    """Files of which a request failed in all its tries: for a while they are asked only once.

    Where a file is gone for good, each of its records would take the whole patience.

    Args:
        seconds: how long.
        most: files that are remembered.
    """

    def __init__(self, seconds: float = 10.0, most: int = 4096) -> None:
        self.seconds = seconds
        self._most = most
        self._lock = threading.Lock()
        self._since: OrderedDict[str, float] = OrderedDict()
        renew_lock(self)

    def lately(self, file: str) -> bool:
        """Whether all tries failed a moment ago."""
        with self._lock:
            since = self._since.get(file)
        return since is not None and time.monotonic() - since < self.seconds

    def add(self, file: str) -> None:
        """All tries failed now."""
        with self._lock:
            self._since[file] = time.monotonic()
            self._since.move_to_end(file)
            if len(self._since) > self._most:
                self._since.popitem(last=False)

    def clear(self) -> None:
        """Forget them."""
        with self._lock:
            self._since.clear()


GIVEN_UP = GivenUp()


Translate = Callable[[Any, str, "int | None"], DataError]
"""What a storage makes of an exception, a file and an offset."""


def asked(translated: Translate, file: str, offset: int | None, fn: Callable[..., _T], *args: Any) -> _T:
    """``fn(*args)``, a request to a storage: under the limits of the run, and again where it fails for a moment.

    Args:
        translated: makes the DataError of what `fn` raises.
        file: that is read, for messages.
        offset: where it is read.
        fn: must be safe to be abandoned, and to be called again.
        args: for it.

    Raises:
        DataError: it failed for good, or took too long, or the run is closed.
    """
    try:
        return bounded(file, fn, *args)
    except Exception as error:
        return again(error, translated, file, offset, fn, *args)


def again(
    error: BaseException, translated: Translate, file: str, offset: int | None, fn: Callable[..., _T], *args: Any
) -> _T:
    """The answer to a request that failed with `error`; see `asked`."""
    begun, tries, patient = time.monotonic(), 1, True
    try:
        while passes(error):
            patient = not GIVEN_UP.lately(file)
            if tries == TRIES or not patient:
                GIVEN_UP.add(file)
                break
            seconds = max(PAUSE * 2 ** (tries - 1) * (0.5 + _drawn.random()), _told_to_wait(error))
            tries += 1
            logger.info("%s is asked again in %.2g s, try %d of %d: %s", shown_name(file), seconds, tries, TRIES, error)
            pause(file, seconds)
            try:
                return bounded(file, fn, *args)
            except Exception as failed:
                error = failed
        how = f"{tries} tries in {time.monotonic() - begun:.1f} s" if patient else f"as in {TRIES} tries before"
        raise _failed(error, translated, file, offset, how if tries > 1 or not patient else "")
    finally:
        del error  # no cycle of an error and the frame it went through: `fn` may hold megabytes


def _failed(error: BaseException, translated: Translate, file: str, offset: int | None, how: str) -> DataError:
    """The error to raise, with how often it was tried."""
    found = error if isinstance(error, DataError) else translated(error, file, offset)
    found.passing = passes(error)
    if how:
        found.reason += f" ({how})"
        found.args = (found.reason,)
    found.__cause__ = found.__cause__ if found is error else error
    return found


def passes(error: BaseException) -> bool:
    """Whether a request that failed so may be answered a moment later."""
    if isinstance(error, DataError):
        return error.passing
    status = _status(error)
    if status is not None:
        return status in _STATUS or (status >= 500 and status not in _LASTING_STATUS)
    if isinstance(error, (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)):
        # fsspec says of a file it is not there, also where a busy server did not tell its size
        return isinstance(error, FileNotFoundError) and error.__cause__ is not None and passes(error.__cause__)
    if isinstance(error, OSError):
        return error.errno not in _LASTING and not isinstance(error, ValueError)  # a certificate that is refused
    return any(kind.__name__ in _NAMES for kind in type(error).__mro__)


def _places(error: BaseException) -> Iterator[Any]:
    """Where client libraries keep what a server said: in the error, or in the response that it holds."""
    yield error
    yield getattr(error, "response", None)


def _status(error: BaseException) -> int | None:
    """The status of HTTP that an error tells, if it does."""
    for place in _places(error):
        for name in ("status", "status_code", "code"):
            value = getattr(place, name, None)
            if isinstance(value, int) and 100 <= value < 600:
                return int(value)
    return None


def _nothing(name: str) -> None:
    return None


def _told_to_wait(error: BaseException) -> float:
    """Seconds that a server asks to wait (``Retry-After``), at most `LONGEST`."""
    for place in _places(error):
        said = getattr(getattr(place, "headers", None), "get", _nothing)("Retry-After")
        if not isinstance(said, str):
            continue
        try:
            seconds = float(said)
        except ValueError:
            try:
                seconds = parsedate_to_datetime(said).timestamp() - time.time()
            except (ValueError, OverflowError):
                return 0.0
        return min(max(seconds, 0.0), LONGEST) if math.isfinite(seconds) else 0.0
    return 0.0
