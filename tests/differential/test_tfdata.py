"""The same chains on tf.data and on gpupipe: elements, structure, order, cardinality, and that errors are errors.

Python integers are int64 here and int32 there, on purpose, so types are compared only where the data has one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import gpupipe as gp
from tests.behaviour.model import plain, run
from tests.behaviour.programs import Op, Program, build, elements, programs

pytestmark = [pytest.mark.tf, pytest.mark.filterwarnings("ignore")]

Chain = Callable[[Any], Any]

IMAGES = np.arange(2 * 4 * 3, dtype=np.uint8).reshape(2, 4, 3)
FLOATS = np.linspace(-1, 1, 6, dtype=np.float32)
NAMES = np.array([b"a\0", b"", b"ccc"], object)


def _triangle(D: Any) -> Any:
    return D.range(1, 5).flat_map(lambda n: D.range(n).batch(4))


CASES: dict[str, Chain] = {
    # sources
    "range": lambda D: D.range(5),
    "range of two": lambda D: D.range(2, 5),
    "range with a step": lambda D: D.range(1, 10, 3),
    "range downwards": lambda D: D.range(5, 0, -2),
    "range of nothing": lambda D: D.range(5, 0),
    "range as float32": lambda D: D.range(3, output_type=np.float32),
    "range as uint8": lambda D: D.range(3, output_type=np.uint8),
    "from_tensors": lambda D: D.from_tensors([1, 2]),
    "from_tensors scalar": lambda D: D.from_tensors(3),
    "from_tensors tuple": lambda D: D.from_tensors((1, [2, 3])),
    "from_tensors dict": lambda D: D.from_tensors({"a": 1, "b": (2, b"x")}),
    "from_tensors list of tuples": lambda D: D.from_tensors([(1, 2), (3, 4)]),
    "from_tensors bytes": lambda D: D.from_tensors(b"a\0b\0"),
    "from_tensors text": lambda D: D.from_tensors("ä"),
    "from_tensors bool": lambda D: D.from_tensors(True),
    "slices": lambda D: D.from_tensor_slices([1, 2, 3]),
    "slices of images": lambda D: D.from_tensor_slices(IMAGES),
    "slices tuple": lambda D: D.from_tensor_slices(([1, 2], [[3, 4], [5, 6]])),
    "slices dict": lambda D: D.from_tensor_slices({"x": FLOATS, "y": np.arange(6)}),
    "slices nested": lambda D: D.from_tensor_slices({"a": [1, 2], "b": ([3, 4], [[5], [6]])}),
    "slices of bytes": lambda D: D.from_tensor_slices(NAMES),
    "slices of strings": lambda D: D.from_tensor_slices(["x", "yy"]),
    "slices list of tuples": lambda D: D.from_tensor_slices([(1, 2), (3, 4)]),
    "slices of nothing": lambda D: D.from_tensor_slices(np.zeros((0, 3), np.float32)),
    "slices one-tuple": lambda D: D.from_tensor_slices(([1, 2],)),
    # map
    "map": lambda D: D.range(4).map(lambda x: x * 2 + 1),
    "map parallel": lambda D: D.range(20).map(lambda x: x * 2, num_parallel_calls=2),
    "map AUTOTUNE": lambda D: D.range(20).map(lambda x: x - 1, num_parallel_calls=-1),
    "map list becomes tuple": lambda D: D.range(2).map(lambda x: [x, x + 1]),
    "map one-tuple": lambda D: D.range(2).map(lambda x: (x,)),
    "map dict": lambda D: D.range(2).map(lambda x: {"a": x, "b": (x + 1, x * x)}),
    "map unpacks": lambda D: D.from_tensor_slices(([1, 2], [3, 4])).map(lambda a, b: a * b),
    "map unpacks the top only": lambda D: D.zip(D.range(2), D.zip(D.range(2), D.range(3))).map(lambda a, b: a + b[1]),
    "map unpacks a one-tuple": lambda D: D.from_tensor_slices(([1, 2],)).map(lambda x: x),
    "map of a dict": lambda D: D.from_tensor_slices({"a": [1, 2], "b": [3, 4]}).map(lambda d: d["a"] - d["b"]),
    "map // and % of negatives": lambda D: D.range(-4, 4).map(lambda x: (x // 3, x % 3)),
    "map comparisons": lambda D: D.range(4).map(lambda x: (x < 2, x <= 2, x > 2, x >= 2)),
    "map negative": lambda D: D.range(3).map(lambda x: -x),
    "map float32": lambda D: D.from_tensor_slices(FLOATS).map(lambda x: x * 2 - 1),
    "map indexes": lambda D: D.from_tensor_slices(IMAGES).map(lambda x: x[1:, ::2]),
    "map of a batch": lambda D: D.range(5).batch(2).map(lambda x: x + 1),
    "map over map": lambda D: D.range(5).map(lambda x: (x, x * x)).map(lambda a, b: b - a),
    # filter
    "filter": lambda D: D.range(9).filter(lambda x: x % 3 == 0),
    "filter a pair": lambda D: D.zip(D.range(4), D.range(4, 0, -1)).filter(lambda a, b: a > b),
    "filter nothing through": lambda D: D.range(4).filter(lambda x: x > 9),
    "filter behind a map": lambda D: D.range(6).map(lambda x: (x, x * x)).filter(lambda a, b: b > 8),
    # take, skip, repeat, shard
    "take": lambda D: D.range(5).take(2),
    "take 0": lambda D: D.range(5).take(0),
    "take -1": lambda D: D.range(5).take(-1),
    "take -7": lambda D: D.range(5).take(-7),
    "take too many": lambda D: D.range(5).take(99),
    "skip": lambda D: D.range(5).skip(2),
    "skip 0": lambda D: D.range(5).skip(0),
    "skip -1": lambda D: D.range(5).skip(-1),
    "skip too many": lambda D: D.range(5).skip(99),
    "repeat 0": lambda D: D.range(3).repeat(0),
    "repeat 3": lambda D: D.range(3).repeat(3),
    "repeat for ever": lambda D: D.range(3).repeat().take(8),
    "repeat of nothing": lambda D: D.range(0).repeat(),
    "repeat of filtered nothing": lambda D: D.range(3).filter(lambda x: x > 5).repeat(),
    "shard": lambda D: D.range(10).shard(3, 1),
    "shard of too few": lambda D: D.range(2).shard(5, 4),
    "enumerate": lambda D: D.from_tensor_slices(([1, 2], [3, 4])).enumerate(),
    "enumerate from -2": lambda D: D.range(3).enumerate(-2),
    # batches
    "batch": lambda D: D.range(5).batch(2),
    "batch drops": lambda D: D.range(5).batch(2, drop_remainder=True),
    "batch of bytes": lambda D: D.from_tensor_slices(NAMES).batch(2),
    "batch of images": lambda D: D.from_tensor_slices(IMAGES).batch(2),
    "batch nested": lambda D: D.from_tensor_slices({"a": [1, 2, 3], "b": ([4, 5, 6], [[7], [8], [9]])}).batch(2),
    "batch of batches": lambda D: D.range(8).batch(2).batch(2),
    "batch then repeat": lambda D: D.range(5).batch(2).repeat(2),
    "repeat then batch": lambda D: D.range(5).repeat(2).batch(2),
    "unbatch": lambda D: D.range(5).batch(2).unbatch(),
    "unbatch slices": lambda D: D.from_tensor_slices(IMAGES).unbatch(),
    "unbatch of pairs": lambda D: D.from_tensors(([1, 2], [3, 4])).unbatch(),
    "padded_batch": lambda D: _triangle(D).padded_batch(2),
    "padded_batch drops": lambda D: _triangle(D).padded_batch(3, drop_remainder=True),
    "padded_batch to 5": lambda D: _triangle(D).padded_batch(2, padded_shapes=[5], padding_values=np.int64(-1)),
    "padded_batch of a pair": lambda D: D.zip(_triangle(D), _triangle(D)).padded_batch(
        2, padded_shapes=([4], [None]), padding_values=(np.int64(-1), np.int64(7))
    ),
    "padded_batch None value": lambda D: D.zip(_triangle(D), _triangle(D)).padded_batch(
        4, padded_shapes=([4], [-1]), padding_values=(None, np.int64(7))
    ),
    "padded_batch of scalars": lambda D: D.range(5).padded_batch(2),
    # joins
    "zip": lambda D: D.zip(D.range(3), D.range(5)),
    "zip tuple": lambda D: D.zip((D.range(3), D.range(5))),
    "zip dict": lambda D: D.zip({"x": D.range(3), "y": (D.range(5), D.range(2))}),
    "zip one-tuple": lambda D: D.zip((D.range(2),)),
    "zip with an endless one": lambda D: D.zip(D.range(3), D.range(2).repeat()),
    "concatenate": lambda D: D.range(3).concatenate(D.range(5, 7)),
    "concatenate ranks": lambda D: D.from_tensors([1, 2]).concatenate(D.from_tensors(1)),
    "concatenate keys": lambda D: D.from_tensors({"a": 1, "b": 2}).concatenate(D.from_tensors({"b": 3, "a": 4})),
    # flat_map, interleave
    "flat_map": lambda D: D.range(4).flat_map(lambda x: D.range(x)),
    "flat_map repeats": lambda D: D.range(3).flat_map(lambda x: D.from_tensors(x).repeat(2)),
    "flat_map of slices": lambda D: D.from_tensor_slices([[1, 2], [3, 4]]).flat_map(lambda x: D.from_tensor_slices(x)),
    "flat_map nested": lambda D: D.range(3).flat_map(lambda a: D.range(2).flat_map(lambda b: D.from_tensors((a, b)))),
    "flat_map uses the outer one": lambda D: D.range(3).flat_map(lambda a: D.range(2).map(lambda b: a * 10 + b)),
    "interleave blocks": lambda D: D.range(1, 6).interleave(
        lambda x: D.from_tensors(x).repeat(6), cycle_length=2, block_length=4
    ),
    "interleave of three": lambda D: D.from_tensor_slices(np.array([3, 1, 4, 2])).interleave(
        lambda n: D.range(n * 10, n * 10 + n), cycle_length=3, block_length=1
    ),
    "interleave with empties": lambda D: D.from_tensor_slices(np.array([0, 3, 0, 2, 1])).interleave(
        lambda n: D.range(n * 10, n * 10 + n), cycle_length=2, block_length=1
    ),
    "interleave parallel": lambda D: D.range(7).interleave(
        lambda n: D.range(n * 10, n * 10 + n), cycle_length=4, block_length=2, num_parallel_calls=2
    ),
    # the rest
    "shuffle of one": lambda D: D.range(5).shuffle(1),
    "prefetch": lambda D: D.range(5).prefetch(2),
    "prefetch AUTOTUNE": lambda D: D.range(5).batch(2).prefetch(-1),
    "cache": lambda D: D.range(5).map(lambda x: x + 1).cache().repeat(2),
    "apply": lambda D: D.range(5).apply(lambda d: d.skip(1).batch(2)),
    "a chain": lambda D: (
        D.range(4)
        .interleave(lambda f: D.range(f * 100, f * 100 + 5), cycle_length=2)
        .map(lambda x: (x, x % 10))
        .repeat(2)
        .batch(7, drop_remainder=True)
        .prefetch(2)
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_elements_structure_order_and_cardinality_are_equal(tf: Any, name: str) -> None:
    theirs, ours = CASES[name](tf.data.Dataset), CASES[name](gp.Dataset)
    expected, known = [plain(x) for x in theirs.as_numpy_iterator()], int(theirs.cardinality())

    assert run(ours) == expected
    assert run(ours.as_numpy_iterator()) == expected
    # What is unknown there may be known here, if it is right; take(-7) has -7 elements there, and a repeat of nothing
    # that is filtered is endless.
    right = [known] if known >= 0 else [gp.UNKNOWN_CARDINALITY, len(expected)]
    assert ours.cardinality() in right


@pytest.mark.parametrize(
    "name", ["range as float32", "range as uint8", "slices of images", "map float32", "batch of images", "zip"]
)
def test_types_are_equal_where_the_data_has_one(tf: Any, name: str) -> None:
    theirs, ours = CASES[name](tf.data.Dataset), CASES[name](gp.Dataset)
    expected = [np.asarray(leaf) for leaf in tf.nest.flatten(list(theirs.as_numpy_iterator()))]
    got = [np.asarray(leaf) for leaf in tf.nest.flatten(list(ours))]

    assert [(leaf.dtype, leaf.shape) for leaf in got] == [(leaf.dtype, leaf.shape) for leaf in expected]


ERRORS: dict[str, Chain] = {
    "range()": lambda D: D.range(),
    "range step 0": lambda D: D.range(0, 5, 0),
    "range 1.5": lambda D: D.range(1.5),
    "slices unequal": lambda D: D.from_tensor_slices(([1, 2], [1, 2, 3])),
    "slices scalar": lambda D: D.from_tensor_slices(1),
    "slices ragged": lambda D: D.from_tensor_slices([[1], [2, 3]]),
    "no files": lambda D: D.list_files("/no/such/*"),
    "map None": lambda D: D.range(2).map(lambda x: None),
    "map arity": lambda D: D.range(2).map(lambda a, b: a),
    "map calls 0": lambda D: D.range(2).map(lambda x: x, num_parallel_calls=0),
    "filter a number": lambda D: D.range(2).filter(lambda x: x + 1),
    "filter a vector": lambda D: D.range(2).batch(2).filter(lambda x: x > 0),
    "take 1.5": lambda D: D.range(2).take(1.5),
    "skip 1.5": lambda D: D.range(2).skip(1.5),
    "repeat 1.5": lambda D: D.range(2).repeat(1.5),
    "shard index": lambda D: D.range(2).shard(2, 2),
    "shard 0": lambda D: D.range(2).shard(0, 0),
    "shuffle 0": lambda D: D.range(2).shuffle(0),
    "batch 0": lambda D: D.range(2).batch(0),
    "batch of unequal shapes": lambda D: _triangle(D).batch(2),
    "padded too small": lambda D: _triangle(D).padded_batch(2, padded_shapes=[2]),
    "padded rank": lambda D: _triangle(D).padded_batch(2, padded_shapes=[5, 5]),
    "padded dtype": lambda D: D.range(2).padded_batch(2, padding_values=np.float32(0)),
    "unbatch scalars": lambda D: D.range(2).unbatch(),
    "unbatch unequal": lambda D: D.from_tensors((np.zeros(2), np.zeros(3))).unbatch(),
    "zip nothing": lambda D: D.zip(),
    "zip a list": lambda D: D.zip([D.range(2)]),
    "zip numbers": lambda D: D.zip(D.range(2), 3),
    "concatenate types": lambda D: D.range(2).concatenate(D.range(2, output_type=np.float32)),
    "concatenate structures": lambda D: D.range(2).concatenate(D.zip(D.range(2), D.range(2))),
    "flat_map no dataset": lambda D: D.range(2).flat_map(lambda x: x),
    "interleave cycle 0": lambda D: D.range(2).interleave(lambda x: D.range(x), cycle_length=0),
    "interleave block 0": lambda D: D.range(2).interleave(lambda x: D.range(x), cycle_length=1, block_length=0),
    "generator types": lambda D: D.from_generator(lambda: iter([b"x"]), output_types=np.int32),
    "generator shapes": lambda D: D.from_generator(lambda: iter([[1]]), output_types=np.int64, output_shapes=(2,)),
    "generator raises": lambda D: D.from_generator(lambda: iter([1 // 0]), output_types=np.int64),
    "len of endless": lambda D: range(len(D.range(2).repeat())),
    "len of unknown": lambda D: range(len(D.range(2).filter(lambda x: x > 0))),
}


@pytest.mark.parametrize("name", ERRORS)
def test_what_is_an_error_there_is_one_here(tf: Any, name: str) -> None:
    for dataset in (tf.data.Dataset, gp.Dataset):
        with pytest.raises((ValueError, TypeError, AttributeError, RuntimeError, tf.errors.OpError)):
            list(ERRORS[name](dataset))


# ---- random chains


def _append(tf: Any, d: Any, op: Op) -> Any:
    D = tf.data.Dataset
    match op:
        case ("take" | "skip" | "repeat" | "shard" | "prefetch" | "cache" | "batch" | "unbatch", *args):
            return getattr(d, op[0])(*args)
        case ("add", k):
            return d.map(lambda x: x + k)
        case ("python", k, _):
            return d.map(lambda x: x * 2 + k)
        case ("filter" | "python filter", m):
            return d.filter(lambda x: x % m != 0)
        case ("zip", n):
            return D.zip(d, D.range(n)).map(lambda a, b: a * 7 + b)
        case ("concatenate", n):
            return d.concatenate(D.range(100, 100 + n))
        case ("enumerate", start):
            return d.enumerate(start).map(lambda i, x: i * 1000 + x)
        case ("flat_map",):
            return d.flat_map(lambda x: D.range(2).map(lambda i: i + x))
        case ("interleave", cycle, block):
            return d.interleave(lambda x: D.range(x % 4), cycle, block)
        case ("twice",):
            return D.zip(d, d).map(lambda a, b: a + b)
    raise AssertionError(op)


def test_random_chains_give_the_same(tf: Any) -> None:
    @settings(max_examples=60, deadline=None, database=None, derandomize=True)
    @given(program=programs(most=6))
    def compare(program: Program) -> None:
        count, ops = program
        theirs = tf.data.Dataset.range(count)
        for op in ops:
            theirs = _append(tf, theirs, op)

        assert elements(build(program)) == [plain(x) for x in theirs.as_numpy_iterator()]

    compare()


# ---- files


RECORDS = [b"", b"a\0", b"x" * 100_000, *(b"%d" % i for i in range(50))]


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
def test_tf_data_reads_what_is_written_here(tf: Any, tmp_path: Path, compression: str) -> None:
    with gp.io.TFRecordWriter(tmp_path / "x", compression) as out:
        for record in RECORDS:
            out.write(record)

    assert list(tf.data.TFRecordDataset(str(tmp_path / "x"), compression).as_numpy_iterator()) == RECORDS


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
def test_what_tensorflow_wrote_is_read_here(tf: Any, tmp_path: Path, compression: str) -> None:
    with tf.io.TFRecordWriter(str(tmp_path / "x"), compression) as out:
        for record in RECORDS:
            out.write(record)

    assert run(gp.TFRecordDataset(tmp_path / "x", compression)) == RECORDS
    assert run(gp.TFRecordDataset(tmp_path / "x", compression).skip(2).batch(7)) == [
        RECORDS[i : i + 7] for i in range(2, len(RECORDS), 7)
    ]


@pytest.mark.parametrize("reads", [None, 1, 2, 5])
def test_several_files_are_read_in_the_same_order(tf: Any, tmp_path: Path, reads: int | None) -> None:
    paths = [str(tmp_path / f"{i}") for i in range(4)]
    for i, path in enumerate(paths):
        with gp.io.TFRecordWriter(path) as out:
            for j in range(3 * i % 7):
                out.write(b"%d.%d" % (i, j))

    expected = list(tf.data.TFRecordDataset(paths, num_parallel_reads=reads).as_numpy_iterator())

    assert run(gp.TFRecordDataset(paths, num_parallel_reads=reads)) == expected


def test_examples_are_parsed_alike(tf: Any, tmp_path: Path) -> None:
    def example(i: int) -> Any:
        lists = {
            "id": tf.train.Feature(int64_list=tf.train.Int64List(value=[i])),
            "box": tf.train.Feature(float_list=tf.train.FloatList(value=[i, i / 2])),
            "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"\xff" * i])),
        }
        return tf.train.Example(features=tf.train.Features(feature=lists))

    with tf.io.TFRecordWriter(str(tmp_path / "x")) as out:
        for i in range(7):
            out.write(example(i).SerializeToString())

    def chain(D: Any, records: Any, io: Any, text: Any) -> Any:
        features = {
            "id": io.FixedLenFeature((), np.int64 if io is gp.io else tf.int64),
            "box": io.FixedLenFeature((2,), np.float32 if io is gp.io else tf.float32),
            "image": io.FixedLenFeature((), text),
            "label": io.FixedLenFeature((), np.int64 if io is gp.io else tf.int64, default_value=-1),
        }
        return records(str(tmp_path / "x")).map(lambda r: io.parse_single_example(r, features)).batch(3)

    theirs = chain(tf.data.Dataset, tf.data.TFRecordDataset, tf.io, tf.string)
    ours = chain(gp.Dataset, gp.TFRecordDataset, gp.io, bytes)

    assert run(ours) == [plain(x) for x in theirs.as_numpy_iterator()]


def test_files_are_listed_alike(tf: Any, tmp_path: Path) -> None:
    for name in ("b", "a", "c.x", "a1"):
        (tmp_path / name).write_bytes(b"")
    for pattern in ("*", "a*", "?", "[ab]", "*.x"):
        path = f"{tmp_path}/{pattern}"
        expected = list(tf.data.Dataset.list_files(path, shuffle=False).as_numpy_iterator())

        assert run(gp.Dataset.list_files(path, shuffle=False)) == expected
        assert sorted(run(gp.Dataset.list_files(path))) == expected
