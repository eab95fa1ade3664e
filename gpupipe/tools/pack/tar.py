"""tar: images in uncompressed tar archives, with WebDataset's labels or in class directories.

Members are read where they lie in the archive; nothing is extracted, so no name in it becomes a path on disk.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

from gpupipe.errors import PlanError, shown_cause, shown_name
from gpupipe.extract.finder import LOOSE, called, in_words
from gpupipe.extract.kinds import is_image_name, what_is
from gpupipe.tools.pack.inputs import (
    Inputs,
    Progress,
    check_classes,
    digest_of,
    numbered,
    read_exactly,
    stamp,
)

from ...classes import dataclass

__all__ = ["Tar", "find_tar"]

_MOST_LABEL, _MOST_JSON = 4096, 16 << 20  # bytes; a larger .json is no label: annotations of the whole, say
_NOTHING: Mapping[str, int] = MappingProxyType({})
_KEYS = ("label", "cls")  # of the label in a .json
_HALVES = re.compile("[\ud800-\udfff]")  # surrogates, which JSON may name alone


@dataclass(frozen=True)
class Tar(Inputs):
    """The images of tar archives.

    Attributes:
        extents: (archive, offset, bytes) of each image.
    """

    extents: Sequence[tuple[str, int, int]]

    def where(self, i: int) -> str:
        return f"{self.extents[i][0]}: {self.names[i]}"

    def reader(self, scratch: Path, progress: Progress) -> Callable[[int], bytes]:
        return lambda i: read_exactly(*self.extents[i])


def find_tar(
    archives: Sequence[str], progress: Progress, who: str = "pack", left_out: Mapping[str, int] = _NOTHING
) -> Tar:
    """Find the images of tar archives.

    An image ``key.jpg`` has the label in ``key.cls`` (an integer or a name), or in ``key.json`` under "label" or "cls"
    (where 7.0 is 7). Both belong to one sample as for `WebDataset`: they follow one another, else the label has to be
    the only one of its key. Of several images of a sample those with a longer extension, ``key.seg.png``, are left out:
    they are masks, or other views. If no image has a label, the classes are the directories, sorted by name: the first
    below the folder that is common to all images; images in that folder itself are left out then, as those beside class
    folders on a disk are. Images that all lie in one directory have no labels. Links are ignored, and names that start
    with a dot.

    Args:
        archives: the paths.
        progress: is told how many images were found.
        who: needs them, for messages; labels are read and checked for "pack" alone.
        left_out: what was left out beside the archives.

    Raises:
        PlanError: a compressed or damaged archive, one without images, a label that is none, images without one.
        OSError: an archive cannot be read.
    """
    names: list[str] = []
    extents: list[tuple[str, int, int]] = []
    beside: list[int | str | None] = []
    left_out = Counter(left_out)
    for archive in archives:
        samples = [_Sample("")]
        before = len(names)
        with _opened(archive, who) as tar:
            size = os.path.getsize(archive)
            for member in _members(tar, archive):
                key, suffix = _split(member.name)
                if key != samples[-1].key:
                    samples.append(_Sample(key))
                if not member.isreg() or member.issparse() or posixpath.basename(member.name).startswith("."):
                    left_out["links and hidden members"] += not member.isdir()
                elif is_image_name(member.name):
                    if member.offset_data + member.size > size:
                        raise PlanError(f"{shown_name(archive)} is truncated: {shown_name(member.name)} ends after it")
                    samples[-1].images.append((member.name, member.offset_data, member.size))
                elif suffix == ".json" and member.size > _MOST_JSON:
                    samples[-1].large = member
                    left_out[called(member.name)] += 1
                elif suffix in (".cls", ".json"):
                    found = _label(tar, archive, member, suffix) if who == "pack" else None
                    if found is not None and (suffix == ".cls" or samples[-1].label is None):
                        samples[-1].label = found
                else:
                    left_out[called(member.name)] += 1
                progress("looking for images", before + len(samples), 0)
        of_key = _of_key(samples)
        for sample in samples:
            chosen = sample.chosen()
            left_out["masks and other images of a sample"] += len(sample.images) - len(chosen)
            names.extend(name for name, _, _ in chosen)
            extents.extend((archive, offset, size) for _, offset, size in chosen)
            label = of_key.get(sample.key) if sample.label is None else sample.label
            if who == "pack" and chosen and label is None and sample.large is not None:
                raise PlanError(
                    f"{shown_name(archive)}: {shown_name(sample.large.name)}: a .json beside an image may have "
                    f"{_MOST_JSON} bytes, it has {sample.large.size}"
                )
            beside.extend([label] * len(chosen))
    if not names:
        has = in_words(left_out) or "nothing"
        raise PlanError(f"{who} needs tar archives with images, got {archives[0]!r} with none: it has {has}")
    labelled: Sequence[int] | None = None
    classes: Sequence[str] = ()
    if who == "pack":
        kept, labelled, classes = _labels(names, beside, archives[0])
        left_out[LOOSE] += len(names) - len(kept)
        names, extents = [names[i] for i in kept], [extents[i] for i in kept]
    digest = digest_of([stamp(archive) for archive in archives])
    return Tar(names, labelled, classes, +left_out, digest, extents)


@dataclass
class _Sample:
    """Members of one key that follow one another.

    Attributes:
        key: what their names have in common.
        images: (name, offset, bytes) of each image.
        label: of the sample, if it has one.
        large: a .json that is too large for a label.
    """

    key: str
    images: list[tuple[str, int, int]] = field(default_factory=list)
    label: int | str | None = None
    large: tarfile.TarInfo | None = None

    def chosen(self) -> list[tuple[str, int, int]]:
        """The images but for those with a longer extension, if there are others."""
        simple = [image for image in self.images if posixpath.basename(image[0]).count(".") == 1]
        return simple or self.images


def _of_key(samples: Sequence[_Sample]) -> dict[str, int | str]:
    """The label of each key that has one label in all of its samples."""
    count = Counter(sample.key for sample in samples if sample.label is not None)
    return {one.key: one.label for one in samples if one.label is not None and count[one.key] == 1}


def _opened(archive: str, who: str) -> tarfile.TarFile:
    with open(archive, "rb") as file:
        head = file.read(6)
    if head.startswith((b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")):
        raise PlanError(
            f"{who} needs an uncompressed tar archive, got {archive!r}; decompress it first (gunzip, unzstd)"
        )
    try:
        return tarfile.open(archive, "r:")
    except tarfile.TarError as error:
        raise PlanError(
            f"{who} needs images, tar archives or Parquet files, got {archive!r}, which is {what_is(archive)}"
        ) from error


def _members(tar: tarfile.TarFile, archive: str) -> Iterator[tarfile.TarInfo]:
    """Yield the members, and check that nothing follows them: `tarfile` ends at the first header it cannot read."""
    count = 0
    try:
        while (member := tar.next()) is not None:
            tar.members.clear()  # type: ignore[attr-defined]  # it keeps all of them: a kilobyte each
            count += 1
            yield member
    except tarfile.TarError as error:
        raise PlanError(f"{shown_name(archive)} is a damaged or truncated tar archive: {error}") from shown_cause(error)
    with open(archive, "rb") as file:
        file.seek(tar.offset)
        while block := file.read(1 << 20):
            if block.strip(b"\0"):
                raise PlanError(
                    f"{shown_name(archive)} is damaged: {count} members can be read, and what follows at byte "
                    f"{tar.offset} is none; of archives that were joined with cat, pass the parts"
                )


def _split(name: str) -> tuple[str, str]:
    """WebDataset's key, up to the first dot of the base name, and the suffix after the last one."""
    folder, base = posixpath.split(name)
    return posixpath.join(folder, base.partition(".")[0]), posixpath.splitext(base)[1].lower()


def _label(tar: tarfile.TarFile, archive: str, member: tarfile.TarInfo, suffix: str) -> int | str | None:
    """The label in a member; None where a .json has none.

    Raises:
        PlanError: it is neither an integer nor a name.
    """
    where = f"{shown_name(archive)}: {shown_name(member.name)}"
    if suffix == ".cls" and member.size > _MOST_LABEL:
        raise PlanError(f"{where}: a label may have {_MOST_LABEL} bytes, this file has {member.size}")
    file: IO[bytes] | None = tar.extractfile(member)
    assert file is not None  # of a regular file it never is
    try:
        text = file.read().decode().strip()
        value: Any = text if suffix == ".cls" else json.loads(text)
    except (ValueError, RecursionError, tarfile.TarError) as error:
        raise PlanError(f"{where}: a label needs {suffix[1:]} text in UTF-8, this one is none: {error}") from error
    named = isinstance(value, dict) and next((key for key in _KEYS if key in value), None)
    if named:
        value = value[named]
    elif value is None or isinstance(value, (dict, list, bool)):  # something else about the image
        return None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and value and not _HALVES.search(value):
        number = value.removeprefix("-")
        return int(value) if number.isascii() and number.isdigit() and len(number) < 20 else value
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise PlanError(f"{where}: a label needs an integer or a name, got {value!r:.60}")


def _labels(
    names: Sequence[str], beside: Sequence[int | str | None], source: str
) -> tuple[Sequence[int], Sequence[int] | None, Sequence[str]]:
    """Which of the images are packed, their labels if they have any, and the names of the classes if these have."""
    every = range(len(names))
    known = [value for value in beside if value is not None]
    if known:
        if len(known) < len(names):
            first = names[beside.index(None)]
            raise PlanError(
                f"pack needs a label for every image, got {len(names) - len(known)} of {len(names)} without a .cls or "
                f'a .json with "label" beside them, the first of them {shown_name(first)} in {source!r}'
            )
        return every, *numbered(known, f"{source!r}")
    folders = [[part for part in posixpath.dirname(posixpath.normpath(name)).split("/") if part] for name in names]
    common = len(os.path.commonprefix(folders))  # noqa: RUF071  # of lists it compares the elements
    kept = [i for i in every if len(folders[i]) > common]
    if not kept:
        return every, None, ()
    labels, classes = numbered([folders[i][common] for i in kept], f"{source!r}")
    check_classes(classes, source)
    return kept, labels, classes
