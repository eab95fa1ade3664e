"""When two functions of a user count as the same one, within a chain and from one turn of a loop to the next."""

from __future__ import annotations

import collections
import copy
import dataclasses
import enum
import functools
import itertools
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpupipe import Dataset, TensorSpec, ops
from gpupipe.plan.portable import portable
from tests.behaviour.model import run

INT = TensorSpec((), "int64")


def _times(held: Any, number: Callable[[Any], Any]) -> Callable[..., Any]:
    """A function that multiplies by a number that is in what it holds."""
    return lambda x: x * number(held)


def _written(source: str, **names: Any) -> Callable[..., Any]:
    """A function of a module that has these names."""
    exec(source, names)
    return names["times"]  # type: ignore[no-any-return]


class _Times:
    def __init__(self, k: int) -> None:
        self.k = k

    def method(self, x: Any) -> Any:
        return x * self.k

    def __call__(self, x: Any) -> Any:
        return x * self.k


class _Alike(_Times):
    def __repr__(self) -> str:
        return "alike"


@dataclasses.dataclass
class _Fields:
    name: str
    k = 0

    def __call__(self, x: Any) -> Any:
        return x * self.k


@dataclasses.dataclass(frozen=True)
class _Uncompared:
    k: int = dataclasses.field(compare=False)

    def __call__(self, x: Any) -> Any:
        return x * self.k


def _dataclass(k: int) -> Callable[..., Any]:
    made = _Fields("times")
    made.k = k  # an attribute that is no field
    return made


def _decorated(k: int) -> Callable[..., Any]:
    @functools.wraps(_keep)
    def times(x: Any) -> Any:
        return _keep(x) * k

    return times


def _attribute(k: int) -> Callable[..., Any]:
    def times(x: Any) -> Any:
        return x * times.k  # type: ignore[attr-defined]

    times.k = k  # type: ignore[attr-defined]
    return times


def _class_attribute(k: int) -> Callable[..., Any]:
    kind = type("Holds", (), {"held": _Times(k), "__call__": lambda self, x: self.held(x), "__module__": __name__})
    return kind()  # type: ignore[no-any-return]


def _module_in_a_module(k: int) -> Callable[..., Any]:
    package, settings = types.ModuleType("package_of_a_user"), types.ModuleType("package_of_a_user.settings")
    vars(package).update(settings=settings)
    vars(settings).update(K=k)
    return _written("def times(x):\n    return x * package.settings.K", package=package)


def _derived(k: int) -> Any:
    return type("Table", (dict,), {"__missing__": lambda table, name: k, "__module__": __name__})()


def _row(k: int) -> Any:
    return np.array([(2, 3)], [("a", "i8"), ("b", "i8")] if k == 2 else [("b", "i8"), ("a", "i8")])


MAKERS: dict[str, Callable[[int], Callable[..., Any]]] = {
    "keyword default": lambda k: lambda x, *, k=k: x * k,
    "default": lambda k: lambda x, k=k: x * k,
    "captured number": lambda k: lambda x: x * k,
    "captured object": lambda k: _times([k], lambda held: held[0]),
    "global": lambda k: _written("def times(x):\n    return x * K", K=k),
    "partial": lambda k: functools.partial(lambda x, k: x * k, k=k),
    "partial of an object": lambda k: functools.partial(_Times.method, _Times(k)),
    "method": lambda k: _Times(k).method,
    "callable object": _Times,
    "dataclass": _dataclass,
    "dataclass that compares nothing": _Uncompared,
    "decorated": _decorated,
    "attribute of the function": _attribute,
    "member of an enum": lambda k: _times(enum.Enum("Factor", {"K": k}).K, lambda held: held.value),  # type: ignore[attr-defined]
    "factory of a defaultdict": lambda k: _times(collections.defaultdict(lambda: k), lambda held: held.copy()["none"]),
    "class derived from dict": lambda k: _times(_derived(k), lambda held: held["missing"]),
    "attribute of the class": _class_attribute,
    "module in a module": _module_in_a_module,
    "names of columns": lambda k: _times(_row(k), lambda held: held["a"][0]),
    "mask": lambda k: _times(np.ma.array([2, 3], mask=[k == 3, k == 2]), lambda held: int(held.sum())),
    "vectorized": lambda k: _times(np.frompyfunc(lambda x: x * k, 1, 1), lambda held: int(held(1))),
    "set of objects": lambda k: _times({_Alike(k)}, lambda held: next(iter(held)).k),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
def test_functions_that_only_differ_in_what_they_hold_are_two(make: Callable[[int], Callable[..., Any]]) -> None:
    def call(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x: ops.py_function(function, (x,), INT)

    two, three = call(make(2)), call(make(3))

    assert run(Dataset.range(3).map(lambda x: (two(x), three(x)))) == [(0, 0), (2, 3), (4, 6)]
    assert run(Dataset.range(3).map(two).map(three).batch(3)) == [[0, 6, 12]]


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
def test_a_file_that_one_has_filled_is_not_read_for_the_other(
    make: Callable[[int], Callable[..., Any]], tmp_path: Path
) -> None:
    chains = [Dataset.range(3).map(make(k), traced=False).cache(tmp_path / "c") for k in (2, 3, 2)]

    assert [run(chain) for chain in chains] == [[0, 2, 4], [0, 3, 6], [0, 2, 4]]
    assert portable(chains[0].plan) == portable(chains[2].plan)  # written anew it is the same


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("def times(a, b): return b", "def times(a, *b): return b"),
        (
            "def times(a, b):\n  try:\n    c = a / b\n    c = c / a\n  except ValueError: c = 0\n  return c",
            "def times(a, b):\n  try:\n    c = a / b\n  except ValueError: c = 0\n  else:\n    c = c / a\n  return c",
        ),
    ],
)
def test_functions_of_the_same_bytecode_may_differ(one: str, other: str) -> None:
    def digest(source: str) -> bytes:
        return portable(Dataset.from_tensors((1, 2)).map(_written(source), traced=False).plan).digest

    assert digest(one) == digest(one)
    assert digest(one) != digest(other)


@pytest.mark.parametrize("slots", [{}, {"__slots__": ()}], ids=["attributes", "none"])
def test_a_dict_whose_attributes_are_its_items_is_read(slots: Any) -> None:
    kind: Any = type("Settings", (dict,), {"__getattr__": lambda self, name: self[name], **slots})

    def chain(k: int) -> Any:
        settings = kind(k=k)
        if not slots:
            settings.__dict__ = settings
        return portable(Dataset.range(3).map(lambda x: x * settings.k, traced=False).plan)

    assert chain(2) == chain(2) != chain(3)
    assert chain(2).private is None


def test_a_function_with_a_state_is_called_as_often_as_it_is_written() -> None:
    count = itertools.count()

    def numbered(x: Any) -> Any:
        return np.int64(next(count))

    got = run(Dataset.range(3).map(lambda x: tuple(ops.py_function(numbered, (x,), INT) for _ in range(2))))

    assert got == [(0, 1), (2, 3), (4, 5)]


# ---- a chain that is written anew in each turn of a loop


def _keep(x: Any, k: int = 1) -> Any:
    return x


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
def test_a_chain_written_in_a_loop_counts_its_epochs(make: Callable[[int], Callable[..., Any]]) -> None:
    def chain(source: Dataset, function: Callable[..., Any]) -> Dataset:
        return source.map(function, traced=False).shuffle(20)

    source, other = Dataset.range(20), Dataset.range(20)
    kept = [make(2) for _ in range(3)]  # the ids of what is dead would be used again, and hide a comparison by id
    expected = [run(chain(Dataset.range(20), make(2)).iterator(epoch=i)) for i in range(3)]

    assert [run(chain(source, function)) for function in kept] == expected
    assert [run(chain(other, make(2))) for _ in range(3)] == expected
    assert expected[0] != expected[1] != expected[2]


def _goes_on(dataset: Dataset, again: Dataset) -> Any:
    """What a state behind the first of five numbers says of the code; the others follow it."""
    with iter(dataset) as items:
        first = int(next(items))
        state = items.state_dict()
    with iter(again) as items:
        items.load_state_dict(state)
        assert [int(x) for x in items] == list(range(first + 1, first + 5))
    return state["code"]


AROUND: list[Any] = [1]
AROUND.extend([AROUND, {"again": AROUND}])


@pytest.fixture
def little_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpupipe.plan.portable._MOST_USED", 1000)


@pytest.mark.usefixtures("little_is_looked_at")
def test_a_function_that_uses_a_list_which_holds_itself_has_a_state() -> None:
    around = AROUND

    def longer(x: Any) -> Any:
        return int(x) + len(around)

    for ds in (Dataset.range(5).map(longer), Dataset.range(5).map(lambda x: ops.py_function(longer, (x,), INT))):
        assert _goes_on(ds, ds) is None  # nobody can compare it
    for table in (around, list(range(2000))):
        _goes_on(_of_class(table=table), _of_class(table=table))


def _of_class(**attributes: Any) -> Dataset:
    """A chain with an object of a class that has these attributes."""
    kind: Any = type("Scale", (), {"__call__": lambda self, x: int(x), "__module__": __name__, **attributes})
    return Dataset.range(5).map(kind(), traced=False)


@pytest.mark.parametrize(
    "pair",
    [([1, 2], [1, 3]), ({"a": (1,)}, {"a": (2,)}), ({1, 2}, {1}), ((1, [2]), (1, [3])), ([{"k": [1]}], [{"k": [0]}])],
    ids=repr,
)
def test_collections_that_a_class_holds_are_part_of_its_code(
    pair: tuple[Any, Any], caplog: pytest.LogCaptureFixture
) -> None:
    one, other = (_of_class(table=table, more=[object()]) for table in pair)
    with iter(one) as items:
        next(items)
        state = items.state_dict()

    assert state["code"] is not None
    iter(_of_class(table=copy.deepcopy(pair[0]), more=[object()])).load_state_dict(state)
    assert caplog.messages == []
    iter(other).load_state_dict(state)
    assert "has changed since the state was made" in caplog.text


@pytest.mark.usefixtures("little_is_looked_at")
def test_a_long_list_of_elements_is_compared_whole() -> None:
    short, long = ([(str(i), i) for i in range(n)] for n in (3000, 3001))

    found = [portable(Dataset.from_list(rows).map(lambda path, i: (path, i)).plan) for rows in (short, short, long)]

    assert [one.private for one in found] == [None, None, None]
    assert found[0] == found[1] != found[2]


class Sampler:
    """Gives other numbers in each epoch."""

    def __init__(self, seed: int) -> None:
        self.seed, self.epoch = seed, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        return iter(np.random.default_rng([self.seed, self.epoch]).permutation(8).tolist())


def test_the_epoch_of_a_sampler_is_no_change_of_it() -> None:
    samplers = [Sampler(1), Sampler(1), Sampler(2)]
    samplers[1].set_epoch(3)
    digests = [portable(Dataset.range(8).pick(sampler).plan).digest for sampler in samplers]

    assert digests[0] == digests[1] != digests[2]
