"""Files over HTTP whose server does not say how long they are: read as a whole, by every reader."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe.errors import PlanError, RecordError
from gpupipe.extract.storage import retry, without_size
from gpupipe.extract.storage.remote import remote_storage
from gpupipe.extract.storage.without_size import WITHOUT_SIZE, Bodies
from tests.reliability.faulty import Faulty

LINES = [b"%d" % i for i in range(40)]
READERS: dict[str, Callable[[str], Any]] = {
    "lines": lambda url: list(gp.TextLineDataset(url + "lines")),
    "records": lambda url: list(gp.TFRecordDataset(url + "records")),
    "read ahead": lambda url: list(gp.TFRecordDataset([url + "records", url + "lines.tfr"], num_parallel_reads=2)),
    "fixed records": lambda url: list(gp.FixedLengthRecordDataset(url + "lines", 3, 1)),
    "items": lambda url: [int(x) for x in gp.NumpyDataset(url + "numbers.npy")],
    "samples": lambda url: list(gp.WebDataset(url + "samples.tar", "txt")),
    "read_file": lambda url: list(gp.Dataset.from_tensors(url + "lines").map(gp.io.read_file)),
    "listed": lambda url: list(gp.TextLineDataset(gp.Dataset.list_files(url + "lines"))),
}


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(retry, "PAUSE", 0.001)
    retry.GIVEN_UP.clear()
    WITHOUT_SIZE.clear()
    yield
    WITHOUT_SIZE.clear()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "lines").write_bytes(b"\n".join(LINES))
    np.save(tmp_path / "numbers.npy", np.arange(5))
    with tarfile.open(tmp_path / "samples.tar", "w") as tar:
        tar.add(tmp_path / "lines", "a.txt")
    for name in ("records", "lines.tfr"):
        with gp.io.TFRecordWriter(str(tmp_path / name)) as out:
            for line in LINES:
                out.write(line)
    return tmp_path


def served(folder: Path, kind: str) -> Faulty:
    return Faulty(folder, fault=lambda number: kind, looking=lambda number: kind, keeps=kind != "endless")


def ranges(url: str) -> Callable[[int, int], bytes]:
    """What reads a range of the version of a file that is there now."""
    storage = remote_storage(url)
    _, tag = storage.size(url)
    return lambda offset, n: storage.read(url, offset, n, tag)


@pytest.mark.parametrize("kind", ["endless", "chunked", "gzip"])
@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_every_reader_gives_what_the_file_holds(read: Callable[[str], Any], kind: str, folder: Path) -> None:
    with served(folder, kind).serving() as server:
        found = read(server.url(""))

    assert found == read(f"{folder}/")


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_a_server_that_says_0_of_a_file_without_giving_it_is_asked_for_it(
    read: Callable[[str], Any], folder: Path
) -> None:
    """Some make an answer only when they give it, and say 0 to a HEAD; a file that is empty is so."""
    (folder / "empty").touch()
    with Faulty(folder, looking=lambda number: "200").serving() as server:
        found = read(server.url(""))
        assert list(gp.TextLineDataset(server.url("empty"))) == []

    assert found == read(f"{folder}/")


def test_all_ranges_are_of_one_answer(folder: Path) -> None:
    with served(folder, "chunked").serving() as server:
        read = ranges(server.url("lines"))
        asked = server.gets
        assert [read(n, 1) for n in range(3)] == [b"0", b"\n", b"1"]

        assert server.gets == asked


def test_an_answer_that_breaks_off_is_no_shorter_file(folder: Path) -> None:
    with served(folder, "cut").serving() as server, pytest.raises(RecordError, match="payload"):
        list(gp.TextLineDataset(server.url("lines")))


def test_a_file_that_is_too_long_to_keep_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(without_size, "MOST_BYTES", 50)

    with (
        served(folder, "gzip").serving() as server,
        pytest.raises(RecordError, match=r"more than 50 bytes: download it"),
    ):
        list(gp.TextLineDataset(server.url("lines")))


def test_what_is_no_longer_kept_is_asked_for_again_and_must_be_the_same(folder: Path) -> None:
    with served(folder, "chunked").serving() as server:
        read = ranges(server.url("lines"))
        asked = server.gets
        WITHOUT_SIZE.clear()
        assert read(2, 3) == b"1\n2"
        assert server.gets > asked
        (folder / "lines").write_bytes(b"\n".join(LINES[::-1]))
        WITHOUT_SIZE.clear()

        with pytest.raises(RecordError, match=r"changed while it was read: .* was whole-109-.*, and is whole-109-"):
            read(2, 3)


def test_a_state_goes_on_where_it_was(folder: Path) -> None:
    with served(folder, "gzip").serving() as server:
        ds = gp.TFRecordDataset(server.url("records"))
        items = iter(ds)
        first = [next(items) for _ in range(7)]
        state = items.state_dict()
        WITHOUT_SIZE.clear()
        again = iter(ds)
        again.load_state_dict(state)

        assert first + list(again) == LINES


def test_denied_access_to_a_url_without_wildcards_is_said(folder: Path) -> None:
    with served(folder, "403").serving() as server, pytest.raises(PlanError, match="the server answers 403 Forbidden"):
        gp.Dataset.list_files(server.url("lines?signature=no"))


def test_only_the_last_files_are_kept() -> None:
    bodies = Bodies(most=10)
    tags = {name: bodies.add(name, body) for name, body in (("a", b"12345"), ("b", b"12345"), ("c", b"1"))}

    assert [bodies.get(name, tag) for name, tag in tags.items()] == [None, b"12345", b"1"]
    assert bodies.get("b", bodies.add("d", b"other")) is None
    longer = bodies.add("e", b"x" * 50)
    assert bodies.get("e", longer) == b"x" * 50  # one file is kept however long it is
