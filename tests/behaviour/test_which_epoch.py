"""Which epoch a loop is: counted by source and chain, given, set, or told by a state; and what is logged where that is
probably not what was meant. The rules stand in gpupipe/dataset/EPOCHS.md."""

from __future__ import annotations

import copy
import gc
import json
import os
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, Options, ops
from gpupipe.dataset import epochs
from tests.behaviour.model import run

IMAGES = np.arange(12 * 8 * 8 * 3, dtype=np.uint8).reshape(12, 8, 8, 3)
NUMPY = Options(device="cpu", backend="numpy")


def _source() -> Dataset:
    return Dataset.from_tensor_slices(IMAGES)


def _train(source: Dataset, size: int = 4) -> Dataset:
    return source.shuffle(12).map(lambda x: ops.random_crop(x, (size, size, 3))).batch(4).with_options(NUMPY)


EPOCHS = [list(Dataset.range(30).shuffle(30).iterator(epoch=e)) for e in range(10)]


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    return lambda: [record.getMessage() for record in caplog.records if record.name == "gpupipe"]


def _number(items: Any) -> int:
    """The epoch of a started iterator."""
    next(items)
    assert items.epoch is not None
    return int(items.epoch)


def _loop(ds: Dataset) -> int:
    """The epoch of a whole loop."""
    items = iter(ds)
    for _ in items:
        pass
    assert items.epoch is not None
    return int(items.epoch)


# Counting


@pytest.mark.parametrize(
    ("kept", "sizes", "numbers", "text"),
    [
        pytest.param(False, [4] * 4, [0] * 4, "was built again and starts at epoch 0", id="with its source"),
        pytest.param(True, [4, 4, 6, 6, 7], [0, 1, 0, 1, 0], "epoch 2 of one training", id="of another size"),
    ],
)
def test_a_chain_that_is_built_again_in_each_epoch_starts_again_and_that_is_said_once(
    said: Any, kept: bool, sizes: list[int], numbers: list[int], text: str
) -> None:
    source = _source()

    assert [_loop(_train(source if kept else _source(), size)) for size in sizes] == numbers
    (message,) = said()
    assert text in message and "set_epoch" in message and "test_which_epoch.py" in message


@pytest.mark.parametrize(
    "parts",
    [
        lambda ds: [ds.shard(3, i) for i in range(3)],
        lambda ds: [ds.skip(10 * i).take(10) for i in range(3)],
        lambda ds: ds.split([0.5, 0.5]),
        lambda ds: [ds[i * 10 : i * 10 + 10] for i in range(3)],
        lambda ds: [Dataset.range(n) for n in (5, 6, 7)],
    ],
    ids=["shards", "parts", "split", "slices", "other sources"],
)
def test_other_elements_by_one_line_are_another_chain(parts: Any, said: Any) -> None:
    for part in parts(Dataset.range(30)):
        assert _number(iter(part.shuffle(5).batch(2))) == 0

    assert said() == []


@pytest.mark.parametrize("shared", [True, False], ids=["over one source", "over a source each"])
def test_nothing_is_said_while_both_chains_exist(shared: bool, said: Any) -> None:
    source = Dataset.range(30)

    def make(batch: int) -> Dataset:
        return (source if shared else Dataset.range(30)).shuffle(30, seed=1).batch(batch)

    train, valid = make(4), make(2)
    assert [_loop(train), _loop(valid), _loop(train)] == [0, 0, 1]
    other = valid.with_options(Options(on_error="raise"))
    assert [_loop(valid), _loop(other)] == [1, 0]

    assert said() == []


def test_a_chain_is_compared_as_long_as_any_that_was_written_alike_exists(said: Any) -> None:
    source = Dataset.range(30)

    def make(size: int) -> Dataset:
        return source.shuffle(size, seed=1)

    first, second = make(4), make(4)
    assert [_loop(first), _loop(second)] == [0, 1]
    del second
    assert [_loop(make(6)), _loop(first)] == [0, 2]

    assert said() == []


def test_nothing_is_said_of_numbers_that_are_given_and_of_chains_that_draw_nothing(said: Any) -> None:
    for e in range(3):
        next(iter(_source().map(ops.flip_left_right).batch(4)))
        assert list(Dataset.range(30).shuffle(30).iterator(epoch=e)) == EPOCHS[e]
        ds = Dataset.range(30).shuffle(30)
        ds.set_epoch(e)
        assert list(ds) == EPOCHS[e]
        assert list(Dataset.range(30).shuffle(30).epochs(1, start=e)) == EPOCHS[e]

    assert said() == []


def test_a_peek_is_an_epoch_and_that_is_said_once(said: Any) -> None:
    ds = Dataset.range(30).shuffle(30)
    assert next(iter(ds)) == EPOCHS[0][0]

    assert [list(ds), list(ds)] == [EPOCHS[1], EPOCHS[2]]
    (text,) = said()
    assert "stopped after one element" in text and "counts as epoch 0" in text and "first()" in text


# set_epoch


CONTINUED: dict[str, Callable[[Dataset], Dataset]] = {
    "itself": lambda ds: ds,
    "prefetch": lambda ds: ds.prefetch(2),
    "several steps": lambda ds: ds.map(lambda x: x + 0).batch(3).unbatch(),
    "options": lambda ds: ds.with_options(Options(threads=1)),
    "zip": lambda ds: Dataset.zip((ds, Dataset.range(30))).map(lambda x, i: x),
    "the second of a zip": lambda ds: Dataset.zip((Dataset.range(30), ds)).map(lambda i, x: x),
    "concatenate": lambda ds: Dataset.range(0).concatenate(ds),
    "a slice": lambda ds: ds[:],
}


@pytest.mark.parametrize("continued", CONTINUED.values(), ids=CONTINUED)
@pytest.mark.parametrize("early", [False, True], ids=["made after the call", "made before the call"])
def test_set_epoch_holds_for_what_continues_the_dataset(continued: Any, early: bool) -> None:
    ds = Dataset.range(30).shuffle(gp.ALL)
    made = continued(ds) if early else None
    ds.set_epoch(5)
    made = made if made is not None else continued(ds)

    items = iter(made)
    got = list(items)

    assert items.epoch == 5
    assert sorted(got) == list(range(30))
    assert [_number(iter(made)), _number(iter(made))] == [6, 7]
    assert _number(iter(ds)) == (5 if made is not ds else 8)


def test_the_last_set_epoch_holds() -> None:
    ds = Dataset.range(30).shuffle(30)
    last = ds.prefetch(1)
    last.set_epoch(3)
    ds.set_epoch(7)
    assert _number(iter(last)) == 7
    last.set_epoch(1)
    assert [_number(iter(last)), _number(iter(ds))] == [1, 7]


def test_counts_travel_with_a_pickled_or_copied_dataset() -> None:
    ds = Dataset.range(30).shuffle(30)
    ds.set_epoch(3)
    list(ds)
    for other in (pickle.loads(pickle.dumps(ds)), copy.deepcopy(ds)):
        assert list(other) == EPOCHS[4]
        assert list(other.prefetch(1)) == EPOCHS[3]
        other.set_epoch(8)
        assert list(other) == EPOCHS[8]
    assert list(ds) == EPOCHS[4]


def test_a_dataset_that_comes_from_another_process_hears_of_set_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    ds = Dataset.range(30).shuffle(30)
    for number in (7, 8, 3):
        ds.set_epoch(number)
    pickled = pickle.dumps(ds)
    monkeypatch.setattr(epochs._REQUESTS, "last", 0)  # as in a process that called it never

    other = pickle.loads(pickled)
    last = other.prefetch(1)
    assert list(last) == EPOCHS[3]
    other.set_epoch(6)
    assert [list(last), list(other)] == [EPOCHS[6]] * 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_is_told_nothing_of_an_epoch_that_its_parent_is_in(
    caplog: pytest.LogCaptureFixture, said: Any
) -> None:
    ds = Dataset.range(30).shuffle(30)
    items = iter(ds)
    next(items)
    child = os.fork()
    if child == 0:
        caplog.clear()
        next(iter(ds))
        os._exit(len(said()))
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 0
    assert said() == []


# By place


def test_elements_by_place_are_of_the_epoch_that_was_set() -> None:
    ds = Dataset.range(30).shuffle(gp.ALL)
    expected = [list(ds.iterator(epoch=e)) for e in range(4)]

    assert [ds[i] for i in range(30)] == expected[0]
    run(ds.epochs(2))
    assert _number(iter(ds)) == 0  # looking by place is not counted
    assert [ds[i] for i in range(30)] == expected[0]
    for e in (2, 3):
        ds.set_epoch(e)
        assert [ds[i] for i in range(30)] == expected[e]
        assert ds.first() == expected[e][0]
        assert [ds.prefetch(1)[i] for i in range(30)] == expected[e]


def test_the_dataset_of_one_epoch_draws_as_in_that_epoch() -> None:
    ds = Dataset.range(30).shuffle(gp.ALL)
    expected = [list(ds.iterator(epoch=e)) for e in range(4)]
    third = ds.epoch(3)

    assert [third[i] for i in range(30)] == expected[3]
    assert [list(third), list(third), list(third.prefetch(2))] == [expected[3]] * 3
    assert third.first() == expected[3][0]
    assert list(third[5:9]) == expected[3][5:9]
    assert list(ds) == expected[0]  # nothing was counted
    assert list(third.iterator(epoch=3)) == list(ds.epoch(1).epoch(3)) == expected[3]
    assert [third.element_spec, len(third)] == [ds.element_spec, 30]
    assert list(pickle.loads(pickle.dumps(third))) == expected[3]


def test_the_dataset_of_one_epoch_has_no_other() -> None:
    ds = Dataset.range(30).shuffle(30).epoch(3)

    with pytest.raises(gp.PlanError, match=r"iterator needs epoch 3, that of epoch\(3\), got 4"):
        ds.iterator(epoch=4)
    for refused in (lambda: ds.set_epoch(4), lambda: ds.epochs(2)):
        with pytest.raises(gp.PlanError, match="needs datasets without a fixed epoch"):
            refused()
    other = Dataset.range(3)
    for join in (
        lambda: Dataset.zip((other, ds)),
        lambda: other.concatenate(ds),
        lambda: ds.concatenate(other),
        lambda: Dataset.sample_from_datasets([other, ds]),
        lambda: other.flat_map(lambda x: ds),
        lambda: list(other.flat_map(lambda x: [ds][int(x) * 0])),
    ):
        with pytest.raises(gp.PlanError, match="needs datasets without a fixed epoch"):
            join()
    for wrong in (-1, 1.5, "3", True):
        with pytest.raises((ValueError, TypeError), match="epoch needs"):
            other.epoch(wrong)  # type: ignore[arg-type]


def test_going_through_a_dataset_twice_by_place_is_said_once(said: Any) -> None:
    ds = Dataset.range(30).shuffle(gp.ALL)
    for i in range(30):
        ds[i]
    assert said() == []
    for _ in range(2):
        for i in range(30):
            ds[i]
    (text,) = said()
    assert "draws as epoch 0 every time" in text and "set_epoch" in text


# States


def test_a_state_of_the_end_of_an_epoch_goes_on_with_the_next() -> None:
    def make() -> Dataset:
        return Dataset.range(30).shuffle(30)

    ds = make()
    list(ds)
    items = iter(ds)
    list(items)
    state = json.loads(json.dumps(items.state_dict()))
    assert list(ds) == EPOCHS[2]

    again = make()
    items = iter(again)
    items.load_state_dict(state)
    assert list(items) == EPOCHS[2]
    assert [list(again), list(again)] == [EPOCHS[3], EPOCHS[4]]

    def loaded(items: Any) -> Any:
        items.load_state_dict(state)
        return list(items)

    assert loaded(make().epochs(4)) == EPOCHS[2] + EPOCHS[3]
    assert loaded(make().epochs(2)) == []
    assert loaded(make().iterator(epoch=2)) == EPOCHS[2]
    assert loaded(make().iterator(epoch=1)) == []
    with pytest.raises(gp.StateError, match="an epoch that this iterator has, 3, got epoch 1"):
        loaded(make().iterator(epoch=3))


def test_a_state_that_is_loaded_after_set_epoch_counts_on_from_its_own_epoch() -> None:
    items = iter(Dataset.range(30).shuffle(30))
    begun = next(items)
    state = items.state_dict()

    ds = Dataset.range(30).shuffle(30)
    ds.set_epoch(5)
    items = iter(ds)
    items.load_state_dict(state)
    assert [begun, *items] == EPOCHS[0]
    assert [list(ds), list(ds)] == EPOCHS[1:3]
    ds.set_epoch(5)
    assert list(ds) == EPOCHS[5]


# PyTorch


class _Worker:
    """What PyTorch says in a worker."""

    id = 0


def test_a_worker_of_a_loader_says_what_it_cannot_know(said: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pytest.importorskip("torch.utils.data"), "get_worker_info", _Worker)
    ds, known = Dataset.range(30).shuffle(gp.ALL), Dataset.range(29).shuffle(gp.ALL)
    known.set_epoch(2)
    for each in (ds, known):  # nothing is said of the one whose epoch was set
        each[3]
        list(each)

    by_place, loop = said()
    assert "draws as epoch 0 every time" in by_place
    assert "DataLoader worker" in loop and "set_epoch" in loop


@pytest.mark.parametrize(("workers", "epoch"), [(0, 1), (0, 2), (1, 1)])
def test_a_loader_over_places_draws_anew_with_set_epoch(workers: int, epoch: int) -> None:
    torch_data = pytest.importorskip("torch.utils.data")
    numbers = Dataset.range(12).map(_drawn, rng=True)
    loader = torch_data.DataLoader(numbers, batch_size=None, shuffle=True, num_workers=workers, multiprocessing_context=
                                   "spawn" if workers else None)  # fmt: skip
    numbers.set_epoch(epoch)
    seen = sorted((int(x), int(r)) for x, r in loader)

    same, first = (sorted((int(x), int(r)) for x, r in numbers.iterator(epoch=e)) for e in (epoch, 0))
    assert seen == same != first


def _drawn(x: Any, rng: np.random.Generator) -> Any:
    return x, int(rng.integers(1 << 40))


def test_what_is_remembered_is_bounded() -> None:
    for n in range(1, 300):
        next(iter(Dataset.range(n).shuffle(9)))
    gc.collect()

    assert len(epochs._LAST_AT) <= 256


def test_an_epoch_that_another_thread_sets_during_a_visit_is_seen_by_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ds = Dataset.range(30).shuffle(gp.ALL)
    requested, setting = epochs.EpochCounter.requested, threading.Thread(target=ds.set_epoch, args=(5,))

    def slow(counter: epochs.EpochCounter, plan: Any) -> tuple[int, int] | None:
        found = requested(counter, plan)
        if setting.ident is None:
            setting.start()
            setting.join(0.5)  # it has to wait for the visit
        return found

    ds.set_epoch(0)
    monkeypatch.setattr(epochs.EpochCounter, "requested", slow)
    _ = ds[3]
    setting.join(30)

    assert [ds[i] for i in range(30)] == [ds.epoch(5)[i] for i in range(30)]


def test_loops_that_start_at_once_in_two_threads_are_two_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thread, half-way through counting, waits for the other one, which must not be there."""
    both = threading.Barrier(2)
    start = epochs.ChainCount.start
    met = []

    def slow(count: epochs.ChainCount, *args: Any) -> int:
        following = count.following
        try:
            both.wait(0.5)
            met.append(True)
        except threading.BrokenBarrierError:
            pass
        count.following = following
        return start(count, *args)

    monkeypatch.setattr(epochs.ChainCount, "start", slow)
    chain = _source().shuffle(30)

    with ThreadPoolExecutor(2) as pool:
        found = {*pool.map(lambda _: _number(iter(chain)), range(2))}
    assert not met
    assert found == {0, 1}
