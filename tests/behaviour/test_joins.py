"""zip and concatenate: what is asked for when, long loops, and inputs whose elements only a first element can tell.

What they give is compared with tf.data in tests/differential.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import pytest

from gpupipe import Dataset, TensorSpec
from gpupipe.errors import ResultError
from tests.behaviour.model import outcomes, run

R = Dataset.range


def test_inputs_are_pulled_in_order() -> None:
    seen: list[str] = []

    def note(name: str, n: int) -> Dataset:
        def noted(x: Any) -> Any:
            seen.append(name)
            return x

        return R(n).map(noted, spec=TensorSpec((), "int64"))

    assert len(run(Dataset.zip(note("a", 3), note("b", 2), note("c", 3)))) == 2
    assert seen == ["a", "b", "c", "a", "b", "c", "a"]  # the first loses one more, the third is not asked


def test_unknown_elements_join_too() -> None:
    unknown = R(2).map(lambda x: {"n": int(x)})

    assert run(unknown.concatenate(unknown)) == [{"n": 0}, {"n": 1}] * 2
    assert run(Dataset.zip(unknown, R(2)).map(lambda d, x: d["n"] * 10 + x)) == [0, 11]


# ---- concatenate in a loop: one node, however long, and the keys that a nested one has


def test_a_loop_longer_than_pythons_recursion_limit() -> None:
    limit = sys.getrecursionlimit()
    right = functools.reduce(lambda some, i: Dataset.range(i, i + 1).concatenate(some), range(8, -1, -1), R(9, 10))
    try:
        sys.setrecursionlimit(600)
        left = functools.reduce(lambda some, i: some.concatenate(R(i, i + 1)), range(1, 700), R(1))
        assert run(left) == list(range(700))
        assert run(right.concatenate(right)) == list(range(10)) * 2
    finally:
        sys.setrecursionlimit(limit)


# ---- inputs whose elements only a first element can tell


def pair(x: Any) -> tuple[int, int]:
    print(end="")  # no plain expression: it runs for each element, and what it gives is not known before
    return int(x), int(x) + 1


def single(x: Any) -> int:
    print(end="")
    return int(x)


def keyed(*keys: str) -> Callable[[Any], dict[str, int]]:
    def fn(x: Any) -> dict[str, int]:
        print(end="")
        return {key: int(x) * 10 + "abc".index(key) for key in keys}

    return fn


NOTHING = Dataset.range(0).map(pair)


def test_an_input_without_elements_decides_nothing() -> None:
    pairs = Dataset.range(2).map(pair)

    assert run(NOTHING.concatenate(pairs)) == [(0, 1), (1, 2)]
    assert run(pairs.concatenate(NOTHING)) == [(0, 1), (1, 2)]
    assert run(NOTHING.concatenate(pairs).map(lambda a, b: a * b).batch(2)) == [[0, 2]]
    assert run(NOTHING.concatenate(NOTHING)) == []
    assert run(Dataset.range(4).flat_map(lambda n: Dataset.range(n % 2).map(pair))) == [(0, 1), (0, 1)]
    assert run(Dataset.range(4).interleave(lambda n: Dataset.range(n % 2).map(pair), 2)) == [(0, 1), (0, 1)]


def test_other_structures_and_types_are_mistakes() -> None:
    pairs, numbers = Dataset.range(2).map(pair), Dataset.range(2).map(single)
    floats = Dataset.range(2).map(lambda x: float(x))

    for first, second in ((pairs, numbers), (numbers, pairs), (numbers, floats)):
        with pytest.raises(TypeError, match="concatenate needs datasets of one structure and dtype"):
            run(first.concatenate(second))
    with pytest.raises(TypeError, match="flat_map needs datasets of one structure"):
        run(Dataset.range(2).flat_map(lambda n: Dataset.range(1).map(pair if n else single)))


def test_keys_are_put_into_the_order_of_the_first_that_has_elements() -> None:
    one, two = Dataset.range(1).map(keyed("a", "b")), Dataset.range(1, 2).map(keyed("b", "a"))

    got = run(Dataset.range(0).map(keyed("b", "a")).concatenate(one).concatenate(two))

    assert [list(element.items()) for element in got] == [[("a", 0), ("b", 1)], [("a", 10), ("b", 11)]]
    assert run(one.concatenate(two).batch(2)) == [{"a": [0, 10], "b": [1, 11]}]
    with pytest.raises(TypeError, match="concatenate needs"):
        run(one.concatenate(Dataset.range(1).map(keyed("a", "c"))))


@pytest.mark.parametrize(
    ("result", "message"),
    [(None, "returns an element, got None"), ({1, 2}, "got a set"), ((), "empty tuple"), ({}, "empty dict")],
    ids=str,
)
def test_a_result_that_is_no_element_is_a_value_error_of_its_element(result: Any, message: str) -> None:
    def fn(x: Any) -> Any:
        return result if int(x) == 1 else int(x)

    dataset = Dataset.range(3).map(fn)

    with pytest.raises(ResultError, match=f"range at index 1: map: .*{message}") as caught:
        run(dataset)
    assert isinstance(caught.value, ValueError)
    assert outcomes(dataset) == [0, "error", 2]
