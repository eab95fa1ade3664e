"""What patterns match: ranges in braces, and URLs whose query is no pattern."""

from __future__ import annotations

import http.server
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import gpupipe as gp
from gpupipe.errors import MissingFileError, PlanError
from gpupipe.extract.storage import http_answers, remote
from gpupipe.extract.storage.glob import is_wild
from gpupipe.extract.storage.patterns import expand, stable_names
from tests.guide.sources import serving
from tests.reliability.faulty import Faulty

RANGES = {
    "{08..11}": ["08", "09", "10", "11"],
    "{8..11}": ["8", "9", "10", "11"],
    "{2..0}": ["0", "1", "2"],
    "{1,3..4}": ["1", "3..4"],
    "{0..1}{2..3}": ["02", "03", "12", "13"],
    "{1}": ["{1}"],
    "{}": ["{}"],
    "{a{1,2}}": ["{a1}", "{a2}"],
    "{1}{2,3}": ["{1}2", "{1}3"],
    "{{1},2}": ["{1}", "2"],
}


@pytest.mark.parametrize(("pattern", "names"), RANGES.items(), ids=RANGES)
def test_a_range_in_braces_is_expanded_as_a_shell_does(pattern: str, names: list[str], tmp_path: Path) -> None:
    for name in [*names, "7", "011"]:
        (tmp_path / f"s-{name}.txt").write_text(name)

    found = gp.Dataset.list_files(str(tmp_path / f"s-{pattern}.txt"), shuffle=False)

    assert sorted(Path(path.decode()).read_text() for path in found) == sorted(names)


def test_a_folder_may_have_braces_in_its_name(tmp_path: Path) -> None:
    (tmp_path / "c{1}").mkdir()
    (tmp_path / "c{1}" / "x.txt").write_text("")

    for pattern in ("c{1}/*.txt", "c{1}/x.txt", "*{1}/x.txt"):
        assert [Path(path.decode()).name for path in gp.Dataset.list_files(str(tmp_path / pattern))] == ["x.txt"]


def test_a_range_is_bounded(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="expands to more than 10000"):
        gp.Dataset.list_files(str(tmp_path / "{0..999999999999}"))


@pytest.mark.parametrize(
    ("text", "wild"),
    [
        ("https://a.org/x.tfr?X-Amz-Signature=a*b[c{d", False),
        ("simplecache::https://a.org/x.tfr?sig=1", False),
        ("https://a.org/*.tfr?sig=1", True),
        ("s3://bucket/x?.tfr", True),
        ("folder/x?.tfr", True),
    ],
)
def test_the_query_of_a_url_is_no_pattern(text: str, wild: bool) -> None:
    assert is_wild(text) is wild


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("s-{000000..000127}.tar", r"list_files\(pattern\) expands"),
        ("pipe:cat x.tar", "commands are not run"),
        ("a.tar::b.tar", "several files are a list"),
    ],
)
def test_notations_of_webdataset_have_a_hint(name: str, hint: str, tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=f"no such file; {hint}"):
        next(iter(gp.WebDataset(name if ":" in name else str(tmp_path / name), "jpg")))


class Answered(Exception):
    """What a client of HTTP raises; fsspec makes it the cause of a FileNotFoundError, whatever the status."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 416, 418])
def test_only_an_answer_of_a_missing_file_is_one(status: int) -> None:
    error = FileNotFoundError("https://a.org/x")
    error.__cause__ = Answered(status)

    found = remote._translated(error, "https://a.org/x")

    assert isinstance(found, MissingFileError) is (status in (404, 410))
    if status not in (404, 410):
        assert f"the server answers {status}" in found.reason
    assert ("a signed URL may have expired" in found.reason) is (status in (400, 401, 403))


def test_each_file_of_a_pattern_has_the_query_of_the_pattern(tmp_path: Path) -> None:
    """As the storages that sign their URLs want it; in it nothing is a wildcard."""
    pytest.importorskip("aiohttp", reason="fsspec's HTTP needs aiohttp")
    for name in ("a-0", "a-1", "a-2", "b-1"):
        (tmp_path / name).write_text(f"{name}\n")

    with Faulty(tmp_path).serving() as server:
        base = server.url("").rstrip("/")
        files = gp.Dataset.list_files(f"{base}/a-{{1..2}}?sig=a*b[{{c,d}}", shuffle=False)

        assert [path.decode() for path in files] == [f"{base}/a-{n}?sig=a*b[{{c,d}}" for n in (1, 2)]
        assert list(gp.TextLineDataset(files)) == [b"a-1", b"a-2"]


PAGE = """<h1>http://evil.org/d/text.txt</h1> http://127.0.0.1:{port}/d/said.txt
<a href="a.txt">a</a> <a class=x href = 'b%20c.txt'>b c</a> <A HREF="./d.txt#top">d</A> <a href="e&amp;f.txt">e&f</a>
<a href="/d/g.txt">g</a> <a href="http://127.0.0.1:{port}/d/h.txt">h</a> <a href="sub/../i.txt">i</a>
<a href="%61.txt">a</a> <a href="a%2etxt">a</a> <a href="..\\\\up.txt">up</a> <a href="..%5cup.txt">up</a>
<a href="a.txt">a</a> <a href="../up.txt">up</a> <a href="/up.txt">up</a> <a href="sub/deep.txt">deep</a>
<a href="sub/">sub</a> <a href="..">..</a>
<a href="%2e%2e/up.txt">up</a> <a href="..%2fup.txt">up</a> <a href="%2e%2e">up</a> <a href="?C=N;O=D.txt">by name</a>
<a href="//evil.org/d/j.txt">j</a> <a href="https://evil.org/d/k.txt">k</a> <a href="HTTP://evil.org/l.txt">l</a>
<a href="file:///d/m.txt">m</a> <a href="javascript:n.txt">n</a> <a href="http://[o.txt">o</a> <a href="">p</a>
"""


def test_a_listing_has_the_files_of_its_folder_alone(tmp_path: Path) -> None:
    with Faulty(tmp_path).serving() as server:
        (tmp_path / "d").write_text(PAGE.format(port=server.port))

        def listed(pattern: str) -> list[str]:
            found = gp.Dataset.list_files(server.url(pattern), shuffle=False)
            return [path.decode().removeprefix(server.url("d/")) for path in found]

        files = ["a.txt", "b%20c.txt", "d.txt", "e&f.txt", "g.txt", "h.txt", "i.txt", "said.txt"]
        assert listed("d/*.txt") == files
        assert listed("d/*") == [*files, "sub"]
        assert listed("d/*.txt?sig=x") == [f"{name}?sig=x" for name in files]


def test_a_page_that_lists_a_folder_is_read_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "d").write_text("<a href='a.txt'>a</a>")
    monkeypatch.setattr(http_answers, "MOST_LISTED", 1000)

    with (
        Faulty(tmp_path, lambda number: "flood of a file", keeps=True).serving() as server,
        pytest.raises(PlanError, match="cannot be listed: the list of the folder has more than 1,000 bytes"),
    ):
        gp.Dataset.list_files(server.url("d/*.txt"))


NAMES = ("\N{LATIN SMALL LETTER E WITH ACUTE}", "100%", "a b", "a+b", "c[1]", "d&e", "%41", "x#y?")


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """A server that lists folders as Python's does, with the escapes of URLs."""
    pytest.importorskip("aiohttp", reason="fsspec's HTTP needs aiohttp")

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

    with serving(partial(Handler, directory=str(folder))) as address:
        yield address


@pytest.mark.parametrize("pattern", ["**/*.txt", ""])
def test_a_folder_that_a_server_lists_in_itself_is_an_error(
    pattern: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "DEEPEST", 8)
    (tmp_path / "c").mkdir()
    (tmp_path / "c/one.txt").write_text("one")
    (tmp_path / "c/back").symlink_to(tmp_path / "c", target_is_directory=True)
    with served(tmp_path) as address, pytest.raises(PlanError, match=r"parts, got .*: does one list itself"):
        url = f"{address}/c/{pattern}"
        gp.Dataset.list_files(url) if pattern else gp.image_folder(url)


def drawn(ds: gp.Dataset) -> list[tuple[Any, ...]]:
    """The elements, and what a random step draws for each."""
    numbered = ds.map(lambda data, label, rng: (data, label, rng.random()), rng=True, traced=False)
    return [(bytes(data), int(label), float(number)) for data, label, number in numbered.iterator(0)]


def test_files_of_a_server_have_the_names_that_its_disk_has(tmp_path: Path) -> None:
    """Their classes, order and identities are those of the folder; the URLs keep their escapes."""
    for name in NAMES:
        (tmp_path / name).mkdir()
        for image in ("0.jpg", f"{name}.jpg"):
            (tmp_path / name / image).write_bytes(f"{name}/{image}".encode())
    local = str(tmp_path)

    with served(tmp_path) as url:
        here, there = gp.image_folder(local), gp.image_folder(url)

        assert there.class_names == here.class_names == tuple(sorted(NAMES))
        assert drawn(there) == drawn(here)
        assert f"{url}/100%25/100%25.jpg" in there.file_paths
        assert gp.image_folder(url, class_names=["a b"]).labels.tolist() == [0, 0]
        for pattern in ("*/*.jpg", "a b/*", "**", "*/[!a]*.jpg", "{a b,d&e}/0*", "c[[]1]/*"):
            found = [gp.Dataset.list_files(f"{at}/{pattern}", shuffle=False) for at in (local, url)]
            ours, theirs = (drawn(ds.map(lambda path: (gp.io.read_file(path), 0))) for ds in found)
            assert ours == theirs, pattern
            assert ours
        escaped = gp.Dataset.list_files(f"{url}/%C3%A9*/0.jpg", shuffle=False)
        assert [gp.io.read_file(path) for path in escaped] == [f"{NAMES[0]}/0.jpg".encode()]
        assert not expand(f"{url}/%2A/0.jpg")


def test_an_escape_in_a_url_is_part_of_no_name() -> None:
    urls = ["https://a.org/x/a%20b.png", "https://a.org/x/c%2Fd.png?sig=a%2Fb"]

    assert stable_names(urls) == ["a b.png", "c%2Fd.png"]
    assert stable_names(["http://a.org/%FF"]) == [b"\xff".decode(errors="surrogateescape")]
    assert stable_names(["s3://a/b%20c", "/x/b%20d"]) == ["b%20c", "b%20d"]
