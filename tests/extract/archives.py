"""Tar archives for tests: written by Python's tarfile, and what reading them gives."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gpupipe.errors import DataError
from gpupipe.extract.records.reference import Extent
from gpupipe.extract.shards.samples import SampleReader

JPG_CLS = ((b"jpg",), (b"cls",))


def archive(
    path: Path, members: Iterable[tuple[str, bytes | tarfile.TarInfo]], mode: Any = "w", kind: int = tarfile.GNU_FORMAT
) -> str:
    """Write an archive of files (name, bytes), and of members that are no files (name, TarInfo)."""
    with tarfile.open(path, mode, format=kind, encoding="utf-8", errors="surrogateescape") as tar:
        for name, what in members:
            if isinstance(what, tarfile.TarInfo):
                what.name = name
                tar.addfile(what)
            else:
                info = tarfile.TarInfo(name)
                info.size = len(what)
                tar.addfile(info, io.BytesIO(what))
    return str(path)


def member(kind: bytes, linkname: str = "") -> tarfile.TarInfo:
    """A member that is no file."""
    info = tarfile.TarInfo("x")
    info.type, info.linkname = kind, linkname
    return info


def pairs(count: int, size: int = 700) -> list[tuple[str, bytes]]:
    """The members of samples that have an image and a label."""
    return [
        (f"d/{i:04d}.{name}", data)
        for i in range(count)
        for name, data in (("jpg", bytes([i % 251]) * size), ("cls", b"%d" % i))
    ]


def plain(item: tuple[int, Any]) -> tuple[int, Any]:
    """An item as something that `==` compares; the places of payloads are read."""
    offset, value = item
    if isinstance(value, DataError):
        return offset, (type(value).__name__, value.reason, value.file, value.offset, value.stage, value.lost)
    return offset, tuple(bytes(x.read() if isinstance(x, Extent) else x) for x in value)


def items(path: str, columns: Any = JPG_CLS, **how: Any) -> list[tuple[int, Any]]:
    """What a reader gives."""
    return [plain(item) for item in SampleReader(path, columns=columns, **how)]


def good(found: list[tuple[int, Any]]) -> list[Any]:
    """The samples among the items."""
    return [value for _, value in found if not isinstance(value[-1], bool)]


def bad(found: list[tuple[int, Any]]) -> list[tuple[int, Any]]:
    """The errors among the items."""
    return [item for item in found if isinstance(item[1][-1], bool)]
