"""interleave: what is made when and by which threads, in an order that is the same for any number of them.

The order of datasets that call no Python is compared with tf.data in tests/differential.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, Options, TensorSpec
from gpupipe.errors import PlanTypeError
from gpupipe.flow.combine import interleave
from tests.behaviour.model import interleaved, outcomes, run
from tests.chains.damage import no_thread_left
from tests.reliability.resume import resumed_after, taken


@pytest.mark.parametrize("cycle", [None, gp.AUTOTUNE, 16])
@pytest.mark.parametrize("calls", [None, 1, 4, gp.AUTOTUNE])
def test_the_default_cycle_length_is_16_on_every_machine(cycle: int | None, calls: int | None) -> None:
    dataset = Dataset.range(20).interleave(lambda i: Dataset.range(i * 10, i * 10 + 3), cycle, None, calls)

    assert run(dataset) == interleaved([[i * 10 + j for j in range(3)] for i in range(20)], 16, 1)


def test_a_function_that_has_to_be_called_is_called_once_for_each_element() -> None:
    calls: list[int] = []

    def numbers(n: Any) -> Dataset:
        calls.append(int(n))
        return Dataset.from_tensor_slices(list(range(int(n))))

    assert run(Dataset.range(4).interleave(numbers, cycle_length=2)) == interleaved([[], [0], [0, 1], [0, 1, 2]], 2, 1)
    assert sorted(calls) == [0, 1, 2, 3]


# ---- datasets that call Python: several of them work at once


INT = TensorSpec((), "int64")


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    with no_thread_left():
        yield


def same(x: Any) -> Any:
    return np.int64(str(x))  # text makes it ordinary Python


def counted(i: Any, n: int) -> Callable[[], Iterator[Any]]:
    return lambda: iter(range(int(i) * 100, int(i) * 100 + n))


KINDS: dict[str, Callable[[int, int], Dataset]] = {
    "map": lambda i, n: Dataset.range(i * 100, i * 100 + n).map(same),
    "map with a spec": lambda i, n: Dataset.range(i * 100, i * 100 + n).map(same, spec=INT),
    "map in threads": lambda i, n: Dataset.range(i * 100, i * 100 + n).map(same, num_parallel_calls=2),
    "filter": lambda i, n: Dataset.range(i * 100, i * 100 + n).filter(lambda x: bool(str(x))),
    "generator": lambda i, n: Dataset.from_generator(counted(i, n), output_signature=INT),
    "prefetch": lambda i, n: Dataset.range(i * 100, i * 100 + n).map(same).prefetch(2),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_the_order_is_that_of_one_thread(kind: str, seed: int) -> None:
    rng = random.Random(seed)
    lengths = [rng.choice((0, 1, 2, 3, 8, 90)) for _ in range(rng.randrange(1, 12))]
    cycle, block, calls = rng.randrange(1, 6), rng.randrange(1, 4), rng.choice((1, 2, 5, 20))

    dataset = Dataset.range(len(lengths)).interleave(
        lambda i: KINDS[kind](int(i), lengths[int(i)]), cycle, block, num_parallel_calls=calls
    )

    inputs = [[100 * i + j for j in range(n)] for i, n in enumerate(lengths)]
    assert run(dataset) == interleaved(inputs, cycle, block)


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("kind", ["map", "generator", "one element each", "traced function"])
def test_as_many_datasets_work_at_once_as_there_are_calls(
    kind: str, deterministic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interleave, "_READ_AHEAD", 10)  # all of them are opened first, on a busy machine, too
    together = threading.Barrier(4)

    def meet(x: Any) -> Any:
        if int(x) >= 0:  # the first dataset tells what they all hold, before there are threads
            together.wait(20)
        return np.int64(x)

    def generated(i: int) -> Iterator[Any]:
        for _ in range(3):
            yield meet(i)

    made: dict[str, Callable[[Any], Dataset]] = {
        "map": lambda i: Dataset.from_tensors(np.int64(i)).repeat(3).map(meet),
        "one element each": lambda i: Dataset.from_tensors(np.int64(i)).map(meet),
        "generator": lambda i: Dataset.from_generator(generated, output_signature=INT, args=(int(i),)),
        "traced function": lambda i: Dataset.from_tensors(i).repeat(3).map(meet, spec=INT, traced=False),
    }
    count = 12 if kind == "one element each" else 4
    numbers = Dataset.from_tensor_slices([-1] * (kind in ("map", "one element each")) + list(range(count)))

    got = run(numbers.interleave(made[kind], 8, num_parallel_calls=4, deterministic=deterministic))

    assert sorted(x for x in got if x >= 0) == sorted(list(range(count)) * (1 if kind == "one element each" else 3))


def test_what_is_made_ahead_has_a_bound() -> None:
    made: list[int] = []

    def slow(x: Any) -> Any:
        made.append(int(x))
        time.sleep(0.002)
        return np.int64(x)

    inner = Dataset.range(10**6).map(slow, spec=INT, traced=False)
    with iter(Dataset.range(10**6).interleave(lambda i: inner, 3, num_parallel_calls=3)) as items:
        next(items)
        time.sleep(0.5)
        count = len(made)

        assert 3 <= count <= (3 + 4) * 3 + 4  # of 3 slots and 4 datasets that wait, 2 elements and one in work


@pytest.mark.parametrize("deterministic", [True, False])
def test_failures_are_holes_in_their_places(deterministic: bool) -> None:
    def third(x: Any) -> Any:
        if int(x) % 3 == 2:
            raise ValueError("third")
        return np.int64(x)

    def chain(calls: int | None) -> Dataset:
        def inner(i: Any) -> Dataset:
            return Dataset.range(i * 10, i * 10 + 7).map(third, spec=INT, traced=False)

        return Dataset.range(5).interleave(inner, 3, num_parallel_calls=calls, deterministic=deterministic)

    ours, expected = outcomes(chain(3)), outcomes(chain(None))

    assert (ours == expected) if deterministic else (sorted(map(str, ours)) == sorted(map(str, expected)))
    assert "error" in ours
    assert sorted(run(chain(4).with_options(Options(on_error="skip")))) == sorted(x for x in ours if x != "error")


def test_an_exit_in_a_function_reaches_who_asks() -> None:
    def leaves(x: Any) -> Any:
        if int(x) == 3:
            raise SystemExit(7)
        return np.int64(x)

    inner = Dataset.range(6).map(leaves, spec=INT, traced=False)
    with iter(Dataset.range(2).interleave(lambda i: inner, 2, num_parallel_calls=2)) as items:
        assert [int(next(items)) for _ in range(6)] == [0, 0, 1, 1, 2, 2]
        with pytest.raises(SystemExit, match="7"):
            next(items)


def _over(inner: Callable[[Any], Dataset], n: int = 7) -> Dataset:
    return Dataset.range(n).interleave(inner, 3, 2, num_parallel_calls=3)


CHAINS: dict[str, Callable[[], Dataset]] = {
    "maps": lambda: _over(lambda i: KINDS["map"](int(i), int(i) % 5)),
    "generators": lambda: _over(lambda i: KINDS["generator"](int(i), 4)),
    "static": lambda: _over(lambda i: Dataset.range(5).map(same, spec=INT)),
    "long": lambda: _over(lambda i: KINDS["map"](int(i), 90), 4).skip(200),
    "shuffled": lambda: _over(lambda i: KINDS["map"](int(i), 6)).shuffle(8).batch(3),
    "passes": lambda: _over(lambda i: KINDS["map"](int(i), 3), 4).repeat(3).prefetch(2),
    "nested": lambda: _over(lambda i: _over(lambda j: KINDS["map"](int(j), 3), 3), 3),
}


@pytest.mark.parametrize("name", CHAINS)
def test_a_state_goes_on_exactly_there(name: str) -> None:
    with iter(CHAINS[name]()) as items:
        whole = taken(items)
    for count in range(0, len(whole) + 1, 3 if len(whole) < 40 else 29):
        assert resumed_after(CHAINS[name], count)[0] == whole[count:], count


def test_datasets_that_call_no_python_get_no_thread() -> None:
    items = iter(Dataset.range(5).interleave(lambda i: Dataset.range(9).map(lambda x: x + i), 3, num_parallel_calls=3))
    next(items)

    assert not [one for one in threading.enumerate() if one.name.startswith("gpupipe-interleave")]


def test_errors_of_a_dataset_are_raised_in_its_turn() -> None:
    def numbers(i: Any) -> Dataset:
        if int(i) == 2:
            return Dataset.from_tensors(np.float32(1)).map(lambda x: np.float32(str(x)))
        return KINDS["map"](int(i), 2)

    items = iter(Dataset.range(4).interleave(numbers, 1, num_parallel_calls=1))

    assert [int(next(items)) for _ in range(4)] == [0, 1, 100, 101]
    with pytest.raises(PlanTypeError, match="interleave needs datasets of one dtype"):
        next(items)
    items.close()
