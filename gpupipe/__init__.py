"""gpupipe: input pipelines for image training. tf.data's chain on top of NVIDIA DALI, with a NumPy path on the CPU.

Importing it imports no library, and of gpupipe itself what is used first: so the command can say at once that it was
interrupted.
"""

import importlib
from typing import TYPE_CHECKING

from .missing import names_missing

if TYPE_CHECKING:
    from . import compat as compat  # reachable as gpupipe.compat, and in no list of names
    from . import io, ops
    from . import ray as ray  # ... as is gpupipe.ray
    from .comparison.compare import compare
    from .dataset import (
        INFINITE_CARDINALITY,
        UNKNOWN_CARDINALITY,
        ArrowDataset,
        CsvDataset,
        Dataset,
        FixedLengthRecordDataset,
        HDF5Dataset,
        HuggingFaceDataset,
        LMDBDataset,
        NumpyDataset,
        ParquetDataset,
        TextLineDataset,
        TFRecordDataset,
        WebDataset,
        aspect_ratio_buckets,
        release_memory,
    )
    from .dataset.image_folder import image_folder
    from .errors import (
        BadRecord,
        ClosedError,
        DataError,
        DeviceError,
        GpupipeError,
        MissingDependencyError,
        PixelError,
        PlanError,
        RanksDisagreeError,
        SpecError,
        StateError,
        TooManyBadError,
        TraceError,
        WorkersDisagreeError,
        WorkersLostError,
    )
    from .options import ALL, AUTOTUNE, Options, set_seed
    from .ragged import Ragged, RaggedSpec
    from .serving.preprocessor import preprocessor
    from .spec import DatasetSpec, TensorSpec

__version__ = "0.1.0"

__all__ = [
    "ALL",
    "AUTOTUNE",
    "INFINITE_CARDINALITY",
    "UNKNOWN_CARDINALITY",
    "ArrowDataset",
    "BadRecord",
    "ClosedError",
    "CsvDataset",
    "DataError",
    "Dataset",
    "DatasetSpec",
    "DeviceError",
    "FixedLengthRecordDataset",
    "GpupipeError",
    "HDF5Dataset",
    "HuggingFaceDataset",
    "LMDBDataset",
    "MissingDependencyError",
    "NumpyDataset",
    "Options",
    "ParquetDataset",
    "PixelError",
    "PlanError",
    "Ragged",
    "RaggedSpec",
    "RanksDisagreeError",
    "SpecError",
    "StateError",
    "TFRecordDataset",
    "TensorSpec",
    "TextLineDataset",
    "TooManyBadError",
    "TraceError",
    "WebDataset",
    "WorkersDisagreeError",
    "WorkersLostError",
    "__version__",
    "aspect_ratio_buckets",
    "compare",
    "image_folder",
    "io",
    "ops",
    "preprocessor",
    "release_memory",
    "set_seed",
]


_HOMES = {
    name: module
    for module, names in {
        ".comparison.compare": ("compare",),
        ".dataset": (
            "INFINITE_CARDINALITY UNKNOWN_CARDINALITY ArrowDataset CsvDataset Dataset FixedLengthRecordDataset "
            "HDF5Dataset HuggingFaceDataset LMDBDataset NumpyDataset ParquetDataset TextLineDataset TFRecordDataset "
            "WebDataset aspect_ratio_buckets image_folder release_memory"
        ).split(),
        ".errors": (
            "BadRecord ClosedError DataError DeviceError GpupipeError MissingDependencyError PixelError PlanError "
            "RanksDisagreeError SpecError StateError TooManyBadError TraceError WorkersDisagreeError WorkersLostError"
        ).split(),
        ".options": ("ALL", "AUTOTUNE", "Options", "set_seed"),
        ".ragged": ("Ragged", "RaggedSpec"),
        ".serving.preprocessor": ("preprocessor",),
        ".spec": ("DatasetSpec", "TensorSpec"),
    }.items()
    for name in names
}
"""The module of each public name."""


def _elsewhere(name: str) -> str:
    """Where a name is that `io`, `ops`, `compat` or `Dataset` has."""
    from . import compat, io, ops
    from .dataset import Dataset

    for module in (io, ops, compat):
        if name in module.__all__:
            return f"use {module.__name__}.{name}"
    return f"use gpupipe.Dataset.{name}" if not name.startswith("_") and hasattr(Dataset, name) else ""


_INSTEAD = {
    "DataLoader": "iterate over a Dataset itself: for batch in dataset",
    "Feature": "use gpupipe.io.FixedLenFeature, VarLenFeature or RaggedFeature",
    "Iterator": "use iter(dataset), or dataset.iterator(epoch=...)",
    "RaggedTensor": "use gpupipe.Ragged",
    "RaggedTensorSpec": "use gpupipe.RaggedSpec",
    "data": "the names of tf.data are in gpupipe itself: gpupipe.Dataset",
    "experimental": "the names of tf.data.experimental are methods of gpupipe.Dataset",
    "image": "the functions of tf.image are in gpupipe.ops",
    "seed": "use gpupipe.set_seed, or Options(seed=...)",
    "transforms": "the transforms of torchvision are in gpupipe.ops",
}


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:
    for _name in _HOMES:
        globals().pop(_name, None)  # of a module that is reloaded

    _missing = names_missing(__name__, __all__, _INSTEAD, _elsewhere)

    def __getattr__(name: str) -> object:
        """Import what is used for the first time."""
        if name in ("compat", "dataset", "errors", "io", "ops", "options", "ragged", "ray", "spec"):
            return importlib.import_module(f".{name}", __name__)
        if name not in _HOMES:
            return _missing(name)
        value = globals()[name] = getattr(importlib.import_module(_HOMES[name], __name__), name)
        return value
