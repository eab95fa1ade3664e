"""What HTTP servers answer to a request for a range: compared with it, and named where it is something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpupipe.errors import RecordError
from gpupipe.extract.storage import retry
from gpupipe.extract.storage.files import changed
from gpupipe.extract.storage.http_answers import FileVersion, _shown
from gpupipe.extract.storage.remote import remote_storage
from tests.reliability.faulty import Faulty

DATA = b"".join(b"%04d" % i for i in range(1000))
VERSION = {"ETag": '"1"', "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"}
NEW = {"ETag": '"2"', "Last-Modified": "Mon, 01 Jan 2024 00:00:01 GMT"}
RANGE = "bytes=1000-1099"
WRONG = {
    "elsewhere": f"the server answers {RANGE} with bytes 1-100/4000",
    "less": f"the server answers {RANGE} with bytes 1000-1049/4000",
    "no place": f"the server answers {RANGE} with no Content-Range",
    "empty place": f"the server answers {RANGE} with no Content-Range",
    "odd place": f"the server answers {RANGE} with bytes 1000-999999",
    "parts": f"the server answers {RANGE} with no Content-Range",
    "long": f"the server sends more than was asked for, {RANGE}",
    "flood": f"the server sends more than was asked for, {RANGE}",
    "flood of a file": f"the server sends more than was asked for, {RANGE}",
    "login": f"the server answers {RANGE} with 100 bytes that are not the file, which has 4000",
    "half in chunks": f"the server answers {RANGE} with 2000 bytes that are not the file, which has 4000",
    "gzip of a range": f"the server answers {RANGE} with a range of what gzip made of the file",
    "nothing": "the server answers 204, without a file",
    "no status": "the answer of the server is no HTTP",
}
RIGHT = ("whole", "untold", "of a file", "in chunks", "file in chunks", "gzip of a file")


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits long before another try."""
    monkeypatch.setattr(retry, "PAUSE", 0.001)
    retry.GIVEN_UP.clear()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "x").write_bytes(DATA)
    (tmp_path / "x.new").write_bytes(DATA[::-1])
    return tmp_path


def read(server: Faulty) -> bytes:
    url = server.url("x")
    storage = remote_storage(url)
    _, tag = storage.size(url)
    return storage.read(url, 1000, 100, tag)


@pytest.mark.parametrize("kind", RIGHT)
def test_an_unusual_answer_that_has_what_was_asked_for_is_taken(folder: Path, kind: str) -> None:
    with Faulty(folder, lambda number: kind, keeps=True, version=VERSION).serving() as server:
        assert read(server) == DATA[1000:1100]
        assert (server.heads, server.gets) == (1, 1)


@pytest.mark.parametrize("kind", WRONG)
def test_an_answer_of_something_else_is_named_and_asked_for_again(folder: Path, kind: str) -> None:
    with Faulty(folder, lambda number: kind, keeps=True, version=VERSION).serving() as server:
        with pytest.raises(RecordError) as caught:
            read(server)

        assert WRONG[kind] in str(caught.value)
        assert "6 tries in" in str(caught.value)
        assert (server.heads, server.gets) == (1, retry.TRIES)
        retry.GIVEN_UP.clear()
        server.fault = lambda number: kind if number == retry.TRIES + 1 else None
        assert read(server) == DATA[1000:1100]


@pytest.mark.parametrize(("kind", "found"), [("replaced", '4000-"2"'), ("of a longer file", '4001-"1"')])
def test_another_version_is_an_error_at_once_that_names_both(folder: Path, kind: str, found: str) -> None:
    with Faulty(folder, lambda number: kind, keeps=True, version=VERSION, new_version=NEW).serving() as server:
        with pytest.raises(RecordError) as caught:
            read(server)

        assert (
            f'changed while it was read: its version (size, and time, ETag or checksum) was 4000-"1", and is {found};'
            in str(caught.value)
        )
        assert (server.heads, server.gets) == (1, 1)


@pytest.mark.parametrize("told", [VERSION, {"ETag": VERSION["ETag"]}, {"Last-Modified": VERSION["Last-Modified"]}])
def test_a_server_that_tells_a_version_with_the_data_only_is_held_to_that(folder: Path, told: dict[str, str]) -> None:
    new = {name: NEW[name] for name in told}
    with Faulty(folder, keeps=True, version=told, new_version=new, looking=lambda number: "untold").serving() as server:
        url = server.url("x")
        storage = remote_storage(url)
        _, tag = storage.size(url)
        assert storage.read(url, 0, 100, tag) == DATA[:100]
        assert storage.read(url, 100, 100, tag) == DATA[100:200]
        assert storage.size(url)[1] == tag  # somebody else looks at the file
        server.fault = lambda number: "replaced"
        for other in range(2):
            with pytest.raises(RecordError, match="changed while it was read"):
                storage.read(url, 200, 100, tag)
            _, now = storage.size(url)
            assert storage.read(url, 0, 100, now) == DATA[::-1][:100], other  # who opens it now has the new one


@pytest.mark.parametrize("looking", ["untold", None])
@pytest.mark.parametrize("told", [VERSION, {"ETag": VERSION["ETag"]}, {"Last-Modified": VERSION["Last-Modified"]}])
def test_a_server_that_told_a_version_with_the_data_goes_on_telling_it(
    folder: Path, told: dict[str, str], looking: str | None
) -> None:
    with Faulty(folder, keeps=True, version=told, looking=lambda number: looking).serving() as server:
        url = server.url("x")
        storage = remote_storage(url)
        _, tag = storage.size(url)
        assert storage.read(url, 0, 100, tag) == DATA[:100]
        server.fault = lambda number: "replaced"  # by a file of the same size, without a version
        with pytest.raises(RecordError, match=r"tells no version with these bytes, .* before: .*6 tries in"):
            storage.read(url, 100, 100, tag)
        retry.GIVEN_UP.clear()
        server.fault = lambda number: None
        assert storage.read(url, 100, 100, tag) == DATA[100:200]


SIZE, STRONG, WEAK, TIME = (
    FileVersion(9),
    FileVersion(9, '"a"', "t"),
    FileVersion(9, 'W/"a"', "t"),
    FileVersion(9, "", "t"),
)


@pytest.mark.parametrize(
    ("one", "other", "differs"),
    [
        (SIZE, SIZE, False),
        (SIZE, FileVersion(10), True),
        (SIZE, FileVersion(None), False),
        (SIZE, STRONG, False),
        (STRONG, FileVersion(9, '"a"', "u"), False),  # of two servers that have copied the file
        (STRONG, FileVersion(9, '"b"', "t"), True),
        (STRONG, FileVersion(10, '"a"', "t"), True),
        (STRONG, WEAK, False),
        (STRONG, TIME, False),
        (STRONG, FileVersion(None, "", "u"), True),
        (WEAK, FileVersion(9, 'W/"b"', "t"), False),
        (WEAK, FileVersion(9, 'W/"a"', "u"), True),
        (WEAK, FileVersion(9, 'W/"b"'), True),
        (FileVersion(9, '"a"'), FileVersion(9, 'W/"a"'), False),
    ],
    ids=str,
)  # fmt: skip
def test_versions_differ_by_what_both_tell(one: FileVersion, other: FileVersion, differs: bool) -> None:
    assert one.differs(other) is other.differs(one) is differs


def test_a_tag_has_the_time_unless_the_etag_is_strong(folder: Path) -> None:
    for version, tag in (
        (VERSION, '4000-"1"'),
        ({**VERSION, "ETag": 'W/"1"'}, f'4000-W/"1"-{VERSION["Last-Modified"]}'),
        ({"Last-Modified": VERSION["Last-Modified"]}, f"4000-{VERSION['Last-Modified']}"),
        ({}, "4000"),
    ):
        with Faulty(folder, version=version).serving() as server:
            assert remote_storage(server.url("x")).size(server.url("x")) == (4000, tag)


@pytest.mark.parametrize(
    "said",
    [
        "signature SECRETSIG1 has expired",
        "Basic Ym9iOnBhJHN3MHJk",
        "the user bob has pa$sw0rd or pa%24sw0rd",
        "x" * 190 + " SECRETSIG1",
        '"SECRETSIG1"',
    ],
)
def test_what_a_server_says_of_what_it_was_asked_hides_the_secrets_of_that(said: str) -> None:
    """A proxy may say again what it was asked, in whichever header."""
    url = "https://bob:pa%24sw0rd@host/a.tfrecord?Signature=SECRETSIG1"
    texts = [_shown(said, url), str(changed("https://host/a.tfrecord", said, "2", url))]

    for text in texts:
        assert not any(secret in text for secret in ("SECRETSIG", "Ym9iOnBhJHN3MHJk", "pa$sw0rd", "pa%24sw0rd")), text
