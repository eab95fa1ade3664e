"""The worked examples of the tf.data reference, number by number (integers are int64 here)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpupipe import Dataset as D
from tests.behaviour.model import run

TRIANGLE = D.range(1, 5).flat_map(lambda n: D.range(n).batch(n))


def _read(numbers: list[int], cycle: int) -> D:
    return D.from_tensor_slices(numbers).interleave(
        lambda n: D.range(n * 10, n * 10 + n), cycle_length=cycle, block_length=1
    )


EXAMPLES: dict[str, tuple[D, list[Any]]] = {
    "1 a tuple is structure, a list an array": (
        D.from_tensor_slices(([1, 2], [[3, 4], [5, 6]])),
        [(1, [3, 4]), (2, [5, 6])],
    ),
    "2 only the top level is unpacked": (
        D.zip(D.range(2), D.zip(D.range(2, 4), D.range(4, 6))).map(lambda a, bc: a + bc[0] * bc[1]),
        [8, 16],
    ),
    "3 a list from map becomes a tuple": (D.range(2).map(lambda x: [x, x + 1]), [(0, 1), (1, 2)]),
    "5 skip(-1) skips everything": (D.range(4).skip(-1), []),
    "6 repeat of nothing ends": (D.range(3).filter(lambda x: x > 5).repeat(), []),
    "7 ranks relax": (D.from_tensors([1, 2]).concatenate(D.from_tensors(1)), [[1, 2], 1]),
    "8 the shortest ends a zip": (
        D.zip({"x": D.range(3), "y": (D.range(5), D.range(2))}),
        [{"x": 0, "y": (0, 0)}, {"x": 1, "y": (1, 1)}],
    ),
    "9 enumerate nests": (D.from_tensor_slices(([1, 2], [3, 4])).enumerate(-1), [(-1, (1, 3)), (0, (2, 4))]),
    "10 batch keeps structure": (
        D.from_tensor_slices({"a": [1, 2, 3], "b": ([4, 5, 6], [[7], [8], [9]])}).batch(2),
        [{"a": [1, 2], "b": ([4, 5], [[7], [8]])}, {"a": [3], "b": ([6], [[9]])}],
    ),
    "11 batch then repeat": (D.range(5).batch(2).repeat(2), [[0, 1], [2, 3], [4], [0, 1], [2, 3], [4]]),
    "11 repeat then batch": (D.range(5).repeat(2).batch(2), [[0, 1], [2, 3], [4, 0], [1, 2], [3, 4]]),
    "13 padded_batch to a fixed length": (
        TRIANGLE.padded_batch(2, padded_shapes=[5], padding_values=np.int64(-1)),
        [[[0, -1, -1, -1, -1], [0, 1, -1, -1, -1]], [[0, 1, 2, -1, -1], [0, 1, 2, 3, -1]]],
    ),
    "14 padded_batch of two components": (
        D.zip(TRIANGLE, TRIANGLE).padded_batch(
            2, padded_shapes=([4], [None]), padding_values=(np.int64(-1), np.int64(7))
        ),
        [
            ([[0, -1, -1, -1], [0, 1, -1, -1]], [[0, 7], [0, 1]]),
            ([[0, 1, 2, -1], [0, 1, 2, 3]], [[0, 1, 2, 7], [0, 1, 2, 3]]),
        ],
    ),
    "18 interleave in blocks": (
        D.range(1, 6).interleave(lambda x: D.from_tensors(x).repeat(6), cycle_length=2, block_length=4),
        [1, 1, 1, 1, 2, 2, 2, 2, 1, 1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 3, 3, 4, 4, 5, 5, 5, 5, 5, 5],
    ),
    "19 interleave of three": (_read([3, 1, 4, 2], 3), [30, 10, 40, 31, 41, 32, 20, 42, 21, 43]),
    "20 an empty input costs its visit": (_read([0, 3, 0, 2, 1], 2), [30, 31, 20, 32, 21, 10]),
    "25 a chain": (
        D.range(4)
        .interleave(lambda f: D.range(f * 100, f * 100 + 5), cycle_length=2)
        .map(lambda x: (x, x % 10))
        .repeat(2)
        .batch(7, drop_remainder=True)
        .prefetch(2),
        [
            ([0, 100, 1, 101, 2, 102, 3], [0, 0, 1, 1, 2, 2, 3]),
            ([103, 4, 104, 200, 300, 201, 301], [3, 4, 4, 0, 0, 1, 1]),
            ([202, 302, 203, 303, 204, 304, 0], [2, 2, 3, 3, 4, 4, 0]),
            ([100, 1, 101, 2, 102, 3, 103], [0, 1, 1, 2, 2, 3, 3]),
            ([4, 104, 200, 300, 201, 301, 202], [4, 4, 0, 0, 1, 1, 2]),
        ],
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_gives_what_tf_data_gives(name: str) -> None:
    dataset, expected = EXAMPLES[name]

    assert run(dataset) == expected
    assert run(dataset) == expected  # and again: iterating changes nothing
