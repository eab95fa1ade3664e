"""tfdata_sides: the two libraries side by side, values of both in plain Python, and small datasets of either."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

import gpupipe as gp
from gpupipe.plan.maps import FlatMap, Map
from gpupipe.plan.node import walk
from tests.behaviour.model import plain

Chain = Callable[[Any], Any]

SIDES: dict[Any, Any] = {
    gp.Dataset: SimpleNamespace(
        Spec=gp.TensorSpec,
        text=bytes,
        TFRecordDataset=gp.TFRecordDataset,
        io=gp.io,
        int32="int32",
        int32_of=lambda x: x,  # tf.data asks for lengths of buckets in int32
        from_list=gp.Dataset.from_list,
        assert_cardinality=gp.Dataset.assert_cardinality,
        pad_to_cardinality=gp.Dataset.pad_to_cardinality,
    )
}


def on(D: Any) -> Any:
    """What stands beside Dataset in the library that D is of."""
    return SIDES[D]


def built(tf: Any, chain: Chain) -> Any:
    """The chain on tf.data. No function here needs AutoGraph, which reads this file anew for each of them."""
    return tf.autograph.experimental.do_not_convert(chain)(tf.data.Dataset)


class Point(NamedTuple):
    x: Any
    y: Any


def shown(value: Any) -> Any:
    """A value in plain Python, with the kinds of its containers and the order of keys."""
    if isinstance(value, dict):
        return {"dict": [(key, shown(part)) for key, part in value.items()]}
    if isinstance(value, tuple):
        return (type(value).__name__, *map(shown, value))
    if value is None:
        return None
    if hasattr(value, "element_spec"):
        return {"dataset": [shown(element) for element in value]}
    if hasattr(value, "to_list"):
        return {"ragged": value.to_list()}
    return plain(value.numpy() if hasattr(value, "numpy") else value)


def leaves(value: Any) -> Iterator[Any]:
    """The leaves of a structure, in order; None is none."""
    if isinstance(value, dict):
        for part in value.values():
            yield from leaves(part)
    elif isinstance(value, tuple):
        for part in value:
            yield from leaves(part)
    elif value is not None:
        yield value


PYTHONS = (("int32", "int64"), ("float32", "float64"))
"""What Python's numbers are there and here."""


def same_type(theirs: Any, ours: Any) -> bool:
    """Whether a leaf has the type that it has there, but for what comes from Python numbers."""
    a = np.dtype(object) if isinstance(theirs, bytes) else np.asarray(theirs).dtype
    b = np.dtype(object) if isinstance(ours, bytes) else np.asarray(ours).dtype
    return a == b or (a.name, b.name) in PYTHONS


def pairs(D: Any) -> Any:
    return D.from_tensor_slices((np.arange(6), np.arange(12.0).reshape(6, 2)))


def dicts(D: Any) -> Any:
    return D.from_tensor_slices({"b": np.arange(5), "a": np.array([b"x", b"y\0", b"", b"z", b"w"], object)})


def points(D: Any) -> Any:
    return D.from_tensor_slices(Point(np.arange(5), np.arange(5, 10)))


def holey(D: Any) -> Any:
    return D.from_tensor_slices({"a": np.arange(5), "b": None, "c": (np.arange(5, 10), None)})


def triangle(D: Any, last: int = 4) -> Any:
    """Vectors of 1, 2, ... elements, of unknown length."""
    return D.range(1, last + 1).flat_map(lambda n: D.range(n).batch(99))


def squares(D: Any) -> Any:
    """Matrices of 1 x 2, 2 x 3, 3 x 4: two unknown dimensions."""
    return triangle(D, 3).flat_map(
        lambda v: D.zip(D.from_tensor_slices(v), D.from_tensors(0).repeat()).map(lambda x, _: v[:1] + x).batch(9)
    )


def from_generator(D: Any, *values: Any, **types: Any) -> Any:
    """What a generator gives."""
    return D.from_generator(lambda: iter(values), **types)


def in_passes(*sizes: int) -> Callable[[], Iterator[int]]:
    """A generator with so many elements in each pass."""
    left = iter(sizes)
    return lambda: iter(range(next(left)))


class Counting:
    """A generator object that is not a function."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __call__(self) -> Iterator[int]:
        yield from range(self.n)


class Scaling:
    """A callable, with a method."""

    def __init__(self, by: int) -> None:
        self.by = by

    def __call__(self, x: Any) -> Any:
        return x * self.by

    def more(self, x: Any, also: int = 1) -> Any:
        return x * self.by + also


def scaled(x: Any, *, by: int = 2) -> Any:
    return x * by


TEXTS = np.array([b"a\0", b"", b"ccc"], object)
BIG = 2**40


def learns(dataset: gp.Dataset) -> bool:
    """Whether there is a function that runs as ordinary Python: what it gives is learned from the first element."""
    return any(isinstance(node, FlatMap) or (isinstance(node, Map) and not node.traced) for node in walk(dataset.plan))


def outcomes(tf: Any, dataset: Any, most: int = 50) -> list[Any]:
    """What each `next` does: a plain value, or "error"."""
    items, seen = iter(dataset.as_numpy_iterator()), []
    for _ in range(most):
        try:
            seen.append(plain(next(items)))
        except StopIteration:
            return seen
        except (gp.DataError, tf.errors.OpError):
            seen.append("error")
    raise AssertionError(f"no end: {seen}")
