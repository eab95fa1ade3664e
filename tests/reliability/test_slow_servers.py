"""A server that takes long for each answer: requests are made side by side and ahead, each of them once."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from fsspec.config import conf
from fsspec.implementations.cached import CachingFileSystem
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

import gpupipe as gp
from gpupipe import Dataset
from gpupipe.extract.records.tfrecord import RecordReader
from gpupipe.extract.storage.list_of_copies import CHANGES, ListOfCopies, share_list
from gpupipe.extract.storage.ranges_ahead import RangeBudget
from gpupipe.flow.sources import readers as flow_readers
from tests.reliability.faulty import Faulty
from tests.reliability.record_files import READERS, SIZE, chain
from tests.reliability.resume import goes_on, taken
from tests.reliability.test_failed_reads import ALL, EACH, FILES, written

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


@pytest.mark.parametrize("kind", READERS)
def test_an_interleave_requests_the_next_ranges_and_files_ahead(server: Faulty, tmp_path: Path, kind: str) -> None:
    names = written(tmp_path, kind)
    expected = list(chain([str(tmp_path / name) for name in names], kind, gp.AUTOTUNE, 8))
    server.delay = SLOW

    assert list(chain([server.url(name) for name in names], kind, gp.AUTOTUNE, 8)) == expected

    assert server.heads == FILES
    assert server.gets == sum(-(-(tmp_path / name).stat().st_size // BLOCK) for name in names) >= FILES * RANGES
    assert server.most > 8  # more than one for each open file


def test_records_that_are_read_ahead_change_no_state(server: Faulty, tmp_path: Path) -> None:
    paths = [server.url(name) for name in written(tmp_path, "records")]
    local = chain([str(tmp_path / name) for name in written(tmp_path, "records")], "records", gp.AUTOTUNE, 8)
    ds = chain(paths, "records", gp.AUTOTUNE, 8)
    assert goes_on(lambda: ds.iterator(epoch=0), (0, 1, 7, 100, len(ALL) - 1)) == taken(local.iterator(epoch=0))


def test_what_is_read_ahead_stays_inside_its_budget(server: Faulty, tmp_path: Path) -> None:
    paths = [server.url(name) for name in written(tmp_path, "records")]
    held: list[int] = []
    with chain(paths, "records", gp.AUTOTUNE, 8, host_memory=4 << 20).iterator(epoch=0) as items:
        for _ in items:
            held.append(bytes_ahead(items))
    assert len(held) == len(ALL)
    assert 0 < max(held) <= (4 << 20) // 8


def test_sizes_of_listed_files_are_asked_for_side_by_side(server: Faulty, tmp_path: Path) -> None:
    names = written(tmp_path, "records")

    def most(make: Any) -> Any:
        server.most, server.heads, server.delay = 0, 0, SLOW
        made = make()
        server.delay = 0
        assert server.heads == FILES
        assert server.most > FILES // 2
        return made

    files = most(lambda: Dataset.list_files([server.url(name) for name in names], shuffle=False))
    ds = files.interleave(gp.TFRecordDataset, cycle_length=4).with_options(gp.Options(compare_files="sizes"))
    with ds.iterator(epoch=0) as items:
        next(items)
        state = most(items.state_dict)
        rest = list(items)
    with ds.iterator(epoch=0) as items:
        most(lambda: items.load_state_dict(state))
        assert list(items) == rest


@pytest.fixture
def _copies_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for cache in ("simplecache", "filecache", "blockcache"):
        monkeypatch.setitem(conf, cache, {"cache_storage": str(tmp_path / "kept")})


@pytest.mark.usefixtures("_copies_here")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_copy_that_another_thread_makes_fsspec_forget_is_fetched_again(
    server: Faulty, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = written(tmp_path, "records")
    real, asked = CachingFileSystem._check_file, set()

    def forgets(self: CachingFileSystem, path: str) -> object:
        """What it answers the second time for each path, when the file has just been fetched."""
        asked.add((path, 1 + ((path, 1) in asked)))
        if (path, 2) in asked and (path, 3) not in asked:
            asked.add((path, 3))
            return False
        return real(self, path)

    monkeypatch.setattr(CachingFileSystem, "_check_file", forgets)

    assert list(chain([f"filecache::{server.url(name)}" for name in names], "records", None, 1)) == ALL
    assert any(number == 3 for _, number in asked)


@pytest.mark.usefixtures("_copies_here")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # fsspec closes no file of blockcache
@pytest.mark.parametrize("cache", ["simplecache", "filecache", "blockcache"])
def test_a_cache_on_disk_fetches_each_file_once(server: Faulty, tmp_path: Path, cache: str) -> None:
    names = written(tmp_path, "records")
    paths = [f"{cache}::{server.url(name)}" for name in names]
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


@pytest.mark.usefixtures("_copies_here")
def test_a_download_of_a_cache_that_broke_off_is_made_again(server: Faulty, tmp_path: Path) -> None:
    name = written(tmp_path, "records")[0]
    server.fault = lambda number: "short" if number == 2 else None  # the first GET asks whether it is a folder
    with gp.TFRecordDataset(f"filecache::{server.url(name)}").iterator(epoch=0) as items:
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


THREADS, ENTRIES = 8, 20
DATA = np.random.default_rng(1).bytes(100_000)


@pytest.fixture
def _threads_change_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def cached(cache: str, folder: Path, **more: Any) -> Any:
    """A file system of fsspec with copies in a folder."""
    return fsspec.filesystem(cache, cache_storage=str(folder), skip_instance_cache=True, **more)


def entry(path: str) -> dict[str, object]:
    return {"original": path, "fn": path, "blocks": {0}, "time": 1.0, "uid": path}


@pytest.mark.parametrize("cache", ["filecache", "blockcache"])
@pytest.mark.usefixtures("_threads_change_often")
def test_what_threads_add_save_and_close_is_kept(tmp_path: Path, cache: str) -> None:
    files = cached(cache, tmp_path, target_protocol="memory")
    share_list(files)
    share_list(files)
    own = object.__getattribute__(files, "__dict__")
    (metadata,) = (value for value in own.values() if isinstance(value, ListOfCopies))
    assert not isinstance(metadata._real, ListOfCopies)
    names = [[f"{thread}-{number}" for number in range(ENTRIES)] for thread in range(THREADS)]

    def work(mine: list[str]) -> None:
        opened = type("Opened", (), {"blocksize": 1, "size": 2})
        for name in mine:
            metadata.update_file(name, entry(name))
            files.save_cache()
            metadata.on_close_cached_file(opened, name)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, names))

    wanted = {name for mine in names for name in mine}
    assert set(metadata.cached_files[-1]) == wanted
    assert set(json.loads((tmp_path / "cache").read_text())) == wanted


@pytest.mark.parametrize("cache", ["filecache", "blockcache", "simplecache"])
def test_fsspec_has_the_list_that_is_guarded(tmp_path: Path, cache: str) -> None:
    files = cached(cache, tmp_path, target_protocol="memory")
    own = object.__getattribute__(files, "__dict__")
    before = dict(own)

    share_list(files)

    lists = [before[name] for name, value in own.items() if isinstance(value, ListOfCopies)]
    assert len(lists) == 1, f"fsspec {fsspec.__version__} keeps no list of copies with the methods {CHANGES}"
    methods = {name for name, value in vars(type(lists[0])).items() if callable(value) and name[0] != "_"}
    assert methods == {*CHANGES, "check_file"}, f"fsspec {fsspec.__version__}: does a new one change the list?"


def test_a_list_that_is_not_found_is_said(caplog: pytest.LogCaptureFixture) -> None:
    memory = fsspec.filesystem("memory")
    before = dict(vars(memory))

    share_list(memory)

    assert vars(memory) == before
    assert "MemoryFileSystem of this version of fsspec keeps its list of copies where" in caplog.text


class _File(AbstractBufferedFile):  # type: ignore[misc]
    def _fetch_range(self, start: int, end: int) -> bytes:
        return DATA[start:end]


class _Files(AbstractFileSystem):  # type: ignore[misc]
    """Any name is a file of the same bytes."""

    protocol, cachable = "same", False

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        return {"name": path, "size": len(DATA), "type": "file"}

    def _open(self, path: str, mode: str = "rb", block_size: Any = 1000, cache_type: str = "none", **_: Any) -> Any:
        return _File(self, path, mode, block_size, cache_type=cache_type)

    def ukey(self, path: str) -> str:
        return path


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # fsspec closes no file of blockcache
def test_a_file_with_holes_does_not_count_as_whole_after_the_cache_was_cleared(tmp_path: Path) -> None:
    def opened() -> Any:
        files = cached("blockcache", tmp_path, fs=_Files())
        share_list(files)
        return files

    def read(files: Any, path: str, start: int, count: int) -> Any:
        with files.open(path, "rb", block_size=1000) as file:
            file.seek(start)
            return file.read(count)

    first, second = opened(), opened()
    assert read(first, "/x", 0, len(DATA)) == DATA
    first.clear_cache()
    assert read(second, "/x", 0, 10) == DATA[:10]
    assert read(first, "/y", 0, 10) == DATA[:10]  # which writes its list

    assert read(opened(), "/x", 50_000, 10) == DATA[50_000:50_010]


def test_a_copy_that_was_dropped_is_fetched_again(tmp_path: Path) -> None:
    files = cached("filecache", tmp_path, target_protocol="memory")
    share_list(files)
    files.fs.pipe_file("/copied", b"old")
    assert files.cat_file("/copied") == b"old"
    files.fs.pipe_file("/copied", b"new")
    assert files.cat_file("/copied") == b"old"

    files.pop_from_cache("/copied")
    files.load_cache()

    assert files.cat_file("/copied") == b"new"
    files.fs.rm_file("/copied")
