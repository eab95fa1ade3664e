"""Sources whose type is learned from their first element: one call for a pass, and the first element is not lost."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset
from gpupipe.flow.maps import peek as prime
from tests.behaviour.model import run


class _Counted:
    """A generator function without a signature that counts how often it was started."""

    starts = 0

    def __call__(self) -> Iterator[int]:
        self.starts += 1
        yield from range(3)


def _one_more(x: Any) -> int:
    return int(x) + 1


PLACES: dict[str, tuple[Callable[[Dataset], Dataset], list[Any]]] = {
    "alone": (lambda d: d.map(lambda x: x + 1), [1, 2, 3]),
    "second of a zip": (lambda d: Dataset.zip(Dataset.range(9), d).map(lambda a, b: a * 10 + b), [0, 11, 22]),
    "second of a concatenate": (lambda d: Dataset.range(7, 8).concatenate(d).map(lambda x: x + 1), [8, 1, 2, 3]),
    "behind a batch": (lambda d: Dataset.zip(Dataset.range(3), d.batch(3)).map(lambda a, b: b + a), [[0, 1, 2]]),
    "behind a Python map": (lambda d: Dataset.zip(Dataset.range(9), d.map(_one_more)), [(0, 1), (1, 2), (2, 3)]),
}


@pytest.mark.parametrize(("place", "expected"), PLACES.values(), ids=PLACES.keys())
def test_a_generator_is_started_once_for_each_pass(place: Callable[[Dataset], Dataset], expected: list[Any]) -> None:
    generator = _Counted()
    chain = place(Dataset.from_generator(generator))

    for starts in (1, 2, 3):
        assert run(chain) == expected
        assert generator.starts == starts
    once = iter(range(3))
    assert run(place(Dataset.from_generator(lambda: once))) == expected  # nothing is lost of what can be read once


def test_what_was_looked_at_draws_the_same_numbers() -> None:
    def drawn(x: Any, rng: Any) -> Any:
        return rng.random()

    def chain(**signature: Any) -> Dataset:
        source = Dataset.from_generator(_Counted(), **signature).map(drawn, rng=True)
        return Dataset.zip(Dataset.range(3), source).map(lambda a, b: b + a)

    assert run(chain().iterator(epoch=1)) == run(chain(output_types="int64").iterator(epoch=1))


@pytest.mark.parametrize(("on_error", "most"), [("raise", 100), ("skip", 10_000), ("replace", 10_000)])
def test_a_function_that_always_fails_is_reported_before_the_input_ends(on_error: Any, most: int) -> None:
    seen: list[int] = []

    def bad(x: Any) -> Any:
        seen.append(int(x))
        raise ValueError("nope")

    ds = Dataset.range(10**9).repeat().map(bad).batch(8).prefetch(2).with_options(gp.Options(on_error=on_error))

    with pytest.raises(gp.DataError, match=rf"index 0: map: raised ValueError: nope \(and so did the next {most - 1} "):
        next(iter(ds))
    assert len(seen) == most


def test_a_function_that_is_slow_before_it_fails_costs_its_element_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prime, "SECONDS", 0.2)

    def slow_start(x: Any) -> int:
        if int(x) == 0:
            time.sleep(0.3)
        if int(x) < 2:
            raise ValueError(f"{x} is bad")
        return int(x)

    with iter(Dataset.range(4).map(slow_start)) as items:
        for number in (0, 1):
            with pytest.raises(gp.DataError, match=f"{number} is bad"):
                next(items)
        assert list(items) == [2, 3]


def no_key_for_some(x: Any) -> int:
    if int(x) % 5 == 2:
        raise ValueError(f"{x} has no key")
    return int(x) % 3


def grouped(source: gp.Dataset) -> gp.Dataset:
    return source.group_by_window(no_key_for_some, lambda key, window: window.batch(4), 4)


def test_what_is_bad_in_a_pass_that_was_only_looked_at_is_noted_by_the_pass_that_is_taken() -> None:
    groups = grouped(gp.Dataset.range(8))
    both = groups.concatenate(groups)
    turns = gp.Dataset.from_tensor_slices(np.array([1, 0, 0, 0, 0, 0, 0, 1], np.int64))
    # The second input is asked for first; what was looked at is a pass of the first.
    mixed = gp.Dataset.choose_from_datasets([both, both.take(2)], turns, stop_on_empty_dataset=False)

    with iter(mixed.with_options(gp.Options(on_error="skip"))) as items:
        for _ in items:
            pass
        met = [(error.key, error.offset) for error in items.errors]

    assert len(met) == len(set(met)) == items.left_out == 6
    assert Counter(offset for _, offset in met) == {2: 3, 7: 3}


def fails(_: Any) -> int:
    raise ValueError("no key")


def test_bad_elements_that_hide_every_first_one_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prime, "LEFT_OUT", 50)
    groups = gp.Dataset.counter().group_by_window(fails, lambda key, window: window.batch(4), 4)

    with (
        iter(groups.with_options(gp.Options(on_error="skip", max_bad=20))) as items,
        pytest.raises(gp.TooManyBadError, match="21 bad elements"),
    ):
        next(items)
