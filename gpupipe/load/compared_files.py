"""compared_files: what a state says of the files of its chain, and their comparison with those that are there.

Names and their order are always compared. Of files that a step reads the sizes are, too: a local file is looked at
once for a chain, at its first state, and again when a state is loaded. A server is not asked when a state is taken:
the size of a URL is known once it was read. Of a text that no step reads as the name of a file nothing is asked.
"""

from __future__ import annotations

import functools
import hashlib
import os
import stat
from collections.abc import Collection, Mapping
from dataclasses import field
from typing import Any

import numpy as np

from ..classes import dataclass
from ..errors import GpupipeError, shown_name
from ..extract.storage.at_once import versions
from ..extract.storage.files import Version
from ..extract.storage.remote import storage_of
from ..flow.state.snapshot import corrupt_state
from ..log import logger
from ..plan.named_files import NamedFiles, decoded
from ..urls import cleaned, is_url
from .packed import packed, unpacked

__all__ = ["ComparedFiles", "cut"]

OTHER = -1
"""In the place of the size of a file that has changed and kept its size."""

LISTED = 2560
"""Characters of names up to which a state lists them; for more it holds digests."""

_READ = 4 << 20
"""Bytes of a file that are read at a time."""

_Looked = tuple[int, int, int] | tuple[int, str]
"""The parts of the `Version` of a local file; the size and the tag of another one."""


@dataclass(frozen=True, slots=True, eq=False)
class ComparedFiles:
    """The files of a chain, and what was found when they were looked at.

    Attributes:
        named: the files.
    """

    named: NamedFiles
    _looked: dict[int, _Looked | None] = field(default_factory=dict)  # None where there is no file
    _parts: dict[str, dict[str, Any]] = field(default_factory=dict)  # before a file was opened, by `what`
    _told: set[tuple[int, str]] = field(default_factory=set)

    def part(self, what: str, opened: Mapping[str, tuple[int, str]]) -> dict[str, Any]:
        """Return what a state says of the files.

        Args:
            what: `Options.compare_files`.
            opened: size and tag of those that the epoch has opened.

        Raises:
            DataError: a file that exists cannot be read, for its digest.
        """
        asked = self._asked(what)
        self._look([i for i in asked if i not in self._looked], what)
        news: dict[int, int | None] = {}
        changed: set[int] = set()
        for path, was in opened.items() if what != "names" else ():
            number = self.named.number(path)
            if number is not None:
                now = self._since(number, was, what)
                if now is not None and _tag(now) not in ("", was[1]):
                    changed.add(number)
                    news[number] = OTHER if now[0] == was[0] else was[0]
                elif number not in asked:
                    news[number] = None if now is None else was[0]
        if news:
            return self._described({**self._sizes(asked), **news}, what, changed)
        if what not in self._parts:
            self._parts[what] = self._described(self._sizes(asked), what)
        return self._parts[what]

    def difference(self, theirs: Any, what: str, more: str) -> str | None:
        """Say what of the files is not as a state says, looked at now; None if all is.

        Args:
            theirs: what the state says, which may be anything.
            what: `Options.compare_files`.
            more: what to add where files have other names.

        Raises:
            DataError: a file that exists cannot be read, for its digest.
        """
        count, others = len(self.named), theirs["count"]
        if count != others:
            return f"load_state_dict needs a state over the same {count} files, got one over {cut(others)} files"
        contents = theirs.get("contents")
        if what == "contents" and contents is None:
            return (
                'load_state_dict needs a state made with Options(compare_files="contents"), got one without digests of '
                'its files; set it to "read" to compare their names and sizes only'
            )
        named_alone = what == "names" and "names" in theirs
        known = () if named_alone else self._known(theirs)
        self._look(known, what)
        mine = self._described(self._sizes(known), what)
        pairs = zip(mine.get("sizes", ()), theirs.get("sizes", ()), strict=False)
        for number, (own, other) in enumerate(pairs):
            if own[0] != other[0] or (own != other and not named_alone):
                return self._other(number, own, other, more)
        if mine["names"] != theirs.get("names", mine["names"]) or (
            mine["digest"] != theirs["digest"] and not named_alone
        ):
            return (
                f"load_state_dict needs a state over the same files, got one over {cut(theirs['bytes'])} bytes "
                f"where there are {mine['bytes']} bytes now, or files of other names{more}"
            )
        asked = mine.get("contents")
        if asked is not None and asked != contents:
            each = enumerate(zip(asked["each"], contents["each"], strict=False))
            found = next((i for i, (own, other) in each if own != other), None)
            return (
                "load_state_dict needs a state over the same files, got one over files of the same names and sizes "
                f"with other contents{'' if found is None else f', {shown_name(self.named.path(found))!r} for one'}"
            )
        return None

    def _asked(self, what: str) -> Collection[int]:
        """The files to look at."""
        every, files = range(len(self.named)), self.named
        if what != "read":
            return every if what != "names" else ()
        if files.read is False and not files.sizes:
            return ()
        unasked = {number for url in files.urls() if (number := files.number(url)) is not None}
        if files.read is True and not unasked:
            return every
        known = files.sizes
        return {i for i in every if (files.is_read(i) and i not in unasked) or (known and files.path(i) in known)}

    def _known(self, theirs: Any) -> Collection[int]:
        """The files whose sizes a state has; one of an earlier version has all."""
        every = range(len(self.named))
        if "sizes" in theirs:
            return [i for i, one in zip(every, theirs["sizes"], strict=False) if len(one) > 1]
        if "known" not in theirs:
            return every
        bits = np.unpackbits(np.frombuffer(bytes.fromhex(unpacked(theirs["known"])), np.uint8))
        known: list[int] = np.flatnonzero(bits).tolist()
        if known and known[-1] >= len(every):
            raise corrupt_state()
        return known

    def _look(self, numbers: Collection[int], what: str) -> None:
        """Look at files: where only sizes are compared, at a local one with one call of the system."""
        if not numbers:
            return
        self._parts.clear()
        looked, paths, others = self._looked, self.named.paths, dict[str, int]()
        sizes, urls = self.named.sizes if what != "contents" else {}, set(self.named.urls())
        for i in numbers:  # of which there may be a million
            one = paths[i]
            path = one if type(one) is str else decoded(one)
            if path in sizes:
                looked[i] = sizes[path], ""
            elif path in urls or what == "contents":
                others[path] = i
            else:
                try:
                    found = os.stat(path)
                    regular = stat.S_ISREG(found.st_mode)
                    looked[i] = (found.st_size, found.st_mtime_ns, found.st_ino) if regular else None
                except (FileNotFoundError, NotADirectoryError, ValueError):  # there is none, or the text names none
                    looked[i] = None
                except OSError:
                    others[path] = i
        for i, answer in zip(others.values(), versions(list(others)), strict=True):
            looked[i] = None if isinstance(answer, GpupipeError) else answer

    def _since(self, number: int, was: tuple[int, str], what: str) -> _Looked | None:
        """A file that was opened, as it was when it was last looked at, or as it is now if that was another version."""
        if what != "contents" and is_url(self.named.path(number)):
            return was
        now = self._looked.get(number)
        if now is None or _tag(now) != was[1]:
            self._look([number], what)
            now = self._looked[number]
            if now is not None and _tag(now) not in ("", was[1]) and (number, was[1]) not in self._told:
                self._told.add((number, was[1]))
                logger.warning(
                    "state_dict: %s has changed since this epoch opened it: the state is refused with the file as it "
                    "is",
                    shown_name(self.named.path(number)),
                )
        return now

    def _sizes(self, numbers: Collection[int]) -> dict[int, int | None]:
        """The sizes of files that were looked at."""
        return {i: None if (found := self._looked[i]) is None else found[0] for i in numbers}

    def _described(self, sizes: Mapping[int, int | None], what: str, changed: Collection[int] = ()) -> dict[str, Any]:
        """Names and sizes for comparison, or for many files digests of them; for some of them also digests of contents.

        Args:
            sizes: those that are known, by number; None for a file that is missing.
            what: `Options.compare_files`.
            changed: files that are not as the epoch has opened them.
        """
        names = self.named.names
        listed = sum(map(len, names)) <= LISTED
        described: dict[str, Any] = {
            "count": len(names),
            "names": _of_text("\n".join(names)),
            "bytes": sum(max(size or 0, 0) for size in sizes.values()),
        }
        lines = (f"{name} {sizes[i]}" if i in sizes else name for i, name in enumerate(names))
        described["digest"] = _of_text("\n".join(lines)) if sizes else described["names"]
        if listed:
            described["sizes"] = [[name, sizes[i]] if i in sizes else [name] for i, name in enumerate(names)]
        elif len(sizes) < len(names):
            known = np.zeros(len(names), bool)
            known[list(sizes)] = True
            described["known"] = packed(np.packbits(known).tobytes().hex() if sizes else "")
        if what == "contents":
            each = ["changed" if i in changed else self._contents(i) for i in range(len(names))]
            described["contents"] = {"digest": _of_text("\n".join(map(str, each))), "each": each if listed else []}
        return described

    def _contents(self, number: int) -> str | None:
        found = self._looked[number]
        return None if found is None else _digest(self.named.path(number), found[0], _tag(found))

    def _other(self, number: int, own: list[Any], other: Any, more: str) -> str:
        """The error for a listed file that is another one."""
        was, size = other if len(other) > 1 else (other[0], "an unknown number")
        shown = repr(shown_name(self.named.path(number)))
        now = f"{shown} of {own[1]} bytes" if own[1:] not in ([], [None]) else shown
        missing = ", which is not there" if own[1:] == [None] else ""
        path, mark, _ = str(was).partition("?")  # an earlier version may have written the query of a URL
        return (
            f"load_state_dict needs a state over the same files, got one over {cut(f'{path}?…' if mark else was)} "
            f"{'as it was before it changed' if size == OTHER else f'of {cut(size)} bytes'} "
            f"where there is {now}{missing} now{more}"
        )


def cut(value: Any) -> str:
    """Format a value of a state, which may be anything, for messages."""
    return cleaned(repr(value))[:200]


def _tag(found: _Looked) -> str:
    return Version(*found).tag if len(found) == 3 else found[1]


def _of_text(text: str) -> str:
    return hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=16).hexdigest()


@functools.lru_cache(maxsize=1 << 16)
def _digest(path: str, size: int, tag: str) -> str:
    """Hash the contents of a file, which are read once per process unless the tag changes."""
    storage, digest = storage_of(path), hashlib.blake2b(digest_size=16)
    for start in range(0, size, _READ):
        digest.update(storage.read(path, start, min(_READ, size - start), tag))
    return digest.hexdigest()
