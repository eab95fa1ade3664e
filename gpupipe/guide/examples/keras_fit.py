"""Train with Keras 3, on any of its backends.

    KERAS_BACKEND=jax python keras_fit.py 'train-*.tfrecord' --epochs 2

The same command again continues a run that was stopped, from its last checkpoint, in the middle of an epoch.
"""

import argparse
import os

import keras

import gpupipe as gp
from gpupipe import ops


def batches(args):
    """The batches: float32[N,S,S,3] and int64[N]."""
    encoded, label = gp.io.FixedLenFeature((), bytes), gp.io.FixedLenFeature((), "int64")

    def train_example(record):
        x = gp.io.parse_single_example(record, {"image/encoded": encoded, "image/class/label": label})
        image = ops.decode_jpeg(x["image/encoded"], channels=3)
        image = ops.random_flip_left_right(ops.random_resized_crop(image, (args.size, args.size)))
        return ops.normalize(image, mean=ops.IMAGENET_MEAN, std=ops.IMAGENET_STD), x["image/class/label"]

    files = gp.Dataset.list_files(args.data, seed=1)
    records = files.interleave(gp.TFRecordDataset, cycle_length=8, num_parallel_calls=gp.AUTOTUNE)
    images = records.shuffle(10_000, seed=1).map(train_example)
    return images.batch(args.batch, drop_remainder=True).prefetch(gp.AUTOTUNE)


def compiled(size):
    """A small network of 1000 classes."""
    layers = keras.layers
    body = [keras.Input((size, size, 3)), layers.Conv2D(64, 8, strides=8, activation="gelu")]
    model = keras.Sequential([*body, layers.GlobalAveragePooling2D(), layers.Dense(1000)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-3), loss, metrics=["accuracy"])
    return model


class Stop(keras.callbacks.Callback):
    """Ends the run after some steps."""

    def __init__(self, steps):
        super().__init__()
        self.left = steps

    def on_train_batch_end(self, batch, logs=None):
        """Count."""
        self.left -= 1
        if self.left <= 0:
            self.model.stop_training = True


def main(args):
    """Train."""
    keras.utils.set_random_seed(0)
    ds = batches(args)
    saved = os.path.exists(args.checkpoint)
    model = keras.saving.load_model(args.checkpoint) if saved else compiled(args.size)
    callbacks = [keras.callbacks.ModelCheckpoint(args.checkpoint, save_freq=args.save_every)]
    callbacks += [Stop(args.steps)] if args.steps else []
    epoch, done = divmod(int(model.optimizer.iterations), len(ds))  # Keras saves the number of steps with the optimizer
    if done:
        rest = ds.epoch(epoch).skip(done)
        model.fit(rest.as_keras(), initial_epoch=epoch, epochs=epoch + 1, callbacks=callbacks, verbose=2)
        epoch += 1
    if not model.stop_training:
        ds.set_epoch(epoch)
        model.fit(ds.as_keras(), initial_epoch=epoch, epochs=args.epochs, callbacks=callbacks, verbose=2)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="pattern of TFRecord files with image/encoded and image/class/label")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--size", type=int, default=224, help="pixels of a side")
    parser.add_argument("--checkpoint", default="run.keras")
    parser.add_argument("--save-every", type=int, default=100, help="steps")
    parser.add_argument("--steps", type=int, help="stop after so many, as a machine may that is taken away")
    main(parser.parse_args())
