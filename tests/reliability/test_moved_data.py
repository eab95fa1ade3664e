"""A state goes on where the data has moved: files are known by their names below the folder, sizes and digests."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import gpupipe as gp
from gpupipe import Dataset, Options
from gpupipe.errors import StateError
from gpupipe.load import state as state_module
from gpupipe.load.state import sealed, unpacked
from tests.reliability.resume import taken, through_json

CHAINS: dict[str, Callable[[Path], Dataset]] = {
    "a pattern": lambda folder: Dataset.list_files(str(folder / "*/*.rec"), seed=1).interleave(gp.TFRecordDataset),
    "records in a buffer": lambda folder: (
        Dataset.list_files(str(folder / "*/*.rec"), seed=1).interleave(gp.TFRecordDataset, cycle_length=2).shuffle(9)
    ),
    "a buffer": lambda folder: gp.TFRecordDataset(sorted(map(str, folder.glob("*/*.rec")))).shuffle(9).repeat(2),
    "all": lambda folder: gp.TFRecordDataset(sorted(map(str, folder.glob("*/*.rec")))).shuffle(gp.ALL).batch(2),
    "one path": lambda folder: gp.TFRecordDataset(str(folder / "a/0.rec")).shuffle(4),
    "slices": lambda folder: Dataset.from_tensor_slices(sorted(map(str, folder.glob("*/*.rec")))).flat_map(
        lambda path: gp.TFRecordDataset(path).shuffle(5)
    ),
    "a cache": lambda folder: (
        gp.TFRecordDataset(str(folder / "a/0.rec")).map(len).cache(str(folder / "kept")).repeat(2)
    ),
    "saved": lambda folder: Dataset.load(str(folder / "saved")).shuffle(5),
}


def write(folder: Path) -> None:
    for part in ("a", "b"):
        (folder / part).mkdir(parents=True)
        for i in range(3):
            with gp.io.TFRecordWriter(str(folder / part / f"{i}.rec")) as writer:
                for j in range(8):
                    writer.write(f"{part}{i}{j}".encode())
    Dataset.range(20).save(str(folder / "saved"))


@pytest.fixture
def here(tmp_path: Path) -> Path:
    write(tmp_path / "here")
    return tmp_path / "here"


def stopped(ds: Dataset, count: int = 3) -> tuple[Any, list[Any]]:
    """A state, and what follows it."""
    with iter(ds) as items:
        taken(items, count)
        state = through_json(items.state_dict())
        return state, taken(items)


@pytest.mark.parametrize("count", [3, 8])  # behind 8 records a state says where those in a buffer are
@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_goes_on_where_its_data_has_moved(
    name: str, count: int, here: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state, rest = stopped(CHAINS[name](here), count)
    there = here.parent / "there" / "deeper"
    shutil.copytree(here, there)
    shutil.rmtree(here)

    with caplog.at_level(logging.WARNING, "gpupipe"), iter(CHAINS[name](there)) as items:
        items.load_state_dict(state)
        got = taken(items)

    assert rest or count == 8
    assert got == rest
    assert caplog.text == ""


@pytest.mark.parametrize("name", CHAINS)
def test_a_state_says_nothing_of_where_files_lie(name: str, here: Path) -> None:
    state, _ = stopped(CHAINS[name](here), 8)
    state["flow"] = unpacked(state.get("flow"))

    assert str(here) not in json.dumps(state)


def test_other_names_and_sizes_are_refused_with_both(here: Path) -> None:
    state, _ = stopped(CHAINS["a pattern"](here))
    (here / "a/0.rec").rename(here / "a/00.rec")
    with (
        iter(CHAINS["a pattern"](here)) as items,
        pytest.raises(StateError, match=r"got one over 'a/0\.rec' of .*a/00"),
    ):
        items.load_state_dict(state)
    (here / "a/00.rec").rename(here / "a/0.rec")
    (here / "a/1.rec").write_bytes(b"")
    with (
        iter(CHAINS["a pattern"](here)) as items,
        pytest.raises(StateError, match=r"'a/1\.rec' of .*/1\.rec' of 0 bytes"),
    ):
        items.load_state_dict(state)


def other_contents(folder: Path) -> None:
    """Files of the same names and sizes with other contents."""
    with gp.io.TFRecordWriter(str(folder / "b/1.rec")) as writer:
        for j in range(8):
            writer.write(f"B1{j}".encode())


def test_other_contents_are_refused_where_digests_are_asked_for(here: Path) -> None:
    def chain(digests: bool) -> Dataset:
        return CHAINS["a pattern"](here).with_options(Options(file_digests=digests))

    state, rest = stopped(chain(True))
    plain, _ = stopped(chain(False))
    with iter(chain(True)) as items:
        items.load_state_dict(state)
        assert taken(items) == rest
    with iter(chain(True)) as items, pytest.raises(StateError, match=r"file_digests=True.*without digests"):
        items.load_state_dict(plain)

    other_contents(here)
    with (
        iter(chain(True)) as items,
        pytest.raises(StateError, match=r"same names and sizes with other contents, .*b/1\.rec"),
    ):
        items.load_state_dict(state)
    with iter(chain(False)) as items:
        items.load_state_dict(state)


def test_digests_are_of_whole_files_however_they_are_read(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "_READ", 8)  # the length of a record, which is the same

    test_other_contents_are_refused_where_digests_are_asked_for(here)


@pytest.mark.parametrize("digests", [False, True])
def test_many_files_are_compared_by_one_digest_wherever_they_lie(tmp_path: Path, digests: bool) -> None:
    """Too many to be listed in a state."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    for i in range(700):
        (here / f"{i:03}.txt").write_text(f"{i}\n")

    def chain(folder: Path) -> Dataset:
        names = Dataset.list_files(str(folder / "*.txt"), seed=1)
        return names.flat_map(gp.TextLineDataset).shuffle(50).with_options(Options(file_digests=digests))

    state, rest = stopped(chain(here), 300)
    here.rename(there)
    assert len(json.dumps(state)) < 6000
    with iter(chain(there)) as items:
        items.load_state_dict(state)
        assert taken(items) == rest

    (there / "650.txt").rename(there / "65.txt")
    with iter(chain(there)) as items, pytest.raises(StateError, match="or files of other names"):
        items.load_state_dict(state)
    (there / "65.txt").rename(there / "650.txt")
    (there / "650.txt").write_text("650\n650\n")
    with (
        iter(chain(there)) as items,
        pytest.raises(StateError, match=r"over 2690 bytes where there are 2694 bytes now"),
    ):
        items.load_state_dict(state)
    (there / "650.txt").write_text("651\n")
    if digests:
        with iter(chain(there)) as items, pytest.raises(StateError, match="same names and sizes with other contents"):
            items.load_state_dict(state)


@pytest.mark.parametrize(
    "files",
    [
        None,
        [],
        {},
        {"count": 6},
        {"count": 6, "sizes": 3, "digest": "x"},
        {"count": 6, "sizes": [None] * 6, "digest": "x"},
        {"count": 6, "sizes": [["x" * 100_000, 3]] * 6, "digest": "x"},
        {"count": 6, "contents": [], "digest": None},
        {"count": 6, "contents": {"each": 3}},
    ],
    ids=lambda files: str(files)[:40],
)
@pytest.mark.parametrize("digests", [False, True])
def test_what_a_state_says_of_files_may_be_anything(files: Any, digests: bool, here: Path) -> None:
    ds = CHAINS["a pattern"](here).with_options(Options(file_digests=digests))
    state, _ = stopped(ds)

    with iter(ds) as items, pytest.raises(StateError, match="load_state_dict needs a state") as caught:
        items.load_state_dict(sealed({**state, "files": files}))
    assert len(str(caught.value)) < 2000


def buffers(flow: Any) -> Iterator[dict[str, Any]]:
    """What shuffles hold, out of a state."""
    for part in flow.values() if isinstance(flow, dict) else flow if isinstance(flow, list) else ():
        if isinstance(part, dict) and "names" in part:
            yield part
        yield from buffers(part)


@pytest.mark.parametrize("nonsense", [6, -1, 1.5, None, [0], {}, "/no/such/file", "x" * 100_000])
def test_a_file_that_is_none_of_the_chain_is_an_error_of_the_state(nonsense: Any, here: Path) -> None:
    state, _ = stopped(CHAINS["records in a buffer"](here), 8)
    state["flow"] = unpacked(state["flow"])
    held = next(part for part in buffers(state["flow"]) if part["names"])
    assert set(map(type, held["names"])) == {int}
    held["names"][0] = nonsense

    with iter(CHAINS["records in a buffer"](here)) as items, pytest.raises(StateError, match="load_state_dict needs"):
        items.load_state_dict(sealed(state))
        next(items)


def test_a_state_of_an_earlier_format_is_refused(here: Path) -> None:
    state, _ = stopped(CHAINS["a pattern"](here))

    with iter(CHAINS["a pattern"](here)) as items, pytest.raises(StateError, match="version of the format 8, got 2"):
        items.load_state_dict(sealed({**state, "gpupipe_state": 2}))
