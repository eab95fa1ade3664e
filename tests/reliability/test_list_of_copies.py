"""Threads share fsspec's list of the copies of ``filecache::`` and ``blockcache::``: no entry is lost."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from gpupipe.extract.storage.list_of_copies import ListOfCopies, share_list

THREADS, EACH = 8, 20


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
def test_what_threads_add_save_close_and_read_anew_is_kept(tmp_path: Path, cache: str) -> None:
    files = fsspec.filesystem(cache, target_protocol="memory", cache_storage=str(tmp_path), skip_instance_cache=True)
    share_list(files)
    share_list(files)
    metadata, errors = object.__getattribute__(files, "__dict__")["_metadata"], []
    assert isinstance(metadata, ListOfCopies)
    assert not isinstance(metadata._real, ListOfCopies)
    names = [[f"{thread}-{number}" for number in range(EACH)] for thread in range(THREADS)]

    def work(mine: list[str]) -> None:
        opened = type("Opened", (), {"blocksize": 1, "size": 2})
        try:
            for number, name in enumerate(mine):
                metadata.update_file(name, entry(name))
                if number % 5 == 0:
                    metadata.load()
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


def test_simplecache_and_other_file_systems_are_left_as_they_are() -> None:
    memory = fsspec.filesystem("memory")
    share_list(memory)
    assert "_metadata" not in vars(memory)


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
