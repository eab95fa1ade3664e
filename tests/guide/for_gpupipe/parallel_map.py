import time

import gpupipe as gp
from gpupipe.compat import py_function

from tests.guide.for_gpupipe.artificial import ArtificialDataset


def mapped_function(s):
    # Do some hard pre-processing
    py_function(lambda: time.sleep(0.003), [], ())
    return s


def chain():
    return ArtificialDataset().map(mapped_function, num_parallel_calls=gp.AUTOTUNE)
