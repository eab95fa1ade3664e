"""pick: elements at the places that a user names, as from a chain that is opened once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe.flow.sources.records import RecordsFlow
from gpupipe.io import TFRecordWriter
from tests.behaviour.model import outcomes, plain, run

Range = gp.Dataset.range


def files(folder: Path, count: int = 6, records: int = 5) -> gp.Dataset:
    """The records of some files, in turn; each says where it came from."""
    folder.mkdir(exist_ok=True)
    for i in range(count):
        with TFRecordWriter(str(folder / f"{i}.tfrecord")) as writer:
            for j in range(records):
                writer.write(b"%d-%d" % (i, j))
    names = gp.Dataset.list_files(str(folder / "*.tfrecord"), shuffle=False)
    return names.interleave(gp.TFRecordDataset, cycle_length=4)


def one_by_one(ds: gp.Dataset, places: Any, epoch: int = 0) -> list[Any]:
    fixed = ds.epoch(epoch)
    return [plain(fixed[int(i)]) for i in places]


def picked(ds: gp.Dataset, places: Any, epoch: int = 0) -> list[Any]:
    return [plain(element) for element in ds.pick(places).iterator(epoch=epoch)]


def _python(x: Any) -> int:
    return int(x) * 7


def _drawn(x: Any, rng: np.random.Generator) -> float:
    return float(rng.random()) + int(x)


PLACES = [5, 3, 17, 0, 3, 19]

CHAINS: dict[str, Any] = {
    "range": lambda: Range(20),
    "endless": lambda: Range(7).repeat(),
    "shuffled": lambda: Range(20).shuffle(gp.ALL, seed=1),
    "traced map": lambda: Range(20).map(lambda x: x + 1),
    "threads": lambda: Range(20).map(_python, num_parallel_calls=3),
    "random": lambda: Range(20).map(_drawn, rng=True),
    "batches": lambda: Range(60).map(_python).batch(3).prefetch(2),
    "full batches": lambda: Range(60).shuffle(gp.ALL, seed=2).map(_python).batch(3, drop_remainder=True).prefetch(2),
    "a short batch": lambda: Range(58).map(_python).batch(3),
    "joined": lambda: Range(8).concatenate(Range(12)),
    "picked": lambda: Range(40).pick(range(39, -1, -2)),
}


@pytest.mark.parametrize("name", CHAINS)
def test_what_is_picked_equals_the_elements_at_these_places(name: str) -> None:
    ds = CHAINS[name]()

    assert picked(ds, PLACES, 3) == one_by_one(ds, PLACES, 3)


@pytest.mark.parametrize("given", [range(19, 2, -3), np.array([4, 1], np.uint8), (7,), [], np.zeros(0, int)])
def test_a_range_an_array_a_tuple_and_nothing_are_places(given: Any) -> None:
    expected, ds = list(given), Range(20).pick(given)
    if isinstance(given, np.ndarray):
        given[:] = 0  # it was copied

    assert [plain(x) for x in ds] == expected


def test_no_file_is_opened_for_each_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    was = RecordsFlow.indexed

    def indexed(self: RecordsFlow, at: Any, build: bool = True) -> Any:
        opened.append("")
        return was(self, at, build)

    ds = files(tmp_path).batch(2, drop_remainder=True)
    len(ds)
    monkeypatch.setattr(RecordsFlow, "indexed", indexed)
    list(ds.pick([14, 3, 9, 3, 0, 7, 14] * 4))

    assert len(opened) <= 2 * 6  # to count its records, and to read them


@pytest.mark.parametrize(
    ("ds", "places", "text"),
    [
        (Range(5), [5], r"pick needs places from 0 to 4, got 5"),
        (Range(5), [-1], r"pick needs places from 0 to 2\*\*62 - 1, got -1"),
        (Range(5), [[1]], r"pick needs places of shape \(N,\), got \(1, 1\)"),
        (Range(5), np.array(3), r"pick needs places of shape \(N,\), got \(\)"),
        (Range(5), [*range(100_000), 0.5], r"pick needs integers of one dtype, got .{1,200} of dtype float64$"),
        (Range(5), bytearray(b"1"), r"a list, a range or an array, or from an iterator or a function, got bytearray"),
        (Range(5), [1.0], r"pick needs integers of one dtype, got \[1.0\] of dtype float64"),
        (Range(5), [True], r"pick needs integers of one dtype, got \[True\] of dtype bool"),
        *((Range(5), x, "pick needs integers in a list, a range") for x in (3, "12", b"12", {1, 2}, {1: 2}, Range(3))),
        (Range(5), [[1], [2, 3]], r"pick needs integers, got \[\[1\], \[2, 3\]\]"),
        (Range(5).shuffle(3), [1], r"pick needs steps that can be indexed, and shuffle\(3.*use shuffle\(gp.ALL\)"),
    ],
)
def test_what_is_no_place_is_refused_on_the_line(ds: gp.Dataset, places: Any, text: str) -> None:
    with pytest.raises(gp.PlanError, match=text):
        ds.pick(places)


FAR = 1 << 60

NUMBERED = gp.PlanError, "an infinite dataset has elements up to number 2**62 - 1, of which the steps here make"
INFINITE = IndexError, "of an infinite dataset: indices are 0 to 2**62 - 1"


@pytest.mark.parametrize(
    ("make", "most", "element", "beyond"),
    [
        (lambda ds: ds.repeat(), (1 << 62) - 1, lambda i: i % 7, INFINITE),
        (
            lambda ds: ds.repeat().batch(4, drop_remainder=True),
            FAR - 1,
            lambda i: [(4 * i + k) % 7 for k in range(4)],
            NUMBERED,
        ),
        (lambda ds: ds.repeat().shard(4, 1), FAR - 1, lambda i: (4 * i + 1) % 7, NUMBERED),
        (lambda ds: ds.repeat().skip(5), (1 << 62) - 6, lambda i: (i + 5) % 7, NUMBERED),
        (lambda ds: ds.take(3).concatenate(ds.repeat()), (1 << 62) - 1, lambda i: (i - 3) % 7, INFINITE),
        (
            lambda ds: Range(1 << 50).concatenate(ds),
            (1 << 50) + 6,
            lambda i: i if i < 1 << 50 else i - (1 << 50),
            (IndexError, f"index {(1 << 50) + 7} of a dataset of {(1 << 50) + 7} elements"),
        ),
    ],
    ids=["repeat", "full batch", "shard", "skip", "concatenate", "a long part"],
)
@pytest.mark.parametrize("given", [list, iter], ids=["list", "iterator"])
def test_far_places_have_their_elements_and_those_beyond_are_errors(
    make: Any, most: int, element: Any, beyond: tuple[type[Exception], str], given: Any
) -> None:
    ds = make(Range(7))
    places = [most, 1 << 45, 3]

    assert [plain(x) for x in ds.pick(given(places))] == [element(i) for i in places]
    assert [plain(ds[i]) for i in places] == [element(i) for i in places]
    last = (
        rf"needs places from 0 to (2\*\*62 - 1|{most})|the steps here make {most + 1}; an element needs .* below that"
    )
    with pytest.raises(gp.PlanError, match=rf"({last}), got {most + 1}$"):
        list(ds.pick(given([most + 1])))
    kind, text = beyond
    with pytest.raises(kind, match=re.escape(text)):
        ds[most + 1]


def test_other_places_are_another_chain() -> None:
    items = Range(9).pick([1, 2, 3]).iterator(epoch=0)
    next(items)
    with pytest.raises(gp.StateError, match="pick"):
        Range(9).pick([1, 2, 4]).iterator(epoch=0).load_state_dict(items.state_dict())


# ---- single batches by their numbers


@pytest.mark.parametrize("even", [None, "drop"])
def test_a_shard_of_batches_makes_only_its_own(even: Any) -> None:
    calls: list[Any] = []

    def noted(x: Any) -> Any:
        calls.append(x)
        return x

    ds = Range(160).shuffle(gp.ALL, seed=1).map(noted, traced=False).batch(4).prefetch(1).shard(4, 1, even=even)

    expected = Range(160).shuffle(gp.ALL, seed=1).batch(4)[1::4]

    assert run(ds.iterator(epoch=0)) == run(expected.iterator(epoch=0))
    assert len(calls) <= 40 + 1  # one more tells the type of the elements


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("drop", [True, False])
@pytest.mark.parametrize("even", [None, "drop", "wrap"])
def test_shards_of_batches_are_every_nth_batch(even: Any, drop: bool, known: bool, tmp_path: Path) -> None:
    """With rest and without, of batches and of rounds; also behind a skip and of records that are counted later."""
    for n in (24, 25, 28, 29, 35, 36, 3):
        rows = Range(n) if known else files(tmp_path / str(n), n, 1)
        ds = rows.batch(4, drop_remainder=drop).prefetch(1)
        for index, first in ((0, 0), (2, 0), (1, 2)):
            shard = (ds.skip(first) if first else ds).shard(3, index, even=even)
            off = shard.with_options(gp.Options(disabled_rules=("choose_batches",)))
            assert ("choose_batches" in str(shard.explain())) == (even != "wrap")
            assert [plain(x) for x in shard] == [plain(x) for x in off]


def failing(x: Any) -> int:
    """A map function that fails for every fifth number."""
    if x % 5 == 0:
        raise ValueError(x)
    return int(x)


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_a_shard_of_batches_with_bad_elements_is_that_of_the_whole_loop(on_error: Any) -> None:
    whole = Range(50).map(failing, traced=False).batch(4).with_options(gp.Options(on_error=on_error))

    assert [plain(x) for x in whole.shard(3, 1)] == [plain(x) for x in whole][1::3]


@pytest.mark.parametrize(
    ("ds", "step"),
    [(Range(40).batch(4)[1::2], r"\[1::2\]"), (Range(40).batch(4).prefetch(1).pick([2]), r"pick\(\[2\]\)")],
    ids=["slice", "pick"],
)
def test_batches_by_number_are_refused_where_bad_elements_are_skipped(ds: gp.Dataset, step: str) -> None:
    text = rf"^{step} at .*test_pick.py:\d+ needs on_error='raise' or 'replace', got 'skip'"
    with pytest.raises(gp.PlanError, match=text):
        next(iter(ds.with_options(gp.Options(on_error="skip"))))
    assert len(list(ds.with_options(gp.Options(on_error="replace")))) == len(ds)


def test_a_bad_element_costs_the_shard_its_batch() -> None:
    chain = Range(24).map(lambda x: int(x) + 0 * (1 // (int(x) - 5)), traced=False).batch(4).shard(3, 1)

    assert outcomes(chain) == ["error", [16, 17, 18, 19]]
