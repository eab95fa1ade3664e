"""find: which kind of source a path is."""

from __future__ import annotations

import os
from collections.abc import Sequence

from gpupipe.errors import PlanError
from gpupipe.extract.storage.patterns import typed_files
from gpupipe.tools.pack.folder import find_folder
from gpupipe.tools.pack.inputs import Inputs, Progress
from gpupipe.tools.pack.parquet import find_parquet
from gpupipe.tools.pack.tar import find_tar

__all__ = ["find_inputs"]

_CONTAINERS = (".parquet", ".tar")


def find_inputs(source: str, image_column: str | None, label_column: str | None, progress: Progress) -> Inputs:
    """Find the images of a folder of images, of tar archives or of Parquet files.

    Args:
        source: a folder with images or with archives of one kind, the path of an archive, or a wildcard for several.
        image_column: see `find_parquet`.
        label_column: see `find_parquet`.
        progress: is told how many images were found.

    Raises:
        PlanError: nothing is there, or it is of no known kind.
        MissingDependencyError: Parquet, and pyarrow is not installed.
        OSError: a file cannot be read.
    """
    path = os.path.expanduser(source)
    if os.path.isdir(path):
        files = [os.path.join(path, name) for name in sorted(os.listdir(path)) if name.endswith(_CONTAINERS)]
        if not files:
            return find_folder(path, progress)
    else:
        files = [
            path for path, _ in typed_files(source, "pack needs a folder of images, tar archives or Parquet files")
        ]
    parquet = _parquet(files)
    if any(parquet) and not all(parquet):
        raise PlanError(f"pack needs archives of one kind, got {source!r} with tar archives and Parquet files")
    return find_parquet(files, image_column, label_column, progress) if parquet[0] else find_tar(files, progress)


def _parquet(files: Sequence[str]) -> list[bool]:
    """Which files start as Parquet does."""
    out = []
    for file in files:
        if not os.path.isfile(file):  # a pipe would be waited for
            raise PlanError(f"pack needs tar archives or Parquet files, got {file!r}, which is no file")
        with open(file, "rb") as opened:
            out.append(opened.read(4) == b"PAR1")
    return out
