"""keras: a dataset as Keras 3 takes it in `fit`, `evaluate` and `predict`, whatever its backend."""

from __future__ import annotations

from functools import partial
from typing import Any

import keras
import numpy as np

from ..errors import PlanError
from ..optimize.lower.length import is_known
from ..plan.order import never_ends
from ..transform.array import on_gpu, to_host
from .loader import Chain, Passes

__all__ = ["KerasLoader"]


class KerasLoader(Passes, keras.utils.PyDataset):
    """A dataset as a `keras.utils.PyDataset`. Keras asks it for batches by number; it gives the next one.

    So Keras' `shuffle=` has no effect: the chain shuffles. With `steps_per_epoch`, Keras' epochs are parts of a pass.
    Nothing is copied here: Keras copies arrays when it makes tensors of PyTorch, so on that backend it gets tensors.

    Args:
        chain: the dataset, of batches: ``(inputs, targets)``, ``(inputs, targets, weights)``, inputs or a dict.
    """

    def __init__(self, chain: Chain) -> None:
        keras.utils.PyDataset.__init__(self)
        Passes.__init__(self, chain, "as_keras", _conversion(keras.backend.backend()))
        self._asked = True
        self._has_length = not never_ends(chain.plan) and is_known(chain.plan)

    @property
    def num_batches(self) -> int | None:
        """The number of batches of a pass; None where it is unknown or there is no end, which needs `steps_per_epoch`.

        Keras asks for it before every pass, and never within one: so the batch that it asks for next is the first.
        """
        self._asked = True
        return len(self.chain) if self._has_length else None

    def __getitem__(self, index: int) -> Any:
        if self._asked or self._items is None:
            self._asked = False
            iter(self)
        assert self._items is not None
        for items in (self._items, self):  # bad elements that were left out: a pass ends early, the next one continues
            for element in items:
                return element if isinstance(element, (tuple, dict)) else (element,)
            if not self._has_length and not never_ends(self.chain.plan):  # Keras sees no other end
                raise PlanError(
                    f"as_keras needs the number of batches, which is unknown, got a dataset that ended after {index}: "
                    f"write assert_cardinality({index}) at its end; or repeat(), and give fit steps_per_epoch; or give "
                    "fit ds.as_tf()"
                )
        raise IndexError("as_keras needs a dataset with batches, got an empty one")


def _conversion(backend: str) -> Any:
    """The conversion of a leaf for a backend: tensors for PyTorch and of what is on a GPU, else NumPy arrays."""
    if backend == "torch":
        from .torch import ToTorch

        return ToTorch(None, None, False)
    if backend == "tensorflow":
        from . import at_exit as at_exit
    return partial(_converted, backend)


def _converted(backend: str, leaf: Any) -> Any:
    if not on_gpu(leaf):
        return leaf
    if backend == "jax":
        import jax

        return jax.dlpack.from_dlpack(leaf)
    return np.asarray(to_host(leaf))
