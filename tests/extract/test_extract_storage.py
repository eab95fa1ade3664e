"""Files by name: ranges of bytes, few descriptors, patterns; a file that is written is there as a whole or not."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from gpupipe.comparison.sheet import save_png
from gpupipe.errors import DirectoryError, MissingFileError, PlanError, PlanTypeError, RecordError
from gpupipe.extract.records.manifest_writer import _Ranges
from gpupipe.extract.storage import files, retry
from gpupipe.extract.storage.files import LOCAL, LocalStorage, Storage
from gpupipe.extract.storage.output import check_output
from gpupipe.extract.storage.patterns import expand
from gpupipe.extract.storage.remote import RemoteStorage
from gpupipe.extract.storage.replacing import replacing


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
        ("[^a]1", ["B1", "b1"]),
        ("*/a*", ["sub/a1"]),
        ("**/a*", ["a1", "a10", "a2", "sub/a1", "sub/deep/a3", "sub/deep/deeper/a4"]),
        ("sub/**", ["a1", "deep/a3", "deep/deeper/a4"]),
        ("sub/**/a4", ["deep/deeper/a4"]),
        ("**/**/a4", ["sub/deep/deeper/a4"]),
        ("{a{1,2},sub/a1}", ["a1", "a2", "sub/a1"]),
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


ANSWERS = files._NOWAIT is not None and files._advise is not None
"""Whether the system is asked about files."""


@pytest.mark.parametrize("ask", ["", *["in_memory", "ahead"] * ANSWERS])
def test_a_file_replaced_while_in_use_is_noticed_also_after_a_question(tmp_path: Path, ask: str) -> None:
    storage = LocalStorage(limit=1)
    a, b = tmp_path / "a", tmp_path / "b"
    a.write_bytes(b"first")
    b.write_bytes(b"other")
    _, tag = storage.size(str(a))
    storage.read(str(b), 0, 1)  # the descriptor of a is closed
    a.write_bytes(b"another length")

    for _ in range(2 if ask else 0):
        getattr(storage, ask)(str(a), 0, 1)

    for given in (None, tag, None):
        with pytest.raises(RecordError, match=r"changed while it was read: .* was 5-\d+-\d+, and is 14-"):
            storage.read(str(a), 0, 1, given)
    assert storage.size(str(a))[0] == 14  # a new look at the file
    assert storage.read(str(a), 0, 14) == b"another length"


@pytest.mark.parametrize("ask", ["in_memory", "ahead"])
@pytest.mark.skipif(not ANSWERS, reason="the system is not asked")
def test_no_question_waits_for_a_file_that_fails_to_open(
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


@pytest.fixture(params=[(make, ranges) for ranges in (False, True) for make in (_local, _remote)])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Made:
    """A storage on this machine or a remote one, as it is or through ranges that are kept."""
    make, ranges = request.param
    storage, path = make(tmp_path)
    return _Ranges(storage) if ranges else storage, path


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
    with pytest.raises(RecordError, match=r"changed while it was read: .*, another, and is "):
        storage.read(path("a"), 0, 9, f"{tag}, another")


def test_asking_ahead_says_whether_it_can_and_changes_nothing(made: Made) -> None:
    storage, path = made

    assert storage.ahead(path("a"), 0, 100) is (isinstance(storage, LocalStorage) and hasattr(os, "posix_fadvise"))
    assert storage.ahead(path("none"), 0, 100) is storage.ahead(path("a"), 0, 100)
    assert storage.read(path("a"), 0, 100) == DATA["a"][:100]


# ---- files that are written


def test_a_file_has_its_name_once_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with replacing(path) as file:
        file.write(b"new")
        assert path.read_text() == "old"

    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_what_is_raised_leaves_the_older_file(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(error), replacing(path) as file:
        file.write(b"new")
        raise error

    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_link_stays_and_its_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/file").write_text("old")
    (tmp_path / "link").symlink_to("folder/file")
    with replacing(tmp_path / "link") as file:
        file.write(b"new")

    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "folder/file").read_text() == "new"
    assert os.listdir(tmp_path / "folder") == ["file"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
def test_a_pipe_or_device_is_written_to_and_stays(tmp_path: Path) -> None:
    """Replacing /dev/null by a file would break the machine."""
    os.mkfifo(tmp_path / "pipe")
    number = os.open(tmp_path / "pipe", os.O_RDWR | os.O_NONBLOCK)
    try:
        with replacing(tmp_path / "pipe") as file:
            file.write(b"new")

        assert os.read(number, 9) == b"new"
    finally:
        os.close(number)
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.skipif(not os.path.isdir("/dev/fd"), reason="no names for open files")
def test_a_pipe_without_a_name_is_written_to(tmp_path: Path) -> None:
    """What /dev/stdout leads to in `gpupipe preview ... --out /dev/stdout | less`; its real path does not exist."""
    read, write = os.pipe()
    path = Path(f"/dev/fd/{write}")
    try:
        check_output("--out", path, "PNG")
        save_png(path, np.zeros((2, 3, 3), np.uint8))
        with pytest.raises(PlanError, match=r"--manifest needs the name of a file, which is written beside it and ren"):
            check_output("--manifest", path, "manifest")
    finally:
        os.close(write)
    with os.fdopen(read, "rb") as file:
        assert Image.open(io.BytesIO(file.read())).size == (3, 2)


def test_two_may_write_one_file(tmp_path: Path) -> None:
    with replacing(tmp_path / "a.txt") as mine:
        with replacing(tmp_path / "a.txt") as other:
            other.write(b"theirs")
        mine.write(b"mine")

    assert (tmp_path / "a.txt").read_text() == "mine"
    assert os.listdir(tmp_path) == ["a.txt"]
