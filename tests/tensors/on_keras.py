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


def evaluated() -> list[float]:
    """The loss over 44 rows on two devices, and on one; on PyTorch Keras has no devices to share a batch."""

    def loss(ds: gp.Dataset) -> float:
        model: Any = keras.Sequential([keras.layers.Identity()])
        model.compile(loss="mean_absolute_error")
        found: float = model.evaluate(ds.map(lambda x, y: (x * y[:, None], x * 0), traced=False).as_keras(), verbose=0)
        return found

    one = loss(chain())
    if keras.backend.backend() == "jax":
        import jax

        keras.distribution.set_distribution(keras.distribution.DataParallel(devices=jax.devices("cpu")))
        return [loss(chain()), one]
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
            return [loss(chain()), one]
    return []


if keras.backend.backend() == "tensorflow":
    import tensorflow as tf

    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )

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

at_end = noting(chain())
model.fit(at_end, epochs=2, verbose=0)
after_end = noting(chain())
after_end.load_state_dict(at_end.state_dict())
model.fit(after_end, initial_epoch=2, epochs=4, verbose=0)
copying: Any = keras.Sequential([keras.layers.Identity()])
copied = copying.predict(chain().map(lambda x, y: x).as_keras(), verbose=0)

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
    after_end=after_end.passes,
    predicted=[copied.tolist(), [row.tolist() for x, _ in chain().iterator(epoch=0) for row in x]],
    evaluated=evaluated(),
)
