"""A state of another chain, of other files or of another version: refused, or continued by number with strict=False."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, Options, StateError
from gpupipe.compat import make_initializable_iterator
from gpupipe.errors import PlanTypeError
from gpupipe.load.state import sealed
from tests.behaviour.model import fails_where
from tests.reliability.resume import through_json

Range = Dataset.range
SIZES = (5, 3, 4)


def lists(items: Any) -> list[Any]:
    return [element.decode() if isinstance(element, bytes) else np.asarray(element).tolist() for element in items]


def lines(folder: Path) -> Dataset:
    return gp.TextLineDataset(sorted(map(str, folder.glob("*.txt")))).shuffle(4, seed=1)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    for i, size in enumerate(SIZES):
        (tmp_path / f"{i}.txt").write_text("".join(f"{i} {j}\n" for j in range(size)))
    return tmp_path


def mixed(batch: int = 2, seed: int = 1) -> Dataset:
    return Range(24).shuffle(gp.ALL, seed=seed).batch(batch)


def odd() -> Dataset:
    return Range(40).filter(lambda x: x % 2 == 1).shuffle(5, seed=1)


OTHERS: dict[str, tuple[Dataset, Dataset]] = {
    "a step more": (mixed(), mixed().prefetch(1)),
    "another batch": (mixed(), mixed(3)),
    "another order": (mixed(), mixed(seed=2)),
    "more data": (mixed(), Range(30).shuffle(gp.ALL, seed=1).batch(2)),
    "less data": (mixed(), Range(10).shuffle(gp.ALL, seed=1).batch(2)),
    "much less data": (mixed(), Range(2).batch(2)),
    "another seed": (mixed(), mixed().with_options(Options(seed=7))),
    "a chain without places": (odd(), odd().map(lambda x: x * 2)),
    "less of it": (odd(), Range(9).filter(lambda x: x % 2 == 1)),
    "from places to none": (mixed(), odd().batch(2)),
    "and back": (odd(), mixed()),
    "another shard": (mixed().shard(2, 0), mixed().batch(2).shard(3, 1)),
    "ranks": (mixed(4).by_rank(0, 2, check=False), mixed(4).map(lambda x: x + 1).batch(2).unbatch()),
    "into ranks": (mixed(4).map(lambda x: x + 1), mixed(4).by_rank(1, 2, check=False)),
    "steps behind ranks": (mixed(4), mixed(4).by_rank(1, 2, check=False).unbatch().batch(3)),
    "redrawn places": (mixed().pick([3, 3, 1, 2], redraw=False), mixed().pick([3, 3, 1, 2])),
}


@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("name", OTHERS)
def test_a_state_of_another_chain_goes_on_by_number(name: str, count: int, caplog: pytest.LogCaptureFixture) -> None:
    before, now = OTHERS[name]
    with before.iterator(epoch=2) as items:
        for _ in range(count):
            next(items)
        state = through_json(items.state_dict())
    whole = lists(now.iterator(epoch=2))

    for given in (state, [state]):
        with now.iterator(epoch=2) as items, pytest.raises(StateError, match=r"strict=False") as caught:
            items.load_state_dict(given)
    with caplog.at_level(logging.WARNING, "gpupipe"), now.iterator(epoch=2) as items:
        items.load_state_dict(state, strict=False)
        again = through_json(items.state_dict())
        rest = lists(items)

    assert rest == whole[count:]
    said = str(caught.value).partition("needs ")[2].partition("; load_state_dict(")[0]
    assert said in caplog.text
    assert f"after {count} elements" in caplog.text
    with now.iterator(epoch=2) as items:
        items.load_state_dict(again)
        assert lists(items) == rest


@pytest.mark.parametrize("name", OTHERS)
def test_a_state_behind_one_that_went_on_by_number_fits(name: str) -> None:
    before, now = OTHERS[name]
    with before.iterator(epoch=2) as items:
        next(items)
        state = items.state_dict()
    whole = lists(now.iterator(epoch=2))
    with now.iterator(epoch=2) as items:
        items.load_state_dict(state, strict=False)
        if whole[1:]:
            next(items)
        again = through_json(items.state_dict())
    with now.iterator(epoch=2) as items:
        items.load_state_dict(again)
        assert lists(items) == whole[2:]


@pytest.mark.parametrize("change", ["longer", "more", "fewer", "renamed"])
def test_a_state_of_other_files_goes_on_by_number(change: str, here: Path, caplog: pytest.LogCaptureFixture) -> None:
    with lines(here).iterator(epoch=0) as items:
        lists(next(items) for _ in range(2))
        state = through_json(items.state_dict())
    match change:
        case "longer":
            (here / "0.txt").write_text("0 0\n" * 9)
        case "more":
            (here / "9.txt").write_text("9 0\n9 1\n")
        case "fewer":
            (here / "2.txt").unlink()
        case _:
            (here / "2.txt").rename(here / "7.txt")
    ds = lines(here)
    whole = lists(ds.iterator(epoch=0))

    with ds.iterator(epoch=0) as items, pytest.raises(StateError, match=r"needs a state over the same .*strict=False"):
        items.load_state_dict(state)
    with caplog.at_level(logging.WARNING, "gpupipe"), ds.iterator(epoch=0) as items:
        items.load_state_dict(state, strict=False)
        assert lists(items) == whole[2:]
    assert "a state over the same" in caplog.text


def test_all_that_was_ignored_is_said(here: Path, caplog: pytest.LogCaptureFixture) -> None:
    with lines(here).iterator(epoch=0) as items:
        next(items)
        state = through_json(items.state_dict())
    (here / "0.txt").write_text("0 0\n" * 9)
    ds = lines(here).batch(2).with_options(Options(seed=3, on_error="skip"))

    with caplog.at_level(logging.WARNING, "gpupipe"), ds.iterator(epoch=0) as items:
        items.load_state_dict(state, strict=False)

    for part in ("of 20 bytes", "of 4 steps", "seed=3", "on_error='skip'", "epoch 0", "after 1 elements"):
        assert part in caplog.text, part


def test_a_state_of_the_end_goes_on_with_the_next_epoch(caplog: pytest.LogCaptureFixture) -> None:
    before, now = mixed(), mixed(3)
    with before.iterator(epoch=4) as items:
        list(items)
        state = items.state_dict()

    with caplog.at_level(logging.WARNING, "gpupipe"), now.epochs(9) as items:
        items.load_state_dict(state, strict=False)
        assert next(items).tolist() == next(now.iterator(epoch=5)).tolist()
    assert "epoch 5" in caplog.text


def test_after_an_epoch_that_has_become_shorter_comes_the_next() -> None:
    ds = mixed(3)
    with mixed().iterator(epoch=0) as items:
        for _ in range(10):
            next(items)
        state = items.state_dict()
    with ds.epochs(2) as items:
        items.load_state_dict(state, strict=False)
        assert lists(items) == lists(ds.iterator(epoch=1))


def test_a_state_that_fits_is_loaded_as_ever(caplog: pytest.LogCaptureFixture) -> None:
    ds = odd()
    with ds.iterator(epoch=0) as items:
        first = lists(next(items) for _ in range(3))
        state = through_json(items.state_dict())
    for strict in (True, False, None):
        with ds.iterator(epoch=0) as items:
            items.load_state_dict(state, strict=strict)
            assert first + lists(items) == lists(ds.iterator(epoch=0))
    assert caplog.text == ""


def test_a_state_of_another_version_goes_on_by_number(caplog: pytest.LogCaptureFixture) -> None:
    ds = mixed()
    with ds.iterator(epoch=0) as items:
        next(items)
        state = items.state_dict()
    older = sealed({"gpupipe_state": 3, **{k: state[k] for k in ("epoch", "stand", "delivered", "in_epoch")}})
    for other in (older, sealed({**state, "gpupipe_state": 99, "files": "?"}), sealed({**state, "law": 99})):
        with ds.iterator(epoch=0) as items, pytest.raises(StateError, match=r"another version.*strict=False"):
            items.load_state_dict(other)
        with caplog.at_level(logging.WARNING, "gpupipe"), ds.iterator(epoch=0) as items:
            items.load_state_dict(other, strict=False)
            assert lists(items) == lists(ds.iterator(epoch=0))[1:]
    assert caplog.text.count("after 1 elements") == 3


MAD: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no state": lambda state: {"model": 3},
    "a text": lambda state: "state",
    "damaged": lambda state: {**state, "delivered": 7},
    "an epoch": lambda state: sealed({**state, "law": 99, "epoch": "x"}),
    "a number": lambda state: sealed({**state, "law": 99, "in_epoch": -1, "place": None}),
    "a place": lambda state: sealed({**state, "law": 99, "place": 10**40}),
    "a place to be skipped for ever": lambda state: sealed({**state, "law": 99, "place": 1 << 61}),
    "a stand": lambda state: sealed({**state, "law": 99, "stand": "somewhere"}),
    "nothing": lambda state: sealed({"gpupipe_state": 1}),
}


@pytest.mark.parametrize("name", MAD)
def test_what_has_no_number_is_refused_all_the_same(name: str) -> None:
    for ds in (mixed(), odd().repeat()):
        with ds.iterator(epoch=0) as items:
            next(items)
            state = items.state_dict()
        with ds.iterator(epoch=0) as items:
            with pytest.raises(StateError, match="load_state_dict needs"):
                items.load_state_dict(MAD[name](state), strict=False)
            assert lists([next(items)]) == lists([ds.iterator(epoch=0).__next__()])


def test_an_option_says_it_where_a_trainer_loads_the_state(caplog: pytest.LogCaptureFixture) -> None:
    state = mixed().iterator(epoch=0).state_dict()
    now = mixed(3).with_options(Options(strict_states=False))
    with caplog.at_level(logging.WARNING, "gpupipe"):
        now.iterator(epoch=0).load_state_dict(state)
    assert "batch(2)" in caplog.text
    with pytest.raises(StateError, match="batch"):
        now.iterator(epoch=0).load_state_dict(state, strict=True)
    with pytest.raises(PlanTypeError, match="strict"):
        now.iterator(epoch=0).load_state_dict(state, strict="no")  # type: ignore[arg-type]


def test_states_of_shards_that_stopped_at_several_places_go_on_by_number(caplog: pytest.LogCaptureFixture) -> None:
    states = []
    for index in range(2):
        with mixed().shard(2, index).iterator(epoch=0) as items:
            for _ in range(1 + index):
                next(items)
            states.append(items.state_dict())
    ds = mixed().shard(2, 1)
    for given in (states, states[1:]):
        with ds.iterator(epoch=0) as items, pytest.raises(StateError, match=r"shards.*strict=False"):
            items.load_state_dict(given)
        with ds.iterator(epoch=0) as items:
            items.load_state_dict(given, strict=False)
            assert lists(items) == lists(ds.iterator(epoch=0))[2:]
    with ds.iterator(epoch=0) as items, pytest.raises(StateError, match="needs"):
        items.load_state_dict([], strict=False)


def with_bad(batch: int = 2) -> Dataset:
    return Range(30).map(fails_where(lambda x: x % 5 == 3), traced=False).batch(batch)


FILLED: dict[str, Callable[[], Dataset]] = {
    "a prefetch more": lambda: with_bad().prefetch(1),
    "a map more": lambda: with_bad().map(lambda x: x + 0),
    "rows that are padded": lambda: (
        Range(30).map(fails_where(lambda x: x % 5 == 3), traced=False).padded_batch(2).prefetch(1)
    ),
    "behind a join": lambda: with_bad().concatenate(Range(0).batch(2)),
    "from a cache": lambda: with_bad().cache(),
    "of a function's datasets": lambda: Range(1).flat_map(lambda _: with_bad()),
}


@pytest.mark.parametrize("count", [1, 2, 3, 6, 11, 12])
@pytest.mark.parametrize("name", FILLED)
def test_batches_that_are_filled_go_on_by_number_with_the_rows_that_follow(name: str, count: int) -> None:
    skips = Options(on_error="skip")
    with with_bad().with_options(skips).iterator(epoch=0) as items:
        for _ in range(count):
            next(items)
        state, follow = through_json(items.state_dict()), lists(items)
    now = FILLED[name]().with_options(skips)

    with now.iterator(epoch=0) as items:
        items.load_state_dict(state, strict=False)
        some = lists(itertools.islice(items, 2))
        again, rest = through_json(items.state_dict()), lists(items)

    assert some + rest == follow
    with now.iterator(epoch=0) as items:
        items.load_state_dict(again)
        assert lists(items) == rest


def test_an_initializable_iterator_goes_on_by_number() -> None:
    state = mixed().iterator(epoch=0).state_dict()
    items = make_initializable_iterator(mixed(3))
    items.load_state_dict(state, strict=False)
    assert lists(items) == lists(mixed(3).iterator(epoch=0))


@pytest.mark.parametrize("how", ["as_torch", "as_jax"])
def test_a_loader_goes_on_by_number(how: str, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip(how.removeprefix("as_"))

    def loader(batch: int, **options: Any) -> Any:
        return getattr(mixed(batch).with_options(Options(**options)), how)()

    first = loader(2)
    for _, _ in zip(range(3), first, strict=False):
        pass
    state = first.state_dict()
    whole = lists(loader(3))

    with pytest.raises(StateError, match="strict=False"):
        loader(3).load_state_dict(state)
    for found, more in ((loader(3), {"strict": False}), (loader(3, strict_states=False), {})):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "gpupipe"):
            found.load_state_dict(state, **more)
        assert "after 3 elements" in caplog.text
        assert lists(found) == whole[3:]
