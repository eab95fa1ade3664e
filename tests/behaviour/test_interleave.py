"""interleave: the exact order of tf.data, against the algorithm written down in plain Python."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, Options, TFRecordDataset
from tests.behaviour.model import interleaved, run


def _configurations() -> list[Any]:
    rng = random.Random(7)
    made = []
    for i in range(120):
        lengths = [rng.choice((0, 0, 1, 2, 3, 5, 8)) for _ in range(rng.randrange(0, 9))]
        made.append(
            pytest.param(lengths, rng.randrange(1, 10), rng.randrange(1, 5), rng.choice((None, 1, 3)), id=str(i))
        )
    return made


@pytest.mark.parametrize(("lengths", "cycle", "block", "calls"), _configurations())
def test_the_order_is_that_of_the_interleaved(lengths: list[int], cycle: int, block: int, calls: int | None) -> None:
    inputs = [[100 * i + j for j in range(n)] for i, n in enumerate(lengths)]
    ends = np.array([(100 * i, 100 * i + n) for i, n in enumerate(lengths)], np.int64).reshape(-1, 2)

    dataset = Dataset.from_tensor_slices(ends).interleave(
        lambda end: Dataset.range(end[0], end[1]), cycle_length=cycle, block_length=block, num_parallel_calls=calls
    )

    assert run(dataset) == interleaved(inputs, cycle, block)


@pytest.mark.parametrize("cycle", [None, gp.AUTOTUNE, 16])
@pytest.mark.parametrize("calls", [None, 1, 4, gp.AUTOTUNE])
def test_the_default_cycle_length_is_16_on_every_machine(cycle: int | None, calls: int | None) -> None:
    dataset = Dataset.range(20).interleave(lambda i: Dataset.range(i * 10, i * 10 + 3), cycle, None, calls)

    assert run(dataset) == interleaved([[i * 10 + j for j in range(3)] for i in range(20)], 16, 1)


@pytest.mark.parametrize("calls", [None, 1, 8])
@pytest.mark.parametrize("cycle", [1, 2, 8])
def test_files_come_in_the_same_order(tmp_path: Any, cycle: int, calls: int | None) -> None:
    sizes = [5, 0, 2, 9, 1]
    for i, n in enumerate(sizes):
        with gp.io.TFRecordWriter(tmp_path / f"{i}") as out:
            for j in range(n):
                out.write(b"%d" % (i * 100 + j))

    dataset = Dataset.list_files(f"{tmp_path}/*", shuffle=False).interleave(
        TFRecordDataset, cycle_length=cycle, block_length=2, num_parallel_calls=calls
    )

    expected = interleaved([[i * 100 + j for j in range(n)] for i, n in enumerate(sizes)], cycle, 2)
    assert [int(record) for record in dataset] == expected


def test_without_an_order_every_input_keeps_its_own() -> None:
    dataset = Dataset.range(5).interleave(
        lambda i: Dataset.range(i * 100, i * 100 + 7), cycle_length=3, num_parallel_calls=2, deterministic=False
    )

    got = run(dataset.with_options(Options(deterministic=False)))

    assert sorted(got) == sorted(i * 100 + j for i in range(5) for j in range(7))
    assert all([x for x in got if x // 100 == i] == [i * 100 + j for j in range(7)] for i in range(5))


def test_a_function_that_has_to_be_called_is_called_once_for_each_element() -> None:
    calls: list[int] = []

    def numbers(n: Any) -> Dataset:
        calls.append(int(n))
        return Dataset.from_tensor_slices(list(range(int(n))))

    assert run(Dataset.range(4).interleave(numbers, cycle_length=2)) == interleaved([[], [0], [0, 1], [0, 1, 2]], 2, 1)
    assert sorted(calls) == [0, 1, 2, 3]
