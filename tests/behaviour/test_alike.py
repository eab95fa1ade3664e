"""Several inputs whose elements only a first element can tell: they are alike, or it is said that they are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gpupipe import DataError, Dataset
from gpupipe.errors import ResultError
from tests.behaviour.model import outcomes, run


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

    with pytest.raises(ResultError, match=message) as caught:
        run(dataset)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, DataError)
    assert (caught.value.file, caught.value.offset, caught.value.stage) == ("range", 1, "map")
    assert outcomes(dataset) == [0, "error", 2]
