import itertools
import time
from collections import defaultdict

import gpupipe as gp
from gpupipe import TensorSpec
from gpupipe.compat import py_function


class TimeMeasuredDataset(gp.Dataset):
    OUTPUT_SIGNATURE = (
        TensorSpec(shape=(2, 1), dtype="string"),
        TensorSpec(shape=(2, 2), dtype="float32"),
        TensorSpec(shape=(2, 3), dtype="int32"),
    )

    _INSTANCES_COUNTER = itertools.count()  # Number of datasets generated
    _EPOCHS_COUNTER = defaultdict(itertools.count)  # Number of epochs done for each dataset

    def _generator(instance_idx, num_samples):
        epoch_idx = next(TimeMeasuredDataset._EPOCHS_COUNTER[int(instance_idx)])

        # Opening the file
        time.sleep(0.003)
        open_enter = 1.0
        open_elapsed = 0.25

        for sample_idx in range(num_samples):
            # Reading data (line, record) from the file
            time.sleep(0.0015)
            read_enter = 2.0 + sample_idx
            read_elapsed = 0.5

            yield (
                [("Open",), ("Read",)],
                [(open_enter, open_elapsed), (read_enter, read_elapsed)],
                [(int(instance_idx), epoch_idx, -1), (int(instance_idx), epoch_idx, sample_idx)],
            )
            open_enter, open_elapsed = -1.0, -1.0  # Negative values will be filtered

    def __new__(cls, num_samples=3):
        return gp.Dataset.from_generator(
            cls._generator,
            output_signature=cls.OUTPUT_SIGNATURE,
            args=(next(cls._INSTANCES_COUNTER), num_samples),
        )


_batch_map_num_items = 4


def dataset_generator_fun(*args):
    return TimeMeasuredDataset(num_samples=_batch_map_num_items)


def map_decorator(func):
    def wrapper(steps, times, values):
        # Use a py_function to prevent the method from being compiled
        return py_function(func, inp=(steps, times, values), Tout=(steps.dtype, times.dtype, values.dtype))

    return wrapper


@map_decorator
def time_consuming_map(steps, times, values):
    time.sleep(0.003 * values.shape[0])  # Time consuming step for each batch
    return steps, times * 2, values


@map_decorator
def memory_consuming_map(steps, times, values):
    time.sleep(0.001 * values.shape[0])  # Memory consuming step for each batch
    return steps, times, values + 1


def chain():
    return (
        gp.Dataset.range(2)
        .interleave(dataset_generator_fun, cycle_length=2, num_parallel_calls=gp.AUTOTUNE)
        .batch(_batch_map_num_items, drop_remainder=True)
        .map(time_consuming_map, num_parallel_calls=gp.AUTOTUNE)
        .cache()
        .map(memory_consuming_map, num_parallel_calls=gp.AUTOTUNE)
        .prefetch(gp.AUTOTUNE)
        .unbatch()
    )
