"""Which failures of a storage pass, and how long a server's wish to be left alone is heeded."""

from __future__ import annotations

import contextlib
import errno
import gc
import http.client
import os
import ssl
import time
import weakref
from email.utils import formatdate
from types import SimpleNamespace
from typing import Any

import pytest

from gpupipe.errors import DataError, RecordError
from gpupipe.extract.storage import retry
from gpupipe.extract.storage.retry import GivenUp, asked, passes


def answered(status: int, **more: Any) -> Exception:
    """As aiohttp raises it; `requests` and others keep it in a response."""
    error = RuntimeError(f"status {status}")
    error.__dict__.update(status=status, **more)
    return error


def responded(status: int, headers: Any = None) -> OSError:
    error = OSError(f"{status} Server Error")
    error.__dict__["response"] = SimpleNamespace(status_code=status, headers=headers or {})
    return error


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def named(name: str) -> Exception:
    """An error of a client library, which is not installed here."""
    made: Exception = type(name, (Exception,), {})("the connection is gone")
    return made


def of(code: int) -> OSError:
    return OSError(code, os.strerror(code))


PASSING = [
    *[answered(status) for status in (408, 425, 429, 500, 502, 503, 504, 520, 529)],
    responded(503),
    *[of(code) for code in (errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN, errno.EBUSY, errno.EMFILE)],
    ConnectionResetError("reset"),
    TimeoutError("timed out"),
    OSError("timed out"),
    http.client.IncompleteRead(b""),
    http.client.RemoteDisconnected("closed"),
    *[named(name) for name in ("ClientPayloadError", "ServiceRequestError", "HTTPClientError", "TransportError")],
    caused(FileNotFoundError("url"), answered(503)),
]
LASTING = [
    *[answered(status) for status in (400, 401, 403, 404, 410, 416, 501, 505)],
    responded(403),
    *[of(code) for code in (errno.ENOENT, errno.EACCES, errno.EPERM, errno.EISDIR, errno.EINVAL, errno.ENAMETOOLONG)],
    FileNotFoundError("url"),
    PermissionError("denied"),
    caused(FileNotFoundError("url"), answered(404)),
    caused(PermissionError("denied"), answered(503)),
    ValueError("a NUL"),
    ssl.SSLCertVerificationError("self-signed"),
    RuntimeError("no credentials"),
    RecordError("damaged"),
]


@pytest.mark.parametrize("error", PASSING, ids=repr)
def test_what_may_pass(error: Exception) -> None:
    assert passes(error)


@pytest.mark.parametrize("error", LASTING, ids=repr)
def test_what_lasts(error: Exception) -> None:
    assert not passes(error)


def test_a_server_may_ask_for_some_seconds_but_not_for_an_hour() -> None:
    soon = formatdate(time.time() + 10, usegmt=True)

    assert retry._told_to_wait(answered(429, headers={"Retry-After": "3"})) == 3.0
    assert retry._told_to_wait(responded(503, {"Retry-After": "0.5"})) == 0.5
    assert 8 < retry._told_to_wait(responded(503, {"Retry-After": soon})) <= 10
    assert retry._told_to_wait(responded(503, {"Retry-After": "3600"})) == retry.LONGEST
    for said in ("-1", "nan", "soon", "", formatdate(0)):
        assert retry._told_to_wait(responded(503, {"Retry-After": said})) == 0.0
    assert retry._told_to_wait(of(errno.EIO)) == 0.0


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were made, none of which is waited for."""
    made: list[float] = []
    monkeypatch.setattr(retry, "pause", lambda file, seconds: made.append(seconds))
    monkeypatch.setattr(retry, "GIVEN_UP", GivenUp())
    return made


def translated(error: Any, file: str, offset: int | None) -> DataError:
    return DataError(f"cannot be read: {error}", file=file, offset=offset, stage="read")


def fail() -> bytes:
    raise of(errno.EIO)


def test_pauses_double_from_a_tenth_of_a_second(pauses: list[float]) -> None:
    with pytest.raises(
        DataError, match=r"f at offset 7: read: cannot be read: .*Input/output error \(6 tries in"
    ) as got:
        asked(translated, "f", 7, fail)

    assert isinstance(got.value.__cause__, OSError)
    assert got.value.passing
    assert len(pauses) == 5
    for pause, middle in zip(pauses, (0.1, 0.2, 0.4, 0.8, 1.6), strict=True):
        assert 0.5 * middle <= pause <= 1.5 * middle


def test_what_failed_in_all_tries_is_asked_once_later(pauses: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="6 tries in"):
        asked(translated, "f", None, fail)
    with pytest.raises(DataError, match="as in 6 tries before"):
        asked(translated, "f", None, fail)
    assert len(pauses) == 5
    monkeypatch.setattr(retry.GIVEN_UP, "seconds", 0.0)
    with pytest.raises(DataError, match="6 tries in"):
        asked(translated, "f", None, fail)
    assert len(pauses) == 10


def test_files_that_failed_are_remembered_within_bounds() -> None:
    given_up = GivenUp(most=3)
    for number in range(5):
        given_up.add(str(number))

    assert [given_up.lately(str(number)) for number in range(5)] == [False, False, True, True, True]
    for again in ("2", "5"):
        given_up.add(again)

    assert [given_up.lately(str(number)) for number in range(6)] == [False, False, True, False, True, True]


def test_an_error_that_nobody_keeps_is_gone_without_the_garbage_collector(pauses: list[float]) -> None:
    raised: list[weakref.ref[OSError]] = []

    class Failed(OSError):
        """May be referred to weakly."""

    def noted(error: OSError) -> OSError:
        raised.append(weakref.ref(error))
        return error

    def fails() -> bytes:
        raise noted(Failed(errno.EIO, "Input/output error"))

    gc.disable()
    try:
        with contextlib.suppress(DataError):
            asked(translated, "f", None, fails)
        assert [ref() for ref in raised] == [None] * 6
    finally:
        gc.enable()
