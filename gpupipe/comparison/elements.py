"""elements: the encoded images and labels of the demo's data, whatever files they lie in."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from gpupipe import io
from gpupipe.comparison.source import IMAGES, Source
from gpupipe.dataset import Dataset, ParquetDataset, TFRecordDataset, WebDataset
from gpupipe.options import AUTOTUNE

__all__ = ["elements_of", "encoded"]


def elements_of(source: Source, images: int, seed: int | None = None) -> Dataset:
    """Make a dataset of the elements that `encoded` takes, without reading anything but the columns of Parquet files.

    Args:
        source: the files.
        images: how many elements at most.
        seed: of the order of TFRecord files and archives; None sorts them.
    """
    if source.form == "images":
        pairs = list(map(os.fsencode, source.paths)), list(source.labels)
        return Dataset.from_tensor_slices(pairs).take(images)
    if source.form == "Parquet files":
        return ParquetDataset(list(source.paths), columns=list(source.columns)).take(images)
    files = Dataset.list_files(source.paths, shuffle=seed is not None, seed=seed)  # by their names, of any characters
    read = TFRecordDataset if source.form == "TFRecord files" else _samples
    return files.interleave(read, cycle_length=8, num_parallel_calls=AUTOTUNE).take(images)


def _samples(path: Any) -> Dataset:
    return WebDataset(path, (IMAGES,))


def encoded(source: Source, use: Callable[[Any], Sequence[Any]]) -> Callable[..., tuple[Any, ...]]:
    """Make the function for `map` from an element to what `use` makes of the encoded image, and the label.

    The label is that of the record, the row or the class folder; -1 where there is none, and of archives.
    """

    def from_record(record: Any) -> tuple[Any, ...]:
        x = io.parse_single_example(
            record,
            {
                "image/encoded": io.FixedLenFeature((), bytes),
                "image/class/label": io.FixedLenFeature((), "int64", default_value=-1),
            },
        )
        return *use(x["image/encoded"]), x["image/class/label"]

    def from_file(path: Any, label: Any) -> tuple[Any, ...]:
        return *use(io.read_file(path)), label

    def from_row(row: Any) -> tuple[Any, ...]:
        image, *label = (row[name] for name in source.columns)
        return *use(image), label[0] if label else -1

    def from_sample(image: Any) -> tuple[Any, ...]:
        return *use(image), -1

    match source.form:
        case "TFRecord files":
            return from_record
        case "images":
            return from_file
        case "Parquet files":
            return from_row
    return from_sample
