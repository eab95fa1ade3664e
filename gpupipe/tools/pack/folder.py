"""folder: image files in class directories, or in a folder without classes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

from gpupipe.errors import PlanError
from gpupipe.tools.files import is_image_name
from gpupipe.tools.pack.inputs import Inputs, Progress, check_classes, digest_of, read_exactly

from ...classes import dataclass

__all__ = ["Folder", "find_folder"]


@dataclass(frozen=True)
class Folder(Inputs):
    """The images of a folder.

    Attributes:
        root: the folder.
    """

    root: str

    def where(self, i: int) -> str:
        return os.path.join(self.root, self.names[i])

    def reader(self, scratch: Path, progress: Progress) -> Callable[[int], bytes]:
        return self._read

    def _read(self, i: int) -> bytes:
        path = os.path.join(self.root, self.names[i])
        return read_exactly(path, 0, os.stat(path).st_size)


def find_folder(root: str, progress: Progress) -> Folder:
    """Find the images of a folder.

    The directories in it, sorted by name, are the classes 0, 1, 2 and so on; images at any depth below one belong to
    it. Without directories the images have no labels. Names that start with a dot are left out, and so are links to
    directories below a class.

    Raises:
        PlanError: no images, images beside class directories, or directories that are splits.
        OSError: a directory cannot be read.
    """
    with os.scandir(root) as found:
        entries = sorted((entry for entry in found if not entry.name.startswith(".")), key=lambda entry: entry.name)
    classes = [entry.name for entry in entries if entry.is_dir()]
    files = [entry.name for entry in entries if not entry.is_dir()]
    loose = [name for name in files if is_image_name(name)]
    names, labels, ignored = list(loose), [0] * len(loose), len(files) - len(loose)
    for label, directory in enumerate(classes):
        for name in _below(root, directory):
            if is_image_name(name):
                names.append(name)
                labels.append(label)
            else:
                ignored += 1
        progress("looking for images", len(names), 0)
    if not names:
        raise PlanError(
            f"pack needs image files in class directories, or in the folder itself, got {root!r} with neither "
            f"({len(classes)} directories and {ignored} other files in it)"
        )
    if loose and len(names) > len(loose):
        raise PlanError(
            f"pack needs images in class directories or in the folder itself, got {root!r} with both: "
            f"{loose[0]!r} and {names[-1]!r}; move one or the other away"
        )
    if loose:
        classes = []
    check_classes(classes, root)
    digest = digest_of(chain([classes], (_stamped(root, name) for name in names)))
    return Folder(names, labels if classes else None, classes, ignored, digest, root)


def _below(root: str, directory: str) -> Iterator[str]:
    """Yield the files below a directory, sorted, as names below the root with "/" on every system."""

    def failed(error: OSError) -> None:
        raise error  # os.walk would leave the directory out

    for folder, directories, files in os.walk(os.path.join(root, directory), onerror=failed):
        directories[:] = sorted(name for name in directories if not name.startswith("."))
        inside = os.path.relpath(folder, root).replace(os.sep, "/")
        yield from (f"{inside}/{name}" for name in sorted(files) if not name.startswith("."))


def _stamped(root: str, name: str) -> tuple[str, int, int]:
    status = os.stat(os.path.join(root, name))
    return name, status.st_size, status.st_mtime_ns
