"""zip and concatenate."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpupipe import Dataset, TensorSpec
from tests.behaviour.model import outcomes, run

R = Dataset.range


def test_zip_takes_arguments_a_tuple_a_dict_or_a_name() -> None:
    expected = [(0, 5), (1, 6)]

    assert run(Dataset.zip(R(2), R(5, 9))) == expected
    assert run(Dataset.zip((R(2), R(5, 9)))) == expected
    assert run(Dataset.zip(datasets=(R(2), R(5, 9)))) == expected
    assert run(Dataset.zip({"a": R(2), "b": (R(1), R(3))})) == [{"a": 0, "b": (0, 0)}]


def test_a_single_dataset_comes_back_and_a_one_tuple_stays_one() -> None:
    dataset = R(2)

    assert Dataset.zip(dataset) is dataset
    assert run(Dataset.zip((dataset,))) == [(0,), (1,)]


def test_inputs_are_pulled_in_order() -> None:
    seen: list[str] = []

    def note(name: str, n: int) -> Dataset:
        def noted(x: Any) -> Any:
            seen.append(name)
            return x

        return R(n).map(noted, spec=TensorSpec((), "int64"))

    assert len(run(Dataset.zip(note("a", 3), note("b", 2), note("c", 3)))) == 2
    assert seen == ["a", "b", "c", "a", "b", "c", "a"]  # the first loses one more, the third is not asked


def test_zip_of_one_dataset_with_itself() -> None:
    dataset = R(10).shuffle(10)

    pairs = run(Dataset.zip(dataset, dataset))

    assert sorted(a for a, _ in pairs) == sorted(b for _, b in pairs) == list(range(10))


def test_zip_with_an_endless_dataset() -> None:
    assert run(Dataset.zip(R(3), R(2).repeat())) == [(0, 0), (1, 1), (2, 0)]


def test_a_map_over_batches_side_by_side() -> None:
    batches, wider = R(5).batch(2), R(6).batch(3)

    assert run(Dataset.zip(batches, batches).map(lambda a, b: a + b)) == [[0, 2], [4, 6], [8]]
    exact = Dataset.zip(R(4).batch(2, drop_remainder=True), R(6).batch(3, drop_remainder=True))
    assert run(exact.map(lambda a, b: (a + 1, b))) == [([1, 2], [0, 1, 2]), ([3, 4], [3, 4, 5])]
    assert outcomes(Dataset.zip(batches, wider).map(lambda a, b: (a + 1, b))) == ["error", "error"]


def test_zip_keeps_structures_apart() -> None:
    dataset = Dataset.zip(Dataset.from_tensor_slices(([1], [2])), Dataset.from_tensor_slices({"x": [3]}))

    assert run(dataset) == [((1, 2), {"x": 3})]
    assert run(dataset.map(lambda pair, d: pair[1] + d["x"])) == [5]


def test_concatenate() -> None:
    assert run(R(2).concatenate(R(5, 7)).concatenate(R(1))) == [0, 1, 5, 6, 0]


def test_shapes_and_ranks_relax() -> None:
    three = Dataset.from_tensors(np.zeros((2, 3)))

    assert three.concatenate(Dataset.from_tensors(np.zeros((2, 4)))).element_spec == TensorSpec((2, None), "float64")
    assert three.concatenate(Dataset.from_tensors(0.0)).element_spec == TensorSpec(None, "float64")


def test_a_dict_of_another_order_follows_the_first() -> None:
    first = Dataset.from_tensors({"a": 1, "b": b"x"})
    second = Dataset.from_tensors({"b": b"y", "a": 2})

    got = list(first.concatenate(second))

    assert [list(element) for element in got] == [["a", "b"], ["a", "b"]]
    assert run(first.concatenate(second)) == [{"a": 1, "b": b"x"}, {"a": 2, "b": b"y"}]


def test_int64_follows_int64_whatever_made_it() -> None:
    assert run(R(1).concatenate(Dataset.from_tensor_slices([1, 2]))) == [0, 1, 2]


def test_a_map_behind_a_join_sees_both_inputs() -> None:
    joined = R(3).map(lambda x: x + 1).concatenate(R(3).map(lambda x: x * 10))

    assert run(joined.map(lambda x: x + 1).batch(4)) == [[2, 3, 4, 1], [11, 21]]


def test_unknown_elements_join_too() -> None:
    unknown = R(2).map(lambda x: {"n": int(x)})

    assert run(unknown.concatenate(unknown)) == [{"n": 0}, {"n": 1}] * 2
    assert run(Dataset.zip(unknown, R(2)).map(lambda d, x: d["n"] * 10 + x)) == [0, 11]


def test_hundreds_of_joins_are_nothing_special() -> None:
    dataset = R(1)
    for _ in range(300):
        dataset = dataset.concatenate(R(1))

    assert run(dataset) == [0] * 301
