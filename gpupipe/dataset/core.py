"""core: `Dataset`, composed of its parts."""

from __future__ import annotations

from ..plan.node import INFINITE, UNKNOWN_CARDINALITY
from .base import Chain
from .batches import Batches
from .buffers import Buffers
from .elements import Elements
from .mixing import Mixing
from .ranks import Ranks
from .scanning import Scanning
from .sources import Sources
from .tensors import Tensors

__all__ = ["Dataset"]


class Dataset(Sources, Mixing, Elements, Scanning, Batches, Ranks, Buffers, Tensors):
    """A lazy chain of steps over elements. It is immutable: every method returns a new dataset.

    Start with a constructor (`from_tensor_slices`, `list_files`, `TFRecordDataset`, ...), add steps, then iterate.
    Building a chain reads file names, never contents.
    """

    INFINITE_CARDINALITY = INFINITE
    UNKNOWN_CARDINALITY = UNKNOWN_CARDINALITY


Chain._dataset_type = Dataset
