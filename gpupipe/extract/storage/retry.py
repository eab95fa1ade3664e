"""retry: requests to a storage, retried after transient failures.

A busy server, a broken connection or a slow network disk answers the same request seconds later, and a record skipped
because of it would be lost for nothing. So the storages make every request here: up to `TRIES` times, with pauses that
double. What retrying cannot fix (a missing name or permission) fails at once. The jitter of the pauses comes from the
system's random numbers, not from the generators of random ops.
"""

from __future__ import annotations

import errno
import math
import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

from gpupipe.errors import DataError, MissingDependencyError, caused, shown_name, text_of
from gpupipe.extract.storage.forking import renew_lock
from gpupipe.extract.storage.waiting import bounded, pause
from gpupipe.log import logger
from gpupipe.urls import cleaned

__all__ = ["GIVEN_UP", "TRIES", "again", "asked", "passes", "status_of"]

TRIES = 6
"""How often a request is made in total."""


PAUSE = 0.1
"""Seconds before the second try. Each later pause is twice the one before; all are scaled by a random 0.5..1.5."""


LONGEST = 30.0
"""Most seconds that a server's ``Retry-After`` is obeyed; the request is then retried all the same."""


_LASTING = frozenset(
    getattr(errno, name)
    for name in (
        "ENOENT EACCES EPERM EISDIR ENOTDIR EINVAL ENAMETOOLONG ELOOP EBADF EFAULT EFBIG EOVERFLOW ENXIO ENODEV ENOSYS "
        "EOPNOTSUPP ESPIPE EROFS"
    ).split()
    if hasattr(errno, name)
)
"""Errors about names, permissions and kinds of files, which retrying does not change."""


_STATUS = frozenset({408, 425, 429})


_LASTING_STATUS = frozenset({501, 505})


_NAMES = frozenset(
    "TimeoutError HTTPException ClientConnectionError ClientPayloadError HTTPClientError IncompleteReadError "
    "ServiceRequestError ServiceResponseError TransportError ProtocolError".split()
)
"""Connection errors that do not derive from OSError, by the class names of asyncio, http, aiohttp, botocore, azure,
httpx, google and urllib3: none of these is imported here."""


_drawn = random.SystemRandom()


_T = TypeVar("_T")


class GivenUp:
    """Files for which a request failed in all its tries: for a while their requests are tried only once.

    If a file is gone for good, each of its records would otherwise cost all tries and pauses.

    Args:
        seconds: how long a file is remembered.
        most: how many files are remembered.
    """

    def __init__(self, seconds: float = 10.0, most: int = 4096) -> None:
        self.seconds = seconds
        self._most = most
        self._lock = threading.Lock()
        self._since: OrderedDict[str, float] = OrderedDict()
        renew_lock(self)

    def lately(self, file: str) -> bool:
        """Whether all tries failed within the last `seconds`."""
        with self._lock:
            since = self._since.get(file)
        return since is not None and time.monotonic() - since < self.seconds

    def add(self, file: str) -> None:
        """Remember that all tries have just failed."""
        with self._lock:
            self._since[file] = time.monotonic()
            self._since.move_to_end(file)
            if len(self._since) > self._most:
                self._since.popitem(last=False)

    def clear(self) -> None:
        """Forget all files."""
        with self._lock:
            self._since.clear()


GIVEN_UP = GivenUp()


Translate = Callable[[Any, str, "int | None"], DataError]
"""A storage's function from an exception, a file and an offset to a DataError."""


def asked(translated: Translate, file: str, offset: int | None, fn: Callable[..., _T], *args: Any) -> _T:
    """Make the request ``fn(*args)`` under the limits of the run, and retry it after transient failures.

    Args:
        translated: turns an exception of `fn` into a DataError.
        file: the file that is read, for messages.
        offset: the offset that is read, for messages.
        fn: must be safe to abandon, and to call again.
        args: of `fn`.

    Raises:
        DataError: the request failed for good, timed out, or the run is closed.
        MissingDependencyError: `fn` raised it.
    """
    try:
        return bounded(file, fn, *args)
    except MissingDependencyError:  # no file's fault
        raise
    except Exception as error:
        failed = error
    try:  # not in there: the client's exception, which may hold a password, would be the context of ours
        return again(failed, translated, file, offset, fn, *args)
    finally:
        del failed


def again(
    error: BaseException, translated: Translate, file: str, offset: int | None, fn: Callable[..., _T], *args: Any
) -> _T:
    """Retry a request that failed with `error`; see `asked`."""
    started, tries, patient = time.monotonic(), 1, True
    try:
        while passes(error):
            patient = not GIVEN_UP.lately(file)
            if tries == TRIES or not patient:
                GIVEN_UP.add(file)
                break
            seconds = max(PAUSE * 2 ** (tries - 1) * (0.5 + _drawn.random()), _told_to_wait(error))
            tries += 1
            said = cleaned(text_of(error), file)
            logger.info("retrying %s in %.2g s, try %d of %d: %s", shown_name(file), seconds, tries, TRIES, said)
            pause(file, seconds)
            try:
                return bounded(file, fn, *args)
            except Exception as failed:
                error = failed
        how = f"{tries} tries in {time.monotonic() - started:.1f} s" if patient else f"as in {TRIES} tries before"
        raise _failed(error, translated, file, offset, how if tries > 1 or not patient else "")
    finally:
        del error  # break the cycle of an error and the frame it passed through: `fn` may hold megabytes


def _failed(error: BaseException, translated: Translate, file: str, offset: int | None, how: str) -> DataError:
    """Make the error to raise, which says how often the request was tried."""
    found = error if isinstance(error, DataError) else translated(error, file, offset)
    found.passing = passes(error)
    if how:
        found.reason += f" ({how})"
        found.args = (found.reason,)
    cause = found.__cause__ if found is error else error
    found.__context__ = None
    return found if cause is None else caused(found, cause, file)


def passes(error: BaseException) -> bool:
    """Whether a failure is transient: the same request may succeed a moment later."""
    if isinstance(error, DataError):
        return error.passing
    status = status_of(error)
    if status is not None:
        return status in _STATUS or (status >= 500 and status not in _LASTING_STATUS)
    if isinstance(error, (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)):
        # fsspec also reports a file as missing when a busy server did not report its size
        return isinstance(error, FileNotFoundError) and error.__cause__ is not None and passes(error.__cause__)
    if isinstance(error, OSError):
        return error.errno not in _LASTING and not isinstance(error, ValueError)  # ValueError: a rejected certificate
    return any(kind.__name__ in _NAMES for kind in type(error).__mro__)


def _answers(error: BaseException) -> tuple[Any, Any]:
    """The objects in which client libraries keep a server's answer: the error, and the response that it holds."""
    return error, getattr(error, "response", None)


def status_of(error: BaseException) -> int | None:
    """The HTTP status that an error carries, if any."""
    for answer in _answers(error):
        for name in ("status", "status_code", "code"):
            value = getattr(answer, name, None)
            if isinstance(value, int) and 100 <= value < 600:
                return int(value)
    return None


def _told_to_wait(error: BaseException) -> float:
    """Seconds that a server asks to wait (``Retry-After``), at most `LONGEST`."""
    for answer in _answers(error):
        headers: Any = getattr(answer, "headers", None)
        said = headers.get("Retry-After") if hasattr(headers, "get") else None
        if not isinstance(said, str):
            continue
        try:
            seconds = float(said)
        except ValueError:
            from email.utils import parsedate_to_datetime  # of a server alone

            try:
                seconds = parsedate_to_datetime(said).timestamp() - time.time()
            except (ValueError, OverflowError):
                return 0.0
        return min(max(seconds, 0.0), LONGEST) if math.isfinite(seconds) else 0.0
    return 0.0
