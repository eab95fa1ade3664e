"""What a loader is, whatever the tensors: epochs, a length, a position that is saved and loaded."""

from __future__ import annotations

import contextlib
import copy
import json
import pickle
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe.load.converted import ConvertedIterator
from gpupipe.tensors.loader import LOOK, Loader, Passes
from tests.behaviour.model import outcomes


def chain() -> gp.Dataset:
    return gp.Dataset.range(20).shuffle(gp.ALL, seed=3).batch(4)


def loader(ds: gp.Dataset, kind: type[Loader] = Loader) -> Loader:
    return kind(ds, "as_lists", lambda leaf: leaf.tolist())


def epoch(ds: gp.Dataset, number: int) -> list[Any]:
    return [batch.tolist() for batch in ds.iterator(epoch=number)]


def test_each_loop_is_the_next_epoch_and_the_length_is_the_number_of_steps() -> None:
    items = loader(chain())

    assert len(items) == 5
    assert [list(items) for _ in range(3)] == [epoch(chain(), number) for number in range(3)]


@pytest.mark.parametrize("steps", range(6))
def test_a_position_is_loaded_into_the_next_loop_and_the_epochs_after_it_follow(steps: int) -> None:
    items = loader(chain())
    list(islice(items, steps))
    state = json.loads(json.dumps(items.state_dict()))

    again = loader(chain())
    again.load_state_dict(state)

    assert list(again) == epoch(chain(), 0)[steps:]
    assert list(again) == epoch(chain(), 1)


def test_a_position_at_the_end_of_an_epoch_gives_the_next_one() -> None:
    items = loader(chain())
    list(items)
    again = loader(chain())
    again.load_state_dict(items.state_dict())
    again.set_epoch(1)

    assert list(again) == epoch(chain(), 1)


def test_set_epoch_says_which_epoch_the_next_loop_is() -> None:
    items = loader(chain())
    items.state_dict()  # as trainers ask for before they start
    items.set_epoch(7)

    assert [list(items), list(items)] == [epoch(chain(), 7), epoch(chain(), 8)]


def test_set_epoch_agrees_with_a_loaded_state_or_is_refused() -> None:
    items = loader(chain())
    items.set_epoch(2)
    next(iter(items))
    state = items.state_dict()

    again = loader(chain())
    again.load_state_dict(state)
    again.set_epoch(2)
    with pytest.raises(gp.PlanError, match="set_epoch needs 2, the epoch that the loaded state continues, got 0"):
        again.set_epoch(0)

    assert list(again) == epoch(chain(), 2)[1:]


def test_a_state_that_is_refused_leaves_the_loader_as_it_was() -> None:
    items, other = loader(chain()), loader(gp.Dataset.range(9).batch(2))
    next(iter(other))

    with pytest.raises(gp.StateError):
        items.load_state_dict(other.state_dict())

    assert list(items) == epoch(chain(), 0)


def test_an_element_whose_conversion_fails_is_given_by_the_next_call() -> None:
    failures = [MemoryError("no memory on the device")]

    def convert(leaf: Any) -> Any:
        if leaf.tolist() == epoch(chain(), 0)[1] and failures:
            raise failures.pop()
        return leaf.tolist()

    items = iter(Loader(chain(), "as_lists", convert))
    first = next(items)
    with pytest.raises(MemoryError):
        next(items)

    assert [first, *items] == epoch(chain(), 0)


def test_a_look_at_some_elements_is_no_epoch_where_the_library_looks() -> None:
    items = loader(chain(), Passes)
    for looked in range(1, LOOK + 1):
        list(islice(items, looked))
    assert list(items) == epoch(chain(), 0)
    assert list(items) == epoch(chain(), 1)

    next(iter(items))
    items.set_epoch(5)
    assert list(items) == epoch(chain(), 5)

    list(islice(items, LOOK + 1))
    assert list(items) == epoch(chain(), 7)  # what was broken off later was an epoch


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_pass_of_all_elements_is_an_epoch_however_few_they_are(count: int) -> None:
    ds = gp.Dataset.range(count * 50).shuffle(gp.ALL).batch(50)
    items = loader(ds, Passes)

    for number in range(3):
        assert list(islice(items, count)) == epoch(ds, number)  # it never sees the end


def test_only_a_look_that_a_pass_follows_is_not_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    ds = chain().shuffle(100)
    items = loader(ds, Passes)
    next(iter(items))
    for _ in range(3):
        list(items)
    assert caplog.messages == []

    next(iter(items))
    list(ds)
    (said,) = caplog.messages
    assert "stopped after one element: it counts as epoch 3, and this one is epoch 4" in said


@pytest.mark.parametrize("method", ["as_torch", "as_jax", "as_keras", "as_tf", "as_numpy_iterator", "as_cupy"])
def test_datasets_as_leaves_are_refused_before_anything_is_imported(method: str) -> None:
    windows = gp.Dataset.range(6).window(2)

    with pytest.raises(TypeError, match=f"{method} needs arrays, numbers or bytes, got a .*flat_map"):
        getattr(windows, method)()


@pytest.mark.parametrize(
    ("method", "package"), [("as_torch", "torch"), ("as_jax", "jax"), ("as_keras", "keras"), ("as_tf", "tensorflow")]
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    method: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == package or name.startswith("gpupipe.tensors.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)

    with pytest.raises(gp.MissingDependencyError, match=f"{method} needs {package}.*pip install {package}"):
        getattr(chain(), method)()


def test_arrays_of_cupy_need_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpupipe.transform.array.has_cupy", lambda: False)

    with pytest.raises(gp.MissingDependencyError, match="as_cupy needs CuPy"):
        chain().as_cupy()


def test_the_iterator_of_numpy_arrays_has_a_position_too() -> None:
    items = chain().as_numpy_iterator()
    assert isinstance(items, ConvertedIterator)
    first = next(items)
    again = iter(chain())
    again.load_state_dict(items.state_dict())

    assert np.array_equal(np.stack([first, *again]), np.stack(list(chain().iterator(epoch=0))))


def test_a_loader_has_a_length_where_it_is_true() -> None:
    skipping = chain().with_options(gp.Options(on_error="skip"))
    for ds, words in (
        (skipping, 'has no len\\(\\) under on_error="skip"'),
        (gp.Dataset.range(9).filter(lambda x: x > 3), "the length of the dataset is unknown"),
        (gp.Dataset.range(9).repeat(), "the dataset is infinite"),
    ):
        with pytest.raises(TypeError, match=words):
            len(loader(ds))
    assert len(loader(skipping.assert_cardinality(5))) == len(loader(chain())) == 5


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda items: pickle.loads(pickle.dumps(items))])
def test_a_copy_of_a_loader_goes_on_where_the_next_loop_would(copied: Any) -> None:
    items = Loader(chain(), "as_lists", np.ndarray.tolist)
    assert list(copied(items)) == epoch(chain(), 0)
    list(items)
    assert list(copied(items)) == epoch(chain(), 1)  # counts go along
    next(iter(items))
    state = items.state_dict()

    again = Loader(chain(), "as_lists", np.ndarray.tolist)
    again.load_state_dict(state)
    assert list(copied(again)) == list(again) == epoch(chain(), 1)[1:]


def in_rank(number: int) -> gp.Dataset:
    return chain().by_rank(number, 2, remainder="pad", check=False)


def bad(x: Any) -> Any:
    if x % 5 == 3:
        raise ValueError("bad")
    return x


def files(folder: Path) -> gp.Dataset:
    if not folder.exists():
        folder.mkdir()
        for i in range(3):
            with gp.io.TFRecordWriter(folder / f"{i}") as records:
                for j in range(4 + i):
                    records.write(b"%d-%d" % (i, j))
    names = [str(folder / f"{i}") for i in range(3)]
    return gp.Dataset.from_tensor_slices(names).flat_map(gp.TFRecordDataset).batch(2)


ENDED: dict[str, tuple[Callable[[Path], gp.Dataset], Callable[[Path], gp.Dataset]]] = {
    "a known length": (lambda _: chain(), lambda _: chain()),
    "files that are counted": (lambda folder: files(folder / "files"), lambda folder: files(folder / "files")),
    "an unknown length": (
        lambda _: gp.Dataset.range(20).shuffle(20, seed=3).filter(lambda x: x % 3 > 0).batch(4),
        lambda _: gp.Dataset.range(20).shuffle(20, seed=3).filter(lambda x: x % 3 > 0).batch(4),
    ),
    "ranks": (lambda _: in_rank(1), lambda _: in_rank(1)),
    "from ranks to a loop": (lambda _: in_rank(1), lambda _: chain()),
    "from a loop to ranks": (lambda _: chain(), lambda _: in_rank(0)),
    "another number of shards": (
        lambda _: gp.Dataset.range(24).shuffle(gp.ALL, seed=3).shard(2, 0).batch(3),
        lambda _: gp.Dataset.range(24).shuffle(gp.ALL, seed=3).shard(4, 3).batch(3),
    ),
    "fewer batches": (
        lambda _: chain(),
        lambda _: gp.Dataset.range(12).shuffle(gp.ALL, seed=3).batch(4).with_options(gp.Options(strict_states=False)),
    ),
    "bad elements left out": (
        lambda _: gp.Dataset.range(20).map(bad, traced=False).batch(4).with_options(gp.Options(on_error="skip")),
        lambda _: gp.Dataset.range(20).map(bad, traced=False).batch(4).with_options(gp.Options(on_error="skip")),
    ),
}


def test_set_epoch_of_the_next_epoch_leaves_a_state_of_the_last_element_behind_errors() -> None:
    ds = gp.Dataset.range(20).map(bad, traced=False).batch(4)
    items = loader(ds)
    batches = iter(items)
    for _ in range(4 + 4):  # as many batches as the good rows make, and an error for each other row
        with contextlib.suppress(gp.DataError):
            next(batches)
    again = loader(ds)
    again.load_state_dict(items.state_dict())
    again.set_epoch(1)

    assert outcomes(again) == outcomes(ds)


@pytest.mark.parametrize("name", ENDED)
def test_set_epoch_of_the_next_epoch_leaves_a_state_of_the_last_element(name: str, tmp_path: Path) -> None:
    before, now = (make(tmp_path) for make in ENDED[name])
    items = loader(before)
    list(islice(items, len(epoch(before, 0))))
    state = items.state_dict()

    again = loader(now)
    again.load_state_dict(state)
    again.set_epoch(1)

    assert [list(again), list(again)] == [epoch(now, 1), epoch(now, 2)]


@pytest.mark.parametrize("name", ["a known length", "files that are counted", "ranks", "from ranks to a loop"])
def test_set_epoch_of_the_next_epoch_is_refused_where_elements_of_the_state_s_follow(name: str, tmp_path: Path) -> None:
    before, now = (make(tmp_path) for make in ENDED[name])
    items = loader(before)
    list(islice(items, len(epoch(before, 0)) - 1))
    state = items.state_dict()

    again = loader(now)
    again.load_state_dict(state)
    with pytest.raises(gp.PlanError, match="set_epoch needs 0, the epoch that the loaded state continues, got 1"):
        again.set_epoch(1)
    again.set_epoch(0)

    assert list(again) == epoch(now, 0)[-1:]


def test_a_state_is_one_text_that_an_iterator_takes_too() -> None:
    items = loader(chain())
    list(islice(items, 2))
    state = items.state_dict()

    assert [type(value) for value in state.values()] == [str]
    plain = iter(chain())
    plain.load_state_dict(state)
    assert [batch.tolist() for batch in plain] == epoch(chain(), 0)[2:]
    with pytest.raises(gp.StateError):
        loader(chain()).load_state_dict({name: text[:-9] for name, text in state.items()})
