"""dataset: the chain as a user writes it. Every method makes one plan node and runs nothing."""

from ..plan.image_buckets import aspect_ratio_buckets
from ..plan.node import INFINITE, UNKNOWN_CARDINALITY
from .core import Dataset
from .files import FixedLengthRecordDataset, TextLineDataset, TFRecordDataset
from .huggingface import HuggingFaceDataset
from .image_folder import image_folder
from .memory import release_memory
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
