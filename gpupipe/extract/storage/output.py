"""output: whether a file may be written where a user wants it, found out before any work."""

from __future__ import annotations

import errno
import json
import os
import stat
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from gpupipe.errors import PlanError, io_reason

__all__ = ["MARK", "check_output"]

MARK = "gpupipe"
"""What a PNG of ours has as its text `Software`, and a page as its generator."""

_HEAD = 1 << 16
_FIELDS = frozenset(("file", "offset", "unit", "key", "stage", "reason", "action"))
_OTHER_PICTURES = frozenset(".jpg .jpeg .webp .gif .bmp .tif .tiff .svg .pdf".split())


def _is_manifest(head: bytes) -> bool:
    try:
        line = json.loads(head.partition(b"\n")[0])
    except (ValueError, RecursionError):
        return False
    return isinstance(line, dict) and _FIELDS.issubset(line)


_OURS: Mapping[str, Callable[[bytes], bool]] = {
    "PNG": lambda head: head.startswith(b"\x89PNG\r\n") and f"Software\0{MARK}".encode() in head[:1024],
    "HTML": lambda head: f'<meta name="generator" content="{MARK}">'.encode() in head[:1024],
    "manifest": _is_manifest,
    "manifest of files": lambda head: head.startswith(b"gpfiles\n"),
}
"""Kind of an output -> whether a file with this head is one that gpupipe wrote."""


def check_output(who: str, path: str | os.PathLike[str], kind: str, inputs: Iterable[str] = ()) -> None:
    """Check that a file can be written, and that nothing is lost by that.

    A file that is there may be replaced if it is empty, or if gpupipe wrote it as a file of this kind, and if it is not
    an input, by any of its names. What is there and is no file, such as ``/dev/stdout``, is written to, but for a
    manifest.

    Args:
        who: the option or function that needs the file, for messages.
        path: of the file; links are followed.
        kind: "PNG", "HTML", "manifest" (of bad records) or "manifest of files".
        inputs: paths of the files that are read; URLs among them do not matter.

    Raises:
        PlanError: it cannot be written there, or may not be replaced.
    """
    text, target = os.fspath(path), Path(os.path.realpath(path))
    a = f"the name of {'a PNG file' if kind == 'PNG' else 'a file'}"
    if os.path.isdir(target):
        raise PlanError(f"{who} needs {a}, got the folder {text!r}")
    if not target.parent.is_dir():
        raise PlanError(f"{who} needs an existing folder, got {text!r}; make {str(Path(text).parent)!r} first")
    if kind == "PNG" and (suffix := Path(text).suffix.lower()) in _OTHER_PICTURES:
        raise PlanError(f"{who} writes a PNG file, got {text!r}, whose name ends in {suffix}; let it end in .png")
    try:
        status = os.stat(path)  # not of its real path: a pipe has none
    except FileNotFoundError:
        status = None
    if status is not None and not stat.S_ISREG(status.st_mode):
        if kind == "manifest":
            raise PlanError(f"{who} needs {a}, which is written beside it and renamed, got {text!r}, which is none")
        return
    try:
        if status is not None:
            _check_replaced(who, text, target, status, kind, inputs)
        with tempfile.TemporaryFile(dir=target.parent, prefix=".gpupipe-"):
            pass
    except OSError as error:
        raise PlanError(f"{who} needs a file that can be written, got {text!r}: {io_reason(error)}") from error


def _check_replaced(
    who: str, text: str, target: Path, status: os.stat_result, kind: str, inputs: Iterable[str]
) -> None:
    """Check that a file may be replaced.

    Raises:
        PlanError: it may not.
        OSError: it cannot be read or written.
    """
    for one in inputs:
        try:
            same = os.path.samestat(os.stat(os.path.expanduser(one)), status)
        except (OSError, ValueError):  # a URL; or one whose reader will say so
            continue
        if same:
            also = "" if one == text else f", which is the input {one!r}"
            raise PlanError(f"{who} needs a file that is not an input, got {text!r}{also}; name another file")
    if not status.st_size:
        return
    with open(target, "rb") as file:
        head = file.read(_HEAD)
    if not _OURS[kind](head):
        raise PlanError(
            f"{who} needs a new file, or an older {kind} of gpupipe to replace, got {text!r}, which is something else; "
            "name another file, or remove that one"
        )
    if not status.st_mode & 0o222 or not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), text)
