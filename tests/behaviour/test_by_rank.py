"""by_rank: the batches of all ranks together are those of one loop, and all ranks mean the same loop."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import RanksDisagreeError
from gpupipe.io import TFRecordWriter
from gpupipe.load import agreement
from gpupipe.ranks import agree
from gpupipe.ranks.find import VARIABLES
from tests.behaviour.boards import Ranks
from tests.behaviour.model import outcomes, run

Range = gp.Dataset.range
ALONE = {"check": False}
SKIPPING = gp.Options(on_error="skip")


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> Ranks:
    monkeypatch.setattr(agree, "WAIT", 20.0)
    return Ranks(monkeypatch)


def drawn(x: Any, rng: np.random.Generator) -> Any:
    """An element with random numbers of its own."""
    return np.array([float(int(x)), rng.random()])


def chain(n: int = 1533, batch: int = 128, drop: bool = False) -> gp.Dataset:
    shuffled = Range(n).shuffle(gp.ALL, seed=1)
    return shuffled.map(drawn, rng=True).batch(batch, drop_remainder=drop).prefetch(2)


def together(parts: list[Any]) -> bytes:
    """The rows of all ranks as one batch: row r of each round is that of rank r."""
    rows = np.stack(parts, axis=1)
    return rows.reshape(-1, *rows.shape[2:]).tobytes()


def loops(ds: gp.Dataset, world: int, epoch: int = 0, **how: Any) -> list[list[Any]]:
    return [list(ds.by_rank(r, world, **{**ALONE, **how}).iterator(epoch=epoch)) for r in range(world)]


# ---- rows


@pytest.mark.parametrize("world", [1, 2, 4])
@pytest.mark.parametrize("epoch", [0, 2])
def test_the_batches_of_all_ranks_are_those_of_one_loop(world: int, epoch: int) -> None:
    whole = list(chain(drop=True).iterator(epoch=epoch))
    each = loops(chain(drop=True), world, epoch)

    assert [together(list(parts)) for parts in zip(*each, strict=True)] == [batch.tobytes() for batch in whole]


def test_a_short_last_batch_is_left_out_or_padded_and_all_ranks_make_as_many_steps() -> None:
    ds = chain()
    assert [len(steps) for steps in loops(ds, 4)] == [11] * 4
    last, masks = [], []
    for rank in range(4):
        items = ds.by_rank(rank, 4, remainder="pad", check=False).iterator(epoch=0)
        steps = [(batch, items.valid) for batch in items]
        assert [batch.shape for batch, _ in steps] == [(32, 2)] * 12
        assert all(valid.all() for _, valid in steps[:-1])
        last.append(steps[-1][0])
        masks.append(steps[-1][1])
    whole = list(ds.iterator(epoch=0))
    mask = np.stack(masks, axis=1).reshape(-1)
    assert np.flatnonzero(~mask).tolist() == [125, 126, 127]
    assert together(last)[: whole[-1].nbytes] == whole[-1].tobytes()
    assert together(last)[whole[-1].nbytes :] == whole[0][:3].tobytes()


def test_only_own_rows_are_made() -> None:
    made: list[int] = []

    def noted(x: Any) -> int:
        made.append(int(x))
        return int(x)

    ds = Range(64).map(noted, traced=False).batch(16).prefetch(1)
    list(ds.by_rank(1, 4, check=False))

    assert sorted(set(made) - {0}) == list(range(1, 64, 4))  # the first element of all tells their type


def test_a_bad_row_is_an_error_of_its_rank_and_moves_no_other() -> None:
    def odd(x: Any) -> int:
        if x == 6:
            raise ValueError(x)
        return int(x)

    ds = Range(16).map(odd, traced=False).batch(4)
    assert outcomes(ds.by_rank(0, 2, check=False)) == [[0, 2], "error", [8, 10], [12, 14]]
    replaced = ds.with_options(gp.Options(on_error="replace")).by_rank(0, 2, check=False)
    assert outcomes(replaced) == [[0, 2], [4, 4], [8, 10], [12, 14]]


def records(folder: Path, count: int = 21, size: int = 4) -> gp.Dataset:
    for i in range(4):
        with TFRecordWriter(str(folder / f"{i}.tfrecord")) as writer:
            for j in range(count):
                writer.write(b"%d-%d" % (i, j) + b"." * size)
    names = gp.Dataset.list_files(str(folder / "*.tfrecord"), shuffle=False)
    return names.interleave(gp.TFRecordDataset, cycle_length=4).shuffle(gp.ALL, seed=3)


# ---- states


def test_one_state_goes_on_with_any_number_of_ranks(tmp_path: Path) -> None:
    ds = records(tmp_path).batch(8, drop_remainder=True).prefetch(1)
    whole = [[bytes(row) for row in batch] for batch in ds.iterator(epoch=1)]
    given: list[list[bytes]] = []
    state: Any = None
    for world, steps in ((4, 3), (2, 4), (1, None)):
        every = [ds.by_rank(r, world, check=False).iterator(epoch=1) for r in range(world)]
        for items in every:
            if state is not None:
                items.load_state_dict(json.loads(state))
        for parts in islice(zip(*every, strict=True), steps):
            given.append([bytes(row) for rows in zip(*parts, strict=True) for row in rows])
        states = {json.dumps(items.state_dict()) for items in every}
        assert len(states) == 1
        (state,) = states
        assert len(state) <= 4096
    assert given == whole


def test_padding_after_a_state_is_that_of_the_whole() -> None:
    ds = chain(50, 16)
    whole = loops(ds, 2, remainder="pad")
    items = ds.by_rank(0, 4, remainder="pad", check=False).iterator(epoch=0)
    next(items)
    other = ds.by_rank(1, 2, remainder="pad", check=False).iterator(epoch=0)
    other.load_state_dict(items.state_dict())
    rest = [(batch.tobytes(), other.valid.tolist()) for batch in other]

    assert [batch for batch, _ in rest] == [batch.tobytes() for batch in whole[1][1:]]
    assert [sum(valid) for _, valid in rest] == [8, 8, 1]


# ---- arguments


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Range(8).batch(6).by_rank(0, 4), r"a batch that 4 ranks can share, got batch\(6\) .*; 4 or 8 rows"),
        (lambda: Range(8).batch(4).by_rank(4, 4), r"a rank from 0 to 3, got 4 from the arguments"),
        (lambda: Range(8).batch(4).by_rank(0), r"rank and world, or none of them, got rank=0 and world=None"),
        (lambda: Range(8).by_rank(0, 2), r"needs batch right before it, .*got range"),
        (lambda: Range(8).shuffle(3).batch(4).by_rank(0, 2), r"and shuffle\(3.*; use shuffle\(gp.ALL\)"),
        (lambda: Range(8).batch(4).by_rank(0, 2).by_rank(0, 2), r"got a chain that has it already"),
        (lambda: Range(8).batch(4).by_rank(0, 2, "wrap"), r"remainder='drop' or 'pad', got 'wrap'"),  # type: ignore[arg-type]
        (lambda: Range(8).batch(4, True).by_rank(0, 2, "pad"), r"a last batch to complete, got batch\(4, drop_rem"),
        (lambda: Range(8).batch(4).with_options(SKIPPING).by_rank(0, 2), r"on_error='raise' or 'replace', got 'skip'"),
        (lambda: run(Range(8).batch(4).by_rank(0, 2).with_options(SKIPPING)), r"got 'skip': .*test_by_rank.py"),
        (lambda: run(Range(2).flat_map(lambda x: Range(4).batch(2).by_rank(0, 2))), r"needs the chain of the loop"),
    ],
)
def test_what_ranks_cannot_share_is_refused_on_the_line(make: Callable[[], Any], text: str) -> None:
    with pytest.raises(gp.PlanError, match=text):
        make()


# ---- agreement


BASE = {"seed": 1, "batch": 16, "epoch": 0, "files": "*", "size": 4, "number": 1}
OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "seed": ({"seed": 9}, "rank 1 has another seed: 9, where rank 0 has 1"),
    "epoch": ({"epoch": 3}, "rank 1 has another epoch: 3, where rank 0 has 0"),
    "files": ({"files": "[0-2]"}, "rank 1 has other files: 3, where rank 0 has 4"),
    "size": ({"size": 5}, r"rank 1 has files of other sizes: '0.tfrecord' of 515 bytes, where rank 0 has 494"),
    "batch": ({"batch": 32}, "rank 1 has another batch: 32, where rank 0 has 16"),
    "function": ({"number": 2}, "rank 1 has another code of a function, or other data that it uses, than rank 0"),
}


@pytest.mark.parametrize(("part", "world"), [(part, 2) for part in OTHERS] + [("seed", 4)])
def test_every_rank_names_the_one_that_differs_and_the_part(
    tmp_path: Path, ranks: Ranks, part: str, world: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agree, "GRACE", 60.0)  # for the last rank to say what it does, on a busy machine
    change, text = OTHERS[part]
    for name, size in (("a", 4), ("b", change.get("size", 4))):
        (tmp_path / name).mkdir()
        records(tmp_path / name, size=size)

    def one(rank: int) -> None:
        how = {**BASE, **(change if rank == 1 else {})}
        files = tmp_path / ("b" if rank == 1 else "a") / f"{how['files']}.tfrecord"
        read = gp.Dataset.list_files(str(files), shuffle=False).interleave(gp.TFRecordDataset)
        ds = read.map(lambda record, n=how["number"]: len(record) * n, traced=False).batch(how["batch"])
        with pytest.raises(RanksDisagreeError, match=f"got {text} \\(said on rank {rank}\\)"):
            list(ds.by_rank(rank, world).with_options(gp.Options(seed=how["seed"])).iterator(epoch=how["epoch"]))

    ranks(world, one)


@pytest.mark.parametrize("looked", [False, True], ids=["", "one looked at batches first"])
def test_ranks_that_agree_start_in_every_epoch(ranks: Ranks, looked: bool) -> None:
    def one(rank: int) -> Any:
        own = chain(64, 16).by_rank(rank, 4)
        if looked and rank == 0:
            own.first()
            next(iter(own))
            next(iter(own))
        return [run(own), run(own)]

    whole = [loops(chain(64, 16), 4, epoch) for epoch in (0, 1)]
    assert ranks(4, one) == [[run(steps[rank]) for steps in whole] for rank in range(4)]


def test_ranks_that_meet_again_over_the_same_store_compare_anew(ranks: Ranks) -> None:
    store: dict[str, str] = {}

    def meet(seeds: tuple[int, int], epochs: int) -> list[Any]:
        def one(rank: int) -> Any:
            time.sleep(0.2 * rank)  # what an earlier call has left is there before this rank comes
            own = Range(8).shuffle(gp.ALL, seed=seeds[rank]).batch(4).by_rank(rank, 2)
            return [run(own) for _ in range(epochs)]

        return ranks(2, one, store)

    first = meet((1, 1), 2)
    assert [len(steps) for steps in first] == [2, 2]
    assert meet((1, 1), 2) == first
    for error in meet((1, 9), 1):
        assert isinstance(error, RanksDisagreeError)
        assert "rank 1 has another" in str(error)
    assert meet((1, 1), 2) == first


@pytest.mark.parametrize("resumed", [False, True])
def test_a_rank_without_a_good_row_raises_where_it_would_make_fewer_steps(resumed: bool) -> None:
    def odd(x: Any) -> int:
        if x == 7 or (x == 3 and not resumed):
            raise ValueError(x)
        return int(x)

    ds = Range(8).map(odd, traced=False).batch(4).with_options(gp.Options(on_error="replace"))
    items = ds.by_rank(3, 4, check=False).iterator(epoch=0)
    if resumed:
        state = ds.by_rank(0, 4, check=False).iterator(epoch=0)
        next(state)
        items.load_state_dict(state.state_dict())

    errors = []
    for _ in range(1 if resumed else 2):
        with pytest.raises(gp.errors.FunctionError, match="has no good element of this rank to replace it") as caught:
            next(items)
        errors.append(caught.value.offset)
    assert errors == ([7] if resumed else [3, 7])
    assert next(items, None) is None


def test_a_rank_that_does_not_come_is_named(ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agree, "WAIT", 0.2)

    *every, _ = ranks(3, lambda rank: "away" if rank == 2 else next(iter(chain(63, 9).by_rank(rank, 3))))

    assert all("got nothing from rank 2 in 0.2 s on rank" in str(error) for error in every)


def test_most_ranks_are_right(ranks: Ranks) -> None:
    every = ranks(4, lambda rank: next(chain(64, 16).by_rank(rank, 4).iterator(epoch=0 if rank else 5)))

    assert all("got rank 0 has another epoch: 5, where rank 1 has 0 " in str(error) for error in every)


def test_ranks_at_other_places_disagree(ranks: Ranks) -> None:
    with chain(64, 16).by_rank(0, 2, check=False).iterator(epoch=0) as begun:
        next(begun)
        state = begun.state_dict()

    def one(rank: int) -> Any:
        items = chain(64, 16).by_rank(rank, 2).iterator(epoch=0)
        if rank:
            items.load_state_dict(state)
        return next(items)

    for error in ranks(2, one):
        assert "rank 1 has another position in the epoch: 16, where rank 0 has 0" in str(error)


def test_a_rank_that_was_put_right_may_try_again(ranks: Ranks) -> None:
    raised, started = threading.Barrier(2), threading.Event()

    def one(rank: int) -> Any:
        ds = chain(64, 16).by_rank(rank, 2)
        with pytest.raises(RanksDisagreeError, match="epoch"):
            next(ds.iterator(epoch=rank))
        raised.wait(30)
        if rank == 0:  # until rank 1 is put right, it is still elsewhere
            assert started.wait(30)
        items = ds.iterator(epoch=0)
        next(items)
        started.set()
        return 1 + len(list(items))

    assert ranks(2, one) == [4, 4]


def test_without_an_engine_the_log_says_that_nothing_is_compared(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agreement, "board", lambda: None)
    with caplog.at_level(logging.WARNING, "gpupipe"):
        list(chain(64, 16).by_rank(0, 2))
        list(chain(64, 16).by_rank(1, 2))
        list(chain(64, 16).by_rank(0, 1))

    assert [r.getMessage()[:25] for r in caplog.records] == ["by_rank compares nothing:"]


# ---- who this is


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for names in VARIABLES.values():
        for name in names:
            monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.mark.parametrize("who", VARIABLES)
def test_the_variables_of_a_launcher_say_the_rank(launcher: pytest.MonkeyPatch, who: str) -> None:
    for name, value in zip(VARIABLES[who], ("1", "2"), strict=True):
        launcher.setenv(name, value)

    assert run(Range(8).batch(4).by_rank(check=False)) == [[1, 3], [5, 7]]


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({}, r"got none: neither torch.distributed nor jax.distributed is initialised here, and none of RANK "),
        ({"RANK": "2", "WORLD_SIZE": "2"}, r"a rank below the number of ranks, got RANK=2 and WORLD_SIZE=2"),
        ({"RANK": "1" * 5000, "WORLD_SIZE": "2"}, r"got RANK=1{40} and WORLD_SIZE=2;"),
        ({"RANK": "1"}, r"needs RANK and WORLD_SIZE, got RANK=1 alone"),
        ({"RANK": "0", "WORLD_SIZE": "2", "PMI_RANK": "1", "PMI_SIZE": "2"}, r"_SIZE=2; PMI_RANK=1 and PMI_SIZE=2"),
    ],
)
def test_without_a_rank_it_says_what_was_looked_at(
    launcher: pytest.MonkeyPatch, variables: dict[str, str], text: str
) -> None:
    for name, value in variables.items():
        launcher.setenv(name, value)
    with pytest.raises(gp.PlanError, match=text):
        Range(8).batch(4).by_rank()
