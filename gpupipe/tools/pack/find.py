"""find: the images of files, whatever kind of files they lie in."""

from __future__ import annotations

import os

from gpupipe.errors import PlanError, shown_name
from gpupipe.extract.finder import Found, find
from gpupipe.extract.storage.patterns import is_url
from gpupipe.tools.pack.folder import find_folder
from gpupipe.tools.pack.inputs import Inputs, Progress
from gpupipe.tools.pack.parquet import find_parquet
from gpupipe.tools.pack.tar import find_tar

__all__ = ["find_inputs", "inputs_of"]


def find_inputs(source: str, image_column: str | None, label_column: str | None, progress: Progress) -> Inputs:
    """Find the images of a folder of images, of tar archives or of Parquet files, see `extract.finder.find`.

    Args:
        source: a folder with images or with archives of one kind, the path of a file, or a wildcard for several.
        image_column: see `find_parquet`.
        label_column: see `find_parquet`.
        progress: is told how many images were found.

    Raises:
        PlanError: nothing is there, or it is of no known kind.
        MissingDependencyError: Parquet, and pyarrow is not installed.
        OSError: a file cannot be read.
    """
    return inputs_of(find(source, "pack"), source, "pack", progress, image_column, label_column)


def inputs_of(
    found: Found,
    source: str,
    who: str,
    progress: Progress,
    image_column: str | None = None,
    label_column: str | None = None,
) -> Inputs:
    """List the images in files that were found.

    Args:
        found: the files.
        source: what the user named.
        who: needs them, for messages; "pack" needs labels, too.
        progress: is told how many images were found.
        image_column: see `find_parquet`.
        label_column: see `find_parquet`.

    Raises:
        See `find_inputs`.
    """
    form = found.only(who, "images", "tar archives", "Parquet files")
    far = next((path for path in found.paths if is_url(path) or not os.path.isfile(path)), None)
    if far is not None:  # a pipe would be waited for
        raise PlanError(f"{who} needs files on a local disk, got {shown_name(far)!r}, which is no file there")
    if form == "images":
        return find_folder(found, source, progress)
    if form == "tar archives":
        return find_tar(found.paths, progress, who, found.left_out)
    return find_parquet(found.paths, image_column, label_column, progress, who, found.left_out)
