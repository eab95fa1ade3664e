"""source: the images of the demo: files of one kind, found and looked into before any work."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gpupipe.dataset import Dataset, ParquetDataset, TFRecordDataset, WebDataset
from gpupipe.errors import DataError, ParseError, PlanError, shown_name
from gpupipe.extract.finder import Form, Found, find
from gpupipe.extract.kinds import IMAGE_SUFFIXES, kind_of
from gpupipe.extract.tables.parquet import Parquet
from gpupipe.io import FixedLenFeature, parse_single_example
from gpupipe.spec import TensorSpec

from ..classes import dataclass

__all__ = ["IMAGES", "Source", "find_source"]

ENOUGH = 32

IMAGES = ";".join(suffix[1:] for suffix in IMAGE_SUFFIXES)
"""The members of tar archives that are images, as `WebDataset` takes them."""


@dataclass(frozen=True, slots=True)
class Source:
    """The files of a run, as plain data that can be sent to a subprocess as JSON.

    Attributes:
        name: the data as the user named it, of a URL what is shown.
        form: what the files are.
        paths: of the files; of images those that are used.
        labels: of images: the class of each path, an index into the sorted class folders; 0 without these.
        columns: of Parquet files: that of the images, and that of the labels, if there is one.
        at_least: a lower bound of the number of images; of TFRecords and archives at most `ENOUGH` are counted.
        left_out: what of the data is not used, in words; "" if all is.
    """

    name: str
    form: Form = "images"
    paths: Sequence[str] = ()
    labels: Sequence[int] = ()
    columns: Sequence[str] = ()
    at_least: int = 0
    left_out: str = ""

    @property
    def title(self) -> str:
        """The data as the user named it, and what of it is left out."""
        return f"{self.name} ({self.left_out})" if self.left_out else self.name


def find_source(data: str, images: int) -> Source:
    """Find the files of `data`: TFRecord files, images, tar archives or Parquet files; see `extract.finder.find`.

    Args:
        data: a path, a wildcard or a folder, as typed.
        images: how many images of a folder to take at most, evenly over all classes.

    Raises:
        PlanError: nothing matches, or the files hold no images.
        MissingDependencyError: Parquet, and pyarrow is not installed.
    """
    found, data = find(data, "DATA"), shown_name(data)
    match found.only("DATA", "TFRecord files", "images", "tar archives", "Parquet files"):
        case "images":
            return _images(data, found, images)
        case "Parquet files":
            return _parquet(data, found)
        case "tar archives":
            return _counted(data, found, WebDataset(found.paths, (IMAGES,)))
    return _counted(data, found, TFRecordDataset(_filled(data, found)))


def _images(data: str, found: Found, images: int) -> Source:
    every = list(zip(found.paths, found.labels or [0] * len(found.files), strict=True))
    taken = [every[i * len(every) // images] for i in range(images)] if len(every) > images else every
    paths, labels = [path for path, _ in taken], [label for _, label in taken]
    return Source(data, "images", paths, labels, at_least=len(paths), left_out=found.left_out_text)


def _filled(data: str, found: Found) -> list[str]:
    """Those of the files that are not empty; of the others the reader says what is wrong."""
    filled = [path for path in found.paths if not os.path.isfile(path) or os.path.getsize(path)]
    if not filled:
        raise PlanError(f"DATA needs TFRecord files with records, got {data!r}, with empty files alone")
    return filled


def _counted(data: str, found: Found, elements: Dataset) -> Source:
    """Read the first elements, so that a wrong file is found before any subprocess starts."""
    form = found.forms[0]
    try:
        with iter(elements.take(ENOUGH)) as taken:
            every = list(taken)
        if not every:
            raise PlanError(f"DATA needs {form} with images, got {data!r}, with nothing in it")
        first = every[0]
        if form == "TFRecord files":
            image = parse_single_example(first, {"image/encoded": FixedLenFeature((), bytes)})["image/encoded"]
        else:
            image = first[0]
    except DataError as error:
        if form == "TFRecord files" and isinstance(error, ParseError):
            what = "records that are tf.train.Example with a bytes feature 'image/encoded'"
            raise PlanError(f"DATA needs {what}, got others: {error}") from error
        raise PlanError(f"DATA needs {form}, got one that cannot be read: {error}") from error
    what = "'image/encoded' of the first record" if form == "TFRecord files" else "the first sample"
    _check_image(bytes(image), f"{what} of {data!r}")
    return Source(data, form, found.paths, at_least=len(every), left_out=found.left_out_text)


def _parquet(data: str, found: Found) -> Source:
    """Choose the columns: "image", or the only one with images; "label", or the only one of integers."""
    first = found.paths[0]
    columns = Parquet().open(first).columns
    of_bytes = [name for name, spec in columns.items() if _scalar(spec, False)]
    integers = [name for name, spec in columns.items() if _scalar(spec, True)]
    values: Mapping[str, Any] = (
        {} if not of_bytes else next(iter(ParquetDataset(found.paths, columns=of_bytes).take(1)), {})
    )
    candidates = [name for name, value in values.items() if kind_of(bytes(value)[:64]).is_image]
    image = "image" if "image" in candidates else candidates[0] if len(candidates) == 1 else None
    if image is None:
        had = ", ".join(map(shown_name, columns))
        raise PlanError(
            f"DATA needs Parquet files with one column of encoded images, or with one called 'image', got "
            f"{len(candidates)} such columns in {shown_name(first)!r} (columns: {had}); of other files make a chain of "
            "your own, and pass FILE.py:NAME"
        )
    label = "label" if "label" in integers else integers[0] if len(integers) == 1 else None
    names = (image,) if label is None else (image, label)
    count = len(ParquetDataset(found.paths, columns=names))
    return Source(data, "Parquet files", found.paths, columns=names, at_least=count, left_out=found.left_out_text)


def _scalar(spec: TensorSpec | str, integer: bool) -> bool:
    """Whether a column has one integer, or one byte string, in each row."""
    if isinstance(spec, str) or spec.shape != ():
        return False
    return spec.dtype is not bytes and np.issubdtype(spec.dtype, np.integer) if integer else spec.dtype is bytes


def _check_image(image: bytes, where: str) -> None:
    if not kind_of(image[:64]).is_image:
        raise PlanError(f"DATA needs encoded images, got other bytes in {where}")
