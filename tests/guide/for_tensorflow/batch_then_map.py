import tensorflow as tf


def increment(x):
    return x + 1


def chain():
    fast_dataset = tf.data.Dataset.range(1000)
    return fast_dataset.batch(256).map(increment, num_parallel_calls=tf.data.AUTOTUNE)
