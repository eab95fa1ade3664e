"""records: what an iterator remembers of bad elements: the last of them, their causes, and a manifest on request.

The manifest is a JSONL file: one object for each bad element, appended with one `write`, so that several iterators and
processes may share a file. Reading one back checks everything: it may have come from anywhere.
"""

from __future__ import annotations

import json
import os
import re
import stat
import threading
import time
from collections import Counter, deque
from itertools import islice
from typing import Any, Literal

from ...errors import BadRecord, PlanError, TooManyBadError
from ...extract.storage.patterns import is_url
from ...log import logger
from ...options import Settings
from ...random import hash64, mix64

__all__ = ["KEPT", "BadRecords", "KnownBad", "read_manifest"]

KEPT = 10_000
"""Bad elements that an iterator remembers: the last ones, about 300 bytes each."""


REASON = 500
"""Characters of a reason that are kept: a user's exception may have any length."""


WINDOW = 10_000
"""Elements that a share of bad ones is taken of: the last ones."""


LEAST = 100
"""Bad elements that no share makes too many: 3 of the first 10 elements are no 30 % of a data set."""


CAUSES = 1_000
"""Causes that are told apart when they are counted."""


LINE = 64 << 10
"""Bytes of a manifest's line. One that gpupipe wrote has 30 KB at most: a file name of 4,096 bytes, all escaped."""


RECORDS = 5_000_000
"""Records of a manifest, about 200 bytes each in memory."""


TORN = b'{"file": '
"""How a line begins; one that does not end was cut off when the disk was full."""


Action = Literal["left out", "replaced", "raised"]


_ACTIONS = ("left out", "replaced", "raised")


_NUMBER = re.compile(r"\b\d+\b")


class BadRecords:
    """The bad elements of a run. Any thread may add one.

    Args:
        settings: where the manifest is, and how many may be bad.

    Attributes:
        left_out: elements that were left out or replaced.
        good: elements that were delivered, where a share of bad ones is asked for.
        before: marks of bad elements of this epoch that were noted before a state was loaded, and how often: those that
            were read ahead of it are met again.
    """

    def __init__(self, settings: Settings) -> None:
        self._manifest = settings.error_manifest
        self._known_in = settings.bad_records
        self._known: KnownBad | None = None
        self._most = settings.max_bad
        self._lock = threading.Lock()
        self._kept: deque[BadRecord] = deque(maxlen=KEPT)
        self._causes: Counter[str] = Counter()
        share = isinstance(self._most, float)
        self._allowed = max(LEAST, int(self._most * WINDOW)) if isinstance(self._most, float) else self._most
        # Where the last bad elements stood among all. One more than may be: the oldest tells how dense they are.
        self._places: deque[int] | None = (
            deque(maxlen=self._allowed + 1) if share and self._allowed is not None else None
        )
        self.left_out = 0
        self.good = 0
        self.before: Counter[int] = Counter()
        self._met: list[tuple[int, int]] = []  # of those: epoch and mark, as the next state needs them too
        self._unwritten = 0

    @property
    def counts_good(self) -> bool:
        """Whether somebody must count what is delivered."""
        return self._places is not None

    @property
    def kept(self) -> tuple[BadRecord, ...]:
        """The last ones, oldest first."""
        with self._lock:
            return tuple(self._kept)

    def so_far(self, last: int, epoch: int) -> tuple[int, list[int]]:
        """How many were left out, and marks of the last bad elements of an epoch, at one moment.

        Marks of `before` count too, met again or not: behind that state they may be met once more.
        """
        with self._lock:
            keys = [_mark(record) for record in islice(reversed(self._kept), last) if record.epoch == epoch]
            others = self._loaded(epoch) - Counter(keys)
            return self.left_out, [*keys, *others.elements()][:last]

    def _loaded(self, epoch: int) -> Counter[int]:
        """Marks that `before` had, met again or not."""
        return self.before + Counter(mark for of, mark in self._met if of == epoch)

    def again(self, epoch: int) -> None:
        """The epoch goes on from an earlier place: what was noted may be met once more, and is not noted then."""
        with self._lock:
            noted = Counter(_mark(record) for record in self._kept if record.epoch == epoch)
            self.before = noted | self._loaded(epoch)
            self._met = []

    def begin(self) -> None:
        """Create the manifest if it is not there, and read the one of `Options.bad_records`.

        Raises:
            PlanError: there is no such folder, or a file cannot be written or read, or holds something else.
        """
        if self._manifest is not None:
            self._create(self._manifest)
        _ = self.known

    @property
    def known(self) -> KnownBad:
        """What `Options.bad_records` lists; read when it is first asked for.

        Raises:
            PlanError: it cannot be read, or is no manifest.
        """
        if self._known is None:
            known = KnownBad() if self._known_in is None else read_manifest(self._known_in)
            with self._lock:  # not around the reading, which may speak in the log: see `add`
                if self._known is None:
                    self._known = known
        return self._known

    @staticmethod
    def _create(path: str) -> None:
        try:
            file = _appended(path)
            try:
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
        """Remember a bad element, write it to the manifest, and answer how many were left out so far.

        Args:
            record: the element.
            known: it came from a manifest and is not written to one again.

        Raises:
            TooManyBadError: there are more than `Options.max_bad`.
        """
        complaint = None
        with self._lock:
            if self.before and self.before[mark := _mark(record)]:
                self.before[mark] -= 1
                self._met.append((record.epoch, mark))
                return 0
            # What is cut short here, by Ctrl-C, is met again: a line may be written twice, and nothing counts twice.
            if self._manifest is not None and not known:
                complaint = self._write(self._manifest, line_of(record))
            count = self.left_out = self.left_out + (record.action != "raised")
            self._kept.append(record)
            too_many = self._check(record) if record.action != "raised" else None
        # Behind the lock: a handler of the user's may ask for `iterator.errors`, here or in another thread.
        if complaint is not None:
            logger.error("%s lacks %d bad records, it cannot be written: %s", self._manifest, *complaint)
        if too_many is not None:
            raise too_many
        return count

    def _write(self, path: str, line: bytes) -> tuple[int, Exception] | None:
        """Append to the manifest. A disk that is full ends no training: it is tried again each time.

        Answers how many lines are missing, and why, where that is to be said.
        """
        try:
            _append(path, line)
        except (OSError, PlanError) as error:
            self._unwritten += 1
            if self._unwritten & (self._unwritten - 1) == 0:
                return self._unwritten, error
        return None

    def _check(self, record: BadRecord) -> TooManyBadError | None:
        """What is to be raised if there are too many by now."""
        if self._allowed is None:
            return None
        cause = f"{record.stage}: {_NUMBER.sub('N', record.reason)[:120]}"
        if cause in self._causes or len(self._causes) < CAUSES:
            self._causes[cause] += 1
        if self._places is None:
            if self.left_out > self._allowed:
                return self._too_many(record, f"{self.left_out} bad elements were left out or replaced")
            return None
        place = self.good + self.left_out
        self._places.append(place)
        if len(self._places) > self._allowed and place - self._places[0] < WINDOW:
            among = min(place, WINDOW)
            return self._too_many(record, f"{len(self._places)} of the last {among} elements were left out or replaced")
        return None

    def _too_many(self, record: BadRecord, found: str) -> TooManyBadError:
        top = self._causes.most_common(5)
        causes = "; ".join(f"{count} x {cause}" for cause, count in top)
        more = len(self._causes) - len(top)
        causes += f"; and {more} more causes" if more else ""
        return TooManyBadError(
            f"{found}, and Options.max_bad={self._most} allows {self._allowed}. Causes: {causes}. The last one: "
            f"{record.file} at {record.unit} {record.offset}. iterator.errors lists them; mend the data or the chain, "
            f"or set a larger max_bad"
        )


def _mark(record: BadRecord) -> int:
    """What tells a bad element of an epoch from others: two steps may each say of one place what is wrong with it."""
    return mix64(record.key, hash64(f"{record.stage}: {record.reason[:100]!a}"))


def line_of(record: BadRecord) -> bytes:
    """A bad element as a line of the manifest. The key is text: JSON's readers elsewhere know 53 bits of a number."""
    fields = {
        "file": record.file,
        "offset": record.offset,
        "unit": record.unit,
        "key": f"{record.key:016x}",
        "stage": record.stage,
        "reason": record.reason,
        "action": record.action,
        "epoch": record.epoch,
    }
    return json.dumps(fields).encode() + b"\n"


def _appended(path: str) -> int:
    _check_regular(path, "error_manifest")
    return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)


def _check_regular(path: str, option: str) -> None:
    """Refuse what is there and no regular file: opening a FIFO waits for somebody at its other end.

    Raises:
        PlanError: it is none.
        OSError: nobody may look.
    """
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # opening a folder says what it is
        raise PlanError(f"Options.{option} needs a regular file, got {path!r}, which is none")


def _is_torn(file: int) -> bool:
    """Whether a manifest ends with half a line, as a full disk leaves it; not one that somebody is writing just now."""
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
    """Append with one call, which the system does not mix with another's.

    Opened anew for each line: bad records are few, and so no run holds a file that a fork, an exit or the garbage
    collector would have to think of.
    """
    file = _appended(path)
    try:
        while line:  # less than all of it is written where the disk is full; the next call then says so
            line = line[os.write(file, line) :]
    finally:
        os.close(file)


class KnownBad:
    """Records that a manifest says are bad.

    A record of a file is known by the file's absolute path and the offset, in every pass and epoch. Anything else is
    known by its key: an index says little without the array it belongs to.
    """

    def __init__(self) -> None:
        self._files: dict[str, dict[int, BadRecord]] = {}
        self._keys: dict[int, BadRecord] = {}

    def add(self, record: BadRecord) -> None:
        """Add one; of several for one place the first counts. A file that was lost may be there again."""
        if record.unit == "file":
            return
        if record.unit == "offset" and record.offset is not None:
            self._files.setdefault(whole_name(record.file), {}).setdefault(record.offset, record)
        else:
            self._keys.setdefault(record.key, record)

    def __len__(self) -> int:
        return len(self._keys) + sum(map(len, self._files.values()))

    def of_file(self, name: str) -> dict[int, BadRecord]:
        """The bad records of a file, by offset."""
        return self._files.get(whole_name(name), {})

    @property
    def of_key(self) -> dict[int, BadRecord]:
        """Those known by their key."""
        return self._keys


def whole_name(name: str) -> str:
    """A file's name that does not depend on the working directory."""
    return name if is_url(name) else os.path.abspath(name)


def read_manifest(path: str) -> KnownBad:
    """Read a manifest back.

    Raises:
        PlanError: it cannot be read, a line is no bad record, or there are more than 5 million.
    """
    known = KnownBad()
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
                    logger.warning("%s: line %d is torn, as a full disk leaves it; it is passed over", path, number)
                elif line.strip():
                    known.add(record_of(line, path, number))
    except OSError as error:
        raise PlanError(f"Options.bad_records needs a manifest, got {path!r}: {error.strerror}") from error
    return known


def record_of(line: bytes, path: str, number: int) -> BadRecord:
    """A line of a manifest as a bad record, everything checked.

    Raises:
        PlanError: it is none.
    """
    try:
        given: Any = json.loads(line)
    except (ValueError, RecursionError) as error:  # no JSON, no UTF-8, a number of thousands of digits; too deep
        raise _refused(path, number, "no JSON") from error
    if not isinstance(given, dict):
        raise _refused(path, number, "no object")
    key = given.get("key")
    if not isinstance(key, str) or not re.fullmatch(r"[0-9a-f]{16}", key):
        raise _refused(path, number, "no key of 16 hexadecimal digits")
    offset = given.get("offset")
    if offset is not None and not _natural(offset):
        raise _refused(path, number, "an offset that is no number from 0 to 2**63 - 1")
    epoch = given.get("epoch", 0)
    if not _natural(epoch):
        raise _refused(path, number, "an epoch that is no number from 0 to 2**63 - 1")
    texts = {name: given.get(name) for name in ("file", "unit", "stage", "reason", "action")}
    for name, text in texts.items():
        if not isinstance(text, str):
            raise _refused(path, number, f"no text under {name!r}")
    if (
        texts["unit"] not in ("offset", "index", "file")
        or texts["action"] not in _ACTIONS
        or "\0" in str(texts["file"])
    ):
        raise _refused(path, number, "a unit, an action or a file name that there is not")
    file, unit, stage, reason, action = map(str, texts.values())
    return BadRecord(file, offset, unit, int(key, 16), stage[:REASON], reason[:REASON], action, epoch)


def _natural(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _refused(path: str, number: int, found: str) -> PlanError:
    return PlanError(
        f"Options.bad_records needs a manifest as Options.error_manifest writes it, got {found} in line {number} of "
        f"{path!r}"
    )
