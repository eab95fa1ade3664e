"""Dataset.check(): slips that are certain from the plan, each on the user's line; and silence where they are not."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


def _masks() -> Dataset:
    return Dataset.from_tensor_slices(IMAGES[..., :1])


def _paths(folder: str, count: int = 9) -> Dataset:
    return Dataset.from_tensor_slices([f"{folder}/{i}" for i in range(count)])


def _both(chain: Callable[[Dataset], Dataset]) -> Dataset:
    return Dataset.zip((chain(_paths("a")), chain(_paths("b"))))


def _drawn_from(folder: str, seed: int) -> Dataset:
    return Dataset.sample_from_datasets([_paths(folder), _paths(folder)], seed=seed)


def _inner(paths: Dataset) -> Dataset:
    return paths.flat_map(lambda path: Dataset.range(3).shuffle(3, seed=1))


def _noise(x: object, rng: np.random.Generator) -> float:
    return rng.random()


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
    **{
        f"zip: {name}": (make, ["zip_of_shuffles"])
        for name, make in {
            "no seeds": lambda: _both(lambda x: x.shuffle(9)),
            "no seeds, ALL": lambda: _both(lambda x: x.shuffle(gp.ALL)),
            "other seeds": lambda: Dataset.zip((_paths("a").shuffle(9, 1), _paths("b").shuffle(9, 2))),
            "one seed": lambda: Dataset.zip((_paths("a").shuffle(9, 1), _paths("b").shuffle(9))),
            "a buffer and ALL": lambda: Dataset.zip((_paths("a").shuffle(9, 1), _paths("b").shuffle(gp.ALL, 1))),
            "other buffers": lambda: Dataset.zip((_paths("a").shuffle(5, 1), _paths("b").shuffle(6, 1))),
            "one order and several": lambda: Dataset.zip((_paths("a").shuffle(9, 1), _paths("b").shuffle(9, 1, False))),
            "a second shuffle": lambda: Dataset.zip(
                (_paths("a").shuffle(9, 1).shuffle(9, 1), _paths("b").shuffle(9, 1))
            ),
            "one of them only": lambda: Dataset.zip((_paths("a").shuffle(9, seed=1), _paths("b"))),
            "the third input": lambda: Dataset.zip((Dataset.counter(), _paths("a").shuffle(9), _paths("b").shuffle(9))),
            "maps and repeats around": lambda: _both(lambda x: x.map(len).shuffle(9).repeat().batch(2)),
            "a zip inside": lambda: Dataset.zip(
                (Dataset.zip((_paths("a").shuffle(9), Dataset.counter())), _paths("b").shuffle(9))
            ),
            "drawn from several": lambda: Dataset.zip((_drawn_from("a", 1), _drawn_from("b", 2))),
            "inner datasets": lambda: _both(lambda x: x.flat_map(lambda p: Dataset.range(3).shuffle(3))),
            "inner datasets of other names": lambda: Dataset.zip(
                tuple(_inner(Dataset.from_tensor_slices([f"{x}{i}.{x}" for i in range(9)])) for x in "ab")
            ),
            "a dataset and itself in one order": lambda: Dataset.zip(
                (_paths("a").shuffle(9, 1), _paths("a").shuffle(9, 1))
            ),
            "kept by class": lambda: _both(lambda x: x.rejection_resample(lambda p: 0, [1.0])),
        }.items()
    },
    **{
        f"zip: {name}": (make, ["zip_of_random_ops"])
        for name, make in {
            "random ops": lambda: Dataset.zip((_images().map(_flipped), _masks().map(_flipped))),
            "random ops of one seed": lambda: Dataset.zip(
                tuple(x.map(lambda i: ops.random_crop(i, (3, 3), seed=7)) for x in (_images(), _masks()))
            ),
            "random ops of one seed on one dataset": lambda: Dataset.zip(
                tuple(_images().map(lambda i: ops.random_crop(i, (3, 3), seed=7)) for _ in range(2))
            ),
        }.items()
    },
    "zip: random Python": (
        lambda: _both(lambda x: x.map(lambda p, rng: rng.random(), rng=True)),
        ["zip_of_random_ops"],
    ),
    **{
        f"zip, fine: {name}": (make, [])
        for name, make in {
            "equal seeds": lambda: _both(lambda x: x.shuffle(9, seed=1)),
            "equal seeds, ALL": lambda: _both(lambda x: x.shuffle(gp.ALL, seed=1)),
            "equal seeds, smaller buffer": lambda: _both(lambda x: x.shuffle(5, seed=1).repeat(2)),
            "buffers of everything": lambda: Dataset.zip((_paths("a").shuffle(9, 1), _paths("b").shuffle(99, 1))),
            "one order without a seed": lambda: _both(lambda x: x.shuffle(9, reshuffle_each_iteration=False)),
            "equal seeds, twice": lambda: _both(lambda x: x.shuffle(9, seed=1).map(len).shuffle(9, seed=2)),
            "equal seeds in inner datasets": lambda: _both(_inner),
            "nothing random": lambda: _both(lambda x: x),
            "numbers": lambda: Dataset.zip((_paths("a").shuffle(9), Dataset.counter())),
            "a range": lambda: Dataset.zip((_paths("a").shuffle(9), Dataset.range(9))),
            "random numbers": lambda: Dataset.zip((_paths("a").shuffle(9), Dataset.random().take(9))),
            "a constant": lambda: Dataset.zip((_paths("a").shuffle(9), Dataset.from_tensors(1).repeat())),
            "other sizes": lambda: Dataset.zip((_paths("a").shuffle(9), _paths("b", 30).shuffle(30).repeat())),
            "one shuffled, other sizes": lambda: Dataset.zip((_paths("a").shuffle(9), _paths("b", 30))),
            "a dataset and itself": lambda: Dataset.zip((_paths("a"), _paths("a").shuffle(9))),
            "two views of one order": lambda: Dataset.zip(
                tuple(_paths("a").shuffle(9, 1).map(_noise, rng=True) for _ in range(2))
            ),
            "a dataset in two orders": lambda: Dataset.zip((_paths("a").shuffle(9), _paths("a").shuffle(9))),
            "shuffled behind": lambda: _both(lambda x: x).shuffle(9),
            "noise of numbers": lambda: Dataset.zip(
                (_paths("a").map(_noise, rng=True), Dataset.range(9).map(_noise, rng=True))
            ),
        }.items()
    },
    "zip, fine: two views of one dataset": (
        lambda: Dataset.zip((_images().map(_flipped), _images().map(_flipped))).prefetch(1),
        [],
    ),
    "zip, fine: random ops in one input": (
        lambda: Dataset.zip((_images().map(_flipped), _masks())).prefetch(1),
        [],
    ),
    "zip, fine: one call over both": (
        lambda: Dataset.zip((_images(), _masks())).map(lambda a, b: ops.random_crop((a, b), (3, 3))).prefetch(1),
        [],
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


def test_a_zip_of_shuffles_names_both_and_the_line_of_the_zip() -> None:
    a = _paths("a").shuffle(9, seed=1)
    b = _paths("b").shuffle(9, seed=2)
    here = inspect.currentframe()
    assert here is not None
    zipped = Dataset.zip((a, b))

    (finding,) = zipped.check()

    line = here.f_lineno
    assert finding.line == f"{__file__}:{line - 4}"
    assert finding.text == (
        f"two inputs are in random orders of their own (shuffle(9, seed=1) at {__file__}:{line - 8}, and "
        f"shuffle(9, seed=2) at {__file__}:{line - 7}): the parts of a pair do not belong together; zip first, then "
        "shuffle: Dataset.zip((a, b)).shuffle(n), or write equal seeds and buffer sizes into both inputs"
    )


def test_a_zip_of_files_that_are_listed_apart_names_list_files(tmp_path: Path) -> None:
    for name in ("img", "mask"):
        (tmp_path / name).mkdir()
        for i in range(3):
            (tmp_path / name / str(i)).touch()

    def texts(**named: Any) -> list[str]:
        listed = [Dataset.list_files(str(tmp_path / name / "*"), **named) for name in ("img", "mask")]
        return [finding.text for finding in Dataset.zip(tuple(listed)).check()]

    assert texts(seed=1) == texts(shuffle=False) == []
    assert texts()[0].count("list_files(seed=None) at ") == 2


def test_a_zip_of_random_ops_names_both_and_the_joint_form() -> None:
    zipped = Dataset.zip((_images().map(_flipped), _masks().map(_flipped))).prefetch(1)

    (finding,) = zipped.check()

    assert finding.text == (
        f"two inputs have random ops of their own (random_flip_left_right at {finding.line}, and "
        f"random_flip_left_right at {finding.line}), which draw apart: if the parts of a pair belong together, zip "
        "first, then map one call over both, such as ops.random_crop((image, mask), size)"
    )


def test_hundreds_of_zips_are_looked_at_at_once() -> None:
    zipped = _paths("a").shuffle(9, seed=1)
    for i in range(300):
        zipped = Dataset.zip((zipped, _paths(str(i)).shuffle(9, seed=1)))

    assert zipped.check() == ()
