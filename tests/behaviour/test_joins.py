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


def test_shapes_and_ranks_relax() -> None:
    three = Dataset.from_tensors(np.zeros((2, 3)))

    assert three.concatenate(Dataset.from_tensors(np.zeros((2, 4)))).element_spec == TensorSpec((2, None), "float64")
    assert three.concatenate(Dataset.from_tensors(0.0)).element_spec == TensorSpec(None, "float64")


def test_unknown_elements_join_too() -> None:
    unknown = R(2).map(lambda x: {"n": int(x)})

    assert run(unknown.concatenate(unknown)) == [{"n": 0}, {"n": 1}] * 2
    assert run(Dataset.zip(unknown, R(2)).map(lambda d, x: d["n"] * 10 + x)) == [0, 11]
