"""records: the bad elements of an iterator: the last of them, their causes, and a manifest on request.

The manifest is a JSONL file: one object for each bad element, appended with one `write`, so that several iterators and
processes may share a file. Everything is checked when it is read: the file may have come from anywhere.
"""

from __future__ import annotations

import json
import os
import re
import stat
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import asdict
from itertools import islice
from typing import Any, Literal

from ...brief import cut
from ...errors import HIDES, PLACES, UNITS, BadRecord, PlanError, TooManyBadError, unit_of
from ...extract.storage.patterns import is_url
from ...log import logger
from ...options import Settings
from ...random import hash64, mix64
from ...urls import identity
from .found import FoundBad

__all__ = [
    "KEPT",
    "RECORDS",
    "BadRecords",
    "KnownBad",
    "cause_of",
    "line_of",
    "read_manifest",
    "whole_name",
]

KEPT = 10_000
"""Bad elements that an iterator keeps: the last ones, about 300 bytes each."""


REASON = 500
"""Characters of a reason that are kept: a user's exception may have any length."""


WINDOW = 10_000
"""A share of bad elements (`max_bad` as a float) refers to this many of the last elements."""


LEAST = 100
"""Bad elements that any share allows: 3 of the first 10 elements do not mean that 30 % of a data set are bad."""


CAUSES = 1_000
"""Most causes that are counted separately."""


LINE = 64 << 10
"""Most bytes of a manifest's line. gpupipe writes at most 30 KB: a file name of 4,096 bytes, all escaped."""


RECORDS = 5_000_000
"""Most records of a manifest, about 200 bytes each in memory."""


TORN = b'{"file": '
"""How a line starts; one without an end was cut off when the disk was full."""


Action = Literal["left out", "replaced", "raised"]


_ACTIONS = ("left out", "replaced", "raised")


_NUMBER = re.compile(r"\b\d+\b")


class BadRecords:
    """The bad elements of a run. Any thread may add one.

    Args:
        settings: the manifest, and how many may be bad.

    Attributes:
        left_out: elements that were left out or replaced.
        good: elements that were delivered, if `max_bad` is a share.
        found: the bad elements of this epoch, by the step that found them.
        before: marks of the bad elements of this epoch that were noted before a state was loaded, with their number:
            those that had been read ahead are met again.
    """

    def __init__(self, settings: Settings) -> None:
        self._manifest = settings.error_manifest
        self._known_in = settings.bad_records
        self._signing = settings.signing_parameters
        self._known: KnownBad | None = None
        self._most = settings.max_bad
        self._lock = threading.Lock()
        self._kept: deque[BadRecord] = deque(maxlen=KEPT)
        self._causes: Counter[str] = Counter()
        share = isinstance(self._most, float)
        self._allowed = max(LEAST, int(self._most * WINDOW)) if isinstance(self._most, float) else self._most
        # Indices of the last bad elements among all. One more than is allowed: the oldest tells how dense they are.
        self._indices: deque[int] | None = (
            deque(maxlen=self._allowed + 1) if share and self._allowed is not None else None
        )
        self.left_out = 0
        self.good = 0
        self.before: Counter[int] = Counter()
        self.found = FoundBad()
        self._met: list[tuple[int, int]] = []  # epoch and mark of those met again, which the next state needs too
        self._unwritten = 0
        self._named: set[str | None] = set()  # files of which a bad element was logged

    @property
    def counts_good(self) -> bool:
        """Whether `good` must be counted."""
        return self._indices is not None

    @property
    def kept(self) -> tuple[BadRecord, ...]:
        """The last bad elements, oldest first."""
        with self._lock:
            return tuple(self._kept)

    def so_far(self, last: int, epoch: int) -> tuple[int, list[int]]:
        """The number left out, and marks of the last bad elements of an epoch, at one moment.

        Includes the marks of `before`, met again or not: after the state they may be met once more.
        """
        with self._lock:
            keys = [_mark(record) for record in islice(reversed(self._kept), last) if record.epoch == epoch]
            others = self._loaded(epoch) - Counter(keys)
            return self.left_out, [*keys, *others.elements()][:last]

    def _loaded(self, epoch: int) -> Counter[int]:
        """The marks that were in `before`, met again or not."""
        return self.before + Counter(mark for of, mark in self._met if of == epoch)

    def again(self, epoch: int, number: int) -> None:
        """Prepare to resume the epoch from an earlier position: elements that were noted are not noted again.

        Args:
            epoch: of the iterator.
            number: of the first bad element that the position needs, see `FoundBad.since`.
        """
        with self._lock:
            noted = Counter(_mark(record) for record in self._kept if record.epoch == epoch)
            self.before = noted | self._loaded(epoch)
            self._met = []
        self.found.again(number)

    def start(self) -> None:
        """Create the manifest if it does not exist, and read the one of `Options.bad_records`.

        Raises:
            PlanError: the folder does not exist, or a file cannot be written or read, or is not a manifest.
        """
        if self._manifest is not None:
            self._create(self._manifest)
        _ = self.known

    @property
    def known(self) -> KnownBad:
        """The records that `Options.bad_records` lists, read on first use.

        Raises:
            PlanError: the file cannot be read, or is not a manifest.
        """
        if self._known is None:
            known = KnownBad() if self._known_in is None else read_manifest(self._known_in, self._signing)
            with self._lock:  # not held while reading, which may log: see `add`
                if self._known is None:
                    self._known = known
        return self._known

    @staticmethod
    def _create(path: str) -> None:
        try:
            file = _appended(path)
            try:
                if os.read(file, 1) not in (b"{", b"\n", b""):
                    raise PlanError(
                        f"Options.error_manifest needs a new file, or a manifest to append to, got {path!r}, which is "
                        "something else; name another file"
                    )
                if _is_torn(file):
                    os.write(file, b"\n")
            finally:
                os.close(file)
        except OSError as error:
            folder = os.path.dirname(path)
            missing = "" if os.path.isdir(folder) else f"; create the folder {folder} first"
            raise PlanError(
                f"Options.error_manifest needs a file that can be written, got {path!r}: {error.strerror}{missing}"
            ) from error

    def add(self, record: BadRecord, known: bool = False) -> int:
        """Keep a bad element, write it to the manifest, and return how many were left out so far.

        Args:
            record: the element.
            known: whether it came from a manifest, and so is not written to one.

        Raises:
            TooManyBadError: there are more than `Options.max_bad`.
        """
        complaint = None
        listed = known or (self._manifest is not None and self.known.lists(record))
        with self._lock:
            if self.before and self.before[mark := _mark(record)]:
                self.before[mark] -= 1
                self._met.append((record.epoch, mark))
                return 0
            # If Ctrl-C interrupts here, the element is met again: its line may be written twice, it counts once.
            if self._manifest is not None and not listed:
                complaint = self._write(self._manifest, line_of(record))
            count = self.left_out = self.left_out + (record.action != "raised")
            self._kept.append(record)
            too_many = self._check(record) if record.action != "raised" else None
        # After the lock is released: a user's log handler may ask for `iterator.errors`, here or in another thread.
        if complaint is not None:
            logger.error("%s lacks %d bad records, it cannot be written: %s", self._manifest, *complaint)
        if too_many is not None:
            raise too_many
        return count

    def log(self, verb: str, what: Any, count: int, file: str | None, unit: str, always: bool = False) -> None:
        """Log a bad element of which there is news: the first of each file, of other sources the first ten.

        In addition, of all the 100th, the 1,000th and so on.

        Args:
            verb: what was done with it.
            what: its error.
            count: how many there were so far; 0 for one that was noted before.
            file: the file or stream that it came from.
            unit: what its place there is; an index is that of a file, or of an element in memory.
            always: log it in any case.
        """
        if not count:
            return
        if unit == "index":  # of files that are one element each there may be millions
            first = count <= 10
        else:
            with self._lock:
                first = file not in self._named
                self._named.add(file)
        if always or first or (count >= 100 and str(count).strip("0") == "1"):
            logger.warning("%s: %s (%d so far)", verb, what, count)

    def _write(self, path: str, line: bytes) -> tuple[int, Exception] | None:
        """Append to the manifest. A full disk does not end a training: writing is tried again each time.

        Returns how many lines are missing and why, if that is to be logged: at 1, 2, 4, 8, ... lines.
        """
        try:
            _append(path, line)
        except (OSError, PlanError) as error:
            self._unwritten += 1
            if self._unwritten & (self._unwritten - 1) == 0:
                return self._unwritten, error
        return None

    def _check(self, record: BadRecord) -> TooManyBadError | None:
        """Count the cause, and return an error if too many elements are bad by now."""
        if self._allowed is None:
            return None
        cause = cause_of(record)
        if cause in self._causes or len(self._causes) < CAUSES:
            self._causes[cause] += 1
        if self._indices is None:
            if self.left_out > self._allowed:
                return self._too_many(record, f"{self.left_out} bad elements were left out or replaced")
            return None
        index = self.good + self.left_out
        self._indices.append(index)
        if len(self._indices) > self._allowed and index - self._indices[0] < WINDOW:
            found = f"{len(self._indices)} of the last {min(index, WINDOW)} elements were left out or replaced"
            return self._too_many(record, found)
        return None

    def _too_many(self, record: BadRecord, found: str) -> TooManyBadError:
        top = self._causes.most_common(5)
        causes = "; ".join(f"{count} x {cause}" for cause, count in top)
        more = len(self._causes) - len(top)
        causes += f"; and {more} more causes" if more else ""
        return TooManyBadError(
            f"{found}, and Options.max_bad={self._most} allows {self._allowed}. Causes: {causes}. The last one: "
            f"{record.file} at {record.unit} {record.offset}. iterator.errors lists them; fix the data or the chain, "
            f"or set a larger max_bad"
        )


def _mark(record: BadRecord) -> int:
    """The identity of an error: key, step and reason, as two steps may each report an error of one element."""
    return mix64(record.key, hash64(f"{record.stage}: {record.reason[:100]!a}"))


def cause_of(record: BadRecord) -> str:
    """The step and the reason, without the numbers in which records of one cause differ."""
    return f"{record.stage}: {cut(_NUMBER.sub('N', record.reason.partition(HIDES)[0]), 120)}"


def line_of(record: BadRecord) -> bytes:
    """A bad element as a line of the manifest. The key is text: other JSON readers keep 53 bits of a number."""
    fields = {**asdict(record), "key": f"{record.key:016x}"}
    return json.dumps(fields).encode() + b"\n"


def _appended(path: str) -> int:
    _check_regular(path, "error_manifest")
    return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)


def _check_regular(path: str, option: str) -> None:
    """Refuse a path that exists and is not a regular file: opening a FIFO waits for its other end.

    Raises:
        PlanError: it is another kind of file.
        OSError: its kind cannot be read.
    """
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # opening a folder raises an error of its own
        raise PlanError(f"Options.{option} needs a regular file, got {path!r}, which is not one")


def _is_torn(file: int) -> bool:
    """Whether a manifest ends with half a line, as a full disk leaves it, and no process is writing it now."""
    sizes = []
    for pause in (0.0, 0.05):
        time.sleep(pause)
        size = os.fstat(file).st_size
        os.lseek(file, max(size - 1, 0), os.SEEK_SET)
        if os.read(file, 1) in (b"\n", b""):
            return False
        sizes.append(size)
    return sizes[0] == sizes[1]


def _append(path: str, line: bytes) -> None:
    """Append with one call, which the system does not mix with that of another process.

    The file is opened for each line: bad records are few, and an open file would have to survive forks, exits and the
    garbage collector.
    """
    file = _appended(path)
    try:
        while line:  # a full disk takes part of it, and the next call raises
            line = line[os.write(file, line) :]
    finally:
        os.close(file)


class KnownBad:
    """Records that a manifest lists as bad.

    A record or row of a file is known by the file's absolute path, or what identifies its URL (see `urls`), and its
    offset or number, in every pass and epoch, a file that is one element by its path and its key. An element of an
    array or a generator is not known: another array may have the same indices.

    Args:
        signing: `Options.signing_parameters`, which identify no file.

    Attributes:
        keys: of the elements that are files.
    """

    def __init__(self, signing: Sequence[str] = ()) -> None:
        self._signing = signing
        self._files: dict[str, dict[int, BadRecord]] = {}
        self._elements: dict[tuple[str, int], BadRecord] = {}
        self.keys: set[int] = set()

    def add(self, record: BadRecord) -> None:
        """Add a record; the first for an element counts. A lost file is not added: it may be readable again."""
        if record.unit == "file":
            return
        name = self._known(record.file)
        if record.unit in PLACES and record.offset is not None:
            known: dict[Any, BadRecord] = self._files.setdefault(name, {})
            key: Any = record.offset
        else:
            known, key = self._elements, (name, record.key)
            self.keys.add(record.key)
        known.setdefault(key, record)

    def __len__(self) -> int:
        return len(self._elements) + sum(map(len, self._files.values()))

    def lists(self, record: BadRecord) -> bool:
        """Whether there is a record of this element."""
        return (self._known(record.file), record.key) in self._elements

    def of_element(self, name: str, key: int) -> BadRecord | None:
        """The bad record of a file that is one element; None for an element of anything else."""
        record = self._elements.get((self._known(name), key))
        return record if record is not None and (is_url(name) or os.path.lexists(name)) else None

    def of_file(self, name: str) -> dict[int, BadRecord]:
        """The bad records of a file, by offset."""
        return self._files.get(self._known(name), {})

    def _known(self, name: str) -> str:
        return identity(whole_name(name), self._signing)


def whole_name(name: str) -> str:
    """The absolute path of a file; a URL as it is."""
    return name if is_url(name) else os.path.abspath(name)


def read_manifest(path: str, signing: Sequence[str] = ()) -> KnownBad:
    """Read a manifest; `signing` as `KnownBad` takes it.

    Raises:
        PlanError: it cannot be read, a line is not a bad record, or there are more than 5 million.
    """
    known = KnownBad(signing)
    try:
        _check_regular(path, "bad_records")
        with open(path, "rb") as file:
            number = 0
            while line := file.readline(LINE + 1):
                number += 1
                if number > RECORDS:
                    raise _refused(path, number, f"more than {RECORDS} records")
                if len(line) > LINE:
                    raise _refused(path, number, f"a line of more than {LINE} bytes")
                if line.startswith(TORN) and not line.rstrip().endswith(b"}"):
                    logger.warning("%s: line %d is torn, as a full disk leaves it; it is skipped", path, number)
                elif line.strip():
                    known.add(record_of(line, path, number))
    except OSError as error:
        raise PlanError(f"Options.bad_records needs a manifest, got {path!r}: {error.strerror}") from error
    return known


def record_of(line: bytes, path: str, number: int) -> BadRecord:
    """Parse and check a line of a manifest.

    Raises:
        PlanError: it is not a bad record.
    """
    try:
        given: Any = json.loads(line)
    except (ValueError, RecursionError) as error:  # not JSON or UTF-8, a number of thousands of digits, or too deep
        raise _refused(path, number, "invalid JSON") from error
    if not isinstance(given, dict):
        raise _refused(path, number, "no object")
    key = given.get("key")
    if not isinstance(key, str) or not re.fullmatch(r"[0-9a-f]{16}", key):
        raise _refused(path, number, "no key of 16 hexadecimal digits")
    offset = given.get("offset")
    if offset is not None and not _natural(offset):
        raise _refused(path, number, "an offset that is not an integer from 0 to 2**63 - 1")
    epoch = given.get("epoch", 0)
    if not _natural(epoch):
        raise _refused(path, number, "an epoch that is not an integer from 0 to 2**63 - 1")
    texts = {name: given.get(name) for name in ("file", "unit", "stage", "reason", "action")}
    for name, text in texts.items():
        if not isinstance(text, str):
            raise _refused(path, number, f"no text under {name!r}")
    if texts["unit"] not in UNITS or texts["action"] not in _ACTIONS or "\0" in str(texts["file"]):
        raise _refused(path, number, "a unit, an action or a file name that is not allowed")
    file, unit, stage, reason, action = map(str, texts.values())
    return BadRecord(file, offset, unit_of(unit), int(key, 16), stage[:REASON], reason[:REASON], action, epoch)


def _natural(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _refused(path: str, number: int, found: str) -> PlanError:
    return PlanError(
        f"Options.bad_records needs a manifest as Options.error_manifest writes it, got {found} in line {number} of "
        f"{path!r}"
    )
