"""image_folder: the images of a folder with a folder for each class."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Literal

import numpy as np

from .. import io
from ..arguments import any_integer
from ..errors import PlanError, PlanTypeError, shown_name
from ..extract.finder import DataFile, images_below, in_words
from ..extract.kinds import IMAGE_SUFFIXES
from ..extract.storage.names import Names
from ..extract.storage.patterns import file_name
from ..log import logger
from ..plan.node import Node
from ..plan.sources import Slices
from ..spec import as_leaf
from ..structure import flatten
from .core import Dataset

__all__ = ["EXTENSIONS", "ImageFolder", "image_folder"]

EXTENSIONS = IMAGE_SUFFIXES
"""Of the formats that `ops.decode_image` reads."""

Subset = Literal["training", "validation"]


class ImageFolder(Dataset):
    """(image bytes, label) of each file of a folder of classes; see `image_folder`.

    Attributes:
        class_names: of the classes; label i is that of ``class_names[i]``.
        file_paths: of the images, in order.
        labels: of the images, in order: int64[N].
        left_out: how many files and folders are not read, by what they are: ``{".txt files": 1}``. Images beside the
            class folders are logged, too.
    """

    def __init__(
        self,
        plan: Node,
        class_names: Sequence[str],
        file_paths: Sequence[str],
        labels: Any,
        left_out: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(plan)
        self.class_names = tuple(class_names)
        self.file_paths = tuple(file_paths)
        self.labels = labels
        self.left_out = dict(left_out or {})


def image_folder(
    path: str | os.PathLike[str],
    *,
    class_names: Sequence[str] | None = None,
    extensions: Sequence[str] = EXTENSIONS,
    validation_split: float | None = None,
    subset: Subset | None = None,
    seed: int = 0,
    follow_links: bool = False,
) -> ImageFolder:
    """Make a dataset of the images in the folders of `path`, one folder for each class: (bytes, int64 label).

    Elements are sorted by class and file name; so shuffle: ``image_folder(path).shuffle(gp.ALL)`` is uniform, and moves
    names only. Random values depend on the name of a file below `path`: they stay when the folder moves or grows.
    Images lie in a folder of their class or below it. Files and folders whose names start with a dot are skipped.

    Args:
        path: the folder, or the URL of one.
        class_names: the folders, in the order of their labels; by default all, sorted.
        extensions: of images, compared in lower case.
        validation_split: the part of each class that is in the subset "validation", 0 to 1; the rest is in "training".
            Which files these are depends on their names and on `seed` alone.
        subset: with `validation_split`: which part.
        seed: of the split.
        follow_links: also enter folders below a class that are symbolic links, each once.

    Raises:
        PlanError: there is no such folder, no class in it, or a class has no image; a split without a subset, or the
            reverse, or one that leaves a subset empty.

    Example:
        >>> train = image_folder("flowers", validation_split=0.2, subset="training")  # doctest: +SKIP
        >>> train.class_names, len(train)  # doctest: +SKIP
        (('daisy', 'rose'), 1040)
    """
    folder = file_name("image_folder", os.fsdecode(path))
    _check(validation_split, subset)
    ends = [extension.lower() for extension in _texts("extensions", extensions)]
    below = images_below(folder, "image_folder", ends, follow_links)
    found, left_out = below.classes, below.all_left_out()
    if class_names is None:
        classes = sorted(found)
    else:
        classes = _texts("class_names", class_names)
        unknown = [name for name in classes if name not in found]
        if unknown or len(set(classes)) < len(classes):
            wrong = f"{unknown[0]!r}, which is no folder in it" if unknown else "one of them twice"
            raise PlanError(f"image_folder needs class_names of folders in {shown_name(folder)!r}, got {wrong}")
    if not classes:
        loose = f", with images in it ({len(below.loose):,}); `Dataset.list_files` names them" if below.loose else ""
        raise PlanError(
            f"image_folder needs a folder with a folder for each class, got {shown_name(folder)!r} without{loose}"
        )
    if below.loose:
        logger.warning_once("image_folder: of %s left out: %s", shown_name(folder), in_words(left_out))
    paths: list[str] = []
    names: list[str] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        if not found[name]:
            raise PlanError(
                f"image_folder needs images in every class, and {name!r} in {shown_name(folder)!r} has none "
                f"({', '.join(extensions)}); leave it out of class_names"
            )
        chosen = _part(found[name], validation_split, subset, any_integer("image_folder", "seed", seed))
        names += [file.name for file in chosen]
        paths += [file.path for file in chosen]
        labels += [label] * len(chosen)
    if not paths:
        raise PlanError(f"image_folder needs images in the subset {subset!r}, and validation_split leaves none")
    numbers = np.array(labels, np.int64)
    encoded = [path.encode(errors="surrogateescape") for path in paths]
    leaves, structure = flatten((as_leaf(encoded), numbers))
    plan = Slices(tuple(leaves), structure, Names(names))
    return ImageFolder(Dataset(plan).map(_read).plan, classes, paths, numbers, left_out)


def _read(path: Any, label: Any) -> tuple[Any, Any]:
    return io.read_file(path), label


def _check(split: float | None, subset: Subset | None) -> None:
    if subset not in (None, "training", "validation"):
        raise PlanError(f"image_folder needs subset='training' or 'validation', got {subset!r}")
    if (split is None) != (subset is None):
        raise PlanError(f"image_folder needs validation_split and subset together, got {split!r} and {subset!r}")
    if split is not None and not (isinstance(split, (int, float)) and 0 < split < 1):
        raise PlanError(f"image_folder needs 0 < validation_split < 1, got {split!r}")


def _texts(name: str, given: Sequence[str]) -> list[str]:
    if isinstance(given, str) or not all(isinstance(one, str) for one in given):
        raise PlanTypeError(f"image_folder needs {name} as a list of strings, got {given!r}")
    return list(given)


def _part(images: list[DataFile], split: float | None, subset: Subset | None, seed: int) -> list[DataFile]:
    """The images of a class that are in a subset, in their order: the validation's have the smallest digests."""
    if split is None:
        return images
    key = seed.to_bytes(16, "little", signed=True)
    ranked = sorted(
        images, key=lambda file: blake2b(file.name.encode(errors="surrogateescape"), digest_size=8, key=key).digest()
    )
    held_out = set(ranked[: round(split * len(images))])
    return [file for file in images if (file in held_out) == (subset == "validation")]
