"""patterns: which files a glob means, and what each is called wherever the folder lies.

The rules are tf.data's (`*`, `?`, `[ab]` stay within one folder; hits sorted bytewise), plus `**` for any depth,
`{a,b}` for alternatives, and pathlib.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Sequence

from gpupipe.errors import PlanTypeError
from gpupipe.extract.storage.glob import matching

__all__ = ["expand", "is_url", "may_be_paths", "stable_names"]

_URL = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*::)*[A-Za-z][A-Za-z0-9+.-]*://")


_LONGEST = 4096


_AT_ONCE = 1024


_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")


def expand(pattern: str | os.PathLike[str]) -> list[tuple[str, str]]:
    """List (path, stable name) of everything that matches `pattern`, sorted by the bytes of the path.

    The stable name is the path below the folder part without wildcards; of an explicit path it is the base name. It
    uses `/` everywhere, and stays what it is when the folder moves. `*` matches folders, and names that begin with a
    dot, as in tf.data; `**` enters no folder that begins with a dot and follows no link. A file that exists under the
    very name of the pattern (`a[1].tfrecord`) is that file. Without a match the list is empty.

    Raises:
        PlanTypeError: `pattern` is no path.
        PlanError: braces are not closed, or stand for more than 10,000 patterns.
    """
    try:
        text = os.fsdecode(os.fspath(pattern))
    except TypeError as error:
        raise PlanTypeError(f"a file pattern is a string or a path, got {type(pattern).__name__}") from error
    if is_url(text):
        from .remote import expand_url

        return expand_url(text)
    if os.sep != "/":
        text = text.replace(os.sep, "/")
    if not text:
        return []
    if os.path.lexists(text):
        return [(text, os.path.basename(text.rstrip("/")) or text)]
    return matching(text, _Local(), os.fsencode)


def is_url(text: str) -> bool:
    """Whether a name has a scheme (``s3://...``, ``simplecache::https://...``), so that fsspec finds it."""
    return _URL.match(text) is not None


_NO_FOLDER = FileNotFoundError, NotADirectoryError, PermissionError


def _leads_to_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself, or to where nobody may look
        return False


class _Local:
    """The folders of this machine."""

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


def may_be_paths(texts: Sequence[bytes]) -> bool:
    """Whether byte strings can all be the paths of files, rather than their contents."""
    for start in range(0, len(texts), _AT_ONCE):
        some = texts[start : start + _AT_ONCE]
        if max(map(len, some)) > _LONGEST or _CONTROL.search(b"".join(some)):
            return False
    return True


def stable_names(paths: Sequence[str]) -> list[str]:
    """Names of listed files that are the same in another directory: base names where those tell all files apart.

    Where they do not (each class folder numbers its images from 1), every file of the list is named by as many of its
    last path components as it takes. A file that is listed twice has one name.
    """
    plain = [path.replace("\\", "/") for path in paths]
    names = [path.rpartition("/")[2] for path in plain]
    if len(set(names)) == len(set(plain)):
        return names
    split = [tuple(path.split("/")) for path in plain]
    distinct = set(split)
    deepest = max(map(len, distinct), default=1)
    count = next((n for n in range(2, deepest) if len({parts[-n:] for parts in distinct}) == len(distinct)), deepest)
    return ["/".join(parts[-count:]) for parts in split]
