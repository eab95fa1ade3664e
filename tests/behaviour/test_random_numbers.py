"""Random numbers are those of Philox4x32-10: known answers, and the same in any number at a time."""

from __future__ import annotations

import numpy as np
import pytest

from gpupipe.random import BatchRng, one_word, philox, philox_key

KNOWN = (
    ((0,) * 4, (0,) * 2, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
)
"""Counter, key and words of the known answers that come with Random123 (Salmon et al., SC 2011)."""


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_known_answers(counter: tuple[int, ...], key: tuple[int, int], words: tuple[int, ...]) -> None:
    assert philox(np.array([counter], np.uint64), key).tolist() == [list(words)]
    if counter[2:] == (0, 0):
        assert one_word(key, counter[0] | counter[1] << 32, 0) == words[0]


@pytest.mark.parametrize("count", [499, 500, 501, 7_999, 8_000, 8_001, 16_385])
def test_words_do_not_depend_on_how_many_are_drawn_at_once(count: int) -> None:
    counter = np.random.default_rng(count).integers(0, 1 << 32, (count, 4)).astype(np.uint64)
    before = counter.copy()
    key = philox_key(7, 3)

    drawn = philox(counter, key)

    assert (counter == before).all()
    for row in (0, 1, 498, 499, 500, count - 2, count - 1):
        if row < count:
            assert (drawn[row] == philox(counter[row : row + 1], key)[0]).all()
    assert len(np.unique(drawn[:, 0])) > 0.99 * count


def test_a_batch_draws_what_each_of_its_elements_draws_alone() -> None:
    keys = np.random.default_rng(0).integers(0, 1 << 63, 300).astype(np.uint64)
    rng = BatchRng(5, 2, keys, site=9)
    first, second = rng.words(22), rng.words(1)

    for row in (0, 128, 299):
        alone = BatchRng(5, 2, keys[row : row + 1], site=9)
        assert (alone.words(22)[0] == first[row]).all()
        assert (alone.words(1)[0] == second[row]).all()
        assert one_word(philox_key(5, 2), int(keys[row]), 9) == first[row, 0]
