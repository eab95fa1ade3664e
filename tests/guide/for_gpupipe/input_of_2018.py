import gpupipe as gp
import gpupipe.compat
from gpupipe import ops


def parse_example(record):
    features = gp.io.parse_single_example(
        record,
        {
            "image/encoded": gp.io.FixedLenFeature((), "string"),
            "image/class/label": gp.io.FixedLenFeature((), "int64", default_value=-1),
        },
    )
    image = ops.decode_image(features["image/encoded"], channels=3, expand_animations=False)
    return ops.resize(image, (64, 64)), features["image/class/label"]


def chain(pattern):
    return (
        gp.Dataset.list_files(pattern)
        .apply(gp.compat.parallel_interleave(gp.TFRecordDataset, cycle_length=4, sloppy=True))
        .apply(gp.compat.shuffle_and_repeat(100, 2))
        .apply(gp.compat.map_and_batch(parse_example, 16, num_parallel_batches=2))
        .prefetch(1)
    )
