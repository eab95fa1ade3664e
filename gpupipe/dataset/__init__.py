"""dataset: the chain as a user writes it. Every method makes one plan node and runs nothing.

As gpupipe itself, it imports what is used first: few chains read tables, or LMDB.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from ..plan.node import INFINITE, UNKNOWN_CARDINALITY
from .core import Dataset
from .files import FixedLengthRecordDataset, TextLineDataset, TFRecordDataset
from .image_folder import image_folder
from .memory import release_memory

if TYPE_CHECKING:
    from ..plan.image_buckets import aspect_ratio_buckets
    from .huggingface import HuggingFaceDataset
    from .shards import LMDBDataset, WebDataset
    from .tables import ArrowDataset, CsvDataset, HDF5Dataset, NumpyDataset, ParquetDataset

__all__ = [
    "INFINITE_CARDINALITY",
    "UNKNOWN_CARDINALITY",
    "ArrowDataset",
    "CsvDataset",
    "Dataset",
    "FixedLengthRecordDataset",
    "HDF5Dataset",
    "HuggingFaceDataset",
    "LMDBDataset",
    "NumpyDataset",
    "ParquetDataset",
    "TFRecordDataset",
    "TextLineDataset",
    "WebDataset",
    "aspect_ratio_buckets",
    "image_folder",
    "release_memory",
]

INFINITE_CARDINALITY = INFINITE

_HOMES = {
    name: module
    for module, names in {
        "..plan.image_buckets": ("aspect_ratio_buckets",),
        ".huggingface": ("HuggingFaceDataset",),
        ".shards": ("LMDBDataset", "WebDataset"),
        ".tables": ("ArrowDataset", "CsvDataset", "HDF5Dataset", "NumpyDataset", "ParquetDataset"),
    }.items()
    for name in names
}
"""The module of each public name."""


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import what is used for the first time."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_HOMES[name], __name__), name)
        return value
