"""gpupipe: feed image training. tf.data's chain on top of NVIDIA DALI, with a NumPy path beside it.

Importing it imports no GPU library.
"""

from . import compat as compat  # reachable as gpupipe.compat, and in no list of names
from . import io, ops
from .dataset import (
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    Dataset,
    FixedLengthRecordDataset,
    TextLineDataset,
    TFRecordDataset,
    release_memory,
)
from .errors import (
    BadRecord,
    ClosedError,
    DataError,
    DeviceError,
    GpupipeError,
    MissingDependencyError,
    PixelError,
    PlanError,
    SpecError,
    StateError,
    TooManyBadError,
    TraceError,
)
from .options import ALL, AUTOTUNE, Options, set_seed
from .ragged import Ragged, RaggedSpec
from .spec import DatasetSpec, TensorSpec

__version__ = "0.1.0"

__all__ = [
    "ALL",
    "AUTOTUNE",
    "INFINITE_CARDINALITY",
    "UNKNOWN_CARDINALITY",
    "BadRecord",
    "ClosedError",
    "DataError",
    "Dataset",
    "DatasetSpec",
    "DeviceError",
    "FixedLengthRecordDataset",
    "GpupipeError",
    "MissingDependencyError",
    "Options",
    "PixelError",
    "PlanError",
    "Ragged",
    "RaggedSpec",
    "SpecError",
    "StateError",
    "TFRecordDataset",
    "TensorSpec",
    "TextLineDataset",
    "TooManyBadError",
    "TraceError",
    "__version__",
    "io",
    "ops",
    "release_memory",
    "set_seed",
]
