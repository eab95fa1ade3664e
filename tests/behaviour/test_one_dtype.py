"""One dtype per leaf: numbers never become byte strings, and integers never become floats, on the way into a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, TensorSpec
from gpupipe.errors import FunctionError, PlanTypeError, ShapeError
from gpupipe.flow.batching.stack import pad_rows, stack_rows
from gpupipe.flow.element import Stream
from gpupipe.spec import byte_array
from tests.behaviour.model import outcomes


def yields(*values: Any, **signature: Any) -> Dataset:
    return Dataset.from_generator(lambda: iter(values), **signature)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ((1, "a"), "bytes after int64"),
        ((1, 1.5), "float64 after int64"),
        ((b"a", 1), "int64 after bytes"),
        (([1, 2], 1), r"int64 after int64\[\?\]"),
        ((np.array([1, 2]), np.array([b"a"], object)), r"bytes\[1\] after int64\[\?\]"),
        (((1, 2.5), (1.5, 2.5)), r"\(float64, float64\) after \(int64, float64\)"),
    ],
)
def test_the_first_element_of_a_generator_fixes_dtype_and_rank(values: Any, text: str) -> None:
    chain = yields(*values, values[0])

    found = outcomes(chain)

    assert (len(found), found[1], found[2]) == (3, "error", found[0])
    with pytest.raises(
        FunctionError, match=rf"index 1: from_generator: needs elements of one dtype and rank, got {text}"
    ):
        list(chain)
    assert outcomes(chain.batch(2))[0] == "error"


def test_sizes_may_differ_every_pass_is_checked_and_an_open_signature_is_closed_by_the_first_element() -> None:
    assert outcomes(yields([1], [1, 2], 3).repeat(2)) == 2 * [[1], [1, 2], "error"]
    assert outcomes(yields(1, [2, 3], 2.5, output_signature=TensorSpec(None, None))) == [1, [2, 3], "error"]


def test_inner_datasets_are_of_one_dtype() -> None:
    chain = Dataset.range(2).flat_map(lambda i: yields([1, 1.5][int(i)]))

    with pytest.raises(PlanTypeError, match="flat_map needs datasets of one dtype, got float64 after int64"):
        list(chain)


STREAM = Stream(1, "numbers")
MIXED: list[tuple[list[Any], str]] = [
    ([np.int64(1), np.int64(2), np.float64(3)], "float64 after int64"),
    ([np.float64(1), np.int64(2), np.int64(3)], "int64 after float64"),
    ([np.int64(1), np.True_], "bool after int64"),
    ([b"a", np.int64(1)], "int64 after bytes"),
    ([np.int64(1), b"a"], "bytes after int64"),
    ([np.zeros(2), np.zeros(2, int)], r"int64\[2\] after float64\[2\]"),
    ([np.zeros(2), gp.Ragged(np.zeros(2), [0, 2]).values.astype("float32")], r"float32\[2\] after float64\[2\]"),
    ([byte_array([b"a", b""]), np.zeros(2)], r"float64\[2\] after bytes\[2\]"),
]


@pytest.mark.parametrize(("column", "text"), MIXED)
def test_rows_of_several_dtypes_do_not_stack(column: list[Any], text: str) -> None:
    elements: list[Any] = [((row,), STREAM, 10 + i) for i, row in enumerate(column)]

    for stack in (stack_rows, lambda rows, of, leaf: pad_rows(rows, of, leaf, None, 0)):
        with pytest.raises(ShapeError, match=rf"one dtype for image, got {text} \(numbers at index 10\)"):
            stack(column, elements, "image")


def test_rows_of_one_dtype_stack_whatever_class_they_are_of() -> None:
    column = [np.int64(1), np.longlong(2), np.array(3)]
    elements: list[Any] = [((row,), STREAM, 0) for row in column]

    assert stack_rows(column, elements, "").tolist() == [1, 2, 3]
    assert stack_rows([b"a", memoryview(b"b")], elements, "").tolist() == [b"a", b"b"]


BATCHES: list[Callable[[Dataset], Dataset]] = [
    lambda d: d.batch(2),
    lambda d: d.padded_batch(2),
    lambda d: d.ragged_batch(2),
    lambda d: d.batch(1).rebatch(2),
    lambda d: d.bucket_by_sequence_length(lambda x: 1, [5], [2, 2]),
    lambda d: d.bucket_by_sequence_length(lambda x: 1, [5], [2, 2], no_padding=True),
]


@pytest.mark.parametrize("batched", BATCHES)
def test_every_way_to_make_batches_looks_at_dtypes(batched: Callable[[Dataset], Dataset]) -> None:
    passes = iter([np.array([1]), np.array([1.5])])
    chain = Dataset.range(1).map(lambda i: next(passes), traced=False).repeat(2)

    with pytest.raises(ShapeError, match=r"one dtype, got float64(\[1\])? after int64"):
        list(batched(chain))


# ---- byte strings in padded batches are byte strings, as in other batches

WORDS = [b"a", b"", b"ccc"]
OF_WORDS: dict[str, Callable[[Dataset], Dataset]] = {
    "batch": lambda ds: ds.batch(2),
    "padded_batch": lambda ds: ds.padded_batch(2),
    "bucket_by_sequence_length": lambda ds: ds.bucket_by_sequence_length(lambda word, i: 0, [1], [2, 1]),
}


@pytest.mark.parametrize("batched", OF_WORDS.values(), ids=list(OF_WORDS))
def test_byte_strings_come_out_of_a_batch_as_they_went_in(batched: Callable[[Dataset], Dataset]) -> None:
    ds = batched(Dataset.from_tensor_slices((np.array(WORDS, object), [0, 1, 2])))

    words = [word for batch, _ in ds for word in batch]
    rows = [word for word, _ in ds.unbatch()]

    assert words == rows == WORDS
    assert {type(word) for word in [*words, *rows]} == {bytes}


def test_rows_of_byte_strings_are_padded_with_byte_strings() -> None:
    rows = Dataset.from_list([np.array([b"a", b"b"], object), np.array([b"c"], object)])

    (batch,) = rows.padded_batch(2, padding_values=b"-")

    assert batch.tolist() == [[b"a", b"b"], [b"c", b"-"]]
    assert {type(word) for word in batch.flat} == {bytes}
