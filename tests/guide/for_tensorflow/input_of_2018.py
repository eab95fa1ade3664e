from tests.guide.contrib import tf


def parse_example(record):
    features = tf.io.parse_single_example(
        record,
        {
            "image/encoded": tf.io.FixedLenFeature((), "string"),
            "image/class/label": tf.io.FixedLenFeature((), "int64", default_value=-1),
        },
    )
    image = tf.image.decode_image(features["image/encoded"], channels=3, expand_animations=False)
    return tf.image.resize(image, (64, 64)), features["image/class/label"]


def chain(pattern):
    return (
        tf.data.Dataset.list_files(pattern)
        .apply(tf.contrib.data.parallel_interleave(tf.data.TFRecordDataset, cycle_length=4, sloppy=True))
        .apply(tf.contrib.data.shuffle_and_repeat(100, 2))
        .apply(tf.contrib.data.map_and_batch(parse_example, 16, num_parallel_batches=2))
        .prefetch(1)
    )
