"""Ends while a thread of TensorFlow makes an element."""

import time

import numpy as np
import tensorflow as tf

import gpupipe as gp
from tests.tensors.programs import tell

keeps: list[object] = []


def slow(x: np.int64) -> np.int64:
    """A function that holds the lock of the interpreter."""
    until = time.perf_counter() + 0.1
    while time.perf_counter() < until:
        pass
    return x


chain = gp.Dataset.range(3000).map(slow, traced=False, spec=gp.TensorSpec((), "int64"))
items = iter(chain.as_tf().prefetch(tf.data.AUTOTUNE))
keeps.append(items)
tell(0, first=int(next(items)))
