"""Byte strings in padded batches are byte strings, as in other batches."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gpupipe import Dataset

WORDS = [b"a", b"", b"ccc"]
BATCHES: dict[str, Callable[[Dataset], Dataset]] = {
    "batch": lambda ds: ds.batch(2),
    "padded_batch": lambda ds: ds.padded_batch(2),
    "bucket_by_sequence_length": lambda ds: ds.bucket_by_sequence_length(lambda word, i: 0, [1], [2, 1]),
}


@pytest.mark.parametrize("batched", BATCHES.values(), ids=list(BATCHES))
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
