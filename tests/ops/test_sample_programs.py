"""Random programs of ops that move pixels: boxes and keypoints stay on what they were drawn on, within a pixel."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from gpupipe import Dataset, Options, ops
from gpupipe.spec import flatten
from gpupipe.transform.machine import has_dali
from tests.ops.painted import MOVES, Move, check_image, drawn, program

BLOCKS, PROGRAMS = 5, 100
"""Together 500 programs of up to 4 ops."""


def through(moves: list[Move], sample: Any, clip: bool) -> Any:
    """A Sample after some ops. Boxes that are not clipped keep what a crop cut off, and no pad brings back."""
    for move in moves:
        sample = move.call(sample)
        sample = ops.clip_boxes(sample) if clip else sample
    return sample


@pytest.mark.parametrize("block", range(BLOCKS))
def test_what_was_drawn_stays_in_its_box_and_at_its_keypoint(block: int) -> None:
    compared, used = 0, Counter[str]()
    for number in range(PROGRAMS):
        rng = np.random.default_rng([block, number])
        moves, sample = program(rng, int(rng.integers(1, 5))), drawn(rng)
        used.update(move.name for move in moves)
        try:
            compared += check_image(through(moves, sample, True), all(move.exact for move in moves))
            if number % 4 == 0:
                check_image(through(moves, sample, False), False, False)
        except AssertionError as error:
            raise AssertionError(f"program {block}, {number}: {', '.join(move.name for move in moves)}") from error
    assert compared > PROGRAMS
    assert len(used) > 20


def test_programs_have_every_op_that_can_be_seen_in_them() -> None:
    names = {move.name for number in range(300) for move in program(np.random.default_rng(number), 4)}

    assert names == {name for name, move in MOVES.items() if move.drawn}


@pytest.mark.parametrize("number", range(8))
def test_executors_move_boxes_by_whole_programs_alike(number: int) -> None:
    rng = np.random.default_rng([99, number])
    moves = program(rng, 3)
    parts = [drawn(rng) for _ in range(4)]
    columns = zip(*(flatten(part)[0] for part in parts), strict=True)
    batch = flatten(parts[0])[1].unflatten([np.stack(column) for column in columns])
    chain = Dataset.from_tensor_slices(batch).map(lambda s: through(moves, s, True), traced=True)
    exact = all(move.exact for move in moves)

    rows = list(chain.with_options(Options(device="cpu", backend="numpy")))
    for row in rows:
        check_image(row, exact)
    if has_dali():
        for row, other in zip(rows, chain.with_options(Options(device="cpu", backend="dali")), strict=True):
            check_image(other, exact)
            for name in ("boxes", "labels", "keypoints"):
                np.testing.assert_array_equal(getattr(row, name), getattr(other, name))
