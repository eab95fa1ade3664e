"""Files named by a URL, through fsspec: the same records, lines and names as from this machine."""

from __future__ import annotations

import gzip
import socket
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

import gpupipe as gp
from gpupipe import Dataset, FixedLengthRecordDataset, Options, TextLineDataset, TFRecordDataset
from gpupipe.errors import DataError, DirectoryError, MissingDependencyError, MissingFileError, PlanError, RecordError
from gpupipe.extract.storage import remote, retry
from gpupipe.extract.storage.patterns import expand
from gpupipe.extract.storage.remote import RemoteStorage
from gpupipe.threads import DaemonPool
from gpupipe.urls import without_secrets
from tests.behaviour.model import interleaved, outcomes
from tests.chains.damage import write
from tests.reliability.faulty import Faulty

fsspec = pytest.importorskip("fsspec")


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits long before another try."""
    monkeypatch.setattr(retry, "PAUSE", 0.001)
    retry.GIVEN_UP.clear()


NAMES = ("d/a-0", "d/a-1", "d/a-2", "d/b-0", "d/e/a-0", "d/e/f/a-9", "d/.hidden/a-0", "top")


@pytest.fixture
def files() -> Iterator[Any]:
    system = fsspec.filesystem("memory")
    system.store.clear()
    system.pseudo_dirs[:] = [""]
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]


def shards(files: Any, tmp_path: Path, count: int = 3, each: int = 5) -> list[list[bytes]]:
    made = [[b"%d-%d" % (i, j) * (j + 1) for j in range(each)] for i in range(count)]
    for i, values in enumerate(made):
        write(tmp_path / "one", values)
        files.pipe_file(f"/d/s-{i}.tfrecord", (tmp_path / "one").read_bytes())
    return made


# ---- names


PATTERNS = "* d/* d/a-* d/a-? d/[ab]-0 d/{a,b}-0 d/** **/a-0 */e/a-* d/a-1 d none* d/none **"


def test_patterns_match_as_they_do_on_this_machine(files: Any, tmp_path: Path) -> None:
    for name in NAMES:
        files.pipe_file(f"/{name}", b"")
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")

    for pattern in PATTERNS.split():
        local = [(name[len(str(tmp_path)) + 1 :], stable) for name, stable in expand(f"{tmp_path}/{pattern}")]
        assert expand(f"memory://{pattern}") == [(f"memory://{name}", stable) for name, stable in local], pattern


def test_list_files_takes_urls_and_paths_together(files: Any, tmp_path: Path) -> None:
    files.pipe_file("/d/b", b"")
    files.pipe_file("/d/a", b"")
    (tmp_path / "c").write_bytes(b"")

    listed = Dataset.list_files(["memory://d/*", f"{tmp_path}/*"], shuffle=False)

    assert sorted(listed) == sorted([b"memory://d/a", b"memory://d/b", str(tmp_path / "c").encode()])
    with pytest.raises(ValueError, match="none match memory://nowhere/\\*"):
        Dataset.list_files("memory://nowhere/*")


def test_a_folder_that_cannot_be_listed_is_an_error_on_the_users_line(
    files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **kwargs: Any) -> Any:
        raise ConnectionError("no network")

    monkeypatch.setattr(type(files), "ls", fail)
    with pytest.raises(PlanError, match="cannot be listed: ConnectionError: no network"):
        Dataset.list_files("memory://d/*")


# ---- contents


@pytest.mark.parametrize("calls", [None, 1, 4])
def test_records_come_as_from_this_machine(files: Any, tmp_path: Path, calls: int | None) -> None:
    made = shards(files, tmp_path)
    listed = Dataset.list_files("memory://d/*.tfrecord", shuffle=False)

    assert list(listed.interleave(TFRecordDataset, cycle_length=2, num_parallel_calls=calls)) == interleaved(made, 2, 1)
    assert list(TFRecordDataset([f"memory://d/s-{i}.tfrecord" for i in range(3)], None, None, calls)) == (
        interleaved(made, 1 if calls is None else calls, 1)
    )


def test_lines_and_fixed_records(files: Any) -> None:
    files.pipe_file("/d/x", b"Haabb\r\n")
    files.pipe_file("/d/y.gz", gzip.compress(b"one\ntwo"))

    assert list(TextLineDataset("memory://d/x")) == [b"Haabb"]
    assert list(TextLineDataset(["memory://d/y.gz"], "GZIP", num_parallel_reads=2)) == [b"one", b"two"]
    assert list(FixedLengthRecordDataset("memory://d/x", 2, 1, 2)) == [b"aa", b"bb"]
    assert list(Dataset.list_files("memory://d/x").flat_map(lambda p: FixedLengthRecordDataset(p, 7))) == [b"Haabb\r\n"]


def test_identities_are_those_of_the_same_files_elsewhere(files: Any, tmp_path: Path) -> None:
    made = shards(files, tmp_path)
    (tmp_path / "d").mkdir()
    for i, values in enumerate(made):
        write(tmp_path / "d" / f"s-{i}.tfrecord", values)

    def numbers(pattern: str) -> list[Any]:
        listed = Dataset.list_files(pattern, shuffle=False)
        return list(listed.interleave(TFRecordDataset).map(lambda r, rng: (r, rng.random()), rng=True))

    assert numbers("memory://d/*") == numbers(f"{tmp_path}/d/*")


def test_threads_read_ahead_only_where_that_was_asked_for(
    files: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = shards(files, tmp_path, 2, 40)
    readers: set[str] = set()
    read, submit = RemoteStorage.read, DaemonPool.submit

    def noted(self: Any, *args: Any) -> bytes:
        readers.add(threading.current_thread().name.rsplit("-", 1)[0])
        return read(self, *args)

    def begun(self: Any, *args: Any) -> Any:
        future = submit(self, *args)
        while not future.running() and not future.done():  # else whoever wants the block first reads it
            time.sleep(0)
        return future

    monkeypatch.setattr(RemoteStorage, "read", noted)
    monkeypatch.setattr(DaemonPool, "submit", begun)
    monkeypatch.setattr("gpupipe.flow.sources.readers.REMOTE_BLOCK", 256)
    names = [f"memory://d/s-{i}.tfrecord" for i in range(2)]

    assert list(TFRecordDataset(names)) == [*chain.from_iterable(made)]
    assert readers == {"MainThread"}
    assert list(TFRecordDataset(names, num_parallel_reads=2)) == interleaved(made, 2, 1)
    assert "gpupipe-remote" in readers
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("gpupipe-remote")]


# ---- what goes wrong


def test_a_missing_file_is_one_error_and_the_others_are_read(files: Any, tmp_path: Path) -> None:
    made = shards(files, tmp_path, 2)
    names = ["memory://d/s-0.tfrecord", "memory://d/none", "memory://d", "memory://d/s-1.tfrecord"]

    assert outcomes(TFRecordDataset(names)) == [*made[0], "error", "error", *made[1]]
    for name, kind in (("memory://d/none", MissingFileError), ("memory://d", DirectoryError)):
        with pytest.raises(kind, match=name):
            list(TextLineDataset(name))


@pytest.mark.parametrize("error", [OSError("timed out"), RuntimeError("no credentials")], ids=repr)
def test_what_a_client_raises_is_a_data_error_that_names_the_file(
    files: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    shards(files, tmp_path, 1)

    def fail(*args: Any, **kwargs: Any) -> Any:
        raise error

    for method in ("cat_file", "info"):
        with monkeypatch.context() as patch:
            patch.setattr(type(files), method, fail)
            dataset = TFRecordDataset("memory://d/s-0.tfrecord")
            with pytest.raises(gp.DataError, match=f"cannot be read: {type(error).__name__}: {error}") as caught:
                list(dataset)
            assert caught.value.file == "memory://d/s-0.tfrecord"
            assert list(dataset.with_options(Options(on_error="skip", lost_files="skip"))) == []


def test_a_server_that_ignores_ranges_is_understood_and_one_without_sizes_or_all_bytes_an_error(
    files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.pipe_file("/d/x", b"0123456789")
    storage = RemoteStorage("memory://d/x")
    storage.size("memory://d/x")
    files.pipe_file("/d/x", b"01")
    with pytest.raises(RecordError, match="the file ends 3 bytes too early"):
        storage.read("memory://d/x", 1, 4)
    monkeypatch.setattr(type(files), "cat_file", lambda self, path, start=None, end=None: b"0123456789")
    assert storage.read("memory://d/x", 3, 4) == b"3456"

    monkeypatch.setattr(type(files), "info", lambda *args, **kwargs: {"size": None, "type": "file"})
    size, tag = storage.size("memory://d/x")  # it is read as a whole
    assert size == 2
    assert storage.read("memory://d/x", 1, 1, tag) == b"1"


def test_without_fsspec_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_STORAGES", {})
    for name in [name for name in sys.modules if name == "fsspec" or name.startswith("fsspec.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fsspec", None)
    monkeypatch.setitem(sys.modules, "fsspec.core", None)

    for make in (TFRecordDataset, TextLineDataset, Dataset.list_files):
        with pytest.raises(MissingDependencyError, match="pip install fsspec"):
            make("memory://d/x")


def test_a_scheme_that_is_unknown_or_lacks_its_package_is_an_error_that_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(PlanError, match="a scheme that fsspec knows"):
        TFRecordDataset("nosuch://x")

    def missing(url: str) -> Any:
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(remote, "_STORAGES", {})
    with monkeypatch.context() as patched:
        patched.setattr("fsspec.core.get_filesystem_class", missing)
        with pytest.raises(MissingDependencyError, match="Install s3fs to access S3"):
            TFRecordDataset("s3://bucket/x")

    monkeypatch.setattr("fsspec.core.url_to_fs", missing)  # where it is imported with the first request
    with pytest.raises(MissingDependencyError, match="Install s3fs to access S3"):
        list(TFRecordDataset("memory://x").with_options(Options(on_error="skip", lost_files="skip")))


def _refused(folder: Path) -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"ftp://user:pw@127.0.0.1:{free.getsockname()[1]}/x"


def test_an_archive_is_opened_by_the_first_request_which_is_made_again(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as out:
        out.writestr("a.txt", "one\ntwo\n")

    def busy(number: int) -> str | None:
        return "503" if number < 3 else None

    with Faulty(tmp_path, fault=busy, looking=busy).serving() as server:
        ds = TextLineDataset(f"zip://a.txt::{server.url('a.zip')}")
        assert (server.heads, server.gets) == (0, 0)

        assert list(ds) == list(ds) == [b"one", b"two"]
        assert server.faults == 2


UNOPENED: dict[str, tuple[Callable[[Path], str], str]] = {
    "no archive": (lambda folder: f"zip://a::{folder}/none.zip", "no such file"),
    "no zip": (lambda folder: f"zip://a::{folder}/text", "File is not a zip file"),
    "no tar": (lambda folder: f"tar://a::{folder}/text", "ReadError"),
    "no member": (lambda folder: f"zip://a::{folder}/empty.zip", "no such file"),
    "a folder": (lambda folder: f"zip://a::{folder}", "a directory"),
    "no server": (_refused, "refused"),
}
"""What cannot be opened -> its URL, and what is said of it."""


@pytest.mark.parametrize("name", UNOPENED)
def test_a_file_system_that_cannot_be_opened_is_the_error_of_a_file(name: str, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no archive\n" * 1000)
    zipfile.ZipFile(tmp_path / "empty.zip", "w").close()
    make, reason = UNOPENED[name]
    url = make(tmp_path)
    for ds in (TextLineDataset(url), Dataset.from_tensor_slices([url]).interleave(TextLineDataset)):
        with pytest.raises(DataError, match=reason):
            list(ds)
        with iter(ds.with_options(Options(on_error="skip", lost_files="skip"))) as items:
            assert list(items) == []
            assert [(one.file, one.stage) for one in items.errors] == [(without_secrets(url), "read")]
    if "::" in url:
        with pytest.raises(PlanError, match=r"cannot be listed|none match"):
            Dataset.list_files(url.replace("://a", "://*.txt"))
