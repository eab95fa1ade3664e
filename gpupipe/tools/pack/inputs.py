"""inputs: what is packed, found and labelled but not yet read."""

from __future__ import annotations

import hashlib
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from gpupipe.errors import DecodeError, PlanError, shown_name

from ...classes import dataclass

__all__ = ["Inputs", "Progress", "check_classes", "digest_of", "numbered", "read_exactly", "regular", "stamp"]

Progress = Callable[[str, int, int], None]
"""Called as (task, done, total); a total of 0 is not known."""

MOST_BYTES = 1 << 30
"""Of one encoded image. TensorFlow refuses an Example of 2 GiB."""

_SPLITS = frozenset("train training val valid validation dev test testing".split())


@dataclass(frozen=True)
class Inputs(ABC):
    """All images of a source, in an order that depends on nothing but the source.

    Attributes:
        names: of each image, below the source; becomes ``image/filename``.
        labels: the class of each image, or None for images without.
        classes: the name of each class, by label; empty if they have no names.
        left_out: how many files and folders are not read, by what they are.
        digest: changes with the names, sizes, times and labels of what is read.
    """

    names: Sequence[str]
    labels: Sequence[int] | None
    classes: Sequence[str]
    left_out: Mapping[str, int]
    digest: str

    def __len__(self) -> int:
        return len(self.names)

    @abstractmethod
    def where(self, i: int) -> str:
        """Name the place of image `i` for messages."""

    @abstractmethod
    def reader(self, scratch: Path, progress: Progress) -> Callable[[int], bytes]:
        """Return a function that reads the bytes of image `i`, from any thread.

        It raises an OSError if the file cannot be read, and a DecodeError if the image is too large to be one.

        Args:
            scratch: a file that may be written first, if the source has no random access; what is there is replaced.
            progress: is told about that.
        """

    def in_turn(self) -> Iterator[Callable[[], bytes]]:
        """Give for each image, in order, a function that reads its bytes as that of `reader` does."""
        read = self.reader(Path(), lambda task, done, total: None)
        return (partial(read, i) for i in range(len(self)))


def numbered(values: Sequence[int | str], what: str) -> tuple[Sequence[int], Sequence[str]]:
    """Make labels and names of classes from what a source says: integers stay, names are sorted and counted from 0.

    Raises:
        PlanError: some are integers and others names, or an integer is beyond int64.
    """
    if all(isinstance(value, int) for value in values):
        labels = [value for value in values if isinstance(value, int)]
        if any(not -(2**63) <= label < 2**63 for label in labels):
            raise PlanError(f"pack needs labels of 64 bits, got {what} with larger ones")
        return labels, ()
    names = sorted({value for value in values if isinstance(value, str)})
    label_of = {name: label for label, name in enumerate(names)}
    if not all(isinstance(value, str) for value in values):
        raise PlanError(f"pack needs labels that are all integers or all names, got {what} with both")
    return [label_of[str(value)] for value in values], names


def check_classes(classes: Sequence[str], source: str) -> None:
    """Refuse a folder of splits: its classes would be "train" and "val".

    Raises:
        PlanError: all directories have names of splits.
    """
    if classes and _SPLITS.issuperset(name.lower() for name in classes):
        raise PlanError(
            f"pack needs a folder of class directories, got {source!r} with {', '.join(classes)}, which are names of "
            "splits; pack each of them into a folder of its own"
        )


def stamp(path: str) -> tuple[str, int, int]:
    """The base name, size and time of a file, for `digest_of`."""
    status = os.stat(path)
    return os.path.basename(path), status.st_size, status.st_mtime_ns


def digest_of(parts: Iterable[object]) -> str:
    """A digest of anything with a `repr` that says all of it."""
    found = hashlib.blake2b(digest_size=16)
    for part in parts:
        found.update(repr(part).encode(errors="surrogateescape") + b"\n")
    return found.hexdigest()


def regular(path: str, flags: int) -> int:
    """Open a regular file, as an `opener`; of anything else the opening, or the end, might never come."""
    number = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise OSError(f"{shown_name(path)} is no regular file")
    return number


def read_exactly(path: str, offset: int, size: int) -> bytes:
    """Read a range of a file.

    Raises:
        DecodeError: it is too large for an image.
        OSError: the file cannot be read, or ends before.
    """
    if size > MOST_BYTES:
        raise DecodeError(f"an image may have {MOST_BYTES} bytes, this one has {size}")
    with open(path, "rb", buffering=0, opener=regular) as file:
        file.seek(offset)
        data = file.read(size)
        while len(data) < size and (more := file.read(size - len(data))):
            data += more
    if len(data) != size:
        raise OSError(f"{shown_name(path)} has changed while it was read: {size} bytes are needed at {offset}")
    return data
