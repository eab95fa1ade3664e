"""Mistakes: V is a ValueError and T a TypeError on the user's line, D a data error where the element is delivered."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import TensorSpec, TFRecordDataset
from tests.behaviour.model import run

# Mistakes are wrong on purpose: no type checker looks at these.
Dataset: Any = gp.Dataset
Options: Any = gp.Options
set_seed: Any = gp.set_seed
R: Any = Dataset.range(4)
PAIRS: Any = Dataset.zip(R, R)
WIDE = Dataset.from_tensors(np.zeros(3))
SPEC = TensorSpec((), "int32")

V, T = ValueError, TypeError

# (what the user wrote, its class, what the message says: who needs what, and what it got)
PLAN_ERRORS: list[tuple[str, Callable[[], Any], type[Exception], str]] = [
    ("range()", lambda: Dataset.range(), V, "range needs 1 to 3 arguments, got 0"),
    ("range step 0", lambda: Dataset.range(0, 5, 0), V, "range needs a step other than 0"),
    ("range of a float", lambda: Dataset.range(2.5), T, "range needs integers, got 2.5"),
    ("range of strings", lambda: Dataset.range(2, output_type=str), T, "range needs an integer or float output_type"),
    ("from_tensors None", lambda: Dataset.from_tensors(None), V, "from_tensors needs an element, got None"),
    ("from_tensors set", lambda: Dataset.from_tensors({1}), V, "ordered structure"),
    ("from_tensors ragged", lambda: Dataset.from_tensors([[1], [2, 3]]), V, "rectangular array"),
    ("from_tensors ()", lambda: Dataset.from_tensors(()), V, "at least one leaf"),
    ("from_tensors {}", lambda: Dataset.from_tensors({}), V, "at least one leaf"),
    ("from_tensors 2**70", lambda: Dataset.from_tensors(2**70), V, "integers that fit 64 bits"),
    (
        "from_tensors mixed",
        lambda: Dataset.from_tensors([1, "a"]),
        T,
        "a leaf needs booleans, integers, floats or bytes",
    ),
    ("slices unequal", lambda: Dataset.from_tensor_slices(([1, 2], [1, 2, 3])), V, "leaves of one length, got 2, 3"),
    ("slices scalar", lambda: Dataset.from_tensor_slices(3), V, "first dimension to slice, got the scalar"),
    ("slices None", lambda: Dataset.from_tensor_slices(None), V, "at least one array"),
    ("generator no callable", lambda: Dataset.from_generator(3), T, "from_generator needs a callable, got int"),
    (
        "generator both forms",
        lambda: Dataset.from_generator(list, output_types=np.int32, output_signature=SPEC),
        T,
        "from_generator takes output_signature or output_types, not both",
    ),
    ("generator shapes only", lambda: Dataset.from_generator(list, output_shapes=()), T, "needs output_types"),
    (
        "generator no spec",
        lambda: Dataset.from_generator(list, output_signature=3),
        T,
        "structure of TensorSpec, got int",
    ),
    ("list_files nothing", lambda: Dataset.list_files("/no/such/*.x"), V, r"none match /no/such/\*\.x"),
    ("list_files of 3", lambda: Dataset.list_files(3), T, "list_files needs a pattern"),
    ("list_files of [3]", lambda: Dataset.list_files([3]), T, "strings or paths, got 3"),
    ("records of 3", lambda: TFRecordDataset(3), T, "TFRecordDataset needs file names, got 3"),
    ("records of [3]", lambda: TFRecordDataset(["a", 3]), T, "TFRecordDataset needs file names, got 3"),
    ("records of numbers", lambda: TFRecordDataset(R), T, "dataset of single file names, got int64"),
    ("records compression", lambda: TFRecordDataset("a", "ZIP"), V, "compression_type .* got 'ZIP'"),
    ("records buffer", lambda: TFRecordDataset("a", buffer_size=-1), V, "buffer_size >= 0, got -1"),
    ("records reads 0", lambda: TFRecordDataset("a", num_parallel_reads=0), V, "num_parallel_reads >= 1 .* got 0"),
    ("map calls 0", lambda: R.map(abs, num_parallel_calls=0), V, "map needs num_parallel_calls >= 1 .* got 0"),
    ("map calls 1.5", lambda: R.map(abs, num_parallel_calls=1.5), T, "map needs an integer for num_parallel_calls"),
    ("map synchronous", lambda: R.map(abs, 2, synchronous=True), V, "synchronous=True or num_parallel_calls, not both"),
    ("map of 3", lambda: R.map(3), T, "map needs a function, got int"),
    ("map arity", lambda: PAIRS.map(lambda a: a), T, "map calls the lambda with 2 arguments"),
    ("map arity of a dict", lambda: Dataset.from_tensors({"a": 1}).map(lambda a, b: a), T, "with 1 argument "),
    ("map spec", lambda: R.map(abs, spec=3), T, "map needs a structure of TensorSpec, got int"),
    ("map traced and rng", lambda: R.map(abs, traced=True, rng=True), V, "traced=True or the arguments of a Python"),
    ("map traced python", lambda: R.map(lambda x: int(x), traced=True), T, r"a traced function needs int\(\)"),
    (
        "map traced None",
        lambda: R.map(lambda x: None, traced=True),
        T,
        "map needs a function that returns an element, got None from the lambda",
    ),
    ("filter of 3", lambda: R.filter(3), T, "filter needs a function, got int"),
    ("filter number", lambda: R.filter(lambda x: x + 1), V, "returns one boolean, got int64"),
    ("filter vector", lambda: WIDE.filter(lambda x: x > 1), V, r"returns one boolean, got bool\[3\]"),
    ("take 1.5", lambda: R.take(1.5), T, "take needs an integer for count, got 1.5"),
    ("take None", lambda: R.take(None), V, "take needs an integer for count, got None"),
    ("shard 0", lambda: R.shard(0, 0), V, "shard needs num_shards >= 1, got 0"),
    ("shard index", lambda: R.shard(2, 2), V, "shard needs an index from 0 to 1, got 2"),
    ("enumerate 1.5", lambda: R.enumerate(1.5), T, "enumerate needs an integer for start, got 1.5"),
    ("apply", lambda: R.apply(lambda d: 3), T, "apply needs a function that returns a Dataset, got int"),
    ("prefetch -2", lambda: R.prefetch(-2), V, "prefetch needs buffer_size >= 0 or AUTOTUNE, got -2"),
    ("prefetch 1.5", lambda: R.prefetch(1.5), T, "prefetch needs an integer for buffer_size"),
    ("with_options", lambda: R.with_options({"threads": 1}), T, "with_options needs gpupipe.Options, got dict"),
    ("flat_map no dataset", lambda: R.flat_map(lambda x: x), T, "flat_map needs a function that returns a Dataset"),
    ("interleave cycle 0", lambda: R.interleave(lambda x: R, 0), V, "interleave needs cycle_length >= 1, got 0"),
    ("interleave block 0", lambda: R.interleave(lambda x: R, 2, 0), V, "interleave needs block_length >= 1.* got 0"),
    (
        "interleave calls 0",
        lambda: R.interleave(lambda x: R, 2, 1, 0),
        V,
        "interleave needs num_parallel_calls >= 1 .* got 0",
    ),
    ("shuffle 0", lambda: R.shuffle(0), V, "shuffle needs buffer_size >= 1, got 0"),
    ("shuffle 1.5", lambda: R.shuffle(1.5), T, "shuffle needs an integer for buffer_size, got 1.5"),
    ("shuffle seed", lambda: R.shuffle(2, seed="x"), T, "shuffle needs an integer for seed, got 'x'"),
    ("batch 0", lambda: R.batch(0), V, "batch needs batch_size >= 1, got 0"),
    ("batch 1.5", lambda: R.batch(1.5), T, "batch needs an integer for batch_size, got 1.5"),
    ("padded too small", lambda: WIDE.padded_batch(2, [2]), V, r"padded shapes no smaller than the data, got \[2\]"),
    ("padded rank", lambda: WIDE.padded_batch(2, [3, 3]), V, r"padded shape of rank 1 .* got \[3, 3\]"),
    ("padded value", lambda: R.padded_batch(2, padding_values=0.5), T, "value of dtype int64 .* got 0.5"),
    ("padded bytes", lambda: R.padded_batch(2, padding_values=b"x"), T, "to fill int64, got b'x'"),
    ("padded structure", lambda: PAIRS.padded_batch(2, padded_shapes=[[]]), T, "padded_shapes as a tuple of 2"),
    ("unbatch scalar", lambda: R.unbatch(), V, "unbatch needs leaves with a first dimension, got the scalar int64"),
    (
        "unbatch unequal",
        lambda: Dataset.from_tensors((np.zeros(2), np.zeros(3))).unbatch(),
        V,
        "unbatch needs leaves of one length, got 2 and 3",
    ),
    ("cache of 3", lambda: R.cache(3), T, "cache needs a file name, got 3"),
    ("zip nothing", lambda: Dataset.zip(), T, "zip needs at least one dataset"),
    ("zip list", lambda: Dataset.zip([R, R]), T, "zip needs datasets in a tuple or dict, got a list; use a tuple"),
    ("zip number", lambda: Dataset.zip(R, 3), T, "zip needs datasets, got int"),
    ("zip both forms", lambda: Dataset.zip(R, datasets=(R, R)), T, "as arguments or by keyword, not both"),
    ("concatenate 3", lambda: R.concatenate(3), T, "concatenate needs a Dataset, got int"),
    (
        "concatenate dtype",
        lambda: R.concatenate(Dataset.range(2, output_type=np.int32)),
        T,
        "one dtype, got int64 and int32",
    ),
    ("concatenate structure", lambda: R.concatenate(PAIRS), T, "concatenate needs datasets of one structure"),
    ("iterator epoch", lambda: R.iterator(epoch=-1), V, "iterator needs epoch >= 0, got -1"),
    ("epochs", lambda: R.epochs(-1), V, "epochs needs count >= 0, got -1"),
    ("options type", lambda: Options(threads="2"), T, "Options.threads needs an integer, got '2'"),
    ("options value", lambda: Options(on_error="ignore"), V, "Options.on_error needs one of .* got 'ignore'"),
    ("set_seed", lambda: set_seed("x"), T, "set_seed needs an integer, got 'x'"),
    ("spec dtype", lambda: TensorSpec((), object()), T, "a spec needs a NumPy dtype or bytes"),
    ("spec shape", lambda: TensorSpec((-1,), "int64"), V, "dimensions >= 0"),
]


@pytest.mark.parametrize(("write", "kind", "text"), [pytest.param(*row[1:], id=row[0]) for row in PLAN_ERRORS])
def test_a_mistake_is_an_error_on_the_line_that_makes_it(
    write: Callable[[], Any], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text) as caught:
        write()

    assert isinstance(caught.value, gp.PlanError)


# ---- what only the element tells


def _raise(x: Any) -> Any:
    raise KeyError(f"no {int(x)}")


DATA_ERRORS: list[tuple[str, Callable[[], gp.Dataset], str]] = [
    ("map raises", lambda: R.map(_raise), "range at index 0: map: raised KeyError: 'no 0'"),
    (
        "map changes dtype",
        lambda: R.map(lambda x: int(x) if x < 2 else 0.5),
        "one dtype and rank, got .*float64.* after .*int64",
    ),
    (
        "map changes structure",
        lambda: R.map(lambda x: (1, 2) if x > 1 else (1,)),
        r"one structure, got \(\*, \*\) after \(\*,\)",
    ),
    ("map unlike its spec", lambda: R.map(lambda x: "a", spec=SPEC), "map needs int32, got bytes"),
    ("filter raises", lambda: R.filter(_raise), "range at index 0: filter: raised KeyError"),
    (
        "filter returns a number",
        lambda: R.filter(lambda x: int(x)),
        "filter needs a predicate that returns one boolean, got int",
    ),
    ("filter returns a vector", lambda: R.filter(lambda x: np.array([True, False])), "one boolean, got ndarray"),
    (
        "generator raises",
        lambda: Dataset.from_generator(lambda: _raise(3)),
        "from_generator at index 0: from_generator: raised KeyError",
    ),
    (
        "generator structure",
        lambda: Dataset.from_generator(lambda: iter([(1, 2)]), output_signature=SPEC),
        r"from_generator needs int32, got int64\[2\]",
    ),
    (
        "generator nesting",
        lambda: Dataset.from_generator(lambda: iter([1]), output_signature=(SPEC, SPEC)),
        r"from_generator needs elements like \(int32, int32\), got 1",
    ),
    (
        "generator precision",
        lambda: Dataset.from_generator(lambda: iter([np.float64(0.1)]), output_signature=TensorSpec((), "float32")),
        "from_generator needs float32, got float64",
    ),
    (
        "generator overflow",
        lambda: Dataset.from_generator(lambda: iter([1e300]), output_signature=TensorSpec((), "float32")),
        "from_generator needs float32, got float64",
    ),
    ("flat_map raises", lambda: R.flat_map(lambda x: _raise(x)), "flat_map: raised KeyError"),
]


@pytest.mark.parametrize(("make", "text"), [pytest.param(*row[1:], id=row[0]) for row in DATA_ERRORS])
def test_what_fails_with_an_element_is_a_data_error(make: Callable[[], gp.Dataset], text: str) -> None:
    with pytest.raises(gp.DataError, match=text):
        run(make())


def test_the_original_exception_is_the_cause() -> None:
    for dataset in (R.map(_raise), R.filter(_raise), R.map(_raise, num_parallel_calls=2).batch(2)):
        with pytest.raises(gp.DataError) as caught:
            run(dataset)
        assert isinstance(caught.value.__cause__, KeyError)


def test_a_function_that_returns_no_dataset_for_some_element_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="flat_map needs a function that returns a Dataset, got int"):
        run(R.flat_map(lambda x: int(x)))


def test_an_arity_mistake_behind_an_unknown_element_is_a_type_error_with_the_first_element() -> None:
    with pytest.raises((TypeError, gp.DataError), match="argument"):
        run(R.map(lambda x: (int(x), 1)).map(lambda a: [int(a)]))


def test_data_errors_name_file_offset_and_stage(tmp_path: Path) -> None:
    with gp.io.TFRecordWriter(tmp_path / "a.tfrecord") as out:
        out.write(b"not an Example")
    features = {"x": gp.io.FixedLenFeature((), "int64")}

    with pytest.raises(gp.DataError, match=r"a\.tfrecord at offset 0: parse") as caught:
        run(TFRecordDataset(tmp_path / "a.tfrecord").map(lambda r: gp.io.parse_single_example(r, features)["x"]))

    assert (caught.value.file, caught.value.offset) == (str(tmp_path / "a.tfrecord"), 0)
