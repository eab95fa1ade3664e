"""Records behind a shuffle are asked for ahead while they come from a disk, and not while they come from memory.

What is in memory the system says, where it can; where it cannot, the time that reading takes.
"""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import gpupipe as gp
from gpupipe.extract.records.reference import HeaderWalker, Reference, read_ahead, read_many
from gpupipe.extract.storage import files
from gpupipe.flow.maps import read_payloads
from gpupipe.threads import DaemonPool, Flag
from gpupipe.transform.cached_array import CachedArray

Ranges = list[tuple[str, int, int]]


needs_answers = pytest.mark.skipif(
    files._NOWAIT is None or files._advise is None, reason="the system does not say what is in memory"
)


def _written(folder: Path, count: int, size: int = 9_000) -> str:
    path = folder / "0.tfrecord"
    with gp.io.TFRecordWriter(path) as out:
        for _ in range(count):
            out.write(os.urandom(size))
    return str(path)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Ranges:
    found: Ranges = []
    ahead = files.LocalStorage.ahead

    def noted(self: Any, name: str, offset: int, n: int) -> bool:
        found.append((name, offset, n))
        return ahead(self, name, offset, n)

    monkeypatch.setattr(files.LocalStorage, "ahead", noted)
    return found


def _says(monkeypatch: pytest.MonkeyPatch, *answers: bool | None) -> list[tuple[str, int, int]]:
    """Have the system say of one record after another whether it is in memory; the last answer stays."""
    looked: list[tuple[str, int, int]] = []
    left = list(answers)

    def in_memory(self: Any, name: str, offset: int, n: int) -> bool | None:
        looked.append((name, offset, n))
        return left.pop(0) if len(left) > 1 else left[0]

    monkeypatch.setattr(files.LocalStorage, "in_memory", in_memory)
    return looked


def _payloads(asked: Ranges) -> Ranges:
    return [one for one in asked if one[2] > 12]


def _slowly(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    def slow(references: Any) -> Any:
        time.sleep(seconds * len(references))
        return read_many(references)

    monkeypatch.setattr(read_payloads, "read_many", slow)


@pytest.mark.parametrize(
    ("says", "slow", "asked_for"),
    [(None, True, 200), (None, False, 2 * read_payloads.AT_ONCE), (True, True, 0), (False, False, 200)],
    ids=["slow", "from memory", "a busy CPU", "a quick disk"],
)
def test_records_are_asked_for_once_while_they_come_from_a_disk(
    tmp_path: Path, asked: Ranges, monkeypatch: pytest.MonkeyPatch, says: bool | None, slow: bool, asked_for: int
) -> None:
    monkeypatch.setattr(read_payloads, "COLD", 2)
    _says(monkeypatch, says)
    if slow:
        _slowly(monkeypatch, 2 * read_payloads.SLOW)
    else:
        monkeypatch.setattr(read_payloads, "SLOW", 10.0)
    path = _written(tmp_path, 200)

    assert len(list(gp.TFRecordDataset(path).shuffle(50))) == 200

    found = _payloads(asked)
    assert len(set(found)) == len(found) == asked_for
    assert set(found) <= {(path, n * 9_016, 9_016) for n in range(200)}


def test_one_record_of_some_jobs_is_looked_at(tmp_path: Path, asked: Ranges, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_payloads, "COLD", 3)
    looked = _says(monkeypatch, True, False, True)
    each, jobs = read_payloads.AT_ONCE, 4 * read_payloads.LOOK
    path = _written(tmp_path, jobs * each, 100)

    assert len(list(gp.TFRecordDataset(path).shuffle(50))) == jobs * each

    assert len(_payloads(asked)) == 3 * each
    assert len(looked) == 2 + 2 + 2  # in jobs 0 and 8, in the two that are asked for next, in jobs 18 and 26


@needs_answers
def test_the_system_says_what_is_in_memory(tmp_path: Path) -> None:
    path = _written(tmp_path, 40, 1 << 16)
    storage = files.LocalStorage()
    size = storage.size(path)[0]
    if storage.in_memory(path, 0, 1 << 16) is None:
        pytest.skip("the file system does not say what is in memory")
    assert storage.in_memory(path, 0, 1 << 16) is True  # just written

    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    assert storage.in_memory(path, size // 2, 1 << 16) is False

    storage.read(path, 0, size)
    assert storage.in_memory(path, size // 2, 1 << 16) is True


def test_what_the_system_does_not_say_is_not_known_and_what_it_cannot_read_waits_for_no_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _written(tmp_path, 1)
    monkeypatch.setattr(files, "_NOWAIT", 8)
    for name in (str(tmp_path / "none"), str(tmp_path), "a\0b"):
        assert files.LOCAL.in_memory(name, 0, 9) is True
    for number in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.EPERM):
        _fails(monkeypatch, number)
        assert files.LOCAL.in_memory(path, 0, 9) is None
    _fails(monkeypatch, errno.EIO)
    assert files.LOCAL.in_memory(path, 0, 9) is True
    monkeypatch.setattr(files, "_NOWAIT", None)
    assert files.LOCAL.in_memory(path, 0, 9) is None


def _fails(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Have the system answer a question with an error."""

    def refused(*_: Any) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "preadv", refused, raising=False)


def test_a_file_that_cannot_be_asked_for_fails_when_it_is_read(tmp_path: Path) -> None:
    missing = Reference(str(tmp_path / "none"), 0, 9)

    read_ahead([missing])

    with pytest.raises(gp.DataError, match="no such file"):
        missing.read()


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A reader thread as on machines with many CPUs, and how many elements each of its jobs has."""
    found: list[int] = []
    fetch = read_payloads._Fetching._fetch

    def noted(self: Any, elements: Any) -> Any:
        found.append(len(elements))
        return fetch(self, elements)

    monkeypatch.setattr("gpupipe.flow.run.cpu_count", lambda: 4)
    monkeypatch.setattr(read_payloads._Fetching, "_fetch", noted)
    return found


@pytest.mark.parametrize(
    ("size", "count", "most"),
    [(100, 200, read_payloads.MOST), (read_payloads.ENOUGH // 20, 100, 24), (read_payloads.ENOUGH, 30, 8)],
)
def test_jobs_grow_to_many_small_records_or_a_few_large_ones(
    tmp_path: Path, jobs: list[int], size: int, count: int, most: int
) -> None:
    path = _written(tmp_path, 10, size)

    assert len(list(gp.TFRecordDataset([path] * (count // 10)).shuffle(20))) == count

    grown = [min(8 << n, most) for n in range(len(jobs) - 1)]
    assert jobs == [*grown, count - sum(grown)]


def test_a_change_of_cpus_loses_nothing(tmp_path: Path, jobs: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = gp.TFRecordDataset(_written(tmp_path, 300, 100)).shuffle(50)
    expected = list(dataset.iterator(0))
    with dataset.iterator(0) as items:
        found = [next(items) for _ in range(10)]
        monkeypatch.setattr("gpupipe.flow.run.cpu_count", lambda: 2)
        found += items

    assert found == expected


def test_a_job_ends_soon_after_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing waits for the job that runs, which may read from a slow disk."""
    references = [one for _, one in HeaderWalker(_written(tmp_path, 64, 100))]
    one = object.__new__(read_payloads._Fetching)
    stopped = Flag()
    one._columns, one._says, one._run = (0,), True, cast(Any, SimpleNamespace(stopped=stopped))
    one._files = {}

    def stops(some: Any) -> Any:
        stopped.set()
        return read_many(some)

    elements: list[Any] = [((reference,), None, 0) for reference in references]
    assert len(one._fetch(elements)) == 64

    monkeypatch.setattr(read_payloads, "read_many", stops)
    assert len(one._fetch(elements)) == read_payloads.AT_ONCE


def test_arrays_of_a_cache_count_as_what_reading_them_gives(jobs: list[int]) -> None:
    images = [CachedArray(np.zeros(read_payloads.ENOUGH // 20, np.uint8)) for _ in range(24)]
    one = object.__new__(read_payloads._Fetching)
    one._columns, one._most, one._readers = (0,), 64, DaemonPool(1, "unused")

    elements: list[Any] = [((image,), None, 0) for image in images * 2]

    assert len(one._job(iter(elements))) == 24
