"""Mistakes and failing elements, row by row: when each surfaces, on tf.data and on gpupipe."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from tests.behaviour.model import run
from tests.differential.tfdata_sides import TEXTS, Chain, built, dicts, from_generator, on, outcomes, pairs, triangle

pytestmark = [pytest.mark.tf, pytest.mark.filterwarnings("ignore")]

NOTHING = object()
EMPTY: dict[str, int] = {}
I64 = np.int64

ERRORS: dict[str, tuple[str, Chain]] = {
    # V: ValueError, T: TypeError, on the user's line; "later": with the first element, as a function has to run; D: a
    # data error when the element is asked for.
    "range of four": ("V", lambda D: D.range(1, 2, 3, 4)),
    "range step 0 downwards": ("V", lambda D: D.range(5, 0, 0)),
    "range of a float": ("T", lambda D: D.range(0, 2.5)),
    "tensors None": ("V", lambda D: D.from_tensors(None)),
    "tensors a set": ("V", lambda D: D.from_tensors({1, 2})),
    "tensors an object": ("V", lambda D: D.from_tensors(NOTHING)),
    "tensors ragged": ("V", lambda D: D.from_tensors([[1, 2], [3]])),
    "tensors mixed": ("V", lambda D: D.from_tensors([1, "a"])),
    "tensors beyond 64 bits": ("V", lambda D: D.from_tensors(2**70)),
    "tensors empty tuple": ("V", lambda D: D.from_tensors(()).map(lambda: 1)),
    "slices None": ("V", lambda D: D.from_tensor_slices(None)),
    "slices no leaf": ("V", lambda D: D.from_tensor_slices({})),
    "slices a scalar in a dict": ("V", lambda D: D.from_tensor_slices({"a": [1, 2], "b": 3})),
    "slices text": ("V", lambda D: D.from_tensor_slices("abc")),
    "slices unequal nested": ("V", lambda D: D.from_tensor_slices((([1, 2],), ([1, 2], [1, 2, 3])))),
    "generator no callable": ("T", lambda D: D.from_generator(iter([1]), output_types=np.int64)),
    "generator both forms": (
        "T",
        lambda D: from_generator(D, 1, output_types=I64, output_signature=on(D).Spec((), I64)),
    ),
    "generator shapes alone": ("T", lambda D: from_generator(D, 1, output_shapes=())),
    "generator no spec": ("T", lambda D: from_generator(D, 1, output_signature=(np.int64,))),
    "generator no iterable": ("D", lambda D: D.from_generator(lambda: 5, output_types=np.int64)),
    "generator of another structure": ("D", lambda D: from_generator(D, 1, output_types=(np.int64, np.int64))),
    "generator of other keys": ("D", lambda D: from_generator(D, {"b": 1}, output_types={"a": np.int64})),
    "generator of another shape": (
        "D",
        lambda D: from_generator(D, [1, 2], output_signature=on(D).Spec((3,), np.int64)),
    ),
    "generator of text for numbers": ("D", lambda D: from_generator(D, "a", output_types=np.float32)),
    "generator fails": ("D", lambda D: D.from_generator(_failing, output_types=np.int64)),
    "generator lacks its args": ("D", lambda D: D.from_generator(lambda n: iter([n]), output_types=np.int64)),
    "files none of two": ("V", lambda D: D.list_files(["/no/such/*", "/none/either"])),
    "files of a number": ("T", lambda D: D.list_files(5)),
    "records of a number": ("T", lambda D: on(D).TFRecordDataset(5)),
    "records of a dataset of numbers": ("T", lambda D: on(D).TFRecordDataset(D.range(3))),
    "records of no reads": ("V", lambda D: on(D).TFRecordDataset("/no/such/file", num_parallel_reads=0)),
    "records of a missing file": ("D", lambda D: on(D).TFRecordDataset("/no/such/file")),
    "map synchronous with calls": ("V", lambda D: D.range(2).map(lambda x: x, num_parallel_calls=2, synchronous=True)),
    "map no function": ("T", lambda D: D.range(2).map(5)),
    "map too few arguments": ("T", lambda D: pairs(D).map(lambda a: a)),
    "map returns nothing": ("V", lambda D: D.range(2).map(lambda x: None)),
    "map returns nothing, a function": ("V later", lambda D: D.range(2).map(_nothing)),
    "map returns a set": ("V later", lambda D: D.range(2).map(lambda x: {x})),
    "map fails": ("D", lambda D: D.range(2).map(lambda x: EMPTY["no"])),
    "map misses a key": ("V", lambda D: dicts(D).map(lambda d: d["c"])),
    "filter no function": ("T", lambda D: D.range(2).filter(True)),
    "filter an integer": ("V", lambda D: D.range(2).filter(lambda x: x)),
    "filter a vector of a batch": ("V later", lambda D: D.range(4).batch(2).filter(lambda x: x > 0)),
    "filter too few arguments": ("T", lambda D: pairs(D).filter(lambda a: a > 1)),
    "take None": ("V", lambda D: D.range(2).take(None)),
    "shard index -1": ("V", lambda D: D.range(2).shard(2, -1)),
    "prefetch -2": ("V", lambda D: D.range(2).prefetch(-2)),
    "shuffle 1.5": ("T", lambda D: D.range(2).shuffle(1.5)),
    "apply no dataset": ("T", lambda D: D.range(2).apply(lambda d: 3)),
    "with_options None": ("T", lambda D: D.range(2).with_options(None)),
    "flat_map a number": ("T", lambda D: D.range(2).flat_map(lambda x: x)),
    "flat_map arity": ("T", lambda D: D.range(2).flat_map(lambda a, b: D.range(2))),
    "interleave arity": ("T", lambda D: pairs(D).interleave(lambda a: D.range(2), 2)),
    "interleave calls 0": ("V", lambda D: D.range(2).interleave(lambda x: D.range(2), 2, num_parallel_calls=0)),
    "batch 1.5": ("T", lambda D: D.range(2).batch(1.5)),
    "batch of lengths": ("D", lambda D: triangle(D).batch(2)),
    "batch of ranks": ("D", lambda D: D.from_tensors([1, 2]).concatenate(D.from_tensors(1)).batch(2)),
    "padded_batch 0": ("V", lambda D: D.range(2).padded_batch(0)),
    "padded_batch 1.5": ("T", lambda D: D.range(2).padded_batch(1.5)),
    "padded_batch too small": ("V", lambda D: pairs(D).padded_batch(2, ([], [1]))),
    "padded_batch of another rank": ("V", lambda D: pairs(D).padded_batch(2, ([], [1, 2]))),
    "padded_batch too small at last": ("D", lambda D: triangle(D).padded_batch(4, [3])),
    "padded_batch of another structure": ("V", lambda D: pairs(D).padded_batch(2, ([],))),
    "padded_batch of another type": ("T", lambda D: pairs(D).padded_batch(2, padding_values=(I64(0), I64(0)))),
    "padded_batch text for numbers": ("T", lambda D: D.range(2).padded_batch(2, padding_values="x")),
    "unbatch a scalar in a tuple": ("V", lambda D: pairs(D).unbatch()),
    "unbatch unequal at last": ("D", lambda D: D.zip(triangle(D), triangle(D).skip(1)).unbatch()),
    "cache of a number": ("T", lambda D: D.range(2).cache(5)),
    "zip both ways": ("T", lambda D: D.zip(D.range(2), datasets=(D.range(2),))),
    "concatenate a number": ("T", lambda D: D.range(2).concatenate(3)),
    "concatenate other keys": ("T", lambda D: dicts(D).concatenate(dicts(D).map(lambda d: {"a": d["a"], "c": d["b"]}))),
    "concatenate int32 and int64": ("T", lambda D: D.range(2, output_type=np.int32).concatenate(D.range(2))),
    "concatenate types of functions": (
        "T later",
        lambda D: D.range(2).map(lambda x: (x, [x, x])).concatenate(D.range(2).map(lambda x: [x, [x, x], x])),
    ),
    "range of no number": ("V", lambda D: D.range()),
    "slices a scalar": ("V", lambda D: D.from_tensor_slices(1)),
    "slices ragged": ("V", lambda D: D.from_tensor_slices([[1], [2, 3]])),
    "map calls 0": ("V", lambda D: D.range(2).map(lambda x: x, num_parallel_calls=0)),
    "shard 0": ("V", lambda D: D.range(2).shard(0, 0)),
    "shuffle 0": ("V", lambda D: D.range(2).shuffle(0)),
    "batch 0": ("V", lambda D: D.range(2).batch(0)),
    "interleave cycle 0": ("V", lambda D: D.range(2).interleave(lambda x: D.range(x), cycle_length=0)),
    "interleave block 0": ("V", lambda D: D.range(2).interleave(lambda x: D.range(x), cycle_length=1, block_length=0)),
    "padded_batch of another type alone": ("T", lambda D: D.range(2).padded_batch(2, padding_values=np.float32(0))),
    "unbatch scalars": ("V", lambda D: D.range(2).unbatch()),
    "zip nothing": ("T", lambda D: D.zip()),
    "zip a list": ("T", lambda D: D.zip([D.range(2)])),
    "zip a number": ("T", lambda D: D.zip(D.range(2), 3)),
    "concatenate structures": ("T", lambda D: D.range(2).concatenate(D.zip(D.range(2), D.range(2)))),
    "padded_batch of more axes": ("V later", lambda D: triangle(D).padded_batch(2, padded_shapes=[5, 5])),
    "enumerate from text": ("T", lambda D: D.range(2).enumerate("a")),
    "tensors ragged in a dict": ("V", lambda D: D.from_tensors({"a": [[1, 2], [3]]})),
    "generator a list": ("T", lambda D: D.from_generator([1, 2], output_types=np.int64)),
    "generator of too many": ("D", lambda D: from_generator(D, (1, 2, 3), output_types=(np.int64, np.int64))),
    "generator of another rank": ("D", lambda D: from_generator(D, [1, 2], output_signature=on(D).Spec((), np.int64))),
    "generator of numbers for text": ("D", lambda D: from_generator(D, 1, output_signature=on(D).Spec((), on(D).text))),
    "records of numbers": ("T", lambda D: on(D).TFRecordDataset([1, 2])),
    "filter text": ("V", lambda D: D.from_tensor_slices(TEXTS).filter(lambda x: x)),
    "padded_batch half a size": ("T", lambda D: pairs(D).padded_batch(2, ([], [2.5]))),
    "padded_batch of other keys": ("V", lambda D: dicts(D).padded_batch(2, {"a": [], "c": []})),
    "unbatch text": ("V", lambda D: D.from_tensors("abc").unbatch()),
}


def _nothing(x: Any) -> None:
    print(end="")  # what is no plain expression is not called before there is an element


def _failing() -> Iterator[int]:
    yield 1
    raise KeyError("on purpose")


_MISTAKES = {"V": ValueError, "T": TypeError}


@pytest.mark.parametrize("name", ERRORS)
def test_mistakes_have_the_class_and_the_moment_of_the_table(tf: Any, name: str) -> None:
    code, chain = ERRORS[name]

    with pytest.raises((ValueError, TypeError, AttributeError, KeyError, RuntimeError, tf.errors.OpError)):
        list(built(tf, chain))
    if code in _MISTAKES:
        with pytest.raises(_MISTAKES[code]) as caught:
            chain(gp.Dataset)
    else:
        dataset = chain(gp.Dataset)
        with pytest.raises(gp.DataError if code == "D" else _MISTAKES[code[0]]) as caught:
            list(dataset)
    assert isinstance(caught.value, gp.GpupipeError)


ACCEPTED_THERE: dict[str, tuple[str, Chain]] = {
    "records of an unknown compression": ("V", lambda D: on(D).TFRecordDataset("/no/such/file", "LZ4")),
    "records of a small-letter compression": ("V", lambda D: on(D).TFRecordDataset("/no/such/file", "gzip")),
    "records of a negative buffer": ("V", lambda D: on(D).TFRecordDataset("/no/such/file", buffer_size=-1)),
    "rebatch 0": ("V", lambda D: D.range(4).batch(2).rebatch(0)),
    "shard -1": ("V", lambda D: D.range(4).shard(-1, 0)),
}


@pytest.mark.parametrize("name", ACCEPTED_THERE)
def test_what_is_refused_here_alone(tf: Any, name: str) -> None:
    code, chain = ACCEPTED_THERE[name]

    chain(tf.data.Dataset)  # no error before it runs, if ever
    with pytest.raises(_MISTAKES[code]):
        chain(gp.Dataset)


def test_a_rank_that_nobody_told_is_learned(tf: Any) -> None:
    def chain(D: Any) -> Any:
        return from_generator(D, [1], [2, 3], output_types=np.int64).padded_batch(2)

    with pytest.raises(ValueError, match="unknown rank"):
        chain(tf.data.Dataset)
    assert run(chain(gp.Dataset)) == [[[1, 0], [2, 3]]]


def test_a_generator_is_not_cut_to_its_type(tf: Any) -> None:
    def chain(D: Any) -> Any:
        return from_generator(D, np.float64(1.5), output_types=np.int32)

    assert run(chain(tf.data.Dataset).as_numpy_iterator()) == [1]
    with pytest.raises(gp.DataError, match=r"1\.5|float"):
        run(chain(gp.Dataset))


def _digits(D: Any, *texts: str) -> Any:
    """Examples that hold `n`; those of texts that are no number lack it."""
    records = [gp.io.encode_example({"n" if t.isdigit() else "m": len(t) and int(t, 36)}) for t in texts]
    features = {"n": on(D).io.FixedLenFeature((), np.int64 if D is gp.Dataset else "int64")}
    return D.from_tensor_slices(records).map(lambda r: on(D).io.parse_single_example(r, features)["n"])


OUTCOMES: dict[str, Chain] = {
    "map": lambda D: _digits(D, "0", "x", "2"),
    "map, first and last": lambda D: _digits(D, "x", "1", "x"),
    "map, all": lambda D: _digits(D, "x", "x"),
    "map, then take": lambda D: _digits(D, "0", "x", "2", "3").prefetch(1),
    "filter behind": lambda D: _digits(D, "0", "x", "2", "3").filter(lambda x: x != 2),
    "batch of lengths": lambda D: (
        D.from_tensor_slices(np.array([1, 1, 1, 2, 2, 2])).flat_map(lambda n: D.range(n).batch(9)).batch(2)
    ),
    "padded_batch too small": lambda D: triangle(D).padded_batch(2, padded_shapes=[3]),
    "unbatch": lambda D: D.zip(triangle(D, 2), D.from_tensor_slices([[7]]).repeat()).unbatch(),
}


@pytest.mark.parametrize("name", OUTCOMES)
def test_an_iterator_survives_an_error(tf: Any, name: str) -> None:
    theirs = outcomes(tf, built(tf, OUTCOMES[name]))

    assert "error" in theirs
    assert outcomes(tf, OUTCOMES[name](gp.Dataset)) == theirs
