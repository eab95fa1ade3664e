import tensorflow as tf

from tests.guide.for_tensorflow.artificial import ArtificialDataset


def chain():
    return tf.data.Dataset.range(2).interleave(
        lambda _: ArtificialDataset(),
        cycle_length=2,
        num_parallel_calls=tf.data.AUTOTUNE,
    )
