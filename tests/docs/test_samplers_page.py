"""The page of samplers: what its chains give."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from tests.docs.recipes import COUNT
from tests.docs.test_pages import blocks, data, run  # noqa: F401


def rows(ds: Any, epoch: int = 0) -> list[tuple[bytes, int]]:
    """The rows of all batches: pixels, label."""
    batches = list(ds.iterator(epoch=epoch))
    return [(image.tobytes(), int(label)) for x, y in batches for image, label in zip(x, y, strict=True)]


def test_the_chains_of_the_page_give_what_it_says(data: None) -> None:  # noqa: F811
    pytest.importorskip("torch")
    names = run(blocks("samplers"))
    labels = names["labels"]
    assert len(labels) == COUNT

    for name in ("balanced", "balanced_by_torch", "by_iterations", "three_views", "easy_first", "hard_twice"):
        first, second = rows(names[name]), rows(names[name], 1)
        assert first != second and first == rows(names[name]), name
        assert len({pixels for pixels, _ in first}) == len(first), name  # no crop comes twice
    assert len(names["balanced_by_torch"]) == COUNT // 8
    assert len(rows(names["by_iterations"])) == 96

    for x, y in names["triplets"].iterator(epoch=0):
        assert sorted(Counter(y.tolist()).values()) == [4, 4] and len({image.tobytes() for image in x}) == 8
    assert len(names["triplets"]) == 5 == len(list(names["triplets"]))

    in_threes = [label for _, label in rows(names["three_views"])]
    assert in_threes[::3] == in_threes[1::3] == in_threes[2::3] and len(in_threes) == 3 * COUNT
    # Weights exp(-5 d) over 24 steps of d from 0 to 1 have a mean of 0.19; one epoch's has a deviation of 0.04.
    assert abs(np.mean(names["difficulty"][names["curriculum"](0)]) - 0.19) < 5 * 0.04
    assert [int(label) for _, label in names["subset"].iterator(epoch=0)] == [1] * int((labels == 1).sum())
    assert len(names["train"]) + len(names["validation"]) == COUNT
