"""contrib: TensorFlow with the names that `tf.contrib.data` had until 2018, as far as the guide's chain uses them."""

from __future__ import annotations

import types
import warnings
from typing import Any


class _TensorFlow:
    """The module, and `contrib.data` beside it: what it held is under `tf.data.experimental` today."""

    def __getattr__(self, name: str) -> Any:
        import tensorflow

        if name != "contrib":
            return getattr(tensorflow, name)
        experimental = tensorflow.data.experimental
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            names = {key: getattr(experimental, key) for key in _NAMES}
        return types.SimpleNamespace(data=types.SimpleNamespace(**names))


_NAMES = ("map_and_batch", "parallel_interleave", "shuffle_and_repeat")

tf: Any = _TensorFlow()
