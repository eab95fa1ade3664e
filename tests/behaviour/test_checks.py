"""Dataset.check(): slips that are certain from the plan, each on the user's line; and silence where they are not."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import gpupipe as gp
from gpupipe import Dataset, ops
from gpupipe.comparison.chain import training_chain
from gpupipe.comparison.source import Source
from gpupipe.optimize.report.checks import CHECKS
from gpupipe.transform import machine


@pytest.fixture(autouse=True)
def _of_the_plan_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a GPU adds to the findings is told in test_batches_stay.py."""
    monkeypatch.setattr(machine, "installed", lambda: (0, None))


IMAGES = np.zeros((8, 6, 6, 3), np.uint8)
CHW = np.zeros((8, 3, 6, 7), np.uint8)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def _of_streams(streams: int) -> Dataset:
    return Dataset.range(96).shuffle(gp.ALL, streams=streams, window=4).map(lambda x: x + 1)


def _at_urls() -> Dataset:
    fsspec = pytest.importorskip("fsspec")
    for i in range(2):
        fsspec.filesystem("memory").pipe(f"/checks/{i}.tfrecord", b"")
    return Dataset.list_files("memory://checks/*.tfrecord", shuffle=False)


def _images() -> Dataset:
    return Dataset.from_tensor_slices(IMAGES)


def _flipped(image: object) -> object:
    return ops.random_flip_left_right(image)


def _chw() -> Dataset:
    return Dataset.from_tensor_slices(CHW)


def _paths() -> Dataset:
    return Dataset.from_tensor_slices(["1/a.png", "2/b.png"])


def _opened(path: bytes) -> Any:
    return np.asarray(Image.open(path.decode()))


def _array(x: Any) -> Any:
    return np.zeros((300, 300), np.float32)


def _masks() -> Dataset:
    return Dataset.from_tensor_slices(IMAGES[..., :1])


def _names(folder: str, count: int = 9) -> Dataset:
    return Dataset.from_tensor_slices([f"{folder}/{i}" for i in range(count)])


def _both(chain: Callable[[Dataset], Dataset]) -> Dataset:
    return Dataset.zip((chain(_names("a")), chain(_names("b"))))


def _drawn_from(folder: str, seed: int) -> Dataset:
    return Dataset.sample_from_datasets([_names(folder), _names(folder)], seed=seed)


def _inner(paths: Dataset) -> Dataset:
    return paths.flat_map(lambda path: Dataset.range(3).shuffle(3, seed=1))


def _noise(x: object, rng: np.random.Generator) -> float:
    return rng.random()


CHAINS: dict[tuple[str, ...], dict[str, Callable[[], Dataset]]] = {
    ("repeat_before_shuffle",): {
        "repeat, then shuffle": lambda: Dataset.range(9).repeat().shuffle(9),
        "repeat of the files, shuffled records": lambda: (
            Dataset.range(9).repeat().interleave(lambda x: Dataset.range(x)).shuffle(9)
        ),
    },
    ("batch_before_shuffle",): {
        "batch, then shuffle": lambda: Dataset.range(9).batch(2).shuffle(9),
    },
    ("small_shuffle",): {
        "a shuffle of one": lambda: Dataset.range(9).shuffle(1),
        "a shuffle smaller than a batch": lambda: Dataset.range(900).shuffle(16).batch(64),
    },
    ("cache_after_shuffle",): {
        "shuffle, then cache": lambda: Dataset.range(9).shuffle(9).cache(),
    },
    ("random_before_cache",): {
        "random, then cache": lambda: _images().map(_flipped).cache().prefetch(1),
    },
    ("uneven_shards",): {
        "shards of other numbers of batches": lambda: Dataset.range(255).shard(2, 1).batch(128, True),
    },
    ("shard_of_batches",): {
        "shards of batches of a stream": lambda: Dataset.range(256).shuffle(64).batch(32).prefetch(1).shard(2, 1),
        "shards of batches that bad rows change": lambda: (
            Dataset.range(256).batch(32).shard(2, 1).with_options(gp.Options(on_error="replace"))
        ),
    },
    ("shard_over_urls",): {
        "shards of records at URLs": lambda: _at_urls().interleave(gp.TFRecordDataset).shard(2, 1),
    },
    ("streams_of_all_ranks",): {
        "ranks that do not divide the streams": lambda: _of_streams(6).batch(12).by_rank(1, 4),
        "shards that do not divide the streams": lambda: _of_streams(6).shard(4, 1, even="drop"),
    },
    ("split_of_a_shuffle",): {
        "shuffle, then take": lambda: Dataset.range(9).shuffle(9).take(3),
        "all shuffled, then a slice": lambda: Dataset.range(9).shuffle(gp.ALL)[:4],
    },
    ("no_prefetch",): {
        "images without prefetch": lambda: _images().map(_flipped).batch(2),
    },
    ("normalize_of_another_range",): {
        "torchvision's mean of bytes": lambda: _images().map(lambda x: ops.normalize(x, MEAN, STD)).prefetch(1),
        "its mean of resized bytes, in two maps": lambda: (
            _images()
            .map(lambda x: ops.resize(ops.random_crop(x, (4, 4)), (3, 3)))
            .shuffle(2)
            .batch(2)
            .map(lambda x: ops.transpose(ops.normalize(x, MEAN, STD), "CHW"))
            .prefetch(1)
        ),
        "the mean of bytes of 0..1": lambda: (
            _images()
            .map(lambda x: ops.normalize(ops.convert_image_dtype(x, "float32"), ops.IMAGENET_MEAN, ops.IMAGENET_STD))
            .prefetch(1)
        ),
    },
    ("channels_first",): {
        "a crop of CHW": lambda: _chw().map(lambda x: ops.random_crop(x, (2, 2))).prefetch(1),
        "CHW to CHW": lambda: _chw().map(lambda x: ops.transpose(x, "CHW")).prefetch(1),
    },
    ("serial_python_map",): {
        "an op behind NumPy": lambda: (
            _images().map(lambda x: ops.resize(np.rot90(x), (3, 3)), num_parallel_calls=2).prefetch(1)
        ),
        "NumPy of images on one thread": lambda: _images().map(np.rot90).batch(2),
        "Pillow on one thread": lambda: _paths().map(_opened).batch(2),
    },
    ("random_in_python",): {
        "random numbers in Python": lambda: _paths().map(lambda p: (p, random.random())).batch(2),
        "random numbers in a predicate": lambda: Dataset.range(9).filter(lambda x: np.random.rand() < 0.5),
        "random numbers in py_function": lambda: (
            _images()
            .map(
                lambda x: ops.py_function(lambda v: v * random.random(), [x], spec=gp.TensorSpec((6, 6, 3), "float32"))
            )
            .map(lambda x: ops.flip_left_right(x))
            .prefetch(1)
        ),
    },
    ("shuffle_holds_all",): {
        "a full shuffle by a large buffer": lambda: Dataset.range(50_000).shuffle(50_000),
        "a full shuffle of large elements": lambda: (
            Dataset.range(200).map(_array, spec=gp.TensorSpec((300, 300), "float32")).shuffle(200)
        ),
        "everything, whatever it is": lambda: Dataset.range(9).filter(lambda x: x > 3).shuffle(gp.UNKNOWN_CARDINALITY),
    },
    ("zip_of_shuffles",): {
        "zip: no seeds": lambda: _both(lambda x: x.shuffle(9)),
        "zip: other seeds": lambda: Dataset.zip((_names("a").shuffle(9, 1), _names("b").shuffle(9, 2))),
        "zip: a buffer and ALL": lambda: Dataset.zip((_names("a").shuffle(9, 1), _names("b").shuffle(gp.ALL, 1))),
        "zip: a second shuffle": lambda: Dataset.zip(
            (_names("a").shuffle(9, 1).shuffle(9, 1), _names("b").shuffle(9, 1))
        ),
        "zip: one of them only": lambda: Dataset.zip((_names("a").shuffle(9, seed=1), _names("b"))),
        "zip: a zip inside": lambda: Dataset.zip(
            (Dataset.zip((_names("a").shuffle(9), Dataset.counter())), _names("b").shuffle(9))
        ),
        "zip: inner datasets": lambda: _both(lambda x: x.flat_map(lambda p: Dataset.range(3).shuffle(3))),
        "zip: a dataset and itself in one order": lambda: Dataset.zip(
            (_names("a").shuffle(9, 1), _names("a").shuffle(9, 1))
        ),
        "zip: drawn from several": lambda: Dataset.zip((_drawn_from("a", 1), _drawn_from("b", 2))),
        "zip: kept by class": lambda: _both(lambda x: x.rejection_resample(lambda p: 0, [1.0])),
    },
    ("zip_of_random_ops",): {
        "zip: random ops": lambda: Dataset.zip((_images().map(_flipped), _masks().map(_flipped))),
        "zip: random Python": lambda: _both(lambda x: x.map(lambda p, rng: rng.random(), rng=True)),
    },
    ("repeat_before_shuffle", "batch_before_shuffle", "small_shuffle", "split_of_a_shuffle"): {
        "several at once": lambda: Dataset.range(900).repeat().batch(2).shuffle(1).take(3),
    },
    (): {
        "shuffle, then repeat": lambda: Dataset.range(9).shuffle(9).repeat().batch(2),
        "repeat once, then shuffle": lambda: Dataset.range(9).repeat(1).shuffle(9),
        "batch, unbatch, shuffle": lambda: Dataset.range(9).batch(2).unbatch().shuffle(9),
        "a shuffle of one of one": lambda: Dataset.range(1).shuffle(1),
        "a shuffle as large as a batch": lambda: Dataset.range(900).shuffle(64).batch(64),
        "a shuffle that holds everything": lambda: Dataset.range(9).shuffle(16).batch(64),
        "one order, then cache": lambda: Dataset.range(9).shuffle(9, reshuffle_each_iteration=False).cache(),
        "shuffle, cache, shuffle": lambda: Dataset.range(9).shuffle(9).cache().shuffle(9),
        "cache, then random": lambda: _images().cache().map(_flipped).prefetch(1),
        "shards of other sizes, as many batches": lambda: Dataset.range(255).shard(2, 1).batch(128),
        "even shards": lambda: Dataset.range(255).shard(2, 1, even="drop").batch(128, True),
        "shards that do not end": lambda: Dataset.range(255).repeat().shard(2, 1).batch(128, True).take(5),
        "shards of batches that can be indexed": lambda: Dataset.range(256).batch(32).prefetch(1).shard(2, 1),
        "shards of files at URLs": lambda: _at_urls().shard(2, 1).interleave(gp.TFRecordDataset),
        "ranks that divide the streams": lambda: _of_streams(8).batch(12).by_rank(1, 4),
        "parts of a filter of streams": lambda: _of_streams(6).filter(lambda x: x > 2).shard(4, 1),
        "shuffle, then take more than there is": lambda: Dataset.range(9).shuffle(9).take(9).take(-1).skip(0),
        "one order, then take": lambda: Dataset.range(9).shuffle(9, reshuffle_each_iteration=False).take(3),
        "shuffle, repeat, take so many steps": lambda: Dataset.range(9).shuffle(9).repeat().take(100),
        "images with prefetch": lambda: _images().map(_flipped).batch(2).prefetch(1),
        "the mean of bytes": lambda: (
            _images().map(lambda x: ops.normalize(x, ops.IMAGENET_MEAN, ops.IMAGENET_STD)).prefetch(1)
        ),
        "torchvision's mean of bytes / 255": lambda: (
            _images().map(lambda x: ops.normalize(ops.rot90(x) / 255, MEAN, STD)).prefetch(1)
        ),
        "torchvision's mean of floats of any range": lambda: (
            Dataset.from_tensor_slices(IMAGES.astype(np.float32)).map(lambda x: ops.normalize(x, MEAN, STD)).prefetch(1)
        ),
        "a normalize that changes nothing": lambda: _images().map(lambda x: ops.normalize(x, 0, 1)).prefetch(1),
        "CHW normalized": lambda: (
            _chw()
            .map(
                lambda x: (ops.normalize(x, ops.IMAGENET_MEAN, ops.IMAGENET_STD, layout="CHW"), ops.normalize(x, 9, 9))
            )
            .prefetch(1)
        ),
        "a few rows of an image": lambda: (
            Dataset.from_tensor_slices(np.zeros((8, 3, 9, 3), np.uint8)).map(_flipped).prefetch(1)
        ),
        "an op in processes": lambda: _images().map(_flipped, workers="process").prefetch(1),
        "random numbers that are handed in": lambda: _paths().map(lambda p, rng: (p, rng.random()), rng=True),
        "a full shuffle of a few that are in memory": lambda: (
            Dataset.from_tensor_slices(np.zeros((20, 500, 500), np.float32)).cache().shuffle(20)
        ),
        "nearly a full shuffle": lambda: Dataset.range(50_000).shuffle(49_999),
        "all shuffled by an index": lambda: Dataset.range(50_000).shuffle(gp.ALL),
        "zip, fine: equal seeds": lambda: _both(lambda x: x.shuffle(9, seed=1)),
        "zip, fine: equal seeds, smaller buffer": lambda: _both(lambda x: x.shuffle(5, seed=1).repeat(2)),
        "zip, fine: buffers of everything": lambda: Dataset.zip(
            (_names("a").shuffle(9, 1), _names("b").shuffle(99, 1))
        ),
        "zip, fine: one order without a seed": lambda: _both(lambda x: x.shuffle(9, reshuffle_each_iteration=False)),
        "zip, fine: equal seeds in inner datasets": lambda: _both(_inner),
        "zip, fine: numbers": lambda: Dataset.zip((_names("a").shuffle(9), Dataset.counter())),
        "zip, fine: a dataset and itself": lambda: Dataset.zip((_names("a"), _names("a").shuffle(9))),
        "zip, fine: two views of one order": lambda: Dataset.zip(
            tuple(_names("a").shuffle(9, 1).map(_noise, rng=True) for _ in range(2))
        ),
        "zip, fine: shuffled behind": lambda: _both(lambda x: x).shuffle(9),
        "zip, fine: noise of numbers": lambda: Dataset.zip(
            (_names("a").map(_noise, rng=True), Dataset.range(9).map(_noise, rng=True))
        ),
        "zip, fine: two views of one dataset": lambda: Dataset.zip(
            (_images().map(_flipped), _images().map(_flipped))
        ).prefetch(1),
        "zip, fine: one call over both": lambda: (
            Dataset.zip((_images(), _masks())).map(lambda a, b: ops.random_crop((a, b), (3, 3))).prefetch(1)
        ),
        "a zip hides what is below": lambda: Dataset.zip(Dataset.range(9).repeat(), Dataset.range(9)).shuffle(9),
    },
}
"""By the rules whose findings they have, in their order."""


@pytest.mark.parametrize(
    ("make", "rules"), [pytest.param(make, rules, id=name) for rules in CHAINS for name, make in CHAINS[rules].items()]
)
def test_a_chain_has_these_findings(make: Callable[[], Dataset], rules: tuple[str, ...]) -> None:
    assert tuple(finding.rule for finding in make().check()) == rules


def test_every_check_has_a_chain_that_it_finds() -> None:
    assert {rule.__name__ for rule in CHECKS} == {rule for rules in CHAINS for rule in rules}


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


def _finding(chain: Dataset) -> str:
    (finding,) = chain.check()
    assert finding.line.startswith(f"{__file__}:")
    return finding.text


def test_the_numbers_for_bytes_are_said() -> None:
    chain = _images().map(lambda x: ops.normalize(x, MEAN, STD)).prefetch(1)

    assert "mean=(123.675, 116.28, 103.53), std=(58.395, 57.12, 57.375)" in _finding(chain)
    assert f"normalize at {__file__}:" in _finding(chain)


def test_the_wrong_axes_are_said_with_the_op() -> None:
    text = _finding(_chw().map(lambda x: ops.random_crop(x, (2, 2))).prefetch(1))

    assert text.startswith(f"random_crop at {__file__}:")
    assert "shape [3, 6, 7] for an image {HWC} of height 3 with 7 channels" in text
    assert "ops.transpose(x, 'HWC')" in text


def test_a_python_map_is_told_how_to_be_faster_and_repeatable() -> None:
    serial = _finding(_images().map(np.rot90).batch(2))
    behind = _finding(_images().map(lambda x: ops.resize(np.rot90(x), (3, 3))).prefetch(1))
    drawing = _finding(_paths().map(lambda p: (p, random.random())))

    assert "on one thread" in serial and "num_parallel_calls=gp.AUTOTUNE" in serial
    assert "calls ops.resize in the lambda and yet runs as ordinary Python" in behind
    assert "map(fn, traced=True) says why" in behind
    assert "draws from random.random in the lambda" in drawing and "map(fn, rng=True)" in drawing
    with pytest.raises(gp.TraceError, match=r"a traced function needs np\.rot90"):
        _images().map(lambda x: ops.resize(np.rot90(x), (3, 3)), traced=True)


def test_the_cost_of_a_full_buffer_is_said(tmp_path: Path) -> None:
    with gp.io.TFRecordWriter(tmp_path / "records") as writer:
        writer.write(b"record")
    records = gp.TFRecordDataset(tmp_path / "records").filter(lambda x: x != b"")

    assert "holds the indices of all 50,000 elements, 400,000 bytes" in _finding(Dataset.range(50_000).shuffle(50_000))
    assert "shuffle(gp.ALL) gives a uniform order too" in _finding(Dataset.range(50_000).shuffle(50_000))
    assert "holds every element in memory, 250 bytes each," in _finding(records.prefetch(2).shuffle(-2))
    assert "at their full size" in _finding(records.map(lambda x: str(x), num_parallel_calls=2).shuffle(-2))


def test_the_chain_of_the_readme_has_no_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with gp.io.TFRecordWriter(tmp_path / "train-0.tfrecord") as writer:
        writer.write(b"never read")
    text = (Path(__file__).parents[2] / "README.md").read_text()
    (code,) = [part for part in text.split("```python\n")[1:] if "def train_example" in part]
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(code.split("\nfor ")[0], names)

    assert names["ds"].check() == ()
    assert "worth a look" not in names["ds"].explain()


def test_the_chain_of_the_demo_has_no_finding(tmp_path: Path) -> None:
    paths = [str(tmp_path / f"{i}.jpg") for i in range(300)]
    photographs = Source("photographs", paths=tuple(paths), labels=tuple(range(300)))

    assert training_chain(photographs, 300, 8, 224).check() == ()


def test_a_zip_of_shuffles_names_both_and_the_line_of_the_zip() -> None:
    a = _names("a").shuffle(9, seed=1)
    b = _names("b").shuffle(9, seed=2)
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


def test_many_zips_are_looked_at_at_once() -> None:
    zipped = _names("a").shuffle(9, seed=1)
    for i in range(60):
        zipped = Dataset.zip((zipped, _names(str(i)).shuffle(9, seed=1)))

    assert zipped.check() == ()
