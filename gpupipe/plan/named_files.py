"""named_files: the files that steps name, and which of them are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from ..classes import dataclass
from ..extract.storage.names import Names
from ..urls import identity, is_url, without_parameters

__all__ = ["NamedFiles", "decoded", "has_queries", "merged"]


@dataclass(frozen=True, slots=True, eq=False)
class NamedFiles:
    """Paths, or texts that may be some.

    Attributes:
        paths: as they are opened; the bytes of a list of texts.
        names: what identifies each file in any directory.
        read: whether a step of the chain reads them, one for all or one for each.
        sizes: the bytes of files whose sizes the chain knows, by path.
    """

    paths: Sequence[str | bytes] = ()
    names: Sequence[str] | Names = ()
    read: bool | Sequence[bool] = True
    sizes: Mapping[str, int] = field(default_factory=dict)
    _numbers: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.paths)

    def path(self, number: int) -> str:
        """The path of a file."""
        return decoded(self.paths[number])

    def is_read(self, number: int) -> bool:
        """Whether a step of the chain reads a file."""
        return self.read if isinstance(self.read, bool) else self.read[number]

    def number(self, path: str) -> int | None:
        """The number of the file with a path; None if there is none."""
        if not self._numbers:
            self._numbers.update((decoded(one), i) for i, one in enumerate(self.paths))
        return self._numbers.get(path)

    def urls(self) -> list[str]:
        """Those of the paths that are URLs."""
        mark: Any = b"://" if len(self.paths) and isinstance(self.paths[0], bytes) else "://"
        return [name for one in self.paths if mark in one and is_url(name := decoded(one))]

    def without(self, signing: Sequence[str]) -> NamedFiles:
        """These files by names without parameters of URLs that sign them, see `Options.signing_parameters`."""
        if not signing:
            return self
        return NamedFiles(self.paths, [without_parameters(name, signing) for name in self.names], self.read, self.sizes)


def decoded(path: str | bytes) -> str:
    """A path as text."""
    return path if isinstance(path, str) else path.decode(errors="surrogateescape")


def merged(parts: Iterable[NamedFiles]) -> NamedFiles:
    """The files of several steps, each once: its last name counts, and it is read if one of the steps reads it."""
    parts = [part for part in parts if len(part)]
    if len(parts) == 1:
        (part,) = parts
        if part.names.distinct if isinstance(part.names, Names) else len(set(part.names)) == len(part.names):
            return part
        if isinstance(part.read, bool):
            once = dict(zip(part.paths, part.names, strict=True))
            return NamedFiles(tuple(once), tuple(once.values()), part.read, part.sizes)
    named: dict[str, str] = {}
    read: dict[str, bool] = {}
    sizes: dict[str, int] = {}
    for part in parts:
        sizes.update(part.sizes)
        for i, (one, name) in enumerate(zip(part.paths, part.names, strict=True)):
            path = decoded(one)
            named[path], read[path] = name, read.get(path, False) or part.is_read(i)
    return NamedFiles(tuple(named), tuple(named.values()), tuple(read.values()), sizes)


def has_queries(files: NamedFiles) -> bool:
    """Whether a URL has a user or a query, so that not all of it identifies the file."""
    return any(identity(url) != url for url in files.urls())
