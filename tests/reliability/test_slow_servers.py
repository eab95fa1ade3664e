"""A server that takes long for each answer: requests are made side by side and ahead, each of them once."""

from __future__ import annotations

import importlib.util
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fsspec.config import conf
from fsspec.implementations.cached import CachingFileSystem

import gpupipe as gp
from gpupipe import Dataset
from gpupipe.extract.records.tfrecord import RecordReader
from gpupipe.extract.storage.ranges_ahead import RangeBudget
from gpupipe.flow.sources import readers as flow_readers
from tests.reliability.faulty import Faulty
from tests.reliability.record_files import READERS, SIZE, chain
from tests.reliability.resume import through_json
from tests.reliability.test_failed_reads import ALL, EACH, FILES, SCHEMES, written

pytestmark = pytest.mark.usefixtures("afresh")

SLOW = 0.05
RANGES = 3
"""Of a file of records."""


BLOCK = EACH * (SIZE + 100) // RANGES + 1


@pytest.fixture(autouse=True)
def _three_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_readers, "REMOTE_BLOCK", BLOCK)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Faulty]:
    with Faulty(tmp_path).serving() as running:
        yield running


def bytes_ahead(items: Any) -> int:
    (step,) = (step for step in items.memory_report().steps if step.step == "remote files")
    return int(step.bytes)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("kind", READERS)
def test_an_interleave_requests_the_next_ranges_and_files_ahead(
    server: Faulty, tmp_path: Path, kind: str, scheme: str
) -> None:
    names = written(tmp_path, kind)
    expected = list(chain([str(tmp_path / name) for name in names], kind, gp.AUTOTUNE, 8))
    server.delay = SLOW

    assert list(chain([server.url(name, scheme) for name in names], kind, gp.AUTOTUNE, 8)) == expected

    assert server.heads == FILES
    assert server.gets == sum(-(-(tmp_path / name).stat().st_size // BLOCK) for name in names) >= FILES * RANGES
    assert server.most > 8  # more than one for each open file


def test_records_that_are_read_ahead_change_no_state(server: Faulty, tmp_path: Path) -> None:
    paths = [server.url(name) for name in written(tmp_path, "records")]
    local = chain([str(tmp_path / name) for name in written(tmp_path, "records")], "records", gp.AUTOTUNE, 8)
    ds = chain(paths, "records", gp.AUTOTUNE, 8)
    for count in (0, 1, 7, 100, len(ALL) - 1):
        with ds.iterator(epoch=0) as items, local.iterator(epoch=0) as others:
            for _ in range(count):
                assert next(items) == next(others)
            state = through_json(items.state_dict())
            rest = list(items)
        with ds.iterator(epoch=0) as items:
            items.load_state_dict(state)
            assert list(items) == rest


def test_what_is_read_ahead_stays_inside_its_budget(server: Faulty, tmp_path: Path) -> None:
    paths = [server.url(name) for name in written(tmp_path, "records")]
    held: list[int] = []
    with chain(paths, "records", gp.AUTOTUNE, 8, host_memory=4 << 20).iterator(epoch=0) as items:
        for _ in items:
            held.append(bytes_ahead(items))
    assert len(held) == len(ALL)
    assert 0 < max(held) <= (4 << 20) // 8


@pytest.mark.parametrize("scheme", SCHEMES)
def test_sizes_of_listed_files_are_asked_for_side_by_side(server: Faulty, tmp_path: Path, scheme: str) -> None:
    names = written(tmp_path, "records")

    def most(make: Any) -> Any:
        server.most, server.heads, server.delay = 0, 0, SLOW
        made = make()
        server.delay = 0
        assert server.heads == FILES
        assert server.most > FILES // 2
        return made

    files = most(lambda: Dataset.list_files([server.url(name, scheme) for name in names], shuffle=False))
    ds = files.interleave(gp.TFRecordDataset, cycle_length=4)
    with ds.iterator(epoch=0) as items:
        next(items)
        state = most(items.state_dict)
        rest = list(items)
    with ds.iterator(epoch=0) as items:
        most(lambda: items.load_state_dict(state))
        assert list(items) == rest


@pytest.mark.skipif(importlib.util.find_spec("aiohttp") is None, reason="fsspec's HTTP needs aiohttp")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_copy_that_another_thread_makes_fsspec_forget_is_fetched_again(
    server: Faulty, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = written(tmp_path, "records")
    monkeypatch.setitem(conf, "filecache", {"cache_storage": str(tmp_path / "kept")})
    real, asked = CachingFileSystem._check_file, set()

    def forgets(self: CachingFileSystem, path: str) -> object:
        """What it answers the second time for each path, when the file has just been fetched."""
        asked.add((path, 1 + ((path, 1) in asked)))
        if (path, 2) in asked and (path, 3) not in asked:
            asked.add((path, 3))
            return False
        return real(self, path)

    monkeypatch.setattr(CachingFileSystem, "_check_file", forgets)
    paths = [f"filecache::{server.url(name, 'http')}" for name in names]

    found = list(chain(paths, "records", None, 1))

    assert found == list(chain([str(tmp_path / name) for name in names], "records", None, 1))
    assert any(number == 3 for _, number in asked)


@pytest.mark.skipif(importlib.util.find_spec("aiohttp") is None, reason="fsspec's HTTP needs aiohttp")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # fsspec closes no file of blockcache
@pytest.mark.parametrize("cache", ["simplecache", "filecache", "blockcache"])
def test_a_cache_on_disk_fetches_each_file_once(
    server: Faulty, tmp_path: Path, cache: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = written(tmp_path, "records")
    monkeypatch.setitem(conf, cache, {"cache_storage": str(tmp_path / "kept")})
    paths = [f"{cache}::{server.url(name, 'http')}" for name in names]
    server.delay = SLOW
    expected = list(chain([str(tmp_path / name) for name in names], "records", gp.AUTOTUNE, 8))

    assert list(chain(paths, "records", gp.AUTOTUNE, 8)) == expected
    if cache == "blockcache":  # fetches parts of files
        return
    # fsspec asks with a first request, whose answer it does not read, whether the file is a folder.
    assert server.gets <= 2 * FILES
    server.gets = 0
    assert list(chain(paths, "records", gp.AUTOTUNE, 8)) == expected
    assert server.gets == 0


@pytest.mark.skipif(importlib.util.find_spec("aiohttp") is None, reason="fsspec's HTTP needs aiohttp")
def test_a_download_of_a_cache_that_broke_off_is_made_again(
    server: Faulty, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = written(tmp_path, "records")[0]
    monkeypatch.setitem(conf, "filecache", {"cache_storage": str(tmp_path / "kept")})
    server.fault = lambda number: "short" if number == 2 else None  # the first GET asks whether it is a folder
    with gp.TFRecordDataset(f"filecache::{server.url(name, 'http')}").iterator(epoch=0) as items:
        assert list(items) == ALL[:EACH]
        assert items.errors == ()
    assert server.faults == 1


def test_a_reader_is_ready_once_its_first_block_is_there(server: Faulty, tmp_path: Path) -> None:
    path = server.url(written(tmp_path, "records")[0])
    answer = threading.Event()

    def later(number: int) -> None:
        answer.wait(20)

    server.fault = later
    with ThreadPoolExecutor(4) as pool:
        reader = RecordReader(path, block=BLOCK, readers=pool, budget=RangeBudget(1 << 30))
        reader.begin()
        try:
            until = time.monotonic() + 20
            while not server.gets and time.monotonic() < until:
                time.sleep(0.001)
            assert not reader.ready()
        finally:
            answer.set()
        while not reader.ready() and time.monotonic() < until:
            time.sleep(0.001)
        assert reader.ready()
        assert sum(map(len, reader.blocks())) == EACH
