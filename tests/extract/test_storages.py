"""What `Storage` promises, of every storage: those of users' files, and the one that a manifest is made through."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gpupipe.errors import RecordError
from gpupipe.extract.records.manifest_writer import _Ranges
from gpupipe.extract.storage.files import LocalStorage, Storage
from gpupipe.extract.storage.remote import RemoteStorage

SIZE = 10_000
DATA = {name: os.urandom(SIZE) for name in "ab"}
Made = tuple[Storage, Callable[[str], str]]


def _local(folder: Path) -> Made:
    for name, data in DATA.items():
        (folder / name).write_bytes(data)
    return LocalStorage(), lambda name: str(folder / name)


def _remote(folder: Path) -> Made:
    files = pytest.importorskip("fsspec").filesystem("memory")
    for name, data in DATA.items():
        files.pipe_file(f"/{folder.name}/{name}", data)
    return RemoteStorage("memory://"), lambda name: f"memory://{folder.name}/{name}"


def _ranges_of(make: Callable[[Path], Made]) -> Callable[[Path], Made]:
    def made(folder: Path) -> Made:
        storage, path = make(folder)
        return _Ranges(storage), path

    return made


STORAGES: dict[str, Callable[[Path], Made]] = {
    "local": _local,
    "remote": _remote,
    "ranges of a local one": _ranges_of(_local),
    "ranges of a remote one": _ranges_of(_remote),
}


@pytest.fixture(params=STORAGES.values(), ids=list(STORAGES))
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Made:
    both: Made = request.param(tmp_path)
    return both


RANGES = [(0, 10), (5, 7), (SIZE - 3, 3), (0, SIZE), (4000, 0), (SIZE, 0), (100, 5000), (99, 1)]


@pytest.mark.parametrize("sized", [True, False])
def test_a_range_is_exactly_these_bytes(made: Made, sized: bool) -> None:
    storage, path = made
    if sized:
        assert {name: storage.size(path(name))[0] for name in DATA} == {"a": SIZE, "b": SIZE}
    for offset, n in RANGES:
        for name, data in DATA.items():  # in turn: what is held of one file is not that of the other
            out = bytearray(n)
            storage.readinto(path(name), offset, memoryview(out))

            assert storage.read(path(name), offset, n) == data[offset : offset + n] == out


@pytest.mark.parametrize(("offset", "n", "early"), [(0, SIZE + 2, 2), (SIZE - 1, 5, 4), (SIZE, 1, 1)])
def test_a_range_behind_the_end_is_an_error(made: Made, offset: int, n: int, early: int) -> None:
    storage, path = made
    storage.size(path("a"))
    for read in (lambda: storage.read(path("a"), offset, n), lambda: _into(storage, path("a"), offset, n)):
        with pytest.raises(RecordError, match=rf"{n} bytes are needed, the file ends {early} bytes too early"):
            read()


def _into(storage: Storage, name: str, offset: int, n: int) -> None:
    storage.readinto(name, offset, memoryview(bytearray(n)))


def test_another_version_is_an_error_also_of_bytes_that_were_read_before(made: Made) -> None:
    storage, path = made
    _, tag = storage.size(path("a"))

    assert storage.read(path("a"), 0, 9, tag) == DATA["a"][:9]
    with pytest.raises(RecordError, match="must stay as it is while it is read"):
        storage.read(path("a"), 0, 9, f"{tag}, another")


def test_asking_ahead_says_whether_it_can_and_changes_nothing(made: Made) -> None:
    storage, path = made

    assert storage.ahead(path("a"), 0, 100) is (isinstance(storage, LocalStorage) and hasattr(os, "posix_fadvise"))
    assert storage.ahead(path("none"), 0, 100) is storage.ahead(path("a"), 0, 100)
    assert storage.read(path("a"), 0, 100) == DATA["a"][:100]
