"""`fit`, `evaluate` and `predict` of Keras 3, on the backend that KERAS_BACKEND names."""

from typing import Any

import keras
import numpy as np

import gpupipe as gp
from gpupipe.tensors.keras import KerasLoader
from tests.tensors.programs import chain, tell


class Noting(KerasLoader):
    """Notes the batches that Keras asks for, by pass."""

    passes: list[list[Any]]

    def __iter__(self) -> Any:
        self.passes.append([])
        return super().__iter__()

    def __getitem__(self, index: int) -> Any:
        inputs, numbers = super().__getitem__(index)
        self.passes[-1].append(numbers.tolist())
        return inputs, numbers % 2


def noting(ds: Any) -> Noting:
    """A loader that notes."""
    loader = Noting(ds)
    loader.passes = []
    return loader


class Steps(keras.callbacks.Callback):
    """Counts the steps of each epoch."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        steps.append(0)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        steps[-1] += 1


steps: list[int] = []
model: Any = keras.Sequential([keras.layers.Dense(2)])
model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
train, test = noting(chain()), noting(chain())
model.fit(train, epochs=3, verbose=0, validation_data=test, callbacks=[Steps()])
loss = model.evaluate(chain().map(lambda x, y: (x, y % 2)).as_keras(), verbose=0)
rows = model.predict(chain().map(lambda x, y: x).as_keras(), verbose=0).shape
parts = noting(chain().repeat())
model.fit(parts, epochs=2, steps_per_epoch=6, verbose=0)
rest = noting(chain().epoch(1).skip(4))
model.fit(rest, initial_epoch=1, epochs=2, verbose=0)

few = {}  # of a dataset of so few batches, what three epochs draw, by `fit` and by three calls of it
for count in (1, 2, 3):
    ds = (
        gp.Dataset.range(20 * count)
        .shuffle(gp.ALL)
        .map(lambda i: (np.array([i, 0], np.float32), np.int64(i)), traced=False)
        .batch(20)
    )
    at_once, by_call = noting(ds), noting(ds)
    model.fit(at_once, epochs=3, verbose=0)
    for _ in range(3):
        model.fit(by_call, epochs=1, verbose=0)
    few[count] = [[one for one in loader.passes if len(one) == count][-3:] for loader in (at_once, by_call)]
unknown = noting(chain().filter(lambda x, y: True))
model.fit(unknown, epochs=2, steps_per_epoch=5, verbose=0)
try:
    model.fit(chain().filter(lambda x, y: True).map(lambda x, y: (x, y % 2)).as_keras(), epochs=2, verbose=0)
except Exception as error:  # TensorFlow makes its own of it
    ended = str(error)

tell(
    0,
    few=few,
    unknown=unknown.passes[-1][-10:],
    ended=ended,
    train=train.passes,
    test=test.passes,
    steps=steps,
    finite=bool(np.isfinite(loss)),
    rows=rows,
    parts=parts.passes,
    rest=rest.passes,
)
