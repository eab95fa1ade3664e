"""journal: what was asked for, and which shards are finished, in a file beside them.

The first line of `pack.jsonl` is the plan; each further line is a finished shard, in the order in which they were
finished, or before these how many images are decoded, where a budget decides that. A line without an end was cut off by
a crash, and is not there: the next line is written over it. Nothing in a folder is changed before its journal says that
the folder is this call's.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import stat
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gpupipe.errors import PlanError, shown_name
from gpupipe.extract.storage.replacing import named_errors, replacing
from gpupipe.extract.storage.temporary import TEMPORARY, remove_stale
from gpupipe.tools.pack.inputs import regular

from ...classes import dataclass

__all__ = ["NAME", "SCRATCH", "Finished", "Journal", "Skipped", "opened"]

NAME = "pack.jsonl"

SCRATCH = ".images"
"""The copy of the images of a source without random access, while a run needs it."""

_WRITTEN = re.compile(
    rf"\.({re.escape(NAME)}|{re.escape(SCRATCH[1:])}|.+-\d{{5}}-of-\d{{5}}\.tfrecord){TEMPORARY.pattern}"
)
"""Temporary names of the files that pack writes, and nothing else."""

_OF_ENCODING = ("--quality", "pillow", "simplejpeg")  # which say nothing more if one of the others has changed
_ENCODING = ("--resize-shorter ", "--decoded ", "--budget ")


@dataclass(frozen=True, slots=True)
class Skipped:
    """An image that was left out.

    Attributes:
        image: its file, and its place in that.
        reason: why it cannot be decoded.
    """

    image: str
    reason: str


@dataclass(frozen=True, slots=True)
class Finished:
    """A finished shard: its number, its records and bytes, the images that it lacks, how many records are decoded."""

    shard: int
    records: int
    bytes: int
    skipped: tuple[Skipped, ...]
    decoded: int = 0


class Journal:
    """The finished shards of a folder.

    Args:
        path: of the file.
        end: of its last whole line, in bytes.

    Attributes:
        finished: by number.
        decoded: how many of all images are decoded; None where that was not noted.
    """

    def __init__(self, path: Path, end: int, finished: dict[int, Finished], decoded: int | None = None) -> None:
        self._path, self._end = path, end
        self.finished, self.decoded = finished, decoded

    def add(self, shard: Finished) -> None:
        """Note a finished shard; it is on the disk when this returns."""
        self._write(asdict(shard))
        self.finished[shard.shard] = shard

    def note(self, decoded: int) -> None:
        """Note how many of all images are decoded, so that no later run finds another number."""
        self._write({"decoded": decoded})
        self.decoded = decoded

    def _write(self, line: Mapping[str, Any]) -> None:
        with open(self._path, "r+b", opener=_itself) as file:
            file.seek(self._end)
            file.truncate()
            file.write(_line(line))
            file.flush()
            os.fsync(file.fileno())
            self._end = file.tell()


def _line(fields: Mapping[str, Any]) -> bytes:
    return (json.dumps(fields) + "\n").encode()


@contextlib.contextmanager
def opened(out: Path, plan: Mapping[str, Any]) -> Iterator[Journal]:
    """Open the journal of a folder, or begin one, anew where it has no shard; no other process can meanwhile.

    Args:
        out: the folder, made if it is not there.
        plan: what decides every byte of the shards, as JSON.

    Raises:
        PlanError: the folder holds something else, has shards of another plan, or is in use.
        OSError: it cannot be written.
    """
    if out.exists() and not out.is_dir():
        raise PlanError(f"pack needs a folder for its shards, got the file {str(out)!r}")
    out.mkdir(parents=True, exist_ok=True)
    path = out / NAME
    with _alone(out) as locked:
        found = _read(path)
        if found is None:
            others = sorted(name for name in os.listdir(out) if not _WRITTEN.fullmatch(name))
            if others:
                raise PlanError(
                    f"pack needs a new or an empty folder, or one that it began, got {str(out)!r} with "
                    f"{len(others)} other files ({shown_name(others[0])}, ...)"
                )
            journal = None
        else:
            before, journal = found
            try:
                _check_same(out, before, plan)
            except PlanError:
                if journal.finished or any(out.glob("*.tfrecord")):
                    raise
                journal = None
        remove_stale(out, ".", own=_WRITTEN if locked else None)
        yield journal or _begun(path, plan)


def _begun(path: Path, plan: Mapping[str, Any]) -> Journal:
    line = _line(plan)
    with named_errors(path), replacing(path, own=True) as file:
        file.write(line)
    return Journal(path, len(line), {})


def _itself(path: str, flags: int) -> int:
    """Open a regular file, not what a link at its name leads to."""
    return regular(path, flags | getattr(os, "O_NOFOLLOW", 0))


@contextlib.contextmanager
def _alone(out: Path) -> Iterator[bool]:
    """Lock the folder; the system unlocks it when the process ends, however it ends.

    Yields:
        Whether it is locked: Windows and some file systems have no such lock.
    """
    if sys.platform == "win32":
        yield False
        return
    import fcntl

    number = os.open(out, os.O_RDONLY)
    try:
        locked = True
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise PlanError(f"another process packs into {str(out)!r}; wait for it, or end it") from error
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS):
                raise
            locked = False  # those four: a file system without locks
        yield locked
    finally:
        os.close(number)


def _read(path: Path) -> tuple[dict[str, Any], Journal] | None:
    """Read a journal, but for a last line that has no end; None if there is none.

    Raises:
        PlanError: what is there is not one that `pack` has written.
        OSError: it cannot be read.
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):
        kind = "a link" if stat.S_ISLNK(mode) else "no regular file"
        raise PlanError(f"{str(path)!r} is not a journal of pack but {kind}; remove it, or use another folder")
    with open(path, "rb", opener=_itself) as file:
        data = file.read()
    whole = data[: data.rfind(b"\n") + 1]
    try:
        plan, *lines = (json.loads(line) for line in whole.splitlines())
        match plan:
            case {"gpupipe": "pack", "images": int(), "digest": str(), "options": dict(), "made with": dict()}:
                pass
            case _:
                raise TypeError("its first line is no plan")
        noted = [_count(line, "decoded") for line in lines if "shard" not in line]
        finished = {_count(line, "shard"): _finished(line) for line in lines if "shard" in line}
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise PlanError(
            f"{str(path)!r} is not a journal of pack, or damaged ({type(error).__name__}: {error}); "
            "use another folder, or remove this one if it holds nothing else"
        ) from error
    return plan, Journal(path, len(whole), finished, noted[0] if noted else None)


def _finished(line: Any) -> Finished:
    skipped = tuple(Skipped(str(one["image"]), str(one["reason"])) for one in line["skipped"])
    shard, records, size = (_count(line, key) for key in ("shard", "records", "bytes"))
    return Finished(shard, records, size, skipped, _count({"decoded": 0, **line}, "decoded"))


def _count(line: Any, key: str) -> int:
    value = line[key]
    if type(value) is not int or value < 0:
        raise TypeError(f"{key} is no count")
    return value


def _given(value: Any) -> str:
    return "not given" if value is None else "given" if value is True else str(value)


def _check_same(out: Path, before: Mapping[str, Any], plan: Mapping[str, Any]) -> None:
    """Check that a folder was begun with this plan.

    Raises:
        PlanError: it was not; the text says what differs.
    """
    changed: list[str] = []
    for part in ("options", "made with"):
        had, has = before[part], plan[part]
        for key in sorted({*had, *has}, key=lambda key: (key in _OF_ENCODING, key)):
            implied = key in _OF_ENCODING and any(text.startswith(_ENCODING) for text in changed)
            if had.get(key) != has.get(key) and not implied:
                changed.append(f"{key} was {_given(had.get(key))}, now {_given(has.get(key))}")
    if before["images"] != plan["images"]:
        changed.append(f"there were {before['images']} images, now {plan['images']}")
    elif any(before.get(key) != plan[key] for key in plan if key not in ("source", "options", "made with")):
        changed.append("its images were others: names, sizes, times or labels have changed")
    if changed:
        raise PlanError(
            f"{str(out)!r} was begun with something else: {'; '.join(changed)}. "
            "Repeat the command as it was, remove the folder, or use another"
        )
