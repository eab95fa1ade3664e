"""patterns: which files a glob means, and what each is called wherever the folder lies.

The rules are tf.data's (`*`, `?`, `[ab]` stay within one folder; hits sorted bytewise), plus `**` for any depth,
`{a,b}` for alternatives, and pathlib.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Sequence
from typing import Protocol

from gpupipe.errors import PlanError, PlanTypeError

__all__ = [
    "INDEX_SUFFIX",
    "Folders",
    "alternatives",
    "expand",
    "is_url",
    "matches",
    "may_be_paths",
    "stable_names",
    "wild_at",
]

INDEX_SUFFIX = ".gpindex"
"""How the name of a saved index of records ends (see `index`). No wildcard matches one: it is not data."""


_WILD = re.compile(r"[*?\[{]")


_URL = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*::)*[A-Za-z][A-Za-z0-9+.-]*://")


_MOST_ALTERNATIVES = 10_000


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
    wild = wild_at(text)
    if wild < 0:
        return []
    root = text[: text.rfind("/", 0, wild) + 1]
    found = {path for one in alternatives(text) for path in matches(one, _Local())}
    return [(path, path[len(root) :]) for path in sorted(found, key=os.fsencode)]


def is_url(text: str) -> bool:
    """Whether a name has a scheme (``s3://...``, ``simplecache::https://...``), so that fsspec finds it."""
    return _URL.match(text) is not None


def wild_at(text: str) -> int:
    """Where the first wildcard of a pattern stands; -1 if it has none."""
    wild = _WILD.search(text)
    return -1 if wild is None else wild.start()


class Folders(Protocol):
    """What a walk over folders asks; every folder is "" or ends with a slash."""

    def entries(self, folder: str) -> list[tuple[str, bool, bool]]:
        """List (name, is a folder, is a link) of a folder; one that cannot be opened holds nothing."""
        ...

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder of this name."""
        ...

    def is_folder(self, path: str) -> bool:
        """Whether there is a folder of this name."""
        ...


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


def alternatives(text: str) -> list[str]:
    """Write out braces: `a{b,c{d,e}}` -> ab, acd, ace."""
    done: list[str] = []
    open_ones = [text]
    while open_ones:
        one = open_ones.pop()
        start = one.find("{")
        if start < 0:
            done.append(one)
        else:
            head, tail = one[:start], one[start + 1 :]
            choices, rest = _split(tail, one)
            open_ones.extend(head + choice + rest for choice in choices)
        if len(done) + len(open_ones) > _MOST_ALTERNATIVES:
            raise PlanError(f"the pattern {text!r} means more than {_MOST_ALTERNATIVES} patterns; use fewer braces")
    return done


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


def _split(tail: str, whole: str) -> tuple[list[str], str]:
    """Cut the text behind a `{` into its choices, and what follows the closing brace."""
    depth, start, choices = 0, 0, []
    for at, char in enumerate(tail):
        if char == "{":
            depth += 1
        elif char == "}" and depth:
            depth -= 1
        elif char in ",}" and not depth:
            choices.append(tail[start:at])
            start = at + 1
            if char == "}":
                return choices, tail[start:]
    raise PlanError(f"the pattern {whole!r} has a brace that is not closed; write {{a,b}}")


def matches(pattern: str, folders: Folders) -> Iterator[str]:
    """Walk the folders that can hold matches of a pattern without braces."""
    absolute = pattern.startswith("/")
    parts = [part for part in pattern.split("/") if part]
    # (folder, index of the part to match in it); a stack, since folders may be nested deeper than Python's
    stack = [("/" if absolute else "", 0)]
    seen: set[tuple[str, int]] = set()
    while stack:
        folder, at = stack.pop()
        if (folder, at) in seen:  # `**/**` reaches a folder by two ways
            continue
        seen.add((folder, at))
        part, last = parts[at], at == len(parts) - 1
        if part == "**":
            if not last:
                stack.append((folder, at + 1))
            for name, is_folder, is_link in folders.entries(folder):
                if last and not is_folder and not name.endswith(INDEX_SUFFIX):
                    yield folder + name
                if is_folder and not is_link and not name.startswith("."):  # a link may lead back up
                    stack.append((f"{folder}{name}/", at))
        elif _WILD.search(part):
            match = _compiled(part).fullmatch
            for name, is_folder, _ in folders.entries(folder):
                if match(name) and not name.endswith(INDEX_SUFFIX):
                    if last:
                        yield folder + name
                    elif is_folder:
                        stack.append((f"{folder}{name}/", at + 1))
        elif last:
            if folders.exists(folder + part):
                yield folder + part
        elif folders.is_folder(folder + part):
            stack.append((f"{folder}{part}/", at + 1))


def _compiled(part: str) -> re.Pattern[str]:
    """Turn one component of a path (without `/`) with `*`, `?`, `[ab]`, `[!ab]`, `[a-c]` into a regular expression."""
    out, at = "", 0
    while at < len(part):
        char = part[at]
        at += 1
        if char == "*":
            out += ".*"
        elif char == "?":
            out += "."
        elif char == "[" and (end := part.find("]", at + 2 if part[at : at + 1] in "!^" else at + 1)) > 0:
            inner = part[at:end]
            negated = inner[:1] in "!^"
            inner = (inner[1:] if negated else inner).replace("\\", "\\\\").replace("[", "\\[").replace("^", "\\^")
            out += f"[{'^' if negated else ''}{inner}]"
            at = end + 1
        else:
            out += re.escape(char)
    try:
        return re.compile(out, re.DOTALL)
    except re.error as error:
        raise PlanError(f"the pattern {part!r} has a range that is no range: {error}") from error
