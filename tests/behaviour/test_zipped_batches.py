"""zip over datasets that were batched before: a map over both sides, and rows that stay paired when one is bad."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpupipe import Dataset, Options, ops
from gpupipe.ops._shared.samples import encoded
from gpupipe.transform.machine import has_dali
from tests.behaviour.model import fails_where, outcomes, run

COUNT, BAD = 12, 2


@pytest.mark.parametrize("size", [1, 2, 3, 4, 12])  # a batch of as many rows as there are hidden columns among them
def test_a_traced_map_over_both_sides(size: int) -> None:
    left, right = Dataset.range(12).batch(size), Dataset.range(100, 112).batch(size)
    starts = range(0, 12, size)

    got = run(Dataset.zip(left, right).map(lambda x, y: (x + 1, y + 1), traced=True))

    assert got == [([*range(i + 1, i + size + 1)], [*range(i + 101, i + size + 101)]) for i in starts]


# ---- a bad row on one side


def _image(data: Any) -> Any:
    return ops.resize(ops.decode_png(data, channels=3), (8, 8))


def _encoded() -> Dataset:
    images = [encoded(np.full((9, 9, 3), i, np.uint8), "PNG") for i in range(COUNT)]
    return Dataset.from_tensor_slices([*images[:BAD], b"junk", *images[BAD + 1 :]])


def _images() -> Dataset:
    return _encoded().map(_image)


def _pairs(chain: Dataset, backend: str, on_error: str) -> list[Any]:
    """For each `next` the (image, label) pairs in it, or "error"."""
    if backend == "dali" and not has_dali():
        pytest.skip("DALI is not installed")
    options = Options(device="cpu", backend=backend, on_error=on_error)  # type: ignore[arg-type]
    return [x if x == "error" else _paired(*x) for x in outcomes(chain.with_options(options))]


def _paired(images: Any, labels: Any) -> list[Any]:
    values = np.atleast_1d(np.asarray(images)[..., 0, 0, 0].astype(int)).tolist()
    return [*zip(values, np.atleast_1d(labels).tolist(), strict=True)]


SIDES: dict[str, Callable[[], Dataset]] = {
    "batch": lambda: _images().batch(4),
    "map of a batch": lambda: _encoded().batch(4).map(_image),
    "padded batch": lambda: _images().padded_batch(4),
    "cache": lambda: _images().batch(4).cache(),
    "batches of batches": lambda: _images().batch(2).unbatch().batch(4),
    "prefetch": lambda: _images().batch(4).prefetch(2),
}


@pytest.mark.parametrize("backend", ["numpy", "dali"])
@pytest.mark.parametrize("side", SIDES.values(), ids=SIDES.keys())
def test_a_batch_with_a_bad_row_is_missing_or_one_stands_in(side: Callable[[], Dataset], backend: str) -> None:
    chain = Dataset.zip(side(), Dataset.range(COUNT).batch(4))
    rest = [[(i, i) for i in range(start, start + 4)] for start in (4, 8)]

    assert _pairs(chain, backend, "skip") == rest
    assert _pairs(chain, backend, "raise") == ["error", *rest]
    assert _pairs(chain, backend, "replace") == [[(0, 0), (1, 1), (1, 2), (3, 3)], *rest]


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("backend", ["numpy", "dali"])
def test_rows_of_an_unbatched_side_keep_their_labels(backend: str, cached: bool) -> None:
    side = _images().batch(4)
    chain = Dataset.zip((side.cache() if cached else side).unbatch(), Dataset.range(COUNT))
    rest = [[(i, i)] for i in range(4, COUNT)]

    assert _pairs(chain, backend, "skip") == rest
    assert _pairs(chain, backend, "raise") == ["error"] * 4 + rest


def test_labels_of_any_side_stay_paired() -> None:
    failing = Dataset.range(8).map(fails_where(lambda x: x == 5), traced=False)
    chain = Dataset.zip(Dataset.range(8).batch(3), failing.batch(3))

    assert outcomes(chain) == [([0, 1, 2], [0, 1, 2]), "error", ([6, 7], [6, 7])]
    assert run(chain.with_options(Options(on_error="skip"))) == [([0, 1, 2], [0, 1, 2]), ([6, 7], [6, 7])]
