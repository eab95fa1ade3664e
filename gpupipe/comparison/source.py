"""source: the data of the demo, TFRecord files or a folder of JPEGs, found and checked before any work."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from pathlib import Path

from gpupipe.errors import DataError, ParseError, PlanError
from gpupipe.extract.storage.patterns import expand, typed_files

from ..classes import dataclass

__all__ = ["Source", "find_source"]

JPEG_SUFFIXES = (".jpg", ".jpeg")
ENOUGH = 32


@dataclass(frozen=True, slots=True)
class Source:
    """The files of a run, as plain data that can be sent to a subprocess as JSON.

    Attributes:
        name: the data as the user named it.
        patterns: wildcards or names of TFRecord files; empty for a folder of images.
        paths: JPEG files of a folder; empty for TFRecord files.
        labels: the class of each path, an index into the sorted class directories; 0 without these.
        at_least: a lower bound of the number of images; of TFRecords at most `ENOUGH` are counted.
    """

    name: str
    patterns: Sequence[str] = ()
    paths: Sequence[str] = ()
    labels: Sequence[int] = ()
    at_least: int = 0

    def files(self) -> list[str]:
        """List the paths of all files."""
        return [*self.paths, *(path for pattern in self.patterns for path, _ in expand(pattern))]


def find_source(data: str, images: int) -> Source:
    """Find the files of `data`: a TFRecord file, a wildcard or a folder of them, or a folder of JPEGs, or of classes.

    Args:
        data: a path or a wildcard, as typed.
        images: how many images of a folder to take at most, evenly over all classes.

    Raises:
        PlanError: nothing matches, or what matches is neither TFRecords with images nor a folder with JPEGs.
    """
    pattern = os.path.expanduser(data)
    if os.path.isdir(pattern):
        return _in_folder(data, Path(pattern), images)
    files = [path for path, _ in typed_files(data, "DATA needs TFRecord files or a folder of JPEGs")]
    return _tfrecords(data, [glob.escape(pattern)] if os.path.isfile(pattern) else [pattern], files)


def _in_folder(name: str, folder: Path, images: int) -> Source:
    records = sorted(str(path) for path in folder.iterdir() if path.is_file() and ".tfrecord" in path.name.lower())
    if records:
        return _tfrecords(name, [glob.escape(path) for path in records], records)
    classes = sorted(path for path in folder.iterdir() if path.is_dir())
    if any(path.suffix.lower() in JPEG_SUFFIXES for path in folder.iterdir()):
        classes = [folder]
    found = [
        (str(path), label)
        for label, directory in enumerate(classes)
        for path in sorted(directory.iterdir())
        if path.suffix.lower() in JPEG_SUFFIXES
    ]
    if not found:
        raise PlanError(
            f"DATA needs *.tfrecord files, or *.jpg or *.jpeg files in it or in class directories, got the folder "
            f"{name!r} without any ({len(classes)} directories in it); TFRecord files of other names need a "
            f"wildcard, as in '{name}/train-*', and images that are no JPEGs a chain of your own"
        )
    taken = [found[i * len(found) // images] for i in range(images)] if len(found) > images else found
    paths, labels = [path for path, _ in taken], [label for _, label in taken]
    return Source(name, paths=paths, labels=labels, at_least=len(paths))


def _tfrecords(name: str, patterns: Sequence[str], files: Sequence[str]) -> Source:
    """Read the first records, so that a wrong file is found before any subprocess starts."""
    from gpupipe.dataset import TFRecordDataset
    from gpupipe.io import FixedLenFeature, parse_single_example

    filled = [file for file in files if not os.path.isfile(file) or os.path.getsize(file)]  # the reader says what else
    if not filled:
        raise PlanError(f"DATA needs TFRecord files with records, got {name!r}, with empty files alone")
    try:
        with iter(TFRecordDataset(filled).take(ENOUGH)) as records:
            first, *others = records
        jpeg = parse_single_example(first, {"image/encoded": FixedLenFeature((), bytes)})["image/encoded"]
    except ParseError as error:
        raise PlanError(
            f"DATA needs records that are tf.train.Example with a bytes feature 'image/encoded', got others: {error}"
        ) from error
    except DataError as error:
        raise PlanError(f"DATA needs TFRecord files, got one that cannot be read: {error}") from error
    if not bytes(jpeg).startswith(b"\xff\xd8\xff"):
        raise PlanError(f"DATA needs JPEG images, got other bytes in 'image/encoded' of the first record of {name!r}")
    return Source(name, patterns=patterns, at_least=1 + len(others))
