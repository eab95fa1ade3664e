"""window: which elements are in which window, what a window is, whose identity it has, and what bad elements do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from tests.behaviour.model import fails_where, outcomes, plain, run
from tests.chains.damage import write

D = gp.Dataset


def shown(value: Any) -> Any:
    """A plain value, datasets and ragged rows as lists."""
    if isinstance(value, gp.Dataset):
        return [shown(element) for element in value]
    if isinstance(value, gp.Ragged):
        return value.to_list()
    if isinstance(value, tuple):
        return tuple(shown(part) for part in value)
    if isinstance(value, dict):
        return {key: shown(part) for key, part in value.items()}
    return plain(value)


def unpacked(dataset: Any) -> list[Any]:
    return [shown(element) for element in dataset]


def drawn(x: Any, rng: np.random.Generator) -> float:
    """A number that tells the identity of an element."""
    return float(rng.random())


def test_a_window_is_a_dataset_that_can_be_read_again_and_again() -> None:
    (first, second) = list(D.from_tensor_slices((np.arange(4.0), ["a", "b", "c", "d"])).window(2))

    assert isinstance(first[0], gp.Dataset)
    assert first[0].cardinality() == 2
    assert first[0].element_spec == gp.TensorSpec((), "float64")
    assert first[1].element_spec == gp.TensorSpec((), bytes)
    assert [run(first[0]), run(first[0]), run(second[1])] == [[0.0, 1.0], [0.0, 1.0], [b"c", b"d"]]
    assert run(first[0].map(lambda x: x * 2).batch(2)) == [[0.0, 2.0]]


def test_windows_go_through_python_functions() -> None:
    windows = D.range(7).window(3)

    assert run(windows.map(lambda w: sum(int(x) for x in w))) == [3, 12, 6]
    assert run(windows.filter(lambda w: len(w) == 3).map(len)) == [3, 3]
    assert unpacked(windows.map(lambda w: (w.skip(1), len(w)))) == [([1, 2], 3), ([4, 5], 3), ([], 1)]
    declared = gp.DatasetSpec(gp.TensorSpec((), "int64"))
    assert unpacked(windows.map(lambda w: w.take(1), spec=declared)) == [[0], [3], [6]]
    with pytest.raises(gp.DataError, match="needs dataset of float32, got dataset of int64"):
        list(windows.map(lambda w: w, spec=gp.DatasetSpec(gp.TensorSpec((), "float32"))))


def test_windows_go_through_the_other_steps() -> None:
    windows = D.range(6).window(2)

    assert unpacked(D.zip(windows, D.range(3))) == [([0, 1], 0), ([2, 3], 1), ([4, 5], 2)]
    assert unpacked(windows.enumerate().skip(1)) == [(1, [2, 3]), (2, [4, 5])]
    assert unpacked(windows.repeat(2).shard(2, 1)) == [[2, 3], [0, 1], [4, 5]]
    assert sorted(unpacked(windows.shuffle(3, seed=1).prefetch(2))) == [[0, 1], [2, 3], [4, 5]]
    assert unpacked(windows.concatenate(D.range(2).window(3))) == [[0, 1], [2, 3], [4, 5], [0, 1]]
    cached = windows.cache()
    assert unpacked(cached) == unpacked(cached) == [[0, 1], [2, 3], [4, 5]]


def test_elements_keep_their_identities_in_a_window() -> None:
    numbers = D.range(10)
    expected = run(numbers.map(drawn, rng=True))

    assert run(numbers.window(3).flat_map(lambda w: w).map(drawn, rng=True)) == expected
    assert run(numbers.window(3).flat_map(lambda w: w.batch(2)).unbatch().map(drawn, rng=True)) == expected
    assert run(numbers.batch(2).window(2).flat_map(lambda w: w).unbatch().map(drawn, rng=True)) == expected
    (first, *_) = list(numbers.window(3))
    assert run(first.map(drawn, rng=True)) == expected[:3]


def test_passes_over_windows_and_inside_of_them_draw_anew() -> None:
    expected = run(D.range(6).map(drawn, rng=True))
    inside = run(D.range(6).window(3).flat_map(lambda w: w.repeat(2)).map(drawn, rng=True))
    outside = run(D.range(6).window(3).repeat(2).flat_map(lambda w: w).map(drawn, rng=True))
    behind_a_cache = run(D.range(6).window(3).cache().repeat(2).flat_map(lambda w: w).map(drawn, rng=True))

    assert [*inside[:3], *inside[6:9]] == expected
    assert outside[:6] == expected
    for numbers in (inside, outside, behind_a_cache):
        assert len(set(numbers)) == 12


def test_records_that_a_shuffle_holds_as_references_are_read_before_they_are_gathered(tmp_path: Path) -> None:
    write(tmp_path / "x", [b"%d" % i for i in range(7)])

    windows = unpacked(gp.TFRecordDataset(tmp_path / "x").shuffle(4, seed=1).window(3))
    behind = unpacked(gp.TFRecordDataset(tmp_path / "x").window(3).shuffle(4, seed=1))

    assert sorted(record for window in windows for record in window) == [b"%d" % i for i in range(7)]
    assert sorted(behind) == [[b"0", b"1", b"2"], [b"3", b"4", b"5"], [b"6"]]


def test_what_a_reader_changes_does_not_change_the_window() -> None:
    (window,) = list(D.from_tensor_slices(np.zeros((2, 3))).batch(2).window(1))
    for batch in window:
        batch += 1  # a batch belongs to whoever gets it
    assert run(window) == [[[0.0] * 3] * 2]

    (rows,) = list(D.from_tensor_slices(np.zeros((2, 3))).window(2))
    with pytest.raises(ValueError, match="read-only"):
        rows.first()[0] = 1


def test_a_source_without_a_spec_is_windowed_too() -> None:
    def pairs() -> Iterator[Any]:
        yield from ((i, [i, i]) for i in range(5))

    dataset = D.from_generator(pairs).window(2)

    assert dataset.element_spec == gp.TensorSpec(None, None)
    assert unpacked(dataset) == [([0, 1], [[0, 0], [1, 1]]), ([2, 3], [[2, 2], [3, 3]]), ([4], [[4, 4]])]
    assert unpacked(D.from_generator(lambda: iter(())).window(2)) == []


def test_no_more_is_read_than_the_window_needs_and_the_source_is_closed() -> None:
    read, closed = [], []

    def numbers() -> Iterator[int]:
        try:
            for i in range(100):
                read.append(i)
                yield i
        finally:
            closed.append(True)

    with D.from_generator(numbers, output_signature=gp.TensorSpec((), "int64")).window(4, shift=2).iterator() as items:
        assert run(next(items)) == [0, 1, 2, 3]
        assert read == [0, 1, 2, 3]
        assert run(next(items)) == [2, 3, 4, 5]
        assert read == [0, 1, 2, 3, 4, 5]

    assert closed == [True]


# ---- bad elements


def bad(on_error: Any) -> gp.Dataset:
    """0..9, of which 1, 5 and 9 fail."""
    return D.range(10).map(fails_where(lambda x: x % 4 == 1)).with_options(gp.Options(on_error=on_error))


def ends(dataset: gp.Dataset) -> list[Any]:
    return [shown(x) for x in outcomes(dataset)]


def test_a_bad_element_is_raised_once_and_windows_fill_up_from_what_follows() -> None:
    assert ends(bad("raise").window(3)) == ["error", [0, 2, 3], "error", [4, 6, 7], "error", [8]]


def test_bad_elements_are_left_out_or_replaced() -> None:
    assert ends(bad("skip").window(3)) == [[0, 2, 3], [4, 6, 7], [8]]
    assert ends(bad("replace").window(3)) == [[0, 0, 2], [3, 4, 4], [6, 7, 8], [8]]
    with bad("skip").window(3, shift=1).iterator() as items:
        assert len(list(items)) == 7
        assert items.left_out == 3


# ---- mistakes


@pytest.mark.parametrize(
    "arguments", [(0,), (-1,), (2, 0), (2, 1, -2), (1.5,), (None,), (2, "1"), (2, 1, None), (True,)], ids=str
)
def test_sizes_that_are_no_integers_above_zero_are_refused(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(gp.PlanError, match=r"window needs (.* >= 1|an integer)"):
        D.range(5).window(*arguments)


def test_datasets_are_no_arrays() -> None:
    windows = D.range(5).window(2)

    for use, text in (
        (windows.as_numpy_iterator, "as_numpy_iterator needs arrays.* got a dataset of int64"),
        (lambda: list(D.from_generator(lambda: iter([1, 2])).window(2).as_numpy_iterator()), "as_numpy_iterator needs"),
        (lambda: list(windows.map(lambda w: w.take(1)).batch(2)), "batch needs arrays"),  # known by the first element
        (lambda: windows.batch(2), r"batch needs arrays.* flat_map\(lambda w: w"),
        (lambda: windows.padded_batch(2), r"batch needs arrays.* flat_map\(lambda w: w"),
        (lambda: windows.ragged_batch(2), r"batch needs arrays.* flat_map\(lambda w: w"),
    ):
        with pytest.raises(TypeError, match=text):
            use()
    with pytest.raises(ValueError, match="leaves with a first dimension, got the scalar dataset of int64"):
        windows.unbatch()
    with pytest.raises(ValueError, match="from_tensor_slices needs arrays with a first dimension"):
        D.from_tensor_slices(D.range(3))


# ---- keys and lengths beyond int64

LARGE = np.array([2**64 - 1, 3, 2**64 - 1], np.uint64)


def noted(sizes: list[Any], key: Any) -> int:
    sizes.append(key)
    return 2


def test_keys_are_any_integers() -> None:
    numbers = D.from_tensor_slices(LARGE)
    groups = numbers.group_by_window(lambda x: x, lambda k, d: d.batch(2).map(lambda x: (k, x)), 2)
    sizes: list[Any] = []
    sized = numbers.group_by_window(lambda x: x, lambda k, d: d.batch(2), window_size_func=lambda k: noted(sizes, k))

    assert run(groups) == [(2**64 - 1, [2**64 - 1] * 2), (3, [3])]
    assert {key.dtype for key, _ in groups} == {np.dtype(np.uint64)}
    assert run(sized) == [[2**64 - 1] * 2, [3]]
    assert [int(key) for key in sizes] == [2**64 - 1, 3]


# ---- rebatch: batches cut anew, to one size or to several in turn


@pytest.mark.parametrize(
    ("sizes", "rows"),
    [(4, 4), (2, 2), (1, 1), ([2, 2], 2), (3, None), (8, None), ([2, 1], None), ([2, 3, 4], None)],
    ids=str,
)
def test_batches_that_divide_have_no_short_one(sizes: Any, rows: int | None) -> None:
    full = D.from_tensor_slices({"x": np.zeros((12, 5), np.float32), "y": np.arange(12)}).batch(4, drop_remainder=True)
    d = full.rebatch(sizes)

    assert d.element_spec == {"x": gp.TensorSpec((rows, 5), "float32"), "y": gp.TensorSpec((rows,), "int64")}
    assert rows is None or {len(batch["y"]) for batch in d} == {rows}
    assert len(d) == d.cardinality() == len(list(d))
    less = full.map(
        lambda x: (x["x"], x["y"]), spec=(gp.TensorSpec((None, 5), "float32"), gp.TensorSpec((4,), "int64"))
    )
    assert less.rebatch(sizes).element_spec == tuple(d.element_spec.values())
    assert full.filter(lambda x: True).rebatch(sizes).element_spec == d.element_spec
    dropped = D.range(8).batch(3).rebatch(sizes, drop_remainder=True).element_spec
    assert dropped == gp.TensorSpec((sizes if isinstance(sizes, int) else rows,), "int64")
    assert d.map(lambda x: x["y"] + 1).element_spec == gp.TensorSpec((rows,), "int64")


def test_static_rows_hold_where_batches_are_lost() -> None:
    pairs = D.range(12).batch(2, drop_remainder=True)
    full = pairs.map(fails_where(lambda x: x[0] in (2, 6)), spec=gp.TensorSpec((2,), "int64")).batch(2).unbatch()
    for on_error in ("skip", "raise"):
        d = full.rebatch(1).with_options(gp.Options(on_error=on_error))

        assert d.element_spec == gp.TensorSpec((1,), "int64")
        assert [x for x in outcomes(d) if x != "error"] == [[0], [1], [4], [5], [8], [9], [10], [11]]


def test_random_ops_behind_it_draw_for_the_rows_they_would_have_without() -> None:
    images = D.from_tensor_slices(np.arange(6 * 8 * 8, dtype=np.uint8).reshape(6, 8, 8, 1))

    def crops(d: gp.Dataset) -> Any:
        return run(d.map(lambda x: ops.random_crop(x, (2, 2))).unbatch().iterator(epoch=0))

    assert crops(images.batch(4).rebatch(3)) == crops(images.batch(6))


def test_a_bad_batch_is_raised_and_the_rest_is_cut() -> None:
    dataset = D.range(8).batch(2).map(fails_where(lambda x: x[0] == 2)).rebatch(3)

    assert outcomes(dataset) == ["error", "error", [0, 1, 4], [5, 6, 7]]  # one for each row, as with unbatch
    assert run(dataset.with_options(gp.Options(on_error="skip"))) == [[0, 1, 4], [5, 6, 7]]


def test_the_sources_of_unknown_specs_are_cut_too() -> None:
    d = D.from_generator(lambda: iter([np.arange(3), np.arange(2)]))

    assert run(d.rebatch(2)) == [[0, 1], [2, 0], [1]]
    with pytest.raises(gp.DataError, match="leaves with equal numbers of rows"):
        list(D.from_generator(lambda: iter([1, 2])).rebatch(2))


def test_rows_that_do_not_stack_name_the_method() -> None:
    d = D.from_tensors(np.zeros((1, 2))).concatenate(D.from_tensors(np.zeros((1, 3))))

    with pytest.raises(gp.DataError, match="rebatch: needs elements of one shape"):
        list(d.rebatch(2))


@pytest.mark.parametrize("size", [0, [2, 0], [-1], np.array([1, 0]), [], 1.5, None, "2", [1.5], [[1]], True], ids=str)
def test_a_size_that_is_no_integer_above_zero_is_refused_where_it_is_written(size: Any) -> None:
    with pytest.raises(gp.PlanError, match="rebatch needs"):
        D.range(4).batch(2).rebatch(size)


def test_elements_without_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="rebatch needs leaves with a first dimension, got the scalar int64"):
        D.range(4).rebatch(2)
    with pytest.raises(ValueError, match="rebatch needs leaves of one length, got 2 and 3"):
        D.from_tensors((np.zeros(2), np.zeros(3))).rebatch(2)


def test_endless_input_stays_endless_where_batches_have_a_known_size() -> None:
    assert D.range(4).batch(2, True).repeat().rebatch(3).cardinality() == gp.INFINITE_CARDINALITY
    assert D.range(4).batch(2).repeat().rebatch(3).cardinality() == gp.UNKNOWN_CARDINALITY
    assert run(D.range(4).batch(2).repeat().rebatch(3).take(2)) == [[0, 1, 2], [3, 0, 1]]
