"""folder: image files, in class directories or without classes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path

from gpupipe.extract.finder import DataFile, Found
from gpupipe.tools.pack.inputs import Inputs, Progress, check_classes, digest_of, read_exactly

from ...classes import dataclass

__all__ = ["Folder", "find_folder"]


@dataclass(frozen=True)
class Folder(Inputs):
    """Image files.

    Attributes:
        paths: of the images.
    """

    paths: Sequence[str]

    def where(self, i: int) -> str:
        return self.paths[i]

    def reader(self, scratch: Path, progress: Progress) -> Callable[[int], bytes]:
        return self._read

    def _read(self, i: int) -> bytes:
        return read_exactly(self.paths[i], 0, os.stat(self.paths[i]).st_size)


def find_folder(found: Found, source: str, progress: Progress) -> Folder:
    """List image files that were found. Class directories are the classes 0, 1, 2 and so on, sorted by name.

    Raises:
        PlanError: the class directories are splits.
        OSError: a file is not there.
    """
    progress("looking for images", len(found.files), 0)
    check_classes(found.classes, source)
    digest = digest_of(chain([list(found.classes)], map(_stamped, found.files)))
    names = [file.name for file in found.files]
    return Folder(names, found.labels or None, found.classes, found.left_out, digest, found.paths)


def _stamped(file: DataFile) -> tuple[str, int, int]:
    status = os.stat(file.path)
    return file.name, status.st_size, status.st_mtime_ns
