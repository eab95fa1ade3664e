"""Integers of NumPy and tensors are integers: every public method, op and option makes the same chain of them."""

from __future__ import annotations

import inspect
import re
from ast import literal_eval, parse
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from PIL import Image

import gpupipe as gp
from gpupipe import Dataset, Options, TensorSpec, compat, ops
from gpupipe.ops._shared.samples import encoded
from gpupipe.plan.maps import Map
from gpupipe.plan.node import walk
from gpupipe.plan.outline import outline
from gpupipe.plan.portable import portable
from tests.behaviour.model import plain
from tests.chains.damage import write
from tests.extract.archives import archive

R = Dataset.range
IMAGE = np.random.default_rng(0).integers(0, 256, (9, 8, 3), np.uint8)

Number = Callable[[int], Any]


def _tensor(value: int) -> Any:
    return pytest.importorskip("torch").tensor(value)


KINDS: dict[str, Number] = {"uint8": np.uint8, "no axes": np.array}
ALL_KINDS: dict[str, Number] = {**KINDS, "tensor": _tensor}


JPEG = encoded(IMAGE)
TWOS = partial(iter, [[1, 2]])


def _python(x: Any) -> Any:
    return int(x)


def _rows() -> Dataset:
    return R(9).map(lambda i: ops.cast(i, "int64")).batch(3)


def _sized(*given: Any, **named: Any) -> Dataset:
    sizes = Dataset.from_tensor_slices(([2, 3, 4], [3, 2, 1]))
    return sizes.bucket_by_image_size(*given, size_func=lambda h, w: (h, w), **named)


def _shuffled(x: Any, rng: np.random.Generator) -> Any:
    return rng.permutation(x)


def _two(x: Any) -> Dataset:
    return R(2)


_together = partial(compat.map_and_batch, _python)
SEQUENCE = partial(gp.io.FixedLenSequenceFeature, dtype="int64", allow_missing=True)


HALF: Any = {"validation_split": 0.5, "subset": "training"}


def _of_spec(spec: Any) -> Dataset:
    return Dataset.from_generator(lambda: iter(()), output_signature=spec)


def _vectors() -> Dataset:
    return Dataset.from_generator(lambda: ([i] * i for i in (1, 2, 3)), output_signature=TensorSpec((None,), "int64"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file of each kind, and a folder of two classes with two images each."""
    path = tmp_path_factory.mktemp("files")
    archive(path / "a.tar", [("a.txt", b"1"), ("b.txt", b"2")])
    (path / "a.bin").write_bytes(b"head" + b"0123456789" + b"foot")
    (path / "a.csv").write_bytes(b"1\n2\n")
    np.save(path / "a.npy", np.arange(2))
    write(path / "a.tfr", [b"record"])
    table = pytest.importorskip("pyarrow").table({"a": [1, 2]})
    pytest.importorskip("pyarrow.feather").write_feather(table, path / "a.arrow")
    pytest.importorskip("pyarrow.parquet").write_table(table, path / "a.parquet")
    with pytest.importorskip("h5py").File(path / "a.h5", "w") as file:
        file["a"] = [1, 2]
    pytest.importorskip("lmdb").open(f"{path}/a.lmdb", subdir=False).close()
    for name in ("x", "y"):
        (path / "classes" / name).mkdir(parents=True)
        for i in range(2):
            Image.fromarray(np.full((3, 4, 3), 9 * i, np.uint8)).save(path / "classes" / name / f"{i}.png")
    return str(path)


METHODS: dict[str, Callable[[Number, str], Dataset]] = {
    "assert_cardinality.expected_cardinality": lambda n, _: R(4).assert_cardinality(n(4)),
    "batch.batch_size num_parallel_calls": lambda n, _: R(4).batch(n(2), num_parallel_calls=n(2)),
    "bucket_by_sequence_length.bucket_boundaries bucket_batch_sizes": lambda n, _: _vectors().bucket_by_sequence_length(
        lambda v: len(v), [n(2), n(3)], [n(1), n(1), n(2)]
    ),
    "bucket_by_image_size.buckets batch_size": lambda n, _: _sized([(n(2), n(3)), (n(3), n(2))], n(2)),
    "bucket_by_image_size.max_pixels": lambda n, _: _sized(max_pixels=n(12)),
    "bucket_by_image_size.max_tokens patch_size": lambda n, _: _sized(max_tokens=n(12), patch_size=n(2)),
    "aspect_ratio_buckets.max_pixels step min_size max_size": lambda n, _: Dataset.from_tensor_slices(
        gp.aspect_ratio_buckets(n(16), step=n(1), min_size=n(2), max_size=n(8))
    ),
    "counter.start step": lambda n, _: Dataset.counter(n(2), n(2), dtype="float32").take(3),
    "by_rank.rank world": lambda n, _: R(4).batch(2).by_rank(n(1), n(2), check=False),
    "pick.places": lambda n, _: R(4).pick([n(3), n(1)]),
    "enumerate.start": lambda n, _: R(4).enumerate(n(2)),
    "from_generator.output_shapes": lambda n, _: Dataset.from_generator(TWOS, "int64", output_shapes=(n(2),)),
    "from_indexable.num_parallel_calls": lambda n, _: Dataset.from_indexable([1, 2], num_parallel_calls=n(2)),
    "group_by_window.window_size": lambda n, _: R(4).group_by_window(lambda x: x % 2, lambda k, w: w.batch(2), n(2)),
    "interleave.cycle_length block_length num_parallel_calls": lambda n, _: R(4).interleave(_two, n(2), n(2), n(2)),
    "list_files.seed": lambda n, at: Dataset.list_files(f"{at}/*", seed=n(2)),
    "map.num_parallel_calls": lambda n, _: R(4).map(_python, num_parallel_calls=n(2)),
    "pad_to_cardinality.cardinality": lambda n, _: R(4).map(lambda x: {"x": x}).pad_to_cardinality(n(6)),
    "padded_batch.batch_size padded_shapes": lambda n, _: _vectors().padded_batch(n(2), (n(5),)),
    "prefetch.buffer_size": lambda n, _: R(4).prefetch(n(2)),
    "ragged_batch.batch_size": lambda n, _: _vectors().ragged_batch(n(2)),
    "random.seed": lambda n, _: Dataset.random(seed=n(2)).take(3),
    "range.args": lambda n, _: R(n(1), n(9), n(2)),
    "rebatch.batch_size": lambda n, _: _rows().rebatch([n(2), n(1)]).concatenate(_rows().rebatch(n(2))),
    "rejection_resample.seed": lambda n, _: R(9).rejection_resample(lambda x: x % 2, [0.5, 0.5], seed=n(2)),
    "repeat.count": lambda n, _: R(4).repeat(n(2)),
    "sample_from_datasets.seed": lambda n, _: Dataset.sample_from_datasets([R(9), R(9)], seed=n(2)),
    "shard.num_shards index": lambda n, _: R(4).shard(n(2), n(1)),
    "shuffle.buffer_size streams window seed": lambda n, _: (
        R(8).shuffle(gp.ALL, seed=n(42), streams=n(2), window=n(2)).shuffle(n(4), seed=n(42))
    ),
    "skip.count": lambda n, _: R(4).skip(n(2)),
    "split.seed": lambda n, _: R(4).split([0.5, 0.5], seed=n(2))[0],
    "take.count": lambda n, _: R(4).take(n(2)),
    "window.size shift stride": lambda n, _: R(4).window(n(2), n(1), n(2)).flat_map(lambda w: w),
    "FixedLengthRecordDataset.record_bytes header_bytes footer_bytes buffer_size num_parallel_reads": lambda n, at: (
        gp.FixedLengthRecordDataset(f"{at}/a.bin", n(2), n(4), n(4), n(99), None, n(2))
    ),
    "TFRecordDataset.buffer_size num_parallel_reads": lambda n, at: gp.TFRecordDataset(at + "/a.tfr", "", n(99), n(2)),
    "LMDBDataset.num_parallel_reads": lambda n, at: gp.LMDBDataset(f"{at}/a.lmdb", n(2)),
    "WebDataset.num_parallel_reads": lambda n, at: gp.WebDataset(f"{at}/a.tar", "txt", num_parallel_reads=n(2)),
    "ArrowDataset.num_parallel_reads": lambda n, at: gp.ArrowDataset(f"{at}/a.arrow", num_parallel_reads=n(2)),
    "CsvDataset.buffer_size select_cols num_parallel_reads": lambda n, at: gp.CsvDataset(
        f"{at}/a.csv", ["int32"], buffer_size=n(9), select_cols=[n(0)], num_parallel_reads=n(2)
    ),
    "HDF5Dataset.num_parallel_reads": lambda n, at: gp.HDF5Dataset(f"{at}/a.h5", num_parallel_reads=n(2)),
    "NumpyDataset.num_parallel_reads": lambda n, at: gp.NumpyDataset(f"{at}/a.npy", num_parallel_reads=n(2)),
    "ParquetDataset.num_parallel_reads": lambda n, at: gp.ParquetDataset(f"{at}/a.parquet", num_parallel_reads=n(2)),
    "TextLineDataset.buffer_size num_parallel_reads": lambda n, at: gp.TextLineDataset(at + "/a.bin", "", n(99), n(2)),
    "map_and_batch.batch_size num_parallel_batches": lambda n, _: R(4).apply(_together(n(2), n(2))),
    "map_and_batch.num_parallel_calls": lambda n, _: R(4).apply(_together(2, num_parallel_calls=n(2))),
    "parallel_interleave.cycle_length block_length buffer_output_elements prefetch_input_elements": lambda n, _: R(
        4
    ).apply(compat.parallel_interleave(_two, n(2), n(2), False, n(2), n(2))),
    "shuffle_and_repeat.buffer_size count seed": lambda n, _: R(4).apply(compat.shuffle_and_repeat(n(4), n(2), n(42))),
    "image_folder.seed": lambda n, at: gp.image_folder(at + "/classes", **HALF, seed=n(3)),
    "image_dataset_from_directory.batch_size image_size seed": lambda n, at: compat.image_dataset_from_directory(
        f"{at}/classes", batch_size=n(2), image_size=(n(4), n(5)), seed=n(3)
    ),
    "TensorSpec.shape": lambda n, _: R(4).map(lambda x: np.zeros(2), spec=TensorSpec((n(2),), "float64")),
    "RaggedSpec.shape ragged_rank": lambda n, _: _of_spec(gp.RaggedSpec((n(2), None), "int64", n(1))),
    "FixedLenFeature.shape": lambda n, _: _parsed({"x": gp.io.FixedLenFeature((n(2),), "int64")}),
    "FixedLenFeature.default_value": lambda n, _: _parsed({"y": gp.io.FixedLenFeature((), "int64", n(2))}),
    "FixedLenSequenceFeature.shape": lambda n, _: _parsed({"x": SEQUENCE((n(2),))}),
    "FixedLenSequenceFeature.default_value": lambda n, _: _parsed({"y": SEQUENCE((), default_value=n(2))}),
}
"""By the parameters that each of them gets as such numbers."""


def _parsed(features: dict[str, Any]) -> Dataset:
    record = gp.io.encode_example({"x": [1, 2]})
    return Dataset.from_tensor_slices([record]).map(lambda r: gp.io.parse_single_example(r, features))


BOXES = np.array([[[0.1, 0.1, 0.9, 0.9]]], np.float32)


def _boxed(image: Any) -> Any:
    return ops.Sample(image, [[1, 1, 5, 6]])


CALLS = """
adjust_brightness(delta=1); adjust_contrast(2); adjust_gamma(2, 1); adjust_hue(1); adjust_jpeg_quality(50)
adjust_saturation(2); adjust_sharpness(2); affine(30, (1, 2), 2, (1, 2), fill=7, center=(1, 2))
aug_mix(3, 2, 1, fill=7, seed=7); auto_augment(fill=7, seed=7); center_crop((3, 4)); central_crop(1)
color_jitter(1, 1, (1, 2), 0.1, seed=7); crop_and_resize([[0, 0, 1, 1]], crop_size=(3, 4), extrapolation_value=7)
crop_to_bounding_box(1, 2, 3, 4); clahe(2, (2, 3)); elastic(50, (1, 2), fill=7, seed=7); expand_dims(1)
extract_patches((2, 3), 2, (1, 2)); five_crop((3, 4)); gather(1, 2); gaussian_blur(3, 1)
gaussian_noise(1, 1, seed=7); normalize(1, (1, 2, 3)); permute_channels((2, 0, 1)); posterize(4)
pad((1, 2, 3, 0), 7); pad_to_bounding_box(1, 1, 12, 11); rand_augment(2, 9, 31, fill=7, seed=7)
random_adjust_sharpness(2, 1, seed=7); random_affine(30, (0, 1), (1, 2), 5, fill=(7, 8, 9), center=(1, 2), seed=7)
perspective([(0, 0), (5, 0), (5, 6), (0, 6)], [(0, 0), (5, 0), (5, 7), (0, 6)], fill=7)
random_autocontrast(1, seed=7); random_brightness(1, seed=7); random_channel_permutation(seed=7)
random_clahe((2, 3), 2, 1, seed=7); random_contrast(1, 2, seed=7); random_crop((3, 4, 3), seed=7)
random_equalize(1, seed=7); random_erasing(1, value=7, seed=7); random_flip_left_right(p=1, seed=7)
random_flip_up_down(p=1, seed=7); random_gaussian_blur((3, 5), (1, 2), 1, seed=7); random_grayscale(1, seed=7)
random_hue(0.2, seed=7); random_invert(1, seed=7); random_jpeg_quality(50, 90, seed=7)
random_perspective(1, 1, fill=7, seed=7); random_posterize(4, 1, seed=7); random_resized_crop(3, seed=7)
random_rotation((1, 30), fill=7, center=(1, 2), seed=7); random_saturation(1, 2, seed=7)
random_shortest_size((6, 9), 9, seed=7); random_size_crop(3, 5, (9, 8), 1, seed=7)
random_zoom_out(7, (1, 2), 1, seed=7); random_solarize(100, 1, seed=7)
random_transform(9, 3, (1, 2), (1, 2), 5, (1, 2), 9, "constant", 4, True, True, 1, seed=7); resize((3, 4))
resize_shorter(4); resize_with_crop_or_pad(4, 12); resize_with_pad(14, 20, fill=7); rot90(1)
rotate(30, fill=7, center=(1, 2)); salt_and_pepper(1, (0, 1), seed=7); scale_jitter((6, 9), (1, 2), seed=7)
slice((1, 2, 0), (3, 4, 3)); solarize(100); ten_crop(4); trivial_augment_wide(31, fill=7, seed=7)
"""
"""Ops on an image, with the arguments behind it: each integer becomes such a number."""


def _numbers(value: Any, n: Number) -> Any:
    """A value whose integers are such numbers."""
    if isinstance(value, dict):
        return {key: _numbers(part, n) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_numbers(part, n) for part in value)
    return n(value) if type(value) is int else value


def _called(call: Any) -> Callable[[Any, Number], Any]:
    given, named = [*map(literal_eval, call.args)], {x.arg: literal_eval(x.value) for x in call.keywords}
    return lambda x, n: getattr(ops, call.func.id)(x, *_numbers(given, n), **_numbers(named, n))


STATEMENTS: Any = parse(CALLS).body
OPS: dict[str, Callable[[Any, Number], Any]] = {
    **{line.value.func.id: _called(line.value) for line in STATEMENTS},
    "clip_boxes": lambda x, n: ops.clip_boxes(_boxed(x), n(1), n(2)).boxes,
    "convert_boxes": lambda x, n: ops.convert_boxes([[1, 2, 3, 4]], "xywh", "rel_xyxy", (n(9), n(8))),
    "decode_and_crop_jpeg": lambda x, n: ops.decode_and_crop_jpeg(JPEG, (n(1), n(1), n(3), n(4)), channels=n(3)),
    "decode_image": lambda x, n: ops.decode_image(JPEG, channels=n(3)),
    "decode_jpeg": lambda x, n: ops.decode_jpeg(JPEG, channels=n(1)),
    "decode_png": lambda x, n: ops.decode_png(JPEG, channels=n(3)),
    "concat": lambda x, n: ops.concat([x, x], n(1)),
    "one_hot": lambda x, n: ops.one_hot(x[..., 0], n(5), n(2), n(1)),
    "random_apply": lambda x, n: ops.random_apply(ops.flip_left_right, x, n(1), seed=n(7)),
    "py_function": lambda x, n: ops.py_function(_shuffled, (x,), TensorSpec(IMAGE.shape, "uint8"), rng=True, seed=n(7)),
    "random_choice": lambda x, n: ops.random_choice([lambda y: y, ops.rot90], x[:8], (n(1), n(2)), seed=n(7)),
    "random_channel_shift": lambda x, n: ops.random_channel_shift(ops.cast(x, "float32"), n(9), seed=n(7)),
    "random_order": lambda x, n: ops.random_order([ops.invert, ops.flip_up_down], x, seed=n(7)),
    "random_iou_crop": lambda x, n: (
        ops.random_iou_crop(_boxed(x), 0.5, n(1), 0.5, n(2), (n(0),), n(40), seed=n(7)).image
    ),
    "random_uniform": lambda x, n: ops.random_uniform(n(1), n(9), (n(2), n(3)), "int32", seed=n(7)),
    "reshape": lambda x, n: ops.reshape(x, (-1, n(3))),
    "sample_distorted_bounding_box": lambda x, n: ops.sample_distorted_bounding_box(
        (9, 8, 3), BOXES, min_object_covered=n(1), max_attempts=n(9), seed=n(7)
    )[0],
    "squeeze": lambda x, n: ops.squeeze(x[..., :1], n(2)),
    "stack": lambda x, n: ops.stack([x, x], n(1)),
}

BATCHED: dict[str, Callable[[Any, Any, Number], Any]] = {
    "cutmix": lambda x, y, n: ops.cutmix(x, y, n(1), num_classes=n(3), seed=n(7)),
    "mixup": lambda x, y, n: ops.mixup(x, y, n(1), num_classes=n(3), seed=n(7)),
    "mixup_or_cutmix": lambda x, y, n: ops.mixup_or_cutmix(x, y, n(1), n(1), n(1), num_classes=n(3), seed=n(7)),
}

# What has an integer among its arguments, and is no step of a chain: tested below, or refused by what it is made for.
# random_transform is that of gpupipe.compat: the op itself is among OPS. on_ray is tested in tests/on_ray, and
# cache.memory is of a GPU.
OTHERS = set(
    """random_transform.interpolation_order random_transform.seed on_ray.workers on_ray.segment on_ray.ahead
    on_ray.max_restarts image_dataset_from_directory.label_mode compare.compared compare.images
    epochs.count epochs.start iterator.epoch progress.epoch profile.steps profile.warmup set_epoch.epoch epoch.epoch
    Dataset.epoch cache.memory set_seed.seed Dataset.passes preprocessor.batch_size""".split()
)
MADE_BY_US = ("BadRecord", "DataError", "Options", "DatasetSpec")


def _public() -> Iterator[tuple[str, Any]]:
    for name in dir(Dataset):
        if not name.startswith("_"):
            yield name, getattr(Dataset, name)
    for owner in (gp, gp.io, compat):
        for name in owner.__all__:
            if name not in MADE_BY_US:
                yield name, getattr(owner, name)


def _with_integers(name: str, fn: Any) -> Iterator[str]:
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return
    for parameter in parameters:
        if re.search(r"\bint\b(?!\])|Sequence\[int\]|tuple\[int", str(parameter.annotation)):
            yield f"{name}.{parameter.name}"


def test_every_public_integer_is_tried() -> None:
    found = {one for name, fn in _public() if callable(fn) for one in _with_integers(name, fn)}
    of_ops = {name for name in ops.__all__ for _ in _with_integers(name, getattr(ops, name))}

    tried = {f"{key.partition('.')[0]}.{one}" for key in METHODS for one in key.partition(".")[2].split()}
    assert {one for one in found if "Callable" not in one} - OTHERS - {"group_by_window.window_size_func"} <= tried
    assert of_ops - {"apply"} <= {*OPS, *BATCHED}


def _listed(dataset: Dataset, epoch: int) -> list[Any]:
    return [x.to_list() if isinstance(x, gp.Ragged) else plain(x) for x in dataset.iterator(epoch=epoch)]


def same_chain(made: Dataset, expected: Dataset) -> None:
    """Check that two chains are one: what they are, what they give, and where they stand."""
    assert portable(made.plan).digest == portable(expected.plan).digest
    assert outline(made.plan).steps == outline(expected.plan).steps
    assert made.element_spec == expected.element_spec
    for epoch in (0, 1):
        assert _listed(made, epoch) == _listed(expected, epoch)
    states = []
    for dataset in (made, expected):
        with dataset.iterator(epoch=0) as items:
            next(items, None)
            states.append({name: items.state_dict()[name] for name in ("steps", "code", "files", "options")})
    assert states[0] == states[1]


@pytest.mark.parametrize("kind", ALL_KINDS.values(), ids=ALL_KINDS.keys())
@pytest.mark.parametrize("make", METHODS.values(), ids=METHODS.keys())
def test_a_chain_of_numpy_integers_is_that_of_pythons(make: Any, kind: Number, folder: str) -> None:
    same_chain(make(kind, folder), make(int, folder))


def _drawn(fn: Callable[[Any, Number], Any], kind: Number) -> tuple[Any, Any]:
    """What an op becomes in a chain, and what it gives there."""
    dataset = Dataset.from_tensor_slices(IMAGE[None]).map(lambda x: fn(x, kind))
    traced = [node.traced for node in walk(dataset.plan) if isinstance(node, Map) and node.traced is not None]
    assert traced
    return [value.digest for value in traced[0].outputs], dataset.with_options(Options(backend="numpy")).first()


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
@pytest.mark.parametrize("fn", OPS.values(), ids=OPS.keys())
def test_an_op_with_numpy_integers_is_that_with_pythons(fn: Any, kind: Number) -> None:
    digest, result = _drawn(fn, kind)
    expected_digest, expected = _drawn(fn, int)

    assert digest == expected_digest
    assert result.dtype == expected.dtype
    assert (result == expected).all()
    eager, alone = fn(IMAGE, kind), fn(IMAGE, int)
    assert eager.dtype == alone.dtype
    assert (eager == alone).all()


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
@pytest.mark.parametrize("fn", BATCHED.values(), ids=BATCHED.keys())
def test_an_op_on_batches_with_numpy_integers_is_that_with_pythons(fn: Any, kind: Number) -> None:
    def result(number: Number) -> Any:
        rows = Dataset.from_tensor_slices((IMAGE[None].repeat(2, axis=0), np.array([0, 1])))
        return rows.batch(2).map(lambda x, y: fn(x, y, number)).first()

    assert all((a == b).all() and a.dtype == b.dtype for a, b in zip(result(kind), result(int), strict=True))


FIELDS = (
    "threads",
    "seed",
    "max_pixels",
    "max_record",
    "host_memory",
    "device_memory",
    "max_bad",
    "read_timeout",
    "verify",
)


@pytest.mark.parametrize("kind", ALL_KINDS.values(), ids=ALL_KINDS.keys())
def test_options_take_numpy_integers(kind: Number) -> None:
    def made(n: Number) -> Options:
        given: dict[str, Any] = {**dict.fromkeys(FIELDS, n(100)), "preallocate": (n(48), n(64))}
        return Options(**given)

    options = made(kind)

    assert options == made(int)
    assert {type(getattr(options, name)) for name in FIELDS} == {int}
    assert options.preallocate is not None
    assert [type(n) for n in options.preallocate] == [int, int]


def test_every_option_with_a_number_is_tried() -> None:
    found = {one.split(".")[1] for one in _with_integers("Options", Options)}

    assert found <= {*FIELDS, "preallocate"}


@pytest.mark.parametrize("kind", ALL_KINDS.values(), ids=ALL_KINDS.keys())
def test_places_epochs_and_the_seed_of_all_chains_take_numpy_integers(kind: Number) -> None:
    shuffled = R(9).shuffle(gp.ALL, seed=1)

    assert shuffled[kind(2)] == shuffled[2]
    assert [plain(x) for x in R(9)[kind(1) : kind(7) : kind(2)]] == [1, 3, 5]
    assert list(shuffled.iterator(epoch=kind(3))) == list(shuffled.iterator(epoch=3))
    assert list(shuffled.progress(epoch=kind(3))) == list(shuffled.iterator(epoch=3))
    assert shuffled.profile(kind(3), warmup=kind(2)).steps == 3
    assert gp.compare(shuffled, "numpy", images=kind(4), compared=kind(1), steps=False).images == 4
    assert len(list(shuffled.epochs(kind(2), kind(1)))) == 18
    shuffled.set_epoch(kind(3))
    assert list(shuffled) == list(shuffled.iterator(epoch=3))
    try:
        gp.set_seed(kind(5))
        seeded = list(R(9).shuffle(9).iterator(epoch=0))
    finally:
        gp.set_seed(0)
    assert seeded == list(R(9).shuffle(9).with_options(Options(seed=5)).iterator(epoch=0))


def test_negative_seeds_and_those_of_64_bits_are_the_same_seeds() -> None:
    def order(seed: Any) -> list[Any]:
        return [plain(x) for x in R(99).shuffle(99, seed=seed).iterator(epoch=0)]

    assert order(np.int64(-1)) == order(-1)
    assert order(np.uint64(2**64 - 1)) == order(2**64 - 1)
    assert order(np.int8(-3)) == order(-3)


NO_INTEGERS = {
    "True": True,
    "np.True_": np.True_,
    "no axes": np.array(True),
    "1.0": np.float64(1),
    "one": np.array([1]),
}


@pytest.mark.parametrize("value", NO_INTEGERS.values(), ids=NO_INTEGERS.keys())
def test_booleans_floats_and_vectors_are_no_integers(value: Any) -> None:
    image = IMAGE
    for make in (
        lambda: R(4).shuffle(4, seed=value),
        lambda: R(4).take(value),
        lambda: R(value),
        lambda: Dataset.counter(value),
        lambda: Dataset.random(seed=value),
        lambda: Options(threads=value),
        lambda: Options(seed=value),
        lambda: gp.set_seed(value),
        lambda: ops.random_flip_left_right(image, seed=value),
        lambda: ops.resize_shorter(image, value),
    ):
        with pytest.raises(TypeError, match=r"needs (a number|an integer|integers|seed to be an integer)"):
            make()
