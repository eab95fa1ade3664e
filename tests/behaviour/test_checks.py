"""Dataset.check(): slips that are certain from the plan, each on the user's line; and silence where they are not."""

from __future__ import annotations

import inspect
import random
import re
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


R = Dataset.range
IMAGES = np.zeros((8, 6, 6, 3), np.uint8)
CHW = np.zeros((8, 3, 6, 7), np.uint8)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
FEW = np.zeros((20, 500, 500), np.float32)
REPLACING = gp.Options(on_error="replace")
Chain = Callable[[Dataset], Dataset]


def _of_streams(streams: int) -> Dataset:
    return R(96).shuffle(gp.ALL, streams=streams, window=4).map(lambda x: x + 1)


def _at_urls() -> Dataset:
    fsspec = pytest.importorskip("fsspec")
    for i in range(2):
        fsspec.filesystem("memory").pipe(f"/checks/{i}.tfrecord", b"")
    return Dataset.list_files("memory://checks/*.tfrecord", shuffle=False)


def _images() -> Dataset:
    return Dataset.from_tensor_slices(IMAGES)


def _mapped(function: Callable[[Any], Any], images: Any = IMAGES) -> Dataset:
    return Dataset.from_tensor_slices(images).map(function).prefetch(1)


def _flipped(image: object) -> object:
    return ops.random_flip_left_right(image)


def _apart(image: Any, mask: Any) -> Any:
    return ops.random_rotation(image, 30), ops.random_rotation(mask, 30)


def _random_py(image: Any) -> Any:
    return ops.py_function(lambda v: v * random.random(), [image], spec=gp.TensorSpec((6, 6, 3), "float32"))


def _of_floats(image: Any) -> Any:
    return ops.normalize(ops.convert_image_dtype(image, "float32"), ops.IMAGENET_MEAN, ops.IMAGENET_STD)


def _of_chw(image: Any) -> Any:
    return ops.normalize(image, ops.IMAGENET_MEAN, ops.IMAGENET_STD, layout="CHW"), ops.normalize(image, 9, 9)


def _resized_and_normalized() -> Dataset:
    resized = _images().map(lambda x: ops.resize(ops.random_crop(x, (4, 4)), (3, 3))).shuffle(2).batch(2)
    return resized.map(lambda x: ops.transpose(ops.normalize(x, MEAN, STD), "CHW")).prefetch(1)


def _paths() -> Dataset:
    return Dataset.from_tensor_slices(["1/a.png", "2/b.png"])


def _opened(path: bytes) -> Any:
    return np.asarray(Image.open(path.decode()))


def _large() -> Dataset:
    return R(200).map(lambda x: np.zeros((300, 300), np.float32), spec=gp.TensorSpec((300, 300), "float32"))


def _names(folder: str) -> Dataset:
    return Dataset.from_tensor_slices([f"{folder}/{i}" for i in range(9)])


def _both(chain: Chain, other: Chain | None = None) -> Dataset:
    """A zip of a chain of names and another one of other names, the same unless it is given."""
    return Dataset.zip((chain(_names("a")), (other or chain)(_names("b"))))


def _twice(chain: Chain, images: Callable[[], Dataset] = _images) -> Dataset:
    return Dataset.zip((chain(images()), chain(images())))


def _drawn(names: Dataset, seed: int) -> Dataset:
    return Dataset.sample_from_datasets([names, names], seed=seed)


def _inner(names: Dataset, seed: int | None = None) -> Dataset:
    return names.flat_map(lambda path: R(3).shuffle(3, seed=seed))


def _noise(x: object, rng: np.random.Generator) -> float:
    return rng.random()


def _cropped_alike() -> Dataset:
    pairs = Dataset.zip((_images(), Dataset.from_tensor_slices(IMAGES[..., :1])))
    return pairs.map(lambda a, b: ops.random_crop((a, b), (3, 3))).prefetch(1)


CHAINS: dict[tuple[str, ...], dict[str, Callable[[], Dataset]]] = {
    ("repeat_before_shuffle",): {
        "repeat, then shuffle": lambda: R(9).repeat().shuffle(9),
        "repeat of the files, shuffled records": lambda: R(9).repeat().interleave(lambda x: R(x)).shuffle(9),
    },
    ("batch_before_shuffle",): {"batch, then shuffle": lambda: R(9).batch(2).shuffle(9)},
    ("small_shuffle",): {
        "a shuffle of one": lambda: R(9).shuffle(1),
        "a shuffle smaller than a batch": lambda: R(900).shuffle(16).batch(64),
    },
    ("cache_after_shuffle",): {"shuffle, then cache": lambda: R(9).shuffle(9).cache()},
    ("random_before_cache",): {"random, then cache": lambda: _images().map(_flipped).cache().prefetch(1)},
    ("uneven_shards",): {"shards of other numbers of batches": lambda: R(511).shard(2, 1).batch(128, True)},
    ("batch_of_too_few",): {"a batch of more than there is": lambda: R(9).batch(10, True)},
    ("values_of_another_range",): {
        "floats of 0..255 in an op of 0..1": lambda: (
            _images().map(lambda x: ops.invert(ops.cast(x, "float32"))).prefetch(1)
        )
    },
    ("scales_of_values",): {
        "integers of 0..1": lambda: _mapped(lambda x: ops.cast(ops.convert_image_dtype(x, "float32"), "uint8")),
        "integers of normalized values": lambda: _mapped(
            lambda x: ops.cast(ops.normalize(x, ops.IMAGENET_MEAN, ops.IMAGENET_STD), "int32")
        ),
        "a conversion of resized bytes": lambda: _mapped(
            lambda x: ops.convert_image_dtype(ops.resize(x, (3, 3)), "float32")
        ),
        "brightness of resized bytes": lambda: _mapped(lambda x: ops.random_brightness(ops.resize(x, (3, 3)), 0.2)),
        "brightness of bytes as floats": lambda: _mapped(
            lambda x: ops.adjust_brightness(ops.cast(x, "float32"), delta=-0.5)
        ),
    },
    ("classes_blended",): {
        "a mask beside its image": lambda: (
            Dataset.from_tensor_slices((IMAGES, IMAGES[..., :1]))
            .map(lambda a, b: ops.resize_shorter((a, b), 4))
            .prefetch(1)
        )
    },
    ("images_moved_apart",): {
        "an image and its mask, turned by two calls": lambda: (
            Dataset.from_tensor_slices((IMAGES, IMAGES)).map(_apart).prefetch(1)
        )
    },
    ("shard_of_batches",): {
        "shards of batches of a stream": lambda: R(256).shuffle(64).batch(32).prefetch(1).shard(2, 1),
        "of batches that bad rows change": lambda: R(256).batch(32).shard(2, 1).with_options(REPLACING),
        "of batches that bad rows leave": lambda: (
            R(256).batch(32).shard(2, 1).with_options(gp.Options(on_error="skip"))
        ),
    },
    ("shard_over_urls",): {"of records at URLs": lambda: _at_urls().interleave(gp.TFRecordDataset).shard(2, 1)},
    ("streams_of_all_ranks",): {
        "ranks that do not divide the streams": lambda: _of_streams(6).batch(12).by_rank(1, 4),
        "shards that do not divide the streams": lambda: _of_streams(6).shard(4, 1, even="drop"),
    },
    ("split_of_a_shuffle",): {
        "shuffle, then take": lambda: R(9).shuffle(9).take(3),
        "all shuffled, then a slice": lambda: R(9).shuffle(gp.ALL)[:4],
    },
    ("no_prefetch",): {"images without prefetch": lambda: _images().map(_flipped).batch(2)},
    ("normalize_of_another_range",): {
        "torchvision's mean of bytes": lambda: _mapped(lambda x: ops.normalize(x, MEAN, STD)),
        "its mean of resized bytes, in two maps": _resized_and_normalized,
        "the mean of bytes of 0..1": lambda: _mapped(_of_floats),
        "twice": lambda: _mapped(lambda x: ops.normalize(ops.normalize(x, 100, 50), 0.5, 0.5)),
        "after a standardization": lambda: _mapped(
            lambda x: ops.normalize(ops.per_image_standardization(x), ops.IMAGENET_MEAN, ops.IMAGENET_STD)
        ),
    },
    ("channels_first",): {
        "a crop of CHW": lambda: _mapped(lambda x: ops.random_crop(x, (2, 2)), CHW),
        "CHW to CHW": lambda: _mapped(lambda x: ops.transpose(x, "CHW"), CHW),
        "cutmix of CHW": lambda: (
            Dataset.from_tensor_slices((CHW, [0] * 8))
            .batch(4)
            .map(lambda x, y: ops.cutmix(x, y, num_classes=2))
            .prefetch(1)
        ),
    },
    ("serial_python_map",): {
        "an op behind NumPy": lambda: _mapped(lambda x: ops.resize(np.rot90(x), (3, 3))),
        "NumPy of images on one thread": lambda: _images().map(np.rot90).batch(2),
        "Pillow on one thread": lambda: _paths().map(_opened).batch(2),
    },
    ("random_in_python",): {
        "random numbers in Python": lambda: _paths().map(lambda p: (p, random.random())).batch(2),
        "random numbers in a predicate": lambda: R(9).filter(lambda x: np.random.rand() < 0.5),
        "random numbers in py_function": lambda: _images().map(_random_py).map(ops.flip_left_right).prefetch(1),
    },
    ("shuffle_holds_all",): {
        "a full shuffle by a large buffer": lambda: R(50_000).shuffle(50_000),
        "a full shuffle of large elements": lambda: _large().shuffle(200),
        "everything, whatever it is": lambda: R(9).filter(lambda x: x > 3).shuffle(gp.UNKNOWN_CARDINALITY),
    },
    ("zip_of_shuffles",): {
        "no seeds": lambda: _both(lambda x: x.shuffle(9)),
        "other seeds": lambda: _both(lambda x: x.shuffle(9, 1), lambda x: x.shuffle(9, 2)),
        "a buffer and ALL": lambda: _both(lambda x: x.shuffle(9, 1), lambda x: x.shuffle(gp.ALL, 1)),
        "a second shuffle": lambda: _both(lambda x: x.shuffle(9, 1).shuffle(9, 1), lambda x: x.shuffle(9, 1)),
        "one of them only": lambda: _both(lambda x: x.shuffle(9, 1), lambda x: x),
        "a zip inside": lambda: _both(lambda x: Dataset.zip((x.shuffle(9), Dataset.counter())), lambda x: x.shuffle(9)),
        "inner datasets": lambda: _both(_inner),
        "a dataset and itself in one order": lambda: _twice(lambda x: x.shuffle(9, 1), lambda: _names("a")),
        "drawn from several": lambda: _both(lambda x: _drawn(x, 1), lambda x: _drawn(x, 2)),
        "kept by class": lambda: _both(lambda x: x.rejection_resample(lambda p: 0, [1.0])),
    },
    ("zip_of_random_ops",): {
        "random ops": lambda: Dataset.zip((_mapped(_flipped), _mapped(_flipped, IMAGES[..., :1]))),
        "random Python": lambda: _both(lambda x: x.map(_noise, rng=True)),
    },
    ("repeat_before_shuffle", "batch_before_shuffle", "small_shuffle", "split_of_a_shuffle"): {
        "several at once": lambda: R(900).repeat().batch(2).shuffle(1).take(3)
    },
    (): {
        "shuffle, then repeat": lambda: R(9).shuffle(9).repeat().batch(2),
        "repeat once, then shuffle": lambda: R(9).repeat(1).shuffle(9),
        "batch, unbatch, shuffle": lambda: R(9).batch(2).unbatch().shuffle(9),
        "a shuffle of one of one": lambda: R(1).shuffle(1),
        "a shuffle as large as a batch": lambda: R(900).shuffle(64).batch(64),
        "a shuffle that holds everything": lambda: R(9).shuffle(16).batch(64),
        "one order, then cache": lambda: R(9).shuffle(9, reshuffle_each_iteration=False).cache(),
        "shuffle, cache, shuffle": lambda: R(9).shuffle(9).cache().shuffle(9),
        "cache, then random": lambda: _images().cache().map(_flipped).prefetch(1),
        "shards of other sizes, as many batches": lambda: R(255).shard(2, 1).batch(128),
        "even shards": lambda: R(512).shard(2, 1, even="drop").batch(128, True),
        "shards that do not end": lambda: R(255).repeat().shard(2, 1).batch(128, True).take(5),
        "shards of batches that can be indexed": lambda: R(256).batch(32).prefetch(1).shard(2, 1),
        "shards of files at URLs": lambda: _at_urls().shard(2, 1).interleave(gp.TFRecordDataset),
        "ranks that divide the streams": lambda: _of_streams(8).batch(12).by_rank(1, 4),
        "parts of a filter of streams": lambda: _of_streams(6).filter(lambda x: x > 2).shard(4, 1),
        "shuffle, then take more than there is": lambda: R(9).shuffle(9).take(9).take(-1).skip(0),
        "one order, then take": lambda: R(9).shuffle(9, reshuffle_each_iteration=False).take(3),
        "shuffle, repeat, take so many steps": lambda: R(9).shuffle(9).repeat().take(100),
        "images with prefetch": lambda: _images().map(_flipped).batch(2).prefetch(1),
        "the mean of bytes": lambda: _mapped(lambda x: ops.normalize(x, ops.IMAGENET_MEAN, ops.IMAGENET_STD)),
        "torchvision's mean of bytes / 255": lambda: _mapped(lambda x: ops.normalize(ops.rot90(x) / 255, MEAN, STD)),
        "its mean of floats": lambda: _mapped(lambda x: ops.normalize(x, MEAN, STD), IMAGES.astype(np.float32)),
        "a normalize that changes nothing": lambda: _mapped(lambda x: ops.normalize(x, 0, 1)),
        "CHW normalized": lambda: _mapped(_of_chw, CHW),
        "a few rows of an image": lambda: _mapped(_flipped, np.zeros((8, 3, 9, 3), np.uint8)),
        "an op in processes": lambda: _images().map(_flipped, workers="process").prefetch(1),
        "random numbers that are handed in": lambda: _paths().map(_noise, rng=True),
        "a full shuffle of a few in memory": lambda: Dataset.from_tensor_slices(FEW).cache().shuffle(20),
        "nearly a full shuffle": lambda: R(50_000).shuffle(49_999),
        "all shuffled by an index": lambda: R(50_000).shuffle(gp.ALL),
        "equal seeds": lambda: _both(lambda x: x.shuffle(9, seed=1)),
        "equal seeds, smaller buffer": lambda: _both(lambda x: x.shuffle(5, seed=1).repeat(2)),
        "buffers of everything": lambda: _both(lambda x: x.shuffle(9, 1), lambda x: x.shuffle(99, 1)),
        "one order without a seed": lambda: _both(lambda x: x.shuffle(9, reshuffle_each_iteration=False)),
        "equal seeds in inner datasets": lambda: _both(lambda x: _inner(x, 1)),
        "a zip with numbers": lambda: Dataset.zip((_names("a").shuffle(9), Dataset.counter())),
        "a zip with itself": lambda: Dataset.zip((_names("a"), _names("a").shuffle(9))),
        "two views of one order": lambda: _twice(lambda x: x.shuffle(9, 1).map(_noise, rng=True), lambda: _names("a")),
        "a zip that is shuffled": lambda: _both(lambda x: x).shuffle(9),
        "noise beside numbers": lambda: Dataset.zip((_names("a").map(_noise, rng=True), R(9).map(_noise, rng=True))),
        "two views of one dataset": lambda: _twice(lambda x: x.map(_flipped)).prefetch(1),
        "one call over both": _cropped_alike,
        "a zip hides what is below": lambda: Dataset.zip(R(9).repeat(), R(9)).shuffle(9),
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


def _records(path: Path) -> Dataset:
    with gp.io.TFRecordWriter(path / "records") as writer:
        writer.write(b"record")
    return gp.TFRecordDataset(path / "records").filter(lambda x: x != b"")


FULL = "holds the indices of all 50,000 elements, 400,000 bytes.*shuffle\\(gp.ALL\\) gives a uniform order too"
SAID: list[tuple[Callable[[Path], Dataset], str]] = [
    (lambda _: _mapped(lambda x: ops.normalize(x, MEAN, STD)), r"mean=\(123.675, 116.28, 103.53\), std=\(58.395, 57"),
    (lambda _: _mapped(lambda x: ops.random_crop(x, (2, 2)), CHW), r"^random_crop at .*\[3, 6, 7\] .*e\(x, 'HWC'\)"),
    (lambda _: _images().map(np.rot90).batch(2), "on one thread.*num_parallel_calls=gp.AUTOTUNE"),
    (lambda _: _mapped(lambda x: ops.resize(np.rot90(x), 3)), r"ops.resize in the lambda.*map\(fn, traced=True\) says"),
    (lambda _: _paths().map(lambda p: (p, random.random())), r"from random.random in the lambda.*map\(fn, rng=True\)"),
    (lambda _: R(50_000).shuffle(50_000), FULL),
    (lambda path: _records(path).prefetch(2).shuffle(-2), "holds every element in memory, 250 bytes each,"),
    (lambda path: _records(path).map(lambda x: str(x), num_parallel_calls=2).shuffle(-2), "at their full size"),
    (
        lambda _: _both(lambda x: x.shuffle(9, 1), lambda x: x.shuffle(9, 2)),
        r"in random orders of their own \(shuffle\(9, seed=1\) at \S+, and shuffle\(9, seed=2\) at .*; zip first, then",
    ),
]


@pytest.mark.parametrize(("make", "text"), SAID)
def test_a_finding_says_what_it_is_and_what_to_write(
    make: Callable[[Path], Dataset], text: str, tmp_path: Path
) -> None:
    (finding,) = make(tmp_path).check()

    assert finding.line.startswith(f"{__file__}:")
    assert re.search(text, finding.text)


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


def test_many_zips_are_looked_at_at_once() -> None:
    zipped = _names("a").shuffle(9, seed=1)
    for i in range(60):
        zipped = Dataset.zip((zipped, _names(str(i)).shuffle(9, seed=1)))

    assert zipped.check() == ()
