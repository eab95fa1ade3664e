"""shard(n, i, even=...): equally many elements for every rank, whatever is in front of it and behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import gpupipe as gp
from gpupipe.errors import StateError
from gpupipe.extract.records.index import INDEXES
from gpupipe.flow.order import even as module
from tests.behaviour.manifests import written
from tests.behaviour.model import outcomes, run
from tests.behaviour.programs import Program, build, elements, model, programs
from tests.reliability.resume import goes_on, resumed_after, taken

Range = gp.Dataset.range


def even_shard(whole: list[Any], shards: int, index: int, even: str) -> list[Any]:
    """What a shard is to have."""
    n = len(whole)
    if even == "drop":
        return whole[: n // shards * shards][index::shards]
    return [whole[place % n] for place in range(index, -(-n // shards) * shards, shards)]


def _numbers(n: int) -> Callable[[], Iterator[np.int64]]:
    return lambda: (np.int64(i) for i in range(n))


def _inner(x: Any) -> Any:
    return Range(3).map(lambda y: y + 10 * x)


SOURCES: dict[str, Callable[[int], gp.Dataset]] = {
    "range": Range,
    "slices": lambda n: gp.Dataset.from_tensor_slices(np.arange(n)),
    "indexable": lambda n: gp.Dataset.from_indexable(list(range(n))),
    "taken": lambda n: Range(n + 5).skip(2).take(n),
    "a slice": lambda n: Range(2 * n)[::2],
    "a global shuffle": lambda n: Range(n).shuffle(gp.ALL, seed=3),
    "generator": lambda n: gp.Dataset.from_generator(_numbers(n), output_signature=gp.TensorSpec((), "int64")),
    "filter": lambda n: Range(n).filter(lambda x: x % 3 != 1),
    "shuffle": lambda n: Range(n).shuffle(4, seed=1),
    "shuffle, repeat": lambda n: Range(n).shuffle(4, seed=1).repeat(2),
    "traced map": lambda n: Range(n).map(lambda x: x * 2),
    "threads": lambda n: Range(n).map(lambda x: int(x) + 1, num_parallel_calls=2, traced=False),
    "interleave": lambda n: Range(n).interleave(_inner, cycle_length=2),
    "cache": lambda n: Range(n).shuffle(3).cache(),
    "concatenate": lambda n: Range(n).concatenate(Range(2)),
    "a shard": lambda n: Range(n).shard(2, 1),
    "an even shard": lambda n: Range(n).shard(2, 1, even="drop"),
    "an even shard of a stream": lambda n: Range(n).shuffle(3).shard(2, 0, even="wrap"),
    "batches": lambda n: Range(n).batch(2),
}


@pytest.mark.parametrize("even", ["drop", "wrap"])
@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_every_shard_is_that_of_the_model(source: Callable[[int], gp.Dataset], even: Any) -> None:
    for n in (0, 1, 6, 7):
        whole = run(source(n).iterator(epoch=2))
        for shards in (2, 3, 5):
            for index in range(shards):
                ds = source(n).shard(shards, index, even=even)
                found = run(ds.iterator(epoch=2))

                assert found == even_shard(whole, shards, index, even), (n, shards, index)
                if ds.cardinality() >= 0:
                    assert ds.cardinality() == len(found)


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(list(SOURCES)),
    n=st.integers(0, 12),
    shards=st.integers(1, 7),
    even=st.sampled_from(["drop", "wrap"]),
    cut=st.integers(0, 12),
    data=st.data(),
)
def test_a_state_in_any_place_goes_on_with_the_next_element(
    kind: str, n: int, shards: int, even: Any, cut: int, data: Any
) -> None:
    index = data.draw(st.integers(0, shards - 1))

    def build() -> gp.Dataset:
        return SOURCES[kind](n).shard(shards, index, even=even)

    whole = taken(iter(build()))
    assert resumed_after(build, min(cut, len(whole)))[0] == whole[cut:]


PLACES = ("range", "slices", "indexable", "taken", "a slice", "a global shuffle", "traced map", "threads", "a shard",
          "an even shard", "batches", "concatenate")  # fmt: skip


@pytest.mark.parametrize("even", ["drop", "wrap"])
@pytest.mark.parametrize("name", PLACES)
def test_its_elements_have_places(name: str, even: Any) -> None:
    for n, shards, index in ((7, 3, 2), (2, 5, 4)):
        ds = SOURCES[name](n).shard(shards, index, even=even)
        whole = run(ds.iterator(epoch=0))

        assert len(ds) == len(whole)
        assert run([ds[i] for i in range(len(whole))]) == whole
        assert run(ds[::-1].iterator(epoch=0)) == whole[::-1]
        assert run(ds.skip(1).iterator(epoch=0)) == whole[1:]
        assert run(ds.shard(2, 0).iterator(epoch=0)) == whole[::2]
        assert sorted(map(str, run(ds.shuffle(gp.ALL)))) == sorted(map(str, whole))


def test_what_does_not_end_has_endless_shards_and_of_what_is_unknown_nothing_is_known() -> None:
    assert Range(3).repeat().shard(2, 1, even="wrap").cardinality() == gp.Dataset.INFINITE_CARDINALITY
    assert SOURCES["filter"](3).shard(2, 1, even="drop").cardinality() == gp.Dataset.UNKNOWN_CARDINALITY
    assert run(Range(3).repeat().shard(2, 1, even="drop").take(4)) == [1, 0, 2, 1]


# ---- files


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Files of 5, 0, 3 and 6 records."""
    return written(tmp_path_factory.mktemp("even"), [5, 0, 3, 6])[1]


READERS: dict[str, Callable[[list[str]], gp.Dataset]] = {
    "file after file": gp.TFRecordDataset,
    "the first ones": lambda paths: gp.TFRecordDataset(paths).skip(1).take(9),
    "interleave": lambda paths: gp.Dataset.from_tensor_slices(paths).interleave(gp.TFRecordDataset, cycle_length=3),
    "shuffled": lambda paths: gp.TFRecordDataset(paths).shuffle(gp.ALL, seed=1),
}


@pytest.mark.parametrize("known", [False, True], ids=["no index", "indexed"])
@pytest.mark.parametrize("even", ["drop", "wrap"])
@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_records_are_shared_out_evenly_with_an_index_and_without(
    reader: Callable[[list[str]], gp.Dataset], even: Any, known: bool, paths: list[str]
) -> None:
    def build(shards: int, index: int) -> gp.Dataset:
        return reader(paths).shard(shards, index, even=even)

    whole = run(reader(paths).iterator(epoch=0))
    for shards in (2, 5, 20):
        for index in range(shards):
            expected = even_shard(whole, shards, index, even)
            INDEXES.clear()
            if known:
                assert len(build(shards, index)) == len(expected)
            assert run(build(shards, index)) == expected
            goes_on(partial(build, shards, index), [min(1, len(expected))])


def test_ranks_that_read_one_damaged_file_make_equally_many_batches(tmp_path: Path) -> None:
    _, (path,), _ = written(tmp_path, [13])
    data = bytearray(Path(path).read_bytes())
    data[3 * 19 + 12] ^= 1  # a payload
    Path(path).write_bytes(data)
    ds = gp.TFRecordDataset(path).with_options(gp.Options(on_error="replace"))

    for even, sizes in (("drop", [2, 2]), ("wrap", [2, 2, 1])):
        for index in range(3):
            assert [len(batch) for batch in ds.shard(3, index, even=even).batch(2)] == sizes  # type: ignore[arg-type]


# ---- bad elements


def _fails_at_one(x: Any) -> Any:
    if int(x) in (1, 6):
        raise ValueError("on purpose")
    return int(x)


@pytest.mark.parametrize("even", ["drop", "wrap"])
def test_errors_on_their_way_pass_and_survive_a_state(even: Any) -> None:
    """A batch that loses a row raises its error and is filled up: the error is no element."""
    options = gp.Options(disabled_rules=("choose_batches",))
    source = Range(14).map(_fails_at_one).batch(2, drop_remainder=True).with_options(options)
    elements = [batch for batch in outcomes(source) if batch != "error"]
    for shards, index in ((2, 0), (2, 1), (4, 0), (4, 3)):
        build = partial(source.shard, shards, index, even=even)

        assert [x for x in outcomes(build()) if x != "error"] == even_shard(elements, shards, index, even)
        goes_on(build)


@pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])
@settings(max_examples=50, deadline=None, database=None, derandomize=True)
@given(program=programs(failing=True, most=5, even=True))
def test_it_may_stand_anywhere_in_a_chain(on_error: Any, program: Program) -> None:
    names = [op[0] for op in program[1]]
    assume("even shard" in names and "twice" not in names)  # of zipped batches the model says nothing
    dataset = build(program).with_options(gp.Options(on_error=on_error))

    assert elements(dataset) == model(program, on_error)


# ---- what is wrapped


def _drawn(x: Any, rng: np.random.Generator) -> Any:
    return x, rng.integers(1 << 40)


@pytest.mark.parametrize("name", ["range", "shuffle", "generator", "filter"])
def test_an_element_that_is_given_twice_is_the_same_with_its_draws(name: str) -> None:
    ranks = [run(SOURCES[name](5).shard(3, i, even="wrap").map(_drawn, rng=True).iterator(epoch=1)) for i in range(3)]
    first = run(SOURCES[name](5).map(_drawn, rng=True).iterator(epoch=1))

    whole = [ranks[place % 3][place // 3] for place in range(3 * len(ranks[0]))]
    assert whole == [first[place % len(first)] for place in range(len(whole))]


def test_bad_elements_among_those_that_are_read_again_are_listed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT", 0)
    good = Range(9).map(_fails_at_one).ignore_errors()

    with good.shard(3, 2, even="wrap").iterator() as items:
        assert list(items) == [3, 7, 2]
        assert [record.offset for record in items.errors] == [1, 6]


def test_an_input_that_cannot_be_gone_through_again_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    once = iter(range(5))
    source = gp.Dataset.from_generator(lambda: once, output_signature=gp.TensorSpec((), "int64"))
    assert run(source.shard(4, 3, even="wrap")) == [3, 2]

    once = iter(range(5))
    monkeypatch.setattr(module, "KEPT", 0)
    with pytest.raises(StateError, match=r"shard\(4, 3, even='wrap'\) needs the first elements of its input again"):
        list(source.shard(4, 3, even="wrap"))


def test_a_stream_is_not_read_further_than_the_round() -> None:
    taken: list[int] = []

    def numbers() -> Iterator[int]:
        for i in range(100):
            taken.append(i)
            yield i

    source = gp.Dataset.from_generator(numbers, output_signature=gp.TensorSpec((), "int64"))
    for shard, read in ((source.shard(4, 1, even="drop"), [0, 1, 2, 3]), (source.shard(4, 1, even="wrap"), [0, 1])):
        taken.clear()
        assert next(iter(shard)) == 1
        assert taken == read


# ---- shards and slices of the batches of a dataset that never ends: those that the loop over all batches gives


ENDLESS: dict[str, Callable[[], gp.Dataset]] = {
    "repeated": lambda: Range(7).repeat(),
    "shuffled again and again": lambda: Range(7).shuffle(gp.ALL, seed=1).repeat(),
    "mapped": lambda: Range(7).map(lambda x: x * 2).repeat(),
    "cut after all": lambda: Range(7).repeat().take(60),
    "skipped": lambda: Range(7).repeat().skip(3),
}

BATCHES: dict[str, Callable[[gp.Dataset], gp.Dataset]] = {
    "batch": lambda ds: ds.batch(4),
    "whole batches": lambda ds: ds.batch(4, drop_remainder=True),
    "padded": lambda ds: ds.padded_batch(4),
    "skip": lambda ds: ds.batch(4).skip(2),
}

CHOICES: dict[str, Callable[[gp.Dataset, int], gp.Dataset]] = {
    "shard": lambda ds, i: ds.shard(3, i),
    "shard, even": lambda ds, i: ds.shard(3, i, even="drop"),
    "slice": lambda ds, i: ds[i::3],
}


@pytest.mark.parametrize(
    ("name", "batches", "choice"),
    [(name, batches, choice) for name in ENDLESS for batches in BATCHES for choice in CHOICES][
        ::5
    ],  # every value, and most pairs
)
def test_a_part_of_the_batches_is_that_of_the_loop_over_all(name: str, batches: str, choice: str) -> None:
    ds = BATCHES[batches](ENDLESS[name]())
    whole = run(islice(ds.iterator(epoch=1), 12))
    for i in range(3):
        part = CHOICES[choice](ds, i)
        with part.iterator(epoch=1) as items:
            assert run(islice(items, 2)) == whole[i::3][:2]
            state = items.state_dict()
            rest = run(islice(items, 2))
            assert rest == whole[i::3][2:4]
        with part.iterator(epoch=1) as other:
            other.load_state_dict(state)
            assert run(islice(other, 2)) == rest
