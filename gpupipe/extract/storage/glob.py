"""glob: the paths that a pattern matches, in any file system that can list folders."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Protocol
from urllib.parse import unquote

from gpupipe.errors import PlanError
from gpupipe.urls import is_url

__all__ = ["INDEX_SUFFIX", "Folders", "is_url", "is_wild", "matching", "unescaped", "unescaped_name"]

INDEX_SUFFIX = ".gpindex"
"""Suffix of saved record indexes (see `records/index`). No wildcard matches them: they are not data."""


_WILD = re.compile(r"[*?\[{]")


_HTTP = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*::)*https?://", re.IGNORECASE)


_ESCAPES = re.compile(r"(?:%[0-9A-Fa-f]{2})+")


_RANGE = re.compile(r"([0-9]{1,12})\.\.([0-9]{1,12})")


_MOST_ALTERNATIVES = 10_000


class Folders(Protocol):
    """A file system that can be searched; a folder's name is "" or ends with a slash.

    Names in URLs of HTTP have percent escapes.
    """

    def entries(self, folder: str) -> list[tuple[str, bool, bool]]:
        """List (name, is a folder, is a link) of a folder; one that cannot be opened counts as empty."""
        ...

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder of this name."""
        ...

    def is_folder(self, path: str) -> bool:
        """Whether there is a folder of this name."""
        ...

    def plain(self, name: str) -> str:
        """A name, or a path, without escapes: by it files are matched, sorted and identified."""
        ...


def unescaped(path: str) -> str:
    """A path of a URL of HTTP as it is on the server's disk; the escape of a slash, which is part of a name, stays."""
    return unquote(re.sub("%(?=2[Ff])", "%25", path), errors="surrogateescape") if "%" in path else path


def unescaped_name(name: str) -> str:
    """The name of a file without the escapes of its path, if it is a URL of HTTP; any other as it is."""
    if "%" not in name or not _HTTP.match(name):
        return name
    path, mark, query = name.partition("?")
    return f"{unescaped(path)}{mark}{query}"


def is_wild(text: str) -> bool:
    """Whether a pattern has wildcards."""
    return _first_wild(text) is not None


def _first_wild(text: str) -> re.Match[str] | None:
    """The first wildcard of a pattern; in a URL of HTTP a question mark begins the query, of any characters."""
    return _WILD.search(text.partition("?")[0] if _HTTP.match(text) else text)


def matching(pattern: str, folders: Folders, key: Callable[[str], bytes]) -> list[tuple[str, str]]:
    """List (path, path relative to the part without wildcards) of all matches, sorted by `key`.

    The relative paths have no escapes, and are matched and sorted so. A pattern without wildcards gives an empty list.

    Raises:
        PlanError: a brace is not closed, or the braces expand to more than 10,000 patterns.
    """
    wild = _first_wild(pattern)
    if wild is None:
        return []
    root = pattern.rfind("/", 0, wild.start()) + 1
    paths = {path for one in _alternatives(pattern) for path in _matches(one, folders)}
    return [(path, folders.plain(path[root:])) for path in sorted(paths, key=lambda path: key(folders.plain(path)))]


def _alternatives(text: str) -> list[str]:
    """Expand braces: `a{b,c{d,e}}` -> ab, acd, ace; `{08..10}` -> 08, 09, 10, as a shell and WebDataset do.

    Braces without a choice, as in `c{1}`, stay.
    """
    done: list[str] = []
    open_ones = [(text, 0)]
    while open_ones:
        one, done_to = open_ones.pop()
        start = one.find("{", done_to)
        if start < 0:
            done.append(one)
        else:
            head, tail = one[:start], one[start + 1 :]
            choices, rest = _split(tail, one)
            ends = _RANGE.fullmatch(choices[0])
            if len(choices) == 1 and ends is None:
                open_ones.append((one, start + 1))
                continue
            if len(choices) == 1 and ends is not None:
                choices = _numbers(ends[1], ends[2], text)
            open_ones.extend((head + choice + rest, start) for choice in choices)
        if len(done) + len(open_ones) > _MOST_ALTERNATIVES:
            raise PlanError(f"the pattern {text!r} expands to more than {_MOST_ALTERNATIVES}; use fewer braces")
    return done


def _numbers(first: str, last: str, whole: str) -> list[str]:
    """The numbers of a range, with as many digits as the longer end if either begins with a zero."""
    low, high = int(first), int(last)
    if abs(high - low) >= _MOST_ALTERNATIVES:
        raise PlanError(f"the pattern {whole!r} expands to more than {_MOST_ALTERNATIVES}; use fewer braces")
    padded = any(len(end) > 1 and end.startswith("0") for end in (first, last))
    digits = max(len(first), len(last)) if padded else 0
    step = 1 if low <= high else -1
    return [str(number).zfill(digits) for number in range(low, high + step, step)]


def _split(tail: str, whole: str) -> tuple[list[str], str]:
    """Split the text after a `{` into its choices, and what follows the closing brace."""
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


def _matches(pattern: str, folders: Folders) -> Iterator[str]:
    """Search the folders that can hold matches of a pattern without braces."""
    absolute = pattern.startswith("/")
    parts = [part for part in pattern.split("/") if part]
    # (folder, index of the part to match in it); a stack, since folders may be nested deeper than Python can recurse
    stack = [("/" if absolute else "", 0)]
    seen: set[tuple[str, int]] = set()
    while stack:
        folder, at = stack.pop()
        if (folder, at) in seen:  # `**/**` reaches a folder in two ways
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
            match = _compiled(part, folders.plain).fullmatch
            for name, is_folder, _ in folders.entries(folder):
                if match(folders.plain(name)) and not name.endswith(INDEX_SUFFIX):
                    if last:
                        yield folder + name
                    elif is_folder:
                        stack.append((f"{folder}{name}/", at + 1))
        elif last:
            if folders.exists(folder + part):
                yield folder + part
        elif folders.is_folder(folder + part):
            stack.append((f"{folder}{part}/", at + 1))


def _compiled(part: str, plain: Callable[[str], str]) -> re.Pattern[str]:
    """Compile one path component with `*`, `?`, `[ab]`, `[!ab]`, `[a-c]` to a regular expression."""
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
        elif char == "%" and (escapes := _ESCAPES.match(part, at - 1)) is not None:  # of a wildcard, too
            out += re.escape(plain(escapes[0]))
            at = escapes.end()
        else:
            out += re.escape(char)
    try:
        return re.compile(out, re.DOTALL)
    except re.error as error:
        raise PlanError(f"the pattern {part!r} has an invalid range: {error}") from error
