"""What a state asks of files: of those that a step reads their sizes, once for a chain; of other texts nothing."""

from __future__ import annotations

import os
import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, Options, StateError
from gpupipe.load.state import sealed
from tests.reliability.faulty import Faulty
from tests.reliability.resume import behind, refused, state_after, taken

COUNT = 6
slices = Dataset.from_tensor_slices


def paths_in(folder: Path) -> list[str]:
    return [str(folder / f"{i}.txt") for i in range(COUNT)]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    for i, path in enumerate(paths_in(tmp_path)):
        Path(path).write_text(f"{i}: one\n{i}: two\n")
    return tmp_path


class Asked:
    """What the system is asked about the files of a folder: how often each is looked at, and opened."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.looked, self.opened = Counter[str](), Counter[str]()
        for name, count in (("stat", self.looked), ("lstat", self.looked), ("open", self.opened)):
            monkeypatch.setattr(os, name, self._counting(getattr(os, name), count, str(folder)))

    @staticmethod
    def _counting(call: Callable[..., Any], count: Counter[str], folder: str) -> Callable[..., Any]:
        def counted(path: Any, *rest: Any, **more: Any) -> Any:
            if isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith(folder):
                count[os.fspath(path)] += 1
            return call(path, *rest, **more)

        return counted


def words(text: Any) -> Any:
    return np.int64(len(bytes(text).split()))


def in_python(text: Any) -> Any:
    return gp.io.read_file(bytes(text))


def lines_in_python(path: Any) -> Dataset:
    return gp.TextLineDataset(bytes(path).decode())


def read(path: Any) -> Any:
    return gp.io.read_file(path)


# Chains over the paths of files as texts, of which no step reads one.
UNREAD: dict[str, Callable[[list[str]], Dataset]] = {
    "alone": slices,
    "a list of elements": Dataset.from_list,
    "with numbers": lambda texts: slices((texts, np.arange(COUNT))),
    "one text": lambda texts: Dataset.from_tensors(texts[0]).repeat(3),
    "a function that counts words": lambda texts: slices(texts).map(words, traced=False),
    "one in worker threads": lambda texts: slices(texts).map(words, num_parallel_calls=2, traced=False),
    "a traced map": lambda texts: slices((texts, np.arange(COUNT))).map(lambda t, n: (t, n + 1)).batch(2),
    "a shuffle": lambda texts: slices(texts).shuffle(4, seed=1).repeat(2),
    "all": lambda texts: slices(texts).shuffle(gp.ALL, seed=1).batch(2),
    "of numbers and texts": lambda texts: slices({"b": np.arange(COUNT), "a": texts}),
    "in a zip": lambda texts: Dataset.zip((slices(texts), Dataset.range(COUNT))),
    "windows": lambda texts: slices(texts).window(2).flat_map(lambda texts: texts.batch(2)),
    "a scan": lambda texts: slices(texts).scan(np.int64(0), lambda n, t: (n + 1, t)),
    "made to datasets": lambda texts: slices((texts, np.arange(COUNT))).flat_map(
        lambda t, n: Dataset.from_tensors((t, n))
    ),
}


@pytest.mark.parametrize("name", UNREAD)
def test_nothing_is_asked_about_texts_that_no_step_reads(
    name: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ds = UNREAD[name](paths_in(here))
    asked = Asked(here, monkeypatch)
    whole = taken(ds.iterator(epoch=0))

    state = state_after(ds.iterator(epoch=0), 1)

    assert behind(UNREAD[name](paths_in(here)), state) == whole[1:]
    assert not asked.looked and not asked.opened
    with pytest.raises(StateError, match="needs a state"):
        behind(UNREAD[name]([f"{path}!" for path in paths_in(here)]), state)


def pairs(texts: list[str], folder: Path) -> Dataset:
    """Captions beside the files of images."""
    return slices((texts, paths_in(folder)))


# Chains over captions that look like the names of files, beside files that are read.
BESIDE: dict[str, Callable[[list[str], Path], Dataset]] = {
    "slices": lambda texts, folder: pairs(texts, folder).map(lambda t, p: (t, read(p))),
    "a zip": lambda texts, folder: Dataset.zip((slices(texts), slices(paths_in(folder)))).map(
        lambda t, p: (t, read(p))
    ),
    "the other way round": lambda texts, folder: Dataset.zip((slices(paths_in(folder)), slices(texts))).map(
        lambda p, t: (read(p), t)
    ),
    "two maps": lambda texts, folder: pairs(texts, folder).map(lambda t, p: (p, t)).map(lambda p, t: (t, read(p))),
    "a dict": lambda texts, folder: slices({"a": texts, "b": paths_in(folder)}).map(
        lambda x: {"b": x["a"], "a": read(x["b"])}
    ),
    "numbered": lambda texts, folder: pairs(texts, folder).enumerate().map(lambda n, x: (n, x[0], read(x[1]))),
    "rows": lambda texts, folder: pairs(texts, folder).batch(2).unbatch().map(lambda t, p: (t, read(p))),
    "buckets": lambda texts, folder: (
        pairs(texts, folder)
        .bucket_by_image_size([(8, 8)], 2, size_func=lambda t, p: (4, 4))
        .unbatch()
        .map(lambda t, p, size: (t, read(p)))
    ),
    "padded": lambda texts, folder: (
        slices({"t": texts, "p": paths_in(folder)}).pad_to_cardinality(COUNT).map(lambda x: (x["t"], read(x["p"])))
    ),
    "lines": lambda texts, folder: pairs(texts, folder).interleave(
        lambda t, p: Dataset.zip((gp.TextLineDataset(p), Dataset.from_tensors(t).repeat()))
    ),
    "two levels": lambda texts, folder: slices(texts).flat_map(
        lambda t: slices(paths_in(folder)).interleave(gp.TextLineDataset)
    ),
    "a text inside": lambda texts, folder: Dataset.list_files(str(folder / "*.txt")).flat_map(
        lambda p: Dataset.zip((gp.TextLineDataset(p), slices(texts)))
    ),
    "lines in Python": lambda texts, folder: Dataset.zip(
        (slices(paths_in(folder)).flat_map(lines_in_python), slices(texts).repeat())
    ),
}


@pytest.mark.parametrize("name", BESIDE)
def test_nothing_is_asked_about_texts_beside_files_that_are_read(
    name: str, here: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path_factory.mktemp("captions")
    texts = [str(other / f"{i} of them.txt") for i in range(COUNT)]
    for text in texts:
        Path(text).touch()
    ds = BESIDE[name](texts, here)
    asked = Asked(other, monkeypatch)
    whole = taken(ds.iterator(epoch=0))

    state = state_after(ds.iterator(epoch=0), 1)

    assert behind(ds, state) == whole[1:] != []
    assert not asked.looked and not asked.opened


# Chains that read every file of a folder, by texts.
READ: dict[str, Callable[[Path], Dataset]] = {
    "a pattern": lambda folder: Dataset.list_files(str(folder / "*.txt")),
    "a pattern, in Python": lambda folder: Dataset.list_files(str(folder / "*.txt")).map(in_python, traced=False),
    "read_file": lambda folder: slices(paths_in(folder)).map(read),
    "one file": lambda folder: Dataset.from_tensors(paths_in(folder)[0]).map(read).repeat(3),
    "a list": lambda folder: Dataset.from_list(paths_in(folder)).map(read).batch(2),
    "in numbers": lambda folder: slices((paths_in(folder), np.arange(COUNT))).map(lambda p, n: (n, read(p))),
    "lines": lambda folder: gp.TextLineDataset(paths_in(folder)),
    "lines of texts": lambda folder: slices(paths_in(folder)).interleave(gp.TextLineDataset, cycle_length=2),
    "two levels": lambda folder: slices(["a"]).flat_map(
        lambda _: slices(paths_in(folder)).interleave(gp.TextLineDataset)
    ),
    "behind a shuffle": lambda folder: slices(paths_in(folder)).shuffle(9, seed=1).map(read).prefetch(2),
    "after others": lambda folder: slices(["a"]).take(0).concatenate(slices(paths_in(folder))).map(read),
    "a mixture": lambda folder: Dataset.sample_from_datasets([slices(paths_in(folder))] * 2, seed=1).map(read),
    "a declared function between": lambda folder: (
        slices(paths_in(folder)).map(lambda p: p, traced=False, spec=gp.TensorSpec((), bytes)).map(read)
    ),
}


@pytest.mark.parametrize("name", READ)
def test_each_file_that_is_read_is_looked_at_once_for_a_chain(
    name: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ds = READ[name](here)
    asked = Asked(here, monkeypatch)

    for _ in range(3):
        with iter(ds) as items:
            state = items.state_dict()
            assert items.state_dict() == state

    assert asked.looked == dict.fromkeys(paths_in(here)[: len(asked.looked)], 1) and asked.looked
    assert not asked.opened
    asked.looked.clear()
    with iter(READ[name](here)) as items:
        items.load_state_dict(state)
        items.state_dict()
        assert set(asked.looked.values()) == {1}
        assert not asked.opened


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("name", READ)
def test_another_size_or_name_of_a_file_that_is_read_is_refused(name: str, count: int, here: Path) -> None:
    ds = READ[name](here)
    state = state_after(ds, count)
    first = Path(paths_in(here)[0])
    first.write_text("longer than before, by far\n")

    for chain in (ds, READ[name](here)):
        refused(chain, state, r"over '.*0\.txt' of 14 bytes where there is '.*0\.txt' of 27 bytes now")
    first.unlink()
    refused(ds, state, "of 14 bytes where there is '.*0.txt', which is not there now")


# Chains of which the plan does not say which of the texts a function opens, or what comes to it.
PYTHON: dict[str, Callable[[list[str]], Dataset]] = {
    "read_file": lambda paths: slices(paths).map(in_python, traced=False),
    "lines": lambda paths: slices(paths).flat_map(lines_in_python),
    "a scan": lambda paths: slices(paths).scan(np.int64(0), lambda n, p: (n + 1, p)).map(read),
}


@pytest.mark.parametrize("name", PYTHON)
def test_a_file_that_python_reads_is_compared_once_it_was_read(name: str, here: Path) -> None:
    """What it opens with gpupipe is known then."""
    ds = PYTHON[name](paths_in(here))
    before, behind_two = state_after(ds, 0), state_after(ds, 2)
    whole = taken(iter(ds))
    Path(paths_in(here)[0]).write_text("longer than before, by far\n")

    assert behind(ds, before)[-4:] == whole[-4:]
    refused(ds, behind_two, r"over '0\.txt' of 14 bytes where there is '.*0\.txt' of 27 bytes now")


def test_the_state_has_the_size_of_the_file_as_this_epoch_read_it(here: Path) -> None:
    """Sizes are looked up once for a chain, so one that changes between two epochs has to be seen by the second."""
    ds = gp.TextLineDataset(paths_in(here))
    state_after(ds, 0)
    Path(paths_in(here)[0]).write_text("longer than before, by far\n")

    state = state_after(ds, 1)

    assert ["0.txt", 27] in state["files"]["sizes"]
    assert len(behind(ds, state)) == 2 * (COUNT - 1)


@pytest.mark.parametrize("many", [False, True])
def test_a_server_is_asked_for_no_url_before_it_is_read(many: bool, tmp_path: Path) -> None:
    count = 400 if many else COUNT  # the names of many are not listed in a state
    for i in range(count):
        (tmp_path / f"{i:03}.txt").write_text(f"{i:03}\n")
    with Faulty(tmp_path, keeps=True).serving() as server:
        urls = [server.url(f"{i:03}.txt") for i in range(count)]
        for chain in (slices(urls), slices((urls, np.arange(count))), slices(urls).map(read), gp.TextLineDataset(urls)):
            state = state_after(chain, 0)
            assert behind(chain.take(0), state_after(chain.take(0), 0)) == []
            with iter(chain) as items:
                items.load_state_dict(state)
        assert (server.heads, server.gets) == (0, 0)

        ds = slices(urls).map(read)
        state = state_after(ds, 3)
        server.heads = 0
        assert len(behind(ds, state)) == count - 3
        assert server.heads <= 3 + count - 3  # of those compared, then of those read

        (tmp_path / "399.txt" if many else tmp_path / "005.txt").write_text("not read yet\n")
        behind(ds, state)
        (tmp_path / "001.txt").write_text("read before\n")
        refused(ds, state, "needs a state over the same files, got one over")


def test_names_and_order_of_urls_that_were_not_read_are_compared(tmp_path: Path) -> None:
    urls = [f"http://127.0.0.1:9/{i}.txt" for i in range(COUNT)]
    state = state_after(slices(urls).map(read), 0)

    for others in (urls[::-1], urls[1:], [*urls[:-1], "http://127.0.0.1:9/other.txt"]):
        refused(slices(others).map(read), state, "needs a state over the same")


def _with(ds: Dataset, what: Any) -> Dataset:
    return ds.with_options(Options(compare_files=what))


def test_an_option_says_what_a_state_compares(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts, files = slices(paths_in(here)), gp.TextLineDataset(paths_in(here))
    kinds = ("names", "read", "sizes", "contents")
    looked = []
    for ds in (texts, files):
        for what in kinds:
            with monkeypatch.context() as patch:
                asked = Asked(here, patch)
                state_after(_with(ds, what), 0)
                looked.append(len(asked.looked))
                assert what == "contents" or not asked.opened
    assert looked == [0, 0, COUNT, COUNT, 0, COUNT, COUNT, COUNT]

    states = {what: state_after(_with(files, what), 1) for what in kinds}
    first = Path(paths_in(here)[0])
    first.write_text("0: 1st\n0: 2nd\n")
    for what in ("names", "read", "sizes"):
        behind(_with(files, what), states[what])
    refused(_with(files, "contents"), states["contents"], "same names and sizes with other contents")
    refused(_with(files, "contents"), states["sizes"], r'compare_files="contents".*without digests')
    first.write_text("longer than before, by far\n")
    assert len(behind(_with(files, "names"), states["names"])) > 0
    assert len(behind(_with(files, "names"), states["sizes"])) > 0  # what is compared is said by the one that loads
    refused(_with(files, "read"), states["read"], "of 27 bytes now")
    refused(_with(files, "sizes"), states["sizes"], "of 27 bytes now")
    first.rename(here / "other.txt")
    renamed = gp.TextLineDataset([str(here / "other.txt"), *paths_in(here)[1:]])
    refused(_with(renamed, "names"), states["names"], "other")


def test_many_texts_take_little_memory() -> None:
    """The texts themselves are in the dataset; beside them a state took 3 KB for each."""
    count = 100_000
    ds = slices([f"a photograph of number {i}" for i in range(count)])
    state_after(slices(["a"]), 0)
    tracemalloc.start()
    try:
        with iter(ds) as items:
            state = items.state_dict()
        with iter(ds) as items:
            items.load_state_dict(state)
        assert tracemalloc.get_traced_memory()[1] < 200 * count
    finally:
        tracemalloc.stop()
    assert state["files"]["count"] == count


def test_a_file_that_comes_twice_is_compared_once(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = paths_in(here)
    ds = slices(paths * 2).map(read).concatenate(slices(paths[:2]).map(read))
    asked = Asked(here, monkeypatch)

    state = state_after(ds, 0)

    assert state["files"]["count"] == COUNT
    assert set(asked.looked.values()) == {1}


@pytest.mark.parametrize("known", [3, [], "", "zz", {"zlib": 3}, "ff" * 1000, "0"])
def test_what_a_state_says_of_sizes_it_knows_may_be_anything(known: Any, tmp_path: Path) -> None:
    for i in range(400):
        (tmp_path / f"{i:03}.txt").write_text("x\n")
    ds = gp.TextLineDataset([str(tmp_path / f"{i:03}.txt") for i in range(400)])
    state = state_after(ds, 0)

    with iter(ds) as items, pytest.raises(StateError, match=r"needs a state|damaged"):
        items.load_state_dict(sealed({**state, "files": {**state["files"], "known": known}}))
