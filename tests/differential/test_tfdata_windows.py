"""Windows, groups, ragged batches and rebatch: the same chains on tf.data and on gpupipe.

Elements are compared as nested lists, nested datasets and ragged tensors included, and whether a leaf is one of these.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpupipe as gp
from tests.differential.tfdata_sides import Chain, dicts, from_generator, on, pairs, shown, triangle

pytestmark = [pytest.mark.tf, pytest.mark.filterwarnings("ignore")]

NUMBERS = np.array([5, 1, 3, 5, 1, 9, 3, 0])
LENGTHS = np.array([1, 5, 2, 3, 1, 4, 2, 2, 5, 1])


def _vectors(D: Any) -> Any:
    """Vectors of several lengths, each full of its length."""
    return D.from_tensor_slices(LENGTHS).flat_map(lambda n: D.from_tensors(n).repeat(n).batch(9))


def _length(D: Any) -> Chain:
    """The length of a vector: all its elements are that. Of more than a vector, that of the first."""
    return lambda x, *rest: on(D).int32_of(x[0])


def bucket_by_sequence_length(D: Any, *given: Any, **more: Any) -> Any:
    return _vectors(D).bucket_by_sequence_length(_length(D), *given, **more)


CASES: dict[str, Chain] = {
    # window
    "window": lambda D: D.range(7).window(3),
    "window larger than the input": lambda D: D.range(3).window(10),
    "window of nothing": lambda D: D.range(0).window(3),
    "window shift 1 drops": lambda D: D.range(10).window(3, shift=1, drop_remainder=True),
    "window shift and stride": lambda D: D.range(10).window(3, shift=4, stride=2),
    "window shift and stride drops": lambda D: D.range(10).window(3, shift=1, stride=2, drop_remainder=True),
    "window shift beyond": lambda D: D.range(10).window(2, shift=5),
    "window of a tuple": lambda D: pairs(D).window(3),
    "window of a dict": lambda D: dicts(D).window(2),
    "window of windows": lambda D: D.range(7).window(2).window(2),
    "window of an endless one": lambda D: D.range(3).repeat().window(4).take(3),
    "window flat": lambda D: D.range(7).window(3).flat_map(lambda w: w),
    "window to batches of a dict": lambda D: dicts(D).window(2).flat_map(lambda d: D.zip(d).batch(2)),
    "window to batches of a tuple": lambda D: pairs(D).window(3).flat_map(lambda a, b: D.zip(a.batch(3), b.batch(3))),
    "window mapped": lambda D: D.range(7).window(3).map(lambda w: w.skip(1)),
    "window of unequal vectors": lambda D: triangle(D, 5).window(2),
    "window padded": lambda D: triangle(D, 5).window(2).flat_map(lambda w: w.padded_batch(2)),
    "a dataset as an element": lambda D: D.from_tensors((D.range(3), 7)),
    # group_by_window
    "groups": lambda D: D.from_tensor_slices(NUMBERS).group_by_window(lambda x: x, lambda k, d: d.batch(3), 3),
    "groups by a size function": lambda D: D.range(10).group_by_window(
        lambda x: x % 2, lambda k, d: d.batch(10), window_size_func=lambda k: k + 2
    ),
    "groups with their key": lambda D: D.range(9).group_by_window(
        lambda x: x % 3, lambda k, d: D.zip(D.from_tensors(k), d.batch(9)), 2
    ),
    "groups of negative keys": lambda D: D.range(9).group_by_window(lambda x: 1 - x % 3, lambda k, d: d.batch(9), 4),
    "groups of a dict": lambda D: dicts(D).group_by_window(lambda d: d["b"] % 2, lambda k, d: d.batch(2), 2),
    "groups read twice": lambda D: D.range(6).group_by_window(lambda x: x % 2, lambda k, d: d.repeat(2), 3),
    "groups padded": lambda D: triangle(D, 5).group_by_window(lambda x: x[-1] % 2, lambda k, d: d.padded_batch(2), 2),
    "groups of an endless one": lambda D: (
        D.range(5).repeat().group_by_window(lambda x: x % 2, lambda k, d: d.batch(2), 2).take(5)
    ),
    # bucket_by_sequence_length
    "buckets": lambda D: bucket_by_sequence_length(D, [2, 4], [2, 3, 2]),
    "buckets without a boundary": lambda D: bucket_by_sequence_length(D, [], [3]),
    "buckets drop": lambda D: bucket_by_sequence_length(D, [2, 4], [2, 3, 2], drop_remainder=True),
    "buckets padded to the boundary": lambda D: bucket_by_sequence_length(
        D, [2, 4, 7], [2, 3, 2, 1], pad_to_bucket_boundary=True
    ),
    "buckets padded with a value": lambda D: bucket_by_sequence_length(D, [3], [2, 2], padding_values=np.int64(-1)),
    "buckets padded to a shape": lambda D: bucket_by_sequence_length(D, [3], [2, 2], padded_shapes=[6]),
    "buckets without padding": lambda D: D.range(9).bucket_by_sequence_length(
        lambda x: on(D).int32_of(x % 4), [1, 3], [2, 3, 2], no_padding=True
    ),
    "buckets of a tuple": lambda D: D.zip(_vectors(D), D.range(10)).bucket_by_sequence_length(
        _length(D), [2, 4], [2, 2, 2], padded_shapes=([None], [])
    ),
    # ragged_batch
    "ragged_batch": lambda D: triangle(D, 5).ragged_batch(2),
    "ragged_batch of scalars": lambda D: D.range(5).ragged_batch(2),
    "ragged_batch of a tuple": lambda D: D.zip(triangle(D, 5), D.range(5)).ragged_batch(2),
    "ragged_batch of matrices": lambda D: (
        triangle(D, 5).map(lambda x: (x, 1)).map(lambda x, y: x).batch(1).ragged_batch(2)
    ),
    "ragged_batch int32": lambda D: triangle(D, 5).ragged_batch(2, row_splits_dtype=on(D).int32),
    "ragged_batch unbatched": lambda D: triangle(D, 5).ragged_batch(2).unbatch(),
    "ragged_batch of ragged_batch": lambda D: triangle(D, 5).ragged_batch(2).ragged_batch(2),
    "batch of ragged_batch": lambda D: triangle(D, 5).ragged_batch(2).batch(2),
    "window of ragged_batch": lambda D: triangle(D, 5).ragged_batch(2).window(2),
    # rebatch
    "rebatch": lambda D: D.range(8).batch(4).rebatch(3),
    "rebatch of several sizes": lambda D: D.range(8).batch(4).rebatch([2, 1, 1]),
    "rebatch drops": lambda D: D.range(8).batch(4).rebatch(3, drop_remainder=True),
    "rebatch of pairs": lambda D: pairs(D).batch(3).rebatch(2),
    "rebatch of unequal batches": lambda D: triangle(D, 5).rebatch(4),
    "rebatch of one-row slices": lambda D: D.from_tensor_slices(np.arange(12).reshape(4, 3)).rebatch(2),
}


@pytest.mark.parametrize("name", CASES)
def test_elements_structure_order_and_cardinality_are_equal(tf: Any, name: str) -> None:
    theirs, ours = CASES[name](tf.data.Dataset), CASES[name](gp.Dataset)
    expected, known = [shown(x) for x in theirs], int(theirs.cardinality())

    assert [shown(x) for x in ours] == expected
    assert [shown(x) for x in ours] == expected  # and in the next epoch
    # What is unknown there may be known here, if it is right.
    assert ours.cardinality() == known or (known == gp.UNKNOWN_CARDINALITY and ours.cardinality() == len(expected))


def test_windows_count_their_elements_as_there(tf: Any) -> None:
    def counts(D: Any) -> list[int]:
        return [int(w.cardinality()) for w in D.range(10).window(3, shift=2)]

    assert counts(gp.Dataset) == counts(tf.data.Dataset) == [3, 3, 3, 3, 2]


def test_specs_say_the_same(tf: Any) -> None:
    def told(leaf: Any) -> Any:
        return type(leaf).__name__, getattr(leaf.element_spec.dtype, "name", "string"), tuple(leaf.element_spec.shape)

    sides = (tf.data.Dataset, gp.Dataset)
    for name in ("window of a tuple", "window of a dict"):
        theirs, ours = ([told(leaf) for leaf in tf.nest.flatten(CASES[name](D).element_spec)] for D in sides)
        assert ours == theirs
    for shape, drop in (((None,), False), ((None, 3), True), ((2, None), True), ((None, None, 4), False)):
        theirs, ours = (
            from_generator(D, output_signature=on(D).Spec(shape, np.int64)).ragged_batch(5, drop).element_spec
            for D in sides
        )
        assert (ours.ragged_rank, len(ours.shape)) == (theirs.ragged_rank, theirs.shape.rank)
        assert ours.shape[0] == theirs.shape[0]


ERRORS: dict[str, Chain] = {
    "window 0": lambda D: D.range(3).window(0),
    "window as NumPy": lambda D: list(D.range(3).window(2).as_numpy_iterator()),
    "window unbatched": lambda D: D.range(3).window(2).unbatch(),
    "groups without a size": lambda D: D.range(3).group_by_window(lambda x: x, lambda k, d: d),
    "groups with two sizes": lambda D: D.range(3).group_by_window(lambda x: x, lambda k, d: d, 2, lambda k: 2),
    "groups of a function's size 0": lambda D: D.range(3).group_by_window(
        lambda x: x, lambda k, d: d, window_size_func=lambda k: k * 0
    ),
    "groups of no dataset": lambda D: D.range(3).group_by_window(lambda x: x, lambda k, d: k, 2),
    "groups by a pair": lambda D: pairs(D).group_by_window(lambda a, b: b, lambda k, d: d, 2),
    "groups reduce arity": lambda D: D.range(3).group_by_window(lambda x: x, lambda d: d, 2),
    "buckets sizes": lambda D: bucket_by_sequence_length(D, [2], [2]),
    "buckets too long": lambda D: bucket_by_sequence_length(D, [2, 4], [1, 1, 1], pad_to_bucket_boundary=True),
    "buckets that do not stack": lambda D: bucket_by_sequence_length(D, [9], [5, 5], no_padding=True),
    "buckets padding dtype": lambda D: bucket_by_sequence_length(D, [3], [2, 2], padding_values=np.float32(0)),
    "ragged_batch 0": lambda D: triangle(D, 5).ragged_batch(0),
    "ragged_batch padded": lambda D: triangle(D, 5).ragged_batch(2).padded_batch(2),
    "rebatch of scalars": lambda D: D.range(3).rebatch(2),
}


@pytest.mark.parametrize("name", ERRORS)
def test_what_is_an_error_there_is_one_here(tf: Any, name: str) -> None:
    for dataset in (tf.data.Dataset, gp.Dataset):
        with pytest.raises((ValueError, TypeError, AttributeError, RuntimeError, tf.errors.OpError)):
            [shown(x) for x in ERRORS[name](dataset)]


@pytest.mark.parametrize("size", [0, -1], ids=str)
def test_what_hangs_or_crashes_there_is_refused_here(size: int) -> None:
    with pytest.raises(ValueError, match="rebatch needs batch_size >= 1"):
        gp.Dataset.range(4).batch(2).rebatch(size)


def test_random_windows_and_groups_are_equal(tf: Any) -> None:
    numbers = st.integers(1, 5)

    @settings(max_examples=10, deadline=None, database=None, derandomize=True)
    @given(
        which=st.integers(0, 4),
        n=st.integers(0, 12),
        size=numbers,
        shift=numbers,
        stride=numbers,
        drop=st.booleans(),
        sizes=st.lists(numbers, min_size=1, max_size=3),
    )
    def compare(which: int, n: int, size: int, shift: int, stride: int, drop: bool, sizes: list[int]) -> None:
        def chain(D: Any) -> Any:
            d = D.range(n)
            if which == 0:
                return d.window(size, shift, stride, drop).flat_map(lambda w: w.batch(9))
            if which == 1:
                return d.window(size, shift, stride, drop).flat_map(lambda w: w.window(2)).flat_map(lambda w: w)
            if which == 2:
                return d.group_by_window(lambda x: x % stride, lambda k, g: g.batch(shift), size)
            if which == 3:
                return d.group_by_window(lambda x: x % stride, lambda k, g: g, window_size_func=lambda k: k + size)
            return d.batch(size).rebatch(sizes, drop)

        assert [shown(x) for x in chain(gp.Dataset)] == [shown(x) for x in chain(tf.data.Dataset)]

    compare()
