"""Threads share fsspec's list of the copies of ``filecache::`` and ``blockcache::``: no entry is lost."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from gpupipe.extract.storage.list_of_copies import CHANGES, ListOfCopies, share_list

THREADS, EACH = 8, 20
DATA = np.random.default_rng(1).bytes(100_000)


@pytest.fixture
def _threads_change_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def entry(path: str) -> dict[str, object]:
    return {"original": path, "fn": path, "blocks": {0}, "time": 1.0, "uid": path}


@pytest.mark.parametrize("cache", ["filecache", "blockcache"])
@pytest.mark.usefixtures("_threads_change_often")
def test_what_threads_add_save_and_close_is_kept(tmp_path: Path, cache: str) -> None:
    files = fsspec.filesystem(cache, target_protocol="memory", cache_storage=str(tmp_path), skip_instance_cache=True)
    share_list(files)
    share_list(files)
    own, errors = object.__getattribute__(files, "__dict__"), []
    (metadata,) = (value for value in own.values() if isinstance(value, ListOfCopies))
    assert not isinstance(metadata._real, ListOfCopies)
    names = [[f"{thread}-{number}" for number in range(EACH)] for thread in range(THREADS)]

    def work(mine: list[str]) -> None:
        opened = type("Opened", (), {"blocksize": 1, "size": 2})
        try:
            for name in mine:
                metadata.update_file(name, entry(name))
                files.save_cache()
                metadata.on_close_cached_file(opened, name)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(mine,)) for mine in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    wanted = {name for mine in names for name in mine}
    assert errors == []
    assert set(metadata.cached_files[-1]) == wanted
    assert set(json.loads((tmp_path / "cache").read_text())) == wanted


@pytest.mark.parametrize("cache", ["filecache", "blockcache", "simplecache"])
def test_fsspec_has_the_list_that_is_guarded(tmp_path: Path, cache: str) -> None:
    files = fsspec.filesystem(cache, target_protocol="memory", cache_storage=str(tmp_path), skip_instance_cache=True)
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
        files = fsspec.filesystem("blockcache", fs=_Files(), cache_storage=str(tmp_path), skip_instance_cache=True)
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
    files = fsspec.filesystem(
        "filecache", target_protocol="memory", cache_storage=str(tmp_path), skip_instance_cache=True
    )
    share_list(files)
    files.fs.pipe_file("/copied", b"old")
    assert files.cat_file("/copied") == b"old"
    files.fs.pipe_file("/copied", b"new")
    assert files.cat_file("/copied") == b"old"

    files.pop_from_cache("/copied")
    files.load_cache()

    assert files.cat_file("/copied") == b"new"
    files.fs.rm_file("/copied")
