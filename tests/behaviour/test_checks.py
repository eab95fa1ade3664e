"""Dataset.check(): slips that are certain from the plan, each on the user's line; and silence where they are not."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, ops
from gpupipe.optimize.checks import CHECKS

IMAGES = np.zeros((8, 6, 6, 3), np.uint8)


def _images() -> Dataset:
    return Dataset.from_tensor_slices(IMAGES)


def _flipped(image: object) -> object:
    return ops.random_flip_left_right(image)


SLIPS: dict[str, tuple[Callable[[], Dataset], list[str]]] = {
    "shuffle, then repeat": (lambda: Dataset.range(9).shuffle(9).repeat().batch(2), []),
    "repeat, then shuffle": (lambda: Dataset.range(9).repeat().shuffle(9), ["repeat_before_shuffle"]),
    "repeat, map, prefetch, shuffle": (
        lambda: Dataset.range(9).repeat(3).map(lambda x: x + 1).prefetch(1).shuffle(9),
        ["repeat_before_shuffle"],
    ),
    "repeat once, then shuffle": (lambda: Dataset.range(9).repeat(1).shuffle(9), []),
    "repeat of the files, shuffled records": (
        lambda: Dataset.range(9).repeat().interleave(lambda x: Dataset.range(x)).shuffle(9),
        ["repeat_before_shuffle"],
    ),
    "batch, then shuffle": (lambda: Dataset.range(9).batch(2).shuffle(9), ["batch_before_shuffle"]),
    "batch, unbatch, shuffle": (lambda: Dataset.range(9).batch(2).unbatch().shuffle(9), []),
    "a shuffle of one": (lambda: Dataset.range(9).shuffle(1), ["small_shuffle"]),
    "a shuffle of one of one": (lambda: Dataset.range(1).shuffle(1), []),
    "a shuffle smaller than a batch": (lambda: Dataset.range(900).shuffle(16).batch(64), ["small_shuffle"]),
    "a shuffle as large as a batch": (lambda: Dataset.range(900).shuffle(64).batch(64), []),
    "a shuffle that holds everything": (lambda: Dataset.range(9).shuffle(16).batch(64), []),
    "shuffle, then cache": (lambda: Dataset.range(9).shuffle(9).cache(), ["cache_after_shuffle"]),
    "one order, then cache": (lambda: Dataset.range(9).shuffle(9, reshuffle_each_iteration=False).cache(), []),
    "shuffle, cache, shuffle": (lambda: Dataset.range(9).shuffle(9).cache().shuffle(9), []),
    "cache, then shuffle": (lambda: Dataset.range(9).cache().shuffle(9), []),
    "random, then cache": (lambda: _images().map(_flipped).cache().prefetch(1), ["random_before_cache"]),
    "cache, then random": (lambda: _images().cache().map(_flipped).prefetch(1), []),
    "shards of other numbers of batches": (lambda: Dataset.range(255).shard(2, 1).batch(128, True), ["uneven_shards"]),
    "shards of other sizes, as many batches": (lambda: Dataset.range(255).shard(2, 1).batch(128), []),
    "even shards": (lambda: Dataset.range(255).shard(2, 1, even="drop").batch(128, True), []),
    "shards that do not end": (lambda: Dataset.range(255).repeat().shard(2, 1).batch(128, True).take(5), []),
    "shards that are not counted": (lambda: Dataset.range(9).filter(lambda x: x > 2).shard(2, 1).batch(3), []),
    "shards that are no batches": (lambda: Dataset.range(9).shard(2, 1).map(lambda x: x + 1), []),
    "shuffle, then take": (lambda: Dataset.range(9).shuffle(9).take(3), ["split_of_a_shuffle"]),
    "shuffle, map, then skip": (
        lambda: Dataset.range(9).shuffle(9).map(lambda x: x + 1).skip(3),
        ["split_of_a_shuffle"],
    ),
    "shuffle, then take more than there is": (lambda: Dataset.range(9).shuffle(9).take(9).take(-1).skip(0), []),
    "one order, then take": (lambda: Dataset.range(9).shuffle(9, reshuffle_each_iteration=False).take(3), []),
    "shuffle, repeat, take so many steps": (lambda: Dataset.range(9).shuffle(9).repeat().take(100), []),
    "shuffle, cache, take": (lambda: Dataset.range(9).shuffle(9).cache().take(3), ["cache_after_shuffle"]),
    "all shuffled, then a slice": (lambda: Dataset.range(9).shuffle(gp.ALL)[:4], ["split_of_a_shuffle"]),
    "a split": (lambda: Dataset.range(9).split([0.5, 0.5], seed=1)[0].shuffle(9), []),
    "images without prefetch": (lambda: _images().map(_flipped).batch(2), ["no_prefetch"]),
    "images with prefetch": (lambda: _images().map(_flipped).batch(2).prefetch(1), []),
    "images with prefetch and options": (
        lambda: _images().map(_flipped).batch(2).prefetch(1).with_options(gp.Options(seed=1)),
        [],
    ),
    "two maps of images without prefetch": (lambda: _images().map(_flipped).map(_flipped).batch(2), ["no_prefetch"]),
    "numbers without prefetch": (lambda: Dataset.range(9).map(lambda x: x + 1).batch(2), []),
    "several at once": (
        lambda: Dataset.range(900).repeat().batch(2).shuffle(1).take(3),
        ["repeat_before_shuffle", "batch_before_shuffle", "small_shuffle", "split_of_a_shuffle"],
    ),
    "a zip hides what is below": (lambda: Dataset.zip(Dataset.range(9).repeat(), Dataset.range(9)).shuffle(9), []),
}


@pytest.mark.parametrize("name", SLIPS)
def test_a_chain_has_these_findings(name: str) -> None:
    make, expected = SLIPS[name]

    assert [finding.rule for finding in make().check()] == expected


def test_every_check_has_a_chain_that_it_finds() -> None:
    assert {rule.__name__ for rule in CHECKS} == {rule for _, rules in SLIPS.values() for rule in rules}


def test_a_finding_names_both_lines_and_explain_shows_it() -> None:
    repeated = Dataset.range(9).repeat()
    here = inspect.currentframe()
    assert here is not None
    chain = repeated.shuffle(9)
    line = here.f_lineno

    (finding,) = chain.check()

    assert finding.line == f"{__file__}:{line - 1}"
    assert f"the repeat at {__file__}:{line - 4}" in finding.text
    assert str(finding) == f"{finding.line}: {finding.text}"
    assert f"worth a look\n  {finding}" in chain.explain()
    assert "worth a look" not in repeated.explain()


def test_a_finding_is_neither_warned_of_nor_logged(caplog: pytest.LogCaptureFixture) -> None:
    chain = Dataset.range(4).repeat(2).shuffle(1)

    assert len(chain.check()) == 2
    assert list(chain) == [0, 1, 2, 3] * 2
    assert not caplog.records
