"""Mistakes: V is a ValueError and T a TypeError on the user's line, D a data error where the element is delivered."""

from __future__ import annotations

from collections.abc import Callable
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
SPEC = TensorSpec((), "int32")
GENERATED = Dataset.from_generator

V, T = ValueError, TypeError

# (what the user wrote, its class, what the message says: who needs what, and what it got). The mistakes that tf.data
# knows are in tests/differential/test_tfdata_errors.py, with their classes.
PLAN_ERRORS: list[tuple[str, Callable[[], Any], type[Exception], str]] = [
    ("range()", lambda: Dataset.range(), V, "range needs 1 to 3 arguments, got 0"),
    ("range of strings", lambda: Dataset.range(2, output_type=str), T, "range needs an integer or float output_type"),
    ("from_tensors {}", lambda: Dataset.from_tensors({}), V, "at least one leaf"),
    ("from_tensors mixed", lambda: Dataset.from_tensors([1, "a"]), T, "a leaf needs booleans, integers, floats or"),
    ("list_files of [3]", lambda: Dataset.list_files([3]), T, "strings or paths, got 3"),
    ("records compression", lambda: TFRecordDataset("a", "ZIP"), V, "compression_type .* got 'ZIP'"),
    ("map calls 1.5", lambda: R.map(abs, num_parallel_calls=1.5), T, "map needs an integer for num_parallel_calls"),
    ("map arity", lambda: PAIRS.map(lambda a: a), T, "map calls the lambda with 2 arguments"),
    ("map arity of a dict", lambda: Dataset.from_tensors({"a": 1}).map(lambda a, b: a), T, "with 1 argument "),
    ("map spec", lambda: R.map(abs, spec=3), T, "map needs a structure of TensorSpec, got int"),
    ("map traced and rng", lambda: R.map(abs, traced=True, rng=True), V, "traced=True or the arguments of a Python"),
    ("map traced python", lambda: R.map(lambda x: int(x), traced=True), T, r"a traced function needs int\(\)"),
    ("take 1.5", lambda: R.take(1.5), T, "take needs an integer for count, got 1.5"),
    ("shard index", lambda: R.shard(2, 2), V, "shard needs an index from 0 to 1, got 2"),
    ("shard even", lambda: R.shard(2, 0, even=True), V, "shard needs even='drop' or even='wrap', or None, got True"),
    ("prefetch 1.5", lambda: R.prefetch(1.5), T, "prefetch needs an integer for buffer_size"),
    ("shuffle seed", lambda: R.shuffle(2, seed="x"), T, "shuffle needs an integer for seed, got 'x'"),
    ("padded bytes", lambda: R.padded_batch(2, padding_values=b"x"), T, "to fill int64, got b'x'"),
    ("unbatch unequal", lambda: Dataset.from_tensors(([1], [2, 3])).unbatch(), V, "leaves of one length, got 1 and 2"),
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
    ("map changes dtype", lambda: R.map(lambda x: int(x) if x < 2 else 0.5), "one dtype and rank, got .*float64.*"),
    ("map changes structure", lambda: R.map(lambda x: (1, 2) if x > 1 else (1,)), r"got \(\*, \*\) after \(\*,\)"),
    ("map unlike its spec", lambda: R.map(lambda x: "a", spec=SPEC), "map needs int32, got bytes"),
    ("filter raises", lambda: R.filter(_raise), "range at index 0: filter: raised KeyError"),
    ("filter returns a number", lambda: R.filter(lambda x: int(x)), "predicate that returns one boolean, got int"),
    ("filter returns a vector", lambda: R.filter(lambda x: np.array([True, False])), "one boolean, got ndarray"),
    ("generator raises", lambda: GENERATED(lambda: _raise(3)), "from_generator at index 0: from_generator: raised Key"),
    ("generator structure", lambda: GENERATED(lambda: iter([(1, 2)]), output_signature=SPEC), r"int32, got int64\[2\]"),
    ("generator nesting", lambda: GENERATED(lambda: iter([1]), output_signature=(SPEC, SPEC)), "int32, int32.*, got 1"),
    ("generator precision", lambda: GENERATED(lambda: iter([np.float64(0.1)]), output_types="float32"), "got float64"),
    ("generator overflow", lambda: GENERATED(lambda: iter([1e300]), output_types="float32"), "float32.*, got float64"),
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


NO_PATHS = {"NUL": b"GIF89a\x01\x00", "delete": b"junk\x7f", "line break": b"line\nline", "long": b"x" * 5000}
NAMES: dict[str, tuple[Any, str]] = {
    **{name: (data, "from_tensor_slices") for name, data in NO_PATHS.items()},
    "a path": ("some/a.jpg", "some/a.jpg"),
    "a path in other letters": ("с пробелом/ü.jpg", "с пробелом/ü.jpg"),
}


@pytest.mark.parametrize(("data", "file"), NAMES.values(), ids=NAMES)
def test_what_cannot_be_a_path_is_not_shown_as_one(data: Any, file: str) -> None:
    with pytest.raises(gp.DataError) as caught:
        run(Dataset.from_tensor_slices([data]).map(_raise))

    assert caught.value.file == file
