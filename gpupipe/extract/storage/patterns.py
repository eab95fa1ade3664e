"""patterns: the files that a glob matches, and a name for each that does not depend on where the folder is.

The rules are tf.data's (`*`, `?`, `[ab]` match within one folder; matches are sorted bytewise), plus `**` for any
depth, `{a,b}` for alternatives, and pathlib.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Sequence

from gpupipe.errors import PlanError, PlanTypeError, shown_name
from gpupipe.extract.storage.glob import is_url, matching, unescaped_name
from gpupipe.extract.storage.remote import expand_url
from gpupipe.urls import identity

__all__ = ["expand", "file_name", "is_url", "may_be_paths", "stable_names"]

_LONGEST = 4096  # bytes of a path


_AT_ONCE = 1024  # texts that are joined and searched at a time


_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")


def file_name(who: str, path: str) -> str:
    """Check that a file can have this name.

    Raises:
        PlanError: it cannot.
    """
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError:  # which holds the name, and so the password of a URL
        encoded = None
    if encoded is None:
        raise PlanError(f"{who} needs names that the file system can hold, got '{shown_name(path)[:80]}'")
    if b"\0" in encoded:
        raise PlanError(f"{who} needs names without a NUL character, got '{shown_name(path)[:80]}'")
    return path


def expand(pattern: str | os.PathLike[str]) -> list[tuple[str, str]]:
    """List (path, stable name) of everything that matches `pattern`, sorted by the bytes of the path.

    The stable name is the path relative to the part of the pattern without wildcards; for an explicit path it is the
    base name. It uses `/` everywhere and does not change when the folder moves. `*` also matches folders and names that
    start with a dot, as in tf.data; `**` enters no folder whose name starts with a dot and follows no link. If a file
    has the very name of the pattern (`a[1].tfrecord`), the result is that file. Without a match the list is empty.

    Raises:
        PlanTypeError: `pattern` is not a path.
        PlanError: a brace is not closed, or the braces expand to more than 10,000 patterns.
    """
    try:
        text = os.fsdecode(os.fspath(pattern))
    except TypeError as error:
        raise PlanTypeError(f"a file pattern is a string or a path, got {type(pattern).__name__}") from error
    if is_url(text):
        return expand_url(text)
    if os.sep != "/":
        text = text.replace(os.sep, "/")
    if not text:
        return []
    if os.path.lexists(text):
        return [(text, os.path.basename(text.rstrip("/")) or text)]
    return matching(text, _Local(), os.fsencode)


_NO_FOLDER = FileNotFoundError, NotADirectoryError, PermissionError


def _leads_to_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself, or to a folder that may not be read
        return False


class _Local:
    """Local folders."""

    def entries(self, folder: str) -> list[tuple[str, bool, bool]]:
        try:
            with os.scandir(folder or ".") as entries:
                return [(entry.name, _leads_to_folder(entry), entry.is_symlink()) for entry in entries]
        except OSError as error:
            if isinstance(error, _NO_FOLDER) or error.errno in (errno.ELOOP, errno.ENAMETOOLONG):
                return []
            raise

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def is_folder(self, path: str) -> bool:
        return os.path.isdir(path)

    def plain(self, name: str) -> str:
        return name


def may_be_paths(texts: Sequence[bytes]) -> bool:
    """Whether all byte strings could be paths of files, rather than their contents."""
    for start in range(0, len(texts), _AT_ONCE):
        some = texts[start : start + _AT_ONCE]
        if max(map(len, some)) > _LONGEST or _CONTROL.search(b"".join(some)):
            return False
    return True


def stable_names(paths: Sequence[str]) -> list[str]:
    """Name listed files independently of their directory: by base name if that tells all files apart.

    If it does not (each class folder numbers its images from 1), every file of the list is named by as many of its last
    path components as are needed. A file that is listed twice has one name. Of a URL that is what `urls.identity` says,
    without escapes.
    """
    plain = [unescaped_name(identity(path)).replace("\\", "/") for path in paths]
    names = [path.rpartition("/")[2] for path in plain]
    if len(set(names)) == len(set(plain)):
        return names
    split = [tuple(path.split("/")) for path in plain]
    distinct = set(split)
    deepest = max(map(len, distinct), default=1)
    count = next((n for n in range(2, deepest) if len({parts[-n:] for parts in distinct}) == len(distinct)), deepest)
    return ["/".join(parts[-count:]) for parts in split]
