"""journal: what was asked for, and which shards are finished, in a file beside them.

The first line of `pack.jsonl` is the plan; each further line is a finished shard, in the order in which they were
finished, or before these how many images are decoded, where a budget decides that. A line without an end was cut off by
a crash, and is not there.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gpupipe.errors import PlanError, shown_name
from gpupipe.extract.storage.replacing import named_errors, replacing
from gpupipe.extract.storage.temporary import remove_stale

from ...classes import dataclass

__all__ = ["NAME", "SCRATCH", "Finished", "Journal", "Skipped", "opened"]

NAME = "pack.jsonl"

SCRATCH = ".images"
"""The copy of the images of a source without random access, while a run needs it."""

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

    Attributes:
        finished: by number.
        decoded: how many of all images are decoded; None where that was not noted.
    """

    def __init__(self, path: Path, finished: dict[int, Finished], decoded: int | None = None) -> None:
        self._path = path
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
        with open(self._path, "ab") as file:
            file.write((json.dumps(line) + "\n").encode())
            file.flush()
            os.fsync(file.fileno())


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
    with _alone(out):
        remove_stale(out, ".", alone=True)
        if path.exists():
            before, journal = _read(path)
            try:
                _check_same(out, before, plan)
            except PlanError:
                if journal.finished or any(out.glob("*.tfrecord")):
                    raise
                if before.get("digest") != plan["digest"]:
                    (out / SCRATCH).unlink(missing_ok=True)
                journal = _begun(path, plan)
        else:
            others = sorted(os.listdir(out))
            if others:
                raise PlanError(
                    f"pack needs a new or an empty folder, or one that it began, got {str(out)!r} with "
                    f"{len(others)} other files ({shown_name(others[0])}, ...)"
                )
            journal = _begun(path, plan)
        yield journal


def _begun(path: Path, plan: Mapping[str, Any]) -> Journal:
    with named_errors(path), replacing(path) as file:
        file.write((json.dumps(plan) + "\n").encode())
    return Journal(path, {})


@contextlib.contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Lock the folder; the system unlocks it when the process ends, however it ends. Windows has no such lock."""
    if sys.platform == "win32":
        yield
        return
    import fcntl

    number = os.open(out, os.O_RDONLY)
    try:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise PlanError(f"another process packs into {str(out)!r}; wait for it, or end it") from error
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS):
                raise  # those four: a file system without locks
        yield
    finally:
        os.close(number)


def _read(path: Path) -> tuple[dict[str, Any], Journal]:
    """Read a journal, and cut off a last line that has no end."""
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    try:
        plan, *lines = (json.loads(line) for line in whole.splitlines())
        if not isinstance(plan, dict):
            raise TypeError("its first line is no plan")
        noted = [int(line["decoded"]) for line in lines if "shard" not in line]
        finished = {int(line["shard"]): _finished(line) for line in lines if "shard" in line}
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise PlanError(
            f"{str(path)!r} is not a journal of pack, or damaged ({type(error).__name__}: {error}); "
            "remove the folder, or use another"
        ) from error
    if len(whole) < len(data):
        os.truncate(path, len(whole))
    return plan, Journal(path, finished, noted[0] if noted else None)


def _finished(shard: Any) -> Finished:
    skipped = tuple(Skipped(str(one["image"]), str(one["reason"])) for one in shard["skipped"])
    return Finished(
        int(shard["shard"]), int(shard["records"]), int(shard["bytes"]), skipped, int(shard.get("decoded", 0))
    )


def _given(value: Any) -> str:
    return "not given" if value is None else "given" if value is True else str(value)


def _check_same(out: Path, before: Mapping[str, Any], plan: Mapping[str, Any]) -> None:
    """Check that a folder was begun with this plan.

    Raises:
        PlanError: it was not; the text says what differs.
    """
    changed: list[str] = []
    for part in ("options", "made with"):
        had, has = before.get(part), plan[part]
        had = had if isinstance(had, dict) else {}
        for key in sorted({*had, *has}, key=lambda key: (key in _OF_ENCODING, key)):
            implied = key in _OF_ENCODING and any(text.startswith(_ENCODING) for text in changed)
            if had.get(key) != has.get(key) and not implied:
                changed.append(f"{key} was {_given(had.get(key))}, now {_given(has.get(key))}")
    if before.get("images") != plan["images"]:
        changed.append(f"there were {before.get('images')} images, now {plan['images']}")
    elif any(before.get(key) != plan[key] for key in plan if key not in ("source", "options", "made with")):
        changed.append("its images were others: names, sizes, times or labels have changed")
    if changed:
        raise PlanError(
            f"{str(out)!r} was begun with something else: {'; '.join(changed)}. "
            "Repeat the command as it was, remove the folder, or use another"
        )
