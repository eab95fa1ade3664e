"""gpupipe: feed image training. tf.data's chain on top of NVIDIA DALI, with a NumPy path beside it.

Importing it imports no GPU library.
"""

from . import io, ops
from .dataset import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, Dataset, TFRecordDataset
from .errors import (
    ClosedError,
    DataError,
    GpupipeError,
    MissingDependencyError,
    PlanError,
    SpecError,
    TraceError,
)
from .options import AUTOTUNE, Options, set_seed
from .spec import TensorSpec

__version__ = "0.1.0"

__all__ = [
    "AUTOTUNE",
    "INFINITE_CARDINALITY",
    "UNKNOWN_CARDINALITY",
    "ClosedError",
    "DataError",
    "Dataset",
    "GpupipeError",
    "MissingDependencyError",
    "Options",
    "PlanError",
    "SpecError",
    "TFRecordDataset",
    "TensorSpec",
    "TraceError",
    "__version__",
    "io",
    "ops",
    "set_seed",
]
