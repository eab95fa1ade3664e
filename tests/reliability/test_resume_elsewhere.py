"""States go on elsewhere: in other numbers of shards, where the data has moved, and in later versions."""

from __future__ import annotations

import json
import logging
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, Options
from gpupipe.errors import StateError
from gpupipe.load import compared_files
from gpupipe.load.packed import unpacked
from gpupipe.load.state import sealed
from tests.reliability.resume import behind, refused, state_after, taken, through_json

Build = Any


def states_of(build: Build, shards: int, count: int) -> tuple[list[Any], list[Any]]:
    """What all shards give in `count` elements each, and their states."""
    given, states = [], []
    for index in range(shards):
        with iter(build(shards, index)) as items:
            given += taken(items, count)
            states.append(through_json(items.state_dict()))
    return given, states


def rest_of(build: Build, shards: int, state: Any) -> list[Any]:
    return [x for index in range(shards) for x in behind(build(shards, index).iterator(epoch=0), state)]


def rows(elements: list[Any]) -> Counter[Any]:
    """The rows of batches, by their bytes."""
    found: Counter[Any] = Counter()
    for _, leaves in elements:
        dtype, shape, data = leaves[-1]
        values = np.frombuffer(data, dtype).reshape(shape) if isinstance(data, bytes) else np.array(data)
        found.update(np.ravel(values).tolist())
    return found


def numbers() -> Any:
    yield from (np.int64(i) for i in range(101))


def chains(even: Any = None) -> dict[str, Build]:
    """Chains by the number and the index of a shard; with `even`, whose shards are of one size."""
    return {
        "elements": lambda n, i: gp.Dataset.range(101).shard(n, i, even=even),
        "batches": lambda n, i: gp.Dataset.range(101).shard(n, i, even=even).batch(3).prefetch(1),
        "a global shuffle": lambda n, i: (
            gp.Dataset.range(101).shuffle(gp.ALL, seed=4).shard(n, i, even=even).map(lambda x: x * 2).batch(4)
        ),
        "a shard of batches": lambda n, i: (
            gp.Dataset.range(101).shuffle(gp.ALL, seed=4).batch(1 if even else 2).shard(n, i, even=even).prefetch(1)
        ),
        "a repeat": lambda n, i: gp.Dataset.range(31).repeat(4).shard(n, i, even=even).batch(2),
        "a stream": lambda n, i: (
            gp.Dataset.from_generator(numbers, output_signature=gp.TensorSpec((), "int64"))
            .filter(lambda x: x % 2 == 0)
            .shuffle(7, seed=1)
            .shard(n, i, even=even)
            .batch(2)
        ),
    }


CHAINS = chains()


@pytest.mark.parametrize("counts", [(1, 2), (2, 4), (4, 3), (3, 1), (2, 5), (3, 3)])
@pytest.mark.parametrize("name", CHAINS)
def test_nothing_is_lost_and_nothing_comes_twice(name: str, counts: tuple[int, int]) -> None:
    build = CHAINS[name]
    before, after = counts
    whole = rows(taken(iter(build(1, 0))))
    for count in (0, 1, 3, 5):
        given, states = states_of(build, before, count)
        assert rows(given) + rows(rest_of(build, after, states)) == whole
        if before != after:
            assert rows(given) + rows(rest_of(build, after, states[0])) == whole


@pytest.mark.parametrize("counts", [(1, 2), (4, 3), (2, 5)])
@pytest.mark.parametrize("even", ["drop", "wrap"])
@pytest.mark.parametrize("name", CHAINS)
def test_even_shards_stay_even_in_other_numbers(name: str, even: str, counts: tuple[int, int]) -> None:
    build, plain = chains(even)[name], CHAINS[name]
    before, after = counts
    whole = rows(taken(iter(plain(1, 0))))
    for count in (0, 1, 3, 5):
        given, states = states_of(build, before, count)
        rests = [behind(build(after, index), states if index % 2 else states[0]) for index in range(after)]
        assert len(set(map(len, rests))) == 1
        assert len({tuple(sorted(map(len_of, rest))) for rest in rests}) == 1
        found = rows(given) + rows([element for rest in rests for element in rest])
        if even == "drop":
            assert found <= whole
            assert (whole - found).total() == (whole.total() - rows(given).total()) % after
        else:
            assert found >= whole
            assert (found - whole).total() == -(whole.total() - rows(given).total()) % after


def len_of(element: Any) -> int:
    """The rows of a batch."""
    return sum(rows([element]).values())


@pytest.mark.parametrize("even", ["drop", "wrap"])
def test_an_epoch_that_has_ended_has_ended_for_other_shards_too(even: str) -> None:
    build = chains(even)["elements"]
    given, states = states_of(build, 4, 1000)

    assert len(given) == (100 if even == "drop" else 104)
    assert rest_of(build, 1, states) == []
    assert rest_of(build, 3, states[2]) == []


def test_shards_are_changed_twice_and_states_taken_in_between() -> None:
    build = CHAINS["a global shuffle"]
    whole = rows(taken(iter(build(1, 0))))
    found, states = Counter[Any](), None
    for shards in (1, 2, 4, 3):
        following = []
        for index in range(shards):
            with iter(build(shards, index)) as items:
                if states is not None:
                    items.load_state_dict(states)
                found += rows(taken(items, 2))
                following.append(through_json(items.state_dict()))
            with iter(build(shards, index)) as items:  # the same shard goes on by its own state
                items.load_state_dict(following[-1])
        states = following
    rests = [x for index, state in enumerate(states or []) for x in behind(build(3, index), state)]
    assert found + rows(rests) == whole


def test_shards_that_stopped_at_several_places_are_refused() -> None:
    build = CHAINS["batches"]
    _, states = states_of(build, 3, 4)
    _, others = states_of(build, 3, 3)
    refused(build(2, 0), [states[0], states[1], others[2]], "all stopped at the same element")
    refused(build(2, 0), states[:2], "states of all shards, each once")
    refused(build(2, 0), [states[0], states[0], states[1]], "states of all shards, each once")


REFUSED: dict[str, tuple[Build, str]] = {
    "a take that depends on the number of shards": (
        lambda n, i: gp.Dataset.range(255).map(lambda x: x + 1).take(255 // n * n).shard(n, i).batch(8),
        r"needs a take that does not depend on the number of shards, to continue in shard 0 of 4 after one of 2: .*"
        r"take\(254\), .*has take\(252\) \(at .*py:\d+\); leave the take out and write shard\(4, 0, even='drop'\)",
    ),
    "a batch that depends on it": (
        lambda n, i: gp.Dataset.range(255).shard(n, i).batch(32 // n),
        r"or of other shards of it, got one whose step 3 was batch\(16\), .* batch\(8\)",
    ),
    "an even shard": (
        lambda n, i: gp.Dataset.range(255).shard(n, i, even="wrap" if n == 4 else None).batch(16),
        r"step 2 was shard\(2, 1\), where this one has shard\(4, 0, even='wrap'\)",
    ),
    "elements that are held behind it": (
        lambda n, i: gp.Dataset.range(40).shard(n, i).shuffle(5),
        r"step 2 was shard\(2, 1\), where this one has shard\(4, 0\)",
    ),
    "bad elements that were left out": (
        lambda n, i: gp.Dataset.range(40).map(odd).shard(n, i).batch(2).with_options(gp.Options(on_error="skip")),
        "had bad elements",
    ),
}


def odd(x: Any) -> Any:
    if int(x) == 5:
        raise ValueError("five")
    return x


@pytest.mark.parametrize("name", REFUSED)
def test_what_other_shards_cannot_take_is_named(name: str) -> None:
    build, match = REFUSED[name]

    refused(build(4, 0), states_of(build, 2, 4)[1][1], match)


def test_later_epochs_are_whole() -> None:
    def build(n: int, i: int) -> Any:
        return gp.Dataset.range(12).shard(n, i)

    assert len(behind(build(1, 0).epochs(3), state_after(build(2, 0).epochs(3), 2))) == 8 + 12 + 12


@pytest.mark.parametrize("even", [None, "drop", "wrap"])
def test_a_list_of_the_states_of_all_shards_goes_on_with_its_own(even: Any) -> None:
    def build(index: int) -> Any:
        return gp.Dataset.range(9).shard(2, index, even=even).batch(1)

    states = [state_after(build(i), 2) for i in range(2)]

    assert [behind(build(i), states) for i in range(2)] == [taken(build(i).iterator(epoch=0))[2:] for i in range(2)]


MOVED: dict[str, Callable[[Path], Dataset]] = {
    "a pattern": lambda folder: Dataset.list_files(str(folder / "*/*.rec"), seed=1).interleave(gp.TFRecordDataset),
    "records in a buffer": lambda folder: (
        Dataset.list_files(str(folder / "*/*.rec"), seed=1).interleave(gp.TFRecordDataset, cycle_length=2).shuffle(9)
    ),
    "a buffer": lambda folder: gp.TFRecordDataset(sorted(map(str, folder.glob("*/*.rec")))).shuffle(9).repeat(2),
    "all": lambda folder: gp.TFRecordDataset(sorted(map(str, folder.glob("*/*.rec")))).shuffle(gp.ALL).batch(2),
    "one path": lambda folder: gp.TFRecordDataset(str(folder / "a/0.rec")).shuffle(4),
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
@pytest.mark.parametrize("name", MOVED)
def test_a_chain_goes_on_where_its_data_has_moved(
    name: str, count: int, here: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state, rest = stopped(MOVED[name](here), count)
    assert str(here) not in json.dumps({**state, "flow": unpacked(state.get("flow"))})
    there = here.parent / "there" / "deeper"
    shutil.copytree(here, there)
    shutil.rmtree(here)

    with caplog.at_level(logging.WARNING, "gpupipe"):
        got = behind(MOVED[name](there), state)

    assert rest or count == 8
    assert got == rest
    assert caplog.text == ""


def test_other_names_and_sizes_are_refused_with_both(here: Path) -> None:
    state, _ = stopped(MOVED["a pattern"](here))
    (here / "a/0.rec").rename(here / "a/00.rec")
    refused(MOVED["a pattern"](here), state, r"got one over 'a/0\.rec' of .*a/00")
    (here / "a/00.rec").rename(here / "a/0.rec")
    (here / "a/1.rec").write_bytes(b"")
    refused(MOVED["a pattern"](here), state, r"'a/1\.rec' of .*/1\.rec' of 0 bytes")


@pytest.mark.parametrize("block", [None, 8], ids=["", "in blocks"])  # the length of a record, which is the same
def test_other_contents_are_refused_where_digests_are_asked_for(
    block: int | None, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def chain(digests: bool) -> Dataset:
        return MOVED["a pattern"](here).with_options(Options(compare_files="contents" if digests else None))

    monkeypatch.setattr(compared_files, "_READ", block or compared_files._READ)
    state, rest = stopped(chain(True))
    plain, _ = stopped(chain(False))
    assert behind(chain(True), state) == rest
    refused(chain(True), plain, r'compare_files="contents".*without digests')

    with gp.io.TFRecordWriter(str(here / "b/1.rec")) as writer:
        for j in range(8):
            writer.write(f"B1{j}".encode())
    refused(chain(True), state, r"same names and sizes with other contents, .*b/1\.rec")
    behind(chain(False), state)


@pytest.mark.parametrize("digests", [False, True])
def test_many_files_are_compared_by_one_digest_wherever_they_lie(tmp_path: Path, digests: bool) -> None:
    """Too many to be listed in a state."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    for i in range(700):
        (here / f"{i:03}.txt").write_text(f"{i}\n")

    def chain(folder: Path) -> Dataset:
        names = Dataset.list_files(str(folder / "*.txt"), seed=1)
        ds = names.flat_map(gp.TextLineDataset).shuffle(50)
        return ds.with_options(Options(compare_files="contents" if digests else None))

    state, rest = stopped(chain(here), 300)
    here.rename(there)
    assert len(json.dumps(state)) < 6000
    assert behind(chain(there), state) == rest

    (there / "650.txt").rename(there / "65.txt")
    refused(chain(there), state, "or files of other names")
    (there / "65.txt").rename(there / "650.txt")
    (there / "650.txt").write_text("650\n650\n")
    refused(chain(there), state, r"over 2690 bytes where there are 2694 bytes now")
    (there / "650.txt").write_text("651\n")
    if digests:
        refused(chain(there), state, "same names and sizes with other contents")


@pytest.mark.parametrize("digests", [False, True])
def test_what_a_state_says_of_files_may_be_anything(digests: bool, here: Path) -> None:
    ds = MOVED["a pattern"](here).with_options(Options(compare_files="contents" if digests else None))
    state, _ = stopped(ds)
    sizes: list[Any] = [3, [None] * 6, [["x" * 100_000, 3]] * 6]
    more: list[Any] = [None, [], {}, {"count": 6}, {"count": 6, "contents": []}, {"count": 6, "contents": {"each": 3}}]

    for files in more + [{"count": 6, "sizes": some, "digest": "x"} for some in sizes]:
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
    state, _ = stopped(MOVED["records in a buffer"](here), 8)
    state["flow"] = unpacked(state["flow"])
    held = next(part for part in buffers(state["flow"]) if part["names"])
    assert set(map(type, held["names"])) == {int}
    held["names"][0] = nonsense

    with pytest.raises(StateError, match="load_state_dict needs"):
        behind(MOVED["records in a buffer"](here), sealed(state), 1)


def test_a_state_of_an_earlier_format_is_refused(here: Path) -> None:
    state, _ = stopped(MOVED["a pattern"](here))

    refused(MOVED["a pattern"](here), sealed({**state, "gpupipe_state": 2}), "version of the format 9, got 2")


Range = gp.Dataset.range
AFTER = 3
"""Elements that were taken before each state."""


def broken(x: Any) -> Any:
    if int(x) == 7:
        raise ValueError("seven")
    return x


broken.__module__ = "tests.reliability.test_old_states"  # where it was when the state was written


def with_a_bad_one(rank: int, world: int) -> gp.Dataset:
    """Behind a bad element of a rank, a state says nothing of the others."""
    return Range(64).map(broken).batch(8).by_rank(rank, world, check=False)


def mixed(batch: int = 8) -> gp.Dataset:
    return Range(200).shuffle(gp.ALL, seed=1).batch(batch)


def captions(count: int) -> gp.Dataset:
    """Texts that name no file; the names of a hundred are too many to be listed in a state."""
    return gp.Dataset.from_tensor_slices([f"a photograph of number {i:05}" for i in range(count)]).batch(2)


# `python -c 'from tests.reliability.test_resume_elsewhere import main; main()'` prints such states of the version that
# is written now; those of states-N.json are of version N. Version 7 had no texts, whose files version 8 asked for.
OLD: dict[str, Callable[[], gp.Dataset]] = {
    "a chain that can be indexed": mixed,
    "a window shuffle": lambda: Range(200).shuffle(16, seed=1).batch(8).prefetch(2),
    "streams": lambda: Range(200).shuffle(gp.ALL, seed=1, streams=4, window=10).batch(8),
    "pick": lambda: mixed().pick(list(range(20, 0, -2))),
    "repeat": lambda: Range(9).shuffle(4, seed=1).repeat(3),
    "a shard": lambda: Range(200).shuffle(gp.ALL, seed=1).shard(2, 1).batch(4),
    "a shard of batches": lambda: mixed().shard(2, 1),
    "a rank": lambda: mixed().by_rank(1, 2, check=False),
    "a rank whose steps hold elements": lambda: mixed().by_rank(1, 2, check=False).unbatch().batch(3),
    "texts": lambda: captions(20),
    "many texts": lambda: captions(200),
}


def lists(items: Any) -> list[Any]:
    return [np.asarray(element).tolist() for element in items]


def from_state(ds: gp.Dataset, state: Any) -> list[Any]:
    with ds.iterator(epoch=2) as items:
        items.load_state_dict(state)
        return lists(items)


def states() -> dict[str, Any]:
    """A state of each chain, in epoch 2."""
    found = {}
    for name, chain in OLD.items():
        with chain().iterator(epoch=2) as items:
            for _ in range(AFTER):
                next(items)
            found[name] = items.state_dict()
    with with_a_bad_one(1, 2).iterator(epoch=2) as items:
        with suppress(gp.DataError):
            next(items)
        found["a rank with a bad element"] = items.state_dict()
    return found


def written_by(version: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(__file__).with_name(f"states-{version}.json").read_text())
    assert {state["gpupipe_state"] for state in found.values()} == {version}
    return found


@pytest.fixture(scope="module")
def old() -> dict[str, Any]:
    return written_by(7)


@pytest.mark.parametrize(
    ("version", "name"), [(version, name) for version in (7, 8) for name in OLD if name in written_by(version)]
)
def test_an_old_state_goes_on(version: int, name: str, caplog: pytest.LogCaptureFixture) -> None:
    whole = lists(OLD[name]().iterator(epoch=2))
    assert from_state(OLD[name](), written_by(version)[name]) == whole[AFTER:] != []
    assert caplog.text == ""


@pytest.mark.parametrize("name", ["texts", "many texts"])
def test_an_old_state_over_other_texts_is_refused(name: str) -> None:
    other = gp.Dataset.from_tensor_slices(["another", *(f"a photograph of number {i:05}" for i in range(1, 20))])
    for version in (8, 9):
        state = written_by(8)[name] if version == 8 else state_after(captions(20))
        with pytest.raises(gp.StateError, match="needs a state over the same"):
            from_state(other.batch(2), state)


def test_an_old_state_of_ranks_goes_on_with_any_number_of_them(old: dict[str, Any]) -> None:
    whole = lists(mixed().iterator(epoch=2))
    for world in (1, 2, 4):
        found = from_state(mixed().by_rank(world - 1, world, check=False), old["a rank"])
        assert found == [batch[world - 1 :: world] for batch in whole[AFTER:]]


def test_an_old_state_of_a_shard_goes_on_in_another_number_of_them(old: dict[str, Any]) -> None:
    whole = lists(Range(200).shuffle(gp.ALL, seed=1).iterator(epoch=2))
    found = from_state(Range(200).shuffle(gp.ALL, seed=1).shard(4, 3).batch(4), old["a shard"])
    assert [x for batch in found for x in batch] == whole[24:][3::4]


def test_a_loop_does_not_take_an_old_state_of_ranks_nor_ranks_one_of_a_loop(old: dict[str, Any]) -> None:
    for ds, name in ((mixed(), "a rank"), (mixed().by_rank(1, 2, check=False), "a chain that can be indexed")):
        with pytest.raises(gp.StateError, match="needs a state of this chain"):
            from_state(ds, old[name])


def test_an_old_state_of_steps_that_hold_elements_is_still_of_one_rank(old: dict[str, Any]) -> None:
    other = mixed().by_rank(0, 4, check=False).unbatch().batch(3)
    with pytest.raises(gp.StateError, match="got one of rank 1 of 2 on rank 0 of 4"):
        from_state(other, old["a rank whose steps hold elements"])


def test_an_old_state_behind_a_bad_element_is_still_of_one_rank(old: dict[str, Any]) -> None:
    state = old["a rank with a bad element"]
    with pytest.raises(gp.StateError, match="a state that says how far all shards were"):
        from_state(with_a_bad_one(0, 4), state)
    assert from_state(with_a_bad_one(1, 2), state)[0] == [9, 11, 13, 15]


def main() -> None:
    json.dump(states(), sys.stdout, indent=1)
