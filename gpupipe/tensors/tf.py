"""tf: a dataset as a `tf.data.Dataset`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from ..errors import PlanError
from ..load.converted import refusal
from ..plan.node import INFINITE, UNKNOWN_CARDINALITY
from ..ragged import Ragged, RaggedSpec
from ..spec import DatasetSpec, TensorSpec, map_structure
from ..transform.array import to_host
from . import at_exit as at_exit
from .loader import Chain, Loader

__all__ = ["as_tf"]


def as_tf(chain: Chain) -> Any:
    """A `tf.data.Dataset` of the same elements, with their types; each iteration over it is the next epoch.

    Raises:
        PlanTypeError: a leaf is a dataset.
        PlanError: the type of a leaf is unknown before the chain runs.
    """
    signature = map_structure(_spec, chain.plan.element.nested)

    passes = Loader(chain, "as_tf", _value)

    def elements() -> Iterator[Any]:
        with iter(passes) as items:
            yield from items

    dataset = tf.data.Dataset.from_generator(elements, output_signature=signature)
    count = chain.cardinality()
    if count == UNKNOWN_CARDINALITY:
        return dataset
    count = tf.data.INFINITE_CARDINALITY if count == INFINITE else count
    return dataset.apply(tf.data.experimental.assert_cardinality(count))


def _spec(spec: Any) -> Any:
    if isinstance(spec, DatasetSpec):
        raise refusal("as_tf", spec)
    if spec.dtype is None:
        raise PlanError(
            f"as_tf needs the dtype of every leaf, and one is unknown before the chain runs: {spec}; a Python function "
            "in the chain says what it gives with map(..., spec=...)"
        )
    dtype = tf.string if spec.dtype is bytes else tf.as_dtype(spec.dtype)
    if isinstance(spec, RaggedSpec):
        return tf.RaggedTensorSpec(
            spec.shape, dtype, ragged_rank=spec.ragged_rank, row_splits_dtype=spec.row_splits_dtype
        )
    assert isinstance(spec, TensorSpec)
    shape: Any = spec.shape  # None: of unknown rank; TensorFlow's types leave it out
    return tf.TensorSpec(shape, dtype)


def _value(leaf: Any) -> Any:
    if not isinstance(leaf, Ragged):
        return to_host(leaf)
    ragged: Any = tf.RaggedTensor  # pyright does not see its class methods
    return ragged.from_row_splits(_value(leaf.values), leaf.row_splits, validate=False)
