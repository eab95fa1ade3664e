"""gpupipe: feed image training. tf.data's chain on top of NVIDIA DALI, with a NumPy path beside it.

Importing it imports no GPU library.
"""

from typing import TYPE_CHECKING

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
from .missing import names_missing
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


def _elsewhere(name: str) -> str:
    """Where a name is found that stands in a module of its own, or on `Dataset`."""
    for module in (io, ops, compat):
        if name in module.__all__:
            return f"use {module.__name__}.{name}"
    return f"use gpupipe.Dataset.{name}" if not name.startswith("_") and hasattr(Dataset, name) else ""


_INSTEAD = {
    "DataLoader": "a Dataset is iterated as it is: for batch in dataset",
    "Feature": "use gpupipe.io.FixedLenFeature, VarLenFeature or RaggedFeature",
    "Iterator": "use iter(dataset), or dataset.iterator(epoch=...)",
    "RaggedTensor": "use gpupipe.Ragged",
    "RaggedTensorSpec": "use gpupipe.RaggedSpec",
    "data": "what tf.data has stands in gpupipe itself: gpupipe.Dataset",
    "experimental": "what tf.data.experimental has are methods of gpupipe.Dataset",
    "image": "what tf.image has stands in gpupipe.ops",
    "seed": "use gpupipe.set_seed, or Options(seed=...)",
    "transforms": "what torchvision.transforms has stands in gpupipe.ops",
}


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:
    __getattr__ = names_missing(__name__, __all__, _INSTEAD, _elsewhere)
