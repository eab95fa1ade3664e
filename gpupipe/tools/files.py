"""files: the data files that a command was given, and what each of them is, by its first bytes."""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from typing import NamedTuple

from gpupipe.errors import DataError, PlanError
from gpupipe.extract.records.compression import Compression
from gpupipe.extract.records.crc import header_at, masked_crc32c
from gpupipe.extract.records.framing import HEADER, sniff
from gpupipe.extract.storage.files import OpenFile
from gpupipe.extract.storage.glob import INDEX_SUFFIX
from gpupipe.extract.storage.patterns import is_url, stable_names, typed_files
from gpupipe.extract.storage.remote import storage_of

__all__ = [
    "IMAGE_SUFFIXES",
    "DataFile",
    "Kind",
    "find_files",
    "first_bytes",
    "is_image_name",
    "kind_at",
    "kind_of",
    "size_of",
    "what_is",
]

_HEAD = 4096  # bytes that tell a file's kind; a compressed record header is within them


_WINDOWS: dict[Compression, tuple[int, tuple[bytes, ...]]] = {
    "GZIP": (31, (b"\x1f\x8b\x08",)),
    "ZLIB": (15, (b"x\x01", b"x\x5e", b"x\x9c", b"x\xda")),
}


LOOKED_AT = 1000
"""Most files of a folder with one suffix that are opened to find out whether some of them are TFRecord files."""


IMAGE_SUFFIXES = frozenset((".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif"))
"""Of the names of image files."""


_IMAGES = (b"\xff\xd8\xff", b"\x89PNG\r\n", b"GIF8", b"II*\0", b"MM\0*")


class Kind(NamedTuple):
    """What a file is.

    Attributes:
        name: "TFRecord", also of an empty file and of bytes that nothing is known of; else "a JPEG image", "an image",
            "a zip archive" and the like.
        compression: of a TFRecord file.
    """

    name: str
    compression: Compression = ""

    @property
    def is_image(self) -> bool:
        """Whether it is an image of a format that gpupipe knows, damaged or not."""
        return self.name.endswith("image")


class DataFile(NamedTuple):
    """A file to look into.

    Attributes:
        path: as it was given, or matched.
        name: what identifies it in any directory, as in `Dataset.list_files`.
    """

    path: str
    name: str


def find_files(given: Sequence[str]) -> list[DataFile]:
    """Find files: of a name that file, of a wildcard what matches, of a folder the TFRecord files in it, or images.

    In a folder those files count whose name contains ".tfrecord"; without such names those that start like a TFRecord
    file, compressed or not; without those all images in it and in folders below it, by their names. A file with the
    name of an image is not opened. Of more than `LOOKED_AT` files with one suffix so many are, evenly spread, and the
    others if one of them starts like a TFRecord file.

    Args:
        given: paths, URLs, wildcards and folders, as typed.

    Returns:
        The files, sorted by path, each once.

    Raises:
        PlanError: nothing matches, or a folder has no such files.
    """
    plain: list[str] = []
    found: list[tuple[str, str]] = []
    for one in given:
        pattern = one if is_url(one) else os.path.expanduser(one)
        if os.path.isdir(pattern):
            plain += _in_folder(pattern)
            continue
        hits = typed_files(one, "files are needed")
        if [path for path, _ in hits] == [pattern]:
            plain.append(pattern)
        else:
            found += hits
    every = dict([*found, *zip(plain, stable_names(plain), strict=True)])
    return [DataFile(path, every[path]) for path in sorted(every, key=os.fsencode)]


def _in_folder(folder: str) -> list[str]:
    with os.scandir(folder) as entries:
        inside = sorted(entry.name for entry in entries if not entry.name.startswith(".") and not _is_folder(entry))
    named = [name for name in inside if ".tfrecord" in name.lower() and not name.endswith(INDEX_SUFFIX)]
    alike = _by_suffix(inside)
    named = named or sorted(name for names in alike for name in _records_among(folder, names))
    found = [os.path.join(folder, name) for name in named] or _images_below(folder)
    if not found:
        some = any(len(names) > LOOKED_AT for names in alike)
        looked = f", of which up to {LOOKED_AT:,} with each suffix were looked into" if some else ""
        raise PlanError(
            f"TFRecord files or images are needed, and the folder {folder!r} has no TFRecord files in it, no images "
            f"in it or below it ({len(inside):,} other files{looked}); for TFRecord files in folders below it write "
            f"'{os.path.join(folder, '**')}'"
        )
    return found


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a folder, or a link to one. The listing says it of all but links, without another call."""
    return os.path.isdir(entry.path) if entry.is_symlink() else entry.is_dir()


def _by_suffix(names: Sequence[str]) -> list[list[str]]:
    """Names of a folder by their suffixes, if these are letters; without those of images."""
    alike: dict[str, list[str]] = {}
    for name in names:
        suffix = os.path.splitext(name)[1].lower()
        if suffix not in IMAGE_SUFFIXES:
            alike.setdefault(suffix if suffix[1:].isalpha() else "", []).append(name)
    return list(alike.values())


def _records_among(folder: str, names: Sequence[str]) -> list[str]:
    """Those of some names alike whose files start like a TFRecord file."""

    def starts(name: str) -> bool:
        return _starts_with_a_record(os.path.join(folder, name))

    if len(names) > LOOKED_AT and not any(starts(names[i * len(names) // LOOKED_AT]) for i in range(LOOKED_AT)):
        return []
    return list(filter(starts, names))


def _images_below(folder: str) -> list[str]:
    def failed(error: OSError) -> None:
        raise error  # os.walk would leave the folder out

    found = []
    for here, folders, files in os.walk(folder, onerror=failed):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [os.path.join(here, name) for name in files if not name.startswith(".") and is_image_name(name)]
    return sorted(found)


def is_image_name(name: str) -> bool:
    """Whether a file name is that of an image."""
    return os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES


def _starts_with_a_record(path: str) -> bool:
    try:
        head = first_bytes(path)
    except DataError:
        return False
    return any(_is_header(_inflated(head, compression)) for compression in ("", *_WINDOWS))


def first_bytes(path: str, n: int = _HEAD) -> bytes:
    """Read the first `n` bytes of a file, or those that it has.

    Raises:
        DataError: it is missing, or cannot be read.
    """
    file = OpenFile(storage_of(path), path)
    return file.read(0, min(n, file.size)) if file.size else b""


def kind_at(path: str) -> Kind:
    """Tell what a file is.

    Bytes that nothing is known of, none, and those of a file that cannot be read are an image if the file has the name
    of one, else records: who reads them says what is wrong.
    """
    try:
        head = first_bytes(path)
    except DataError:
        return Kind("an image" if is_image_name(path) else "TFRecord")
    kind = kind_of(head)
    unknown = kind == Kind("TFRecord") and not _is_header(head)
    return Kind("an image") if unknown and is_image_name(path) else kind


def what_is(path: str) -> str:
    """Say what a file is that was taken for something else: "an empty file", "a TFRecord file", "a text file"."""
    head = first_bytes(path)
    kind = kind_of(head)
    if not head:
        return "an empty file"
    if head[257:262] == b"ustar":
        return "a tar archive that is damaged at its start"
    if kind.name != "TFRecord" or kind.compression or _is_header(head):
        return kind.name if kind.is_image or kind.name != "TFRecord" else "a TFRecord file"
    text = head.decode("utf-8", "replace")[:-3]
    return "a text file" if all(c.isprintable() or c in "\n\r\t" for c in text) else "a file of another kind"


def size_of(path: str) -> int:
    """Return the bytes of a file, 0 if they cannot be told."""
    try:
        return storage_of(path).size(path)[0]
    except DataError:
        return 0


def kind_of(head: bytes) -> Kind:
    """Tell what a file is from its first bytes."""
    if _is_header(head):
        return Kind("TFRecord")
    for compression, (_, magics) in _WINDOWS.items():
        if head.startswith(magics) and (compression == "GZIP" or _inflated(head, compression)):
            return Kind("TFRecord", compression)
    webp = head[:4] == b"RIFF" and head[8:12] == b"WEBP"
    bmp = head[:2] == b"BM" and head[6:10] == bytes(4)
    if head.startswith(_IMAGES) or webp or bmp:
        return Kind(sniff(head) or "an image")
    found = sniff(head)
    compressed = found is not None and "compression_type" in found  # damaged at its start: its reader says so
    return Kind("TFRecord" if found is None or compressed else found)


def _inflated(head: bytes, compression: str) -> bytes:
    """Decompress what the first bytes of a file hold; b"" if they are not compressed in this way."""
    if not compression:
        return head
    try:
        return zlib.decompressobj(_WINDOWS[compression][0]).decompress(head, HEADER)  # type: ignore[index]
    except zlib.error:
        return b""


def _is_header(head: bytes) -> bool:
    """Whether bytes start with the header of a record."""
    return len(head) >= HEADER and masked_crc32c(head[:8]) == header_at(head)[1]
