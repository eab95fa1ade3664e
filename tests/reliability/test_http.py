"""Files over HTTP from a server that keeps connections, breaks them, and answers otherwise than it was asked.

By fsspec's own file system for HTTP where aiohttp is installed, and by a stand-in that asks and fails as it does.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from gpupipe import Dataset, PlanError
from gpupipe.extract.storage import retry
from gpupipe.flow.sources import readers as flow_readers
from tests.reliability.faulty import Faulty, every
from tests.reliability.record_files import SIZE, chain, taken
from tests.reliability.test_failed_reads import ALL, EACH, POLICIES, tfrecords

HTTP = pytest.param(
    "http",
    marks=pytest.mark.skipif(importlib.util.find_spec("aiohttp") is None, reason="fsspec's HTTP needs aiohttp"),
)
FILES = 4
FIRST, SECOND = ALL[:EACH], ALL[EACH : 2 * EACH]

pytestmark = [pytest.mark.usefixtures("afresh"), pytest.mark.parametrize("scheme", ["faulty", HTTP])]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small requests: some ten a file."""
    monkeypatch.setattr(flow_readers, "REMOTE_BLOCK", 32 << 10)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Some files of records."""
    for file in range(FILES):
        tfrecords(tmp_path / f"{file:02d}", file)
    return tmp_path


@pytest.mark.parametrize("keeps", [False, True], ids=["HTTP/1.0", "HTTP/1.1"])
@pytest.mark.parametrize("fault", ["503", "drop", "reset", "refuse", "short", "whole"])
def test_answers_that_fail_now_and_then_lose_no_record(folder: Path, fault: str, keeps: bool, scheme: str) -> None:
    with Faulty(folder, every(4, fault), keeps=keeps).serving() as server:
        paths = [server.url(f"{file:02d}", scheme) for file in range(FILES)]

        with chain(paths, "records", on_error="skip").iterator(epoch=0) as items:
            good, bad = taken(items)

        assert (good, bad, items.errors) == (ALL[: FILES * EACH], [], ())
        assert server.faults >= 8


@pytest.mark.parametrize("fault", ["503", "reset", "refuse"])
def test_looks_that_fail_now_and_then_lose_no_file(folder: Path, fault: str, scheme: str) -> None:
    with Faulty(folder, looking=lambda number: fault if number % 2 else None, keeps=True).serving() as server:
        paths = [server.url(f"{file:02d}", scheme) for file in range(FILES)]

        assert list(chain(paths, "records", on_error="skip")) == ALL[: FILES * EACH]


@pytest.mark.parametrize("fault", ["503", "drop", "reset", "refuse", "short", "403"])
@pytest.mark.parametrize("on_error", POLICIES)
def test_answers_that_fail_for_good_are_raised_behind_the_records_that_came(
    folder: Path, on_error: str, fault: str, scheme: str
) -> None:
    with Faulty(folder, lambda number: fault if number > 4 else None, keeps=True).serving() as server:
        paths = [server.url("00", scheme), str(folder / "01")]

        with chain(paths, "records", on_error=on_error).iterator(epoch=0) as items:
            good, bad = taken(items)
            listed = items.errors

        begun = good[:-EACH]
        assert 0 < len(begun) < EACH
        assert good == FIRST[: len(begun)] + SECOND
        assert [(error.file, error.offset, error.lost) for error in bad] == [(paths[0], len(begun) * (SIZE + 16), True)]
        assert ("6 tries in" in str(bad[0])) == (fault not in ("403", "short"))
        assert [(record.unit, record.action) for record in listed] == [("file", "raised")]


def test_a_server_that_is_busy_has_no_empty_list(folder: Path, scheme: str) -> None:
    with Faulty(folder, lambda number: "503", lambda number: "503").serving() as server:
        with pytest.raises(PlanError, match=r"00' cannot be listed: .*503.*6 tries in"):
            Dataset.list_files(server.url("00", scheme))
        retry.GIVEN_UP.clear()
        server.looking = lambda number: "503" if number % 3 else None
        server.fault = lambda number: None

        assert [bytes(name).decode() for name in Dataset.list_files(server.url("00", scheme))] == [
            server.url("00", scheme)
        ]


def test_a_file_that_is_not_there_is_raised_and_the_others_are_read(folder: Path, scheme: str) -> None:
    with Faulty(folder, keeps=True).serving() as server:
        paths: list[Any] = [server.url(name, scheme) for name in ("00", "none", "01")]

        good, bad = taken(iter(chain(paths, "records", on_error="skip")))

        assert good == FIRST + SECOND
        assert [(error.file, error.lost) for error in bad] == [(paths[1], True)]
        assert isinstance(bad[0], FileNotFoundError)
