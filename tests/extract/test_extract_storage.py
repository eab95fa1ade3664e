"""Files by name: ranges of bytes, few descriptors, and patterns."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gpupipe.errors import DirectoryError, MissingFileError, PlanError, PlanTypeError, RecordError
from gpupipe.extract.storage import files, retry
from gpupipe.extract.storage.files import LOCAL, LocalStorage
from gpupipe.extract.storage.patterns import expand


def names(pattern: str | os.PathLike[str]) -> list[str]:
    return [stable for _, stable in expand(pattern)]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("a1", "a2", "b1", "B1", "sub/a1", "sub/deep/a3", "sub/deep/deeper/a4", "x[1]", "é", "a10", ".hidden"):
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path / "data"


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("a*", ["a1", "a10", "a2"]),
        ("a?", ["a1", "a2"]),
        ("[ab]1", ["a1", "b1"]),
        ("[^a]1", ["B1", "b1"]),
        ("*/a*", ["sub/a1"]),
        ("*/*/a*", ["sub/deep/a3"]),
        ("**/a*", ["a1", "a10", "a2", "sub/a1", "sub/deep/a3", "sub/deep/deeper/a4"]),
        ("sub/**", ["a1", "deep/a3", "deep/deeper/a4"]),
        ("sub/**/a4", ["deep/deeper/a4"]),
        ("{a{1,2},sub/a1}", ["a1", "a2", "sub/a1"]),
        ("s{u,x}b/*1", ["sub/a1"]),
        ("x[1]", ["x[1]"]),
        ("x[[]1]", ["x[1]"]),
        ("sub/deep/a3", ["a3"]),
        ("nothing", []),
        ("a1/*", []),
        ("[z-z]*", []),
    ],
)
def test_patterns_match_as_documented(tree: Path, pattern: str, found: list[str]) -> None:
    assert names(f"{tree}/{pattern}") == found
    assert names(tree / pattern) == found
    assert [Path(path).exists() for path, _ in expand(f"{tree}/{pattern}")] == [True] * len(found)


def test_matches_are_sorted_by_the_bytes_of_the_path(tmp_path: Path) -> None:
    for name in ("a-b", "a/b", "a.b", "aZ", "aé", "a\U0001f600", "az"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")

    paths = [path for path, _ in expand(f"{tmp_path}/**/*")]

    assert paths == sorted(paths, key=os.fsencode)


def test_stable_names_do_not_depend_on_where_the_folder_lies(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    absolute = names(f"{tree}/**/a*")
    moved = tree.rename(tree.parent / "moved")

    assert names(f"{moved}/**/a*") == absolute
    monkeypatch.chdir(moved)
    assert names("**/a*") == names("./**/a*") == absolute
    assert expand("a1") == [("a1", "a1")]


def test_links_that_lead_back_up_do_not_make_it_endless(tree: Path) -> None:
    (tree / "sub" / "loop").symlink_to(tree)

    assert len(expand(f"{tree}/**/a*")) == 6


def test_wrong_patterns_are_refused() -> None:
    with pytest.raises(PlanError, match="brace that is not closed"):
        expand("/tmp/{a,b")
    with pytest.raises(PlanError, match="more than 10000"):
        expand("/tmp/" + "{a,b}" * 20)
    with pytest.raises(PlanError, match="has an invalid range"):
        expand("/tmp/[z-a]")
    assert expand("") == []
    with pytest.raises(PlanTypeError, match="got int"):
        expand(7)  # type: ignore[arg-type]


def test_missing_files_and_directories_have_their_own_errors(tmp_path: Path) -> None:
    for call in (LOCAL.size, lambda name: LOCAL.read(name, 0, 1)):
        with pytest.raises(MissingFileError, match="no such file"):
            call(str(tmp_path / "no"))
        with pytest.raises(DirectoryError, match="got a directory"):
            call(str(tmp_path))


def test_a_file_without_permission_is_a_data_error(tmp_path: Path) -> None:
    (tmp_path / "x").symlink_to(tmp_path / "x")  # a loop: the permission of root is not in the way

    with pytest.raises(RecordError, match="cannot be read"):
        LOCAL.read(str(tmp_path / "x"), 0, 1)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


needs_proc = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors in /proc")


@needs_proc
def test_few_descriptors_stay_open(tmp_path: Path) -> None:
    storage = LocalStorage(limit=8)
    before = descriptors()
    for k in range(50):
        (tmp_path / str(k)).write_bytes(bytes([k]))
    for _ in range(2):
        for k in range(50):
            assert storage.read(str(tmp_path / str(k)), 0, 1) == bytes([k])

    assert descriptors() - before == 8
    storage.close()
    assert descriptors() == before


def test_a_descriptor_is_never_closed_under_a_reader(tmp_path: Path) -> None:
    storage = LocalStorage(limit=1)
    for k in range(6):
        (tmp_path / str(k)).write_bytes(bytes([k]) * 10_000)
    wrong = []

    def work(k: int) -> None:
        for j in range(300):
            i = (j * 7 + k) % 6
            if storage.read(str(tmp_path / str(i)), 5, 5000) != bytes([i]) * 5000:
                wrong.append(i)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))

    assert not wrong


def test_a_file_replaced_while_in_use_is_noticed(tmp_path: Path) -> None:
    storage = LocalStorage(limit=1)
    a, b = tmp_path / "a", tmp_path / "b"
    a.write_bytes(b"first")
    b.write_bytes(b"other")
    _, tag = storage.size(str(a))
    storage.read(str(b), 0, 1)  # the descriptor of a is closed
    a.write_bytes(b"another length")

    for given in (None, tag, None):
        with pytest.raises(RecordError, match="was replaced while it was in use"):
            storage.read(str(a), 0, 1, given)
    assert storage.size(str(a))[0] == 14  # a new look at the file
    assert storage.read(str(a), 0, 14) == b"another length"


@pytest.mark.parametrize("ask", ["in_memory", "ahead"])
@pytest.mark.skipif(files._NOWAIT is None or files._advise is None, reason="the system is not asked")
def test_a_file_replaced_while_in_use_is_noticed_by_the_read_after_a_question(tmp_path: Path, ask: str) -> None:
    storage = LocalStorage(limit=1)
    a, b = tmp_path / "a", tmp_path / "b"
    a.write_bytes(b"first")
    b.write_bytes(b"other")
    storage.read(str(a), 0, 1)
    storage.read(str(b), 0, 1)  # the descriptor of a is closed
    a.write_bytes(b"another length")

    for _ in range(2):
        getattr(storage, ask)(str(a), 0, 1)

    with pytest.raises(RecordError, match="was replaced while it was in use"):
        storage.read(str(a), 0, 1)


@pytest.mark.parametrize("ask", ["in_memory", "ahead"])
@pytest.mark.skipif(files._NOWAIT is None or files._advise is None, reason="the system is not asked")
def test_a_question_does_not_wait_for_a_file_that_cannot_be_opened(
    tmp_path: Path, ask: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    was = os.open

    def broken(path: Any, *given: Any, **how: Any) -> int:
        if path == str(tmp_path / "a"):
            raise OSError(errno.EIO, "broken")
        return was(path, *given, **how)

    monkeypatch.setattr(os, "open", broken)
    monkeypatch.setattr(retry, "pause", lambda *given: pytest.fail("it paused for another try"))

    getattr(LocalStorage(), ask)(str(tmp_path / "a"), 0, 1)
    getattr(LocalStorage(), ask)("a\0b", 0, 1)
