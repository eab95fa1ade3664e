"""Readers and their storage: whatever goes wrong under an open file is an error that names it, and nothing hangs."""

from __future__ import annotations

import errno
import gc
import logging
import os
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import gpupipe as gp
from gpupipe import Dataset, Options
from gpupipe.errors import DataError, LengthError, RecordError
from gpupipe.extract.records.index import INDEXES, record_index, version_of
from gpupipe.extract.storage import files as storage
from gpupipe.extract.storage.files import LOCAL, LocalStorage
from gpupipe.extract.storage.waiting import LIMITS, MOST_OF_A_FILE, MOST_STUCK, Limits
from gpupipe.flow import run as flow_run
from tests.behaviour.model import take_until_closed
from tests.chains import damage
from tests.reliability.faulty import System
from tests.reliability.record_files import READERS, SIZE, payloads, taken, write

PATIENCE = 20.0
"""Seconds until something counts as hanging: a deadline, never what it should take."""

COUNT = 700


pytestmark = pytest.mark.usefixtures("afresh", "small_heap")


# ---- files of each kind, and chains that read them


FIRST, SECOND = payloads(0, COUNT), payloads(1, COUNT)
Chain = Callable[[list[str]], Dataset]


def in_turn(read: Callable[[Any], Dataset], ahead: int | None = None) -> Chain:
    return lambda files: Dataset.from_tensor_slices(files).interleave(read, 1, num_parallel_calls=ahead)


READ: dict[str, tuple[str, Chain]] = {  # a kind of files, a chain that reads several
    **{kind: (kind, in_turn(read)) for kind, read in READERS.items()},
    "samples, gzip": ("samples, gzip", in_turn(lambda name: gp.WebDataset(name, "bin", compression_type="GZIP"))),
    "records read ahead": ("records", in_turn(gp.TFRecordDataset, 1)),
    "references": ("records", lambda files: gp.TFRecordDataset(files).shuffle(10, seed=1)),
    "places of samples": ("samples", lambda files: gp.WebDataset(files, "bin").shuffle(10, seed=1)),
}


@dataclass
class Files:
    """Two files of a kind, and how they are read one after the other."""

    chain: Chain
    paths: list[Path]

    def dataset(self, **options: Any) -> Dataset:
        return self.chain(list(map(str, self.paths))).with_options(Options(**options))


@pytest.fixture(params=READ)
def files(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    monkeypatch.setattr(flow_run, "cpu_count", lambda: 4)  # a reader thread also where too few CPUs make none
    kind, chain = READ[str(request.param)]
    made = Files(chain, [tmp_path / "first", tmp_path / "second"])
    for path, records in zip(made.paths, (FIRST, SECOND), strict=True):
        write(path, kind, records)
    return made


def check(files: Files, good: list[bytes], bad: list[DataError], reason: str, most: int = COUNT) -> None:
    """The first file failed, each error names it; what came of it is right, and the second file is whole.

    Where in the file, nobody can say of one that could not be opened.
    """
    first = [record for record in good if record.startswith(b"00")]
    assert sorted(set(good)) == sorted(good)
    assert set(first) <= set(FIRST)
    assert len(first) <= most
    assert sorted(record for record in good if record.startswith(b"01")) == SECOND
    assert bad
    for error in bad:
        assert error.file == str(files.paths[0])
        assert error.stage == "read"
        assert error.offset is not None or not first
        assert reason in str(error)
        assert str(files.paths[0]) in str(error)


# ---- what happens to files, and what the system answers


def refuse(code: int, first: int = 1) -> Callable[[int], int | None]:
    """Reads that fail, from the `first` one on."""

    def answer(number: int) -> int | None:
        if number < first:
            return None
        raise OSError(code, os.strerror(code))

    return answer


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Opens at the end of a test, so that nothing is stuck for longer."""
    event = threading.Event()
    yield event
    event.set()
    gc.collect()  # an iterator that an error's traceback holds
    for thread in threading.enumerate():
        if thread.name == "gpupipe-read":
            thread.join(2)


def stall(gate: threading.Event, first: int = 1) -> Callable[[int], int | None]:
    """Reads that do not come back, from the `first` one on."""

    def answer(number: int) -> int | None:
        if number >= first:
            gate.wait(2 * PATIENCE)
        return None

    return answer


@dataclass
class Place:
    """Where something goes wrong with a file."""

    first: Path
    gate: threading.Event
    patch: pytest.MonkeyPatch

    def answers(self, answer: Callable[[int], int | None]) -> System:
        return System(str(self.first), answer).install(self.patch)

    def replaced(self, data: bytes) -> None:
        """By another file, or by nothing; where its descriptor was closed meanwhile that is noticed."""
        self.first.unlink()
        if data:
            self.first.write_bytes(data)
        with self.patch.context() as patch:  # every descriptor is closed, as many other files would have it
            patch.setattr(LOCAL, "_limit", 0)
            LOCAL.size(str(self.first.with_name("second")))

    def refused(self) -> None:
        """As for a user who is not root."""
        real = os.open

        def refused(name: Any, flags: int, *rest: Any, **more: Any) -> int:
            if os.fspath(name) == str(self.first):
                raise PermissionError(errno.EACCES, "Permission denied", str(self.first))
            return real(name, flags, *rest, **more)

        self.patch.setattr(os, "open", refused)

    def unseen(self) -> None:
        """It cannot even be looked at."""
        look = os.stat

        def stuck(path: Any, *rest: Any, **more: Any) -> os.stat_result:
            if path == str(self.first):
                self.gate.wait(2 * PATIENCE)
            return look(path, *rest, **more)

        self.patch.setattr(os, "stat", stuck)


GIVEN_UP = "a read was given up after 0.15 s (Options.read_timeout)"
BEFORE: dict[str, tuple[Callable[[Place], Any], str, int]] = {  # what happens, what is said, how many records come
    "a broken disk": (lambda at: at.answers(refuse(errno.EIO)), "cannot be read: Input/output error", 0),
    "refused": (Place.refused, "cannot be read: Permission denied", 0),
    "broken in the middle": (lambda at: at.answers(refuse(errno.EIO, 3)), "Input/output error", COUNT - 1),
    "stalls": (lambda at: at.answers(stall(at.gate)), GIVEN_UP, COUNT - 1),
    "stalls in the middle": (lambda at: at.answers(stall(at.gate, 3)), GIVEN_UP, COUNT - 1),
    "unseen": (Place.unseen, GIVEN_UP, 0),
}
BEGUN: dict[str, tuple[Callable[[Place], Any], str]] = {
    "cut": (lambda at: os.truncate(at.first, SIZE * 20 + 7), "changed while it was read|the file ends"),
    "cut to nothing": (lambda at: os.truncate(at.first, 0), "changed while it was read|the file ends"),
    "replaced": (
        lambda at: at.replaced(at.first.read_bytes().replace(b"00.0", b"02.0") + b"x"),
        "changed while it was read",
    ),
    "vanished": (lambda at: at.replaced(b""), "no such file"),
}


@pytest.fixture
def place(files: Files, gate: threading.Event, monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(files.paths[0], gate, monkeypatch)


@pytest.mark.parametrize("fault", BEFORE)
def test_a_file_that_cannot_be_read_is_an_error_and_the_next_one_is_read(
    files: Files, place: Place, fault: str
) -> None:
    happens, reason, most = BEFORE[fault]
    dataset = files.dataset(**({"read_timeout": 0.15} if reason == GIVEN_UP else {}))
    happens(place)

    good, bad = taken(iter(dataset))

    check(files, good, bad, reason, most)


@pytest.mark.parametrize("fault", BEGUN)
def test_a_file_that_changes_while_it_is_read_is_an_error(files: Files, place: Place, fault: str) -> None:
    happens, reason = BEGUN[fault]
    items = iter(files.dataset())
    begun = [bytes(next(items))]
    happens(place)

    good, bad = taken(items)

    check(files, begun + good, bad, "", COUNT - 1)
    assert (any if fault == "cut" else all)(re.search(reason, str(error)) for error in bad)


HARMLESS: dict[str, Callable[[Place], Any]] = {
    "short reads": lambda at: at.answers(lambda number: 1 + number % 5000),
    "slow reads": lambda at: at.answers(lambda number: time.sleep(0.001)),
}


@pytest.mark.parametrize("timeout", [None, PATIENCE], ids=["", "timeout"])
@pytest.mark.parametrize("what", HARMLESS)
def test_what_is_harmless_while_a_file_is_read_loses_nothing(
    files: Files, place: Place, what: str, timeout: float | None
) -> None:
    items = iter(files.dataset(read_timeout=timeout))
    begun = [bytes(next(items))]
    HARMLESS[what](place)

    good, bad = taken(items)

    assert (len(begun + good), bad) == (2 * COUNT, [])


# ---- storage that does not answer


def until(there: Callable[[], Any]) -> None:
    """Wait for something."""
    deadline = time.monotonic() + PATIENCE
    while not there():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def names_of_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("gpupipe")]


@pytest.fixture
def limits() -> Iterator[Limits]:
    """Limits of this thread."""
    stopped = threading.Event()
    made = Limits(0.02, stopped)
    token = LIMITS.set(made)
    yield made
    LIMITS.reset(token)
    stopped.set()
    made.close()


def test_close_does_not_wait_for_a_read_that_stalls(
    files: Files, gate: threading.Event, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "gpupipe")
    system = System(str(files.paths[0]), stall(gate)).install(monkeypatch)
    items = files.dataset(read_timeout=10 * PATIENCE, on_error="skip").iterator()
    got: list[Any] = []
    taker = threading.Thread(target=take_until_closed, args=(items, got))
    taker.start()
    until(lambda: system.reads)

    items.close()

    taker.join(PATIENCE)
    assert not taker.is_alive()
    until(lambda: names_of_threads() == ["gpupipe-read"])  # which the system holds, and which holds nothing itself
    assert got == []
    assert items.errors == ()  # what close breaks off is not bad
    assert caplog.records == []


@pytest.mark.parametrize("timeout", [None, PATIENCE])
def test_only_a_timeout_has_threads_and_they_end_with_the_iterator(files: Files, timeout: float | None) -> None:
    with files.dataset(read_timeout=timeout).iterator() as items:
        next(items)
        assert ("gpupipe-read" in names_of_threads()) == (timeout is not None)

    until(lambda: not names_of_threads())


def test_what_stalls_later_writes_nothing_into_memory_that_is_in_use(
    tmp_path: Path, gate: threading.Event, limits: Limits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read that was given up may still fill its buffer: that must be nobody else's."""
    path = tmp_path / "file"
    path.write_bytes(b"late" * 100)
    out = bytearray(b"mine" * 100)
    read, done = storage._pread, threading.Event()

    def late(fd: int, n: int, offset: int) -> bytes:
        gate.wait(PATIENCE)
        try:
            return read(fd, n, offset)
        finally:
            done.set()

    monkeypatch.setattr(storage, "_pread", late)
    with pytest.raises(RecordError, match="given up"):
        LocalStorage().readinto(str(path), 0, memoryview(out))
    gate.set()
    assert done.wait(PATIENCE)

    assert bytes(out) == b"mine" * 100


def test_so_many_may_be_stuck_and_no_more(gate: threading.Event, limits: Limits) -> None:
    limits.seconds = 0.001
    for number in range(MOST_STUCK):
        with pytest.raises(RecordError, match="the storage does not answer"):
            limits.call(f"f{number // MOST_OF_A_FILE}", gate.wait, 2 * PATIENCE)
    count = threading.active_count()

    with pytest.raises(RecordError, match=f"{MOST_OF_A_FILE} for this file before it are still unanswered"):
        limits.call("f0", gate.wait)
    with pytest.raises(RecordError, match=f"{MOST_STUCK} before it are still unanswered"):
        limits.call("other", gate.wait)
    assert threading.active_count() == count

    gate.set()
    until(lambda: threading.active_count() <= count - MOST_STUCK)
    limits.seconds = PATIENCE
    assert limits.call("f", len, "abc") == 3


def test_a_request_that_was_given_up_keeps_nothing_alive(gate: threading.Event) -> None:
    stopped = threading.Event()
    limits = Limits(0.01, stopped)
    held = {1}
    seen = weakref.ref(held)

    assert limits.call("f", set.union, held) == held
    del held
    gc.collect()
    assert seen() is None  # the thread that waits for the next request has forgotten this one

    with pytest.raises(RecordError):
        limits.call("f", gate.wait, 2 * PATIENCE)
    gone = weakref.ref(limits)
    stopped.set()
    limits.close()
    del limits
    gc.collect()
    assert gone() is None  # the thread that is stuck does not know them


# ---- the index, the cache, saved elements


def test_an_index_of_a_file_that_shrinks_is_an_error_of_its_records(tmp_path: Path) -> None:
    path = tmp_path / "records"
    write(path, "records", SECOND)
    dataset = gp.TFRecordDataset(str(path))
    assert bytes(dataset[COUNT - 1]) == SECOND[-1]
    items = iter(dataset.shuffle(gp.ALL, seed=1))
    begun = [bytes(next(items))]
    os.truncate(path, 100 * (SIZE + 16))

    good, (*bad, last) = taken(items)

    assert len(begun) + len(good) + len(bad) == COUNT
    assert (last.lost, "changed while it was read" in str(last)) == (True, True)  # at the end of the pass
    assert set(good) <= set(SECOND)
    assert {error.file for error in bad} == {str(path)}
    assert all(error.offset is not None and error.offset >= 99 * (SIZE + 16) for error in bad)


def test_an_index_that_cannot_be_read_in_time_is_built_anew(
    tmp_path: Path, gate: threading.Event, limits: Limits, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "records"
    write(path, "records", SECOND)
    record_index(str(path), "beside")
    INDEXES.clear()
    look = os.stat

    def stuck(name: Any, *rest: Any, **more: Any) -> os.stat_result:
        if str(name).endswith(".gpindex"):
            gate.wait(2 * PATIENCE)
        return look(name, *rest, **more)

    monkeypatch.setattr(os, "stat", stuck)

    assert len(record_index(str(path), "beside")) == COUNT


def test_a_cache_that_stalls_is_given_up_and_named(
    tmp_path: Path, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = Dataset.range(COUNT).map(lambda x: str(x).encode().ljust(SIZE), traced=False).cache(str(tmp_path / "c"))
    assert sum(1 for _ in dataset) == COUNT
    (path,) = tmp_path.glob("c-*.elements")
    items = iter(dataset.with_options(Options(read_timeout=0.05)))
    begun = [next(items)]
    System(str(path), stall(gate)).install(monkeypatch)

    good, bad = taken(items)

    assert len(begun) + len(good) < COUNT
    assert [error.file for error in bad] == [str(path)]
    assert "given up after 0.05 s" in str(bad[0])


# ---- how many there are


UNCOUNTED: dict[str, tuple[Callable[[Place], Any], str]] = {
    "missing": (lambda at: at.first.unlink(), "no such file"),
    "permission denied": (Place.refused, "cannot be read: Permission denied"),
    "stalls": (lambda at: at.answers(stall(at.gate)), r"a read was given up after 0.25 s \(Options.read_timeout\)"),
    "stalls in the middle": (lambda at: at.answers(stall(at.gate, 2)), r"a read was given up after 0.25 s \(Options"),
    "a broken disk": (lambda at: at.answers(refuse(errno.EIO)), "cannot be read"),
}


@pytest.fixture(params=UNCOUNTED)
def three(
    request: pytest.FixtureRequest, tmp_path: Path, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> tuple[Dataset, str, str]:
    """Three files of records, of which the middle one cannot be read to its end; that one, and why."""
    paths = [str(tmp_path / f"{i}.tfrecord") for i in range(3)]
    for path in paths:
        damage.write(Path(path), [b"%d" % i * 20_000 for i in range(5)])  # a header is a read of its own
    break_it, reason = UNCOUNTED[str(request.param)]
    break_it(Place(Path(paths[1]), gate, monkeypatch))
    return gp.TFRecordDataset(paths).with_options(Options(read_timeout=0.25)), paths[1], reason


ASKED: dict[str, Callable[[Dataset], Any]] = {
    "len": len,
    "len of batches": lambda ds: len(ds.batch(2)),
    "first": lambda ds: ds[0],
    "last": lambda ds: ds[-1],
    "slice": lambda ds: ds[-2:],
    "shuffle": lambda ds: list(ds.shuffle(gp.ALL)),
    "split": lambda ds: list(ds.split([0.5, 0.5])[0]),
}


@pytest.mark.parametrize("ask", ASKED)
def test_a_file_that_cannot_be_read_to_its_end_has_no_number_of_records(
    three: tuple[Dataset, str, str], ask: str
) -> None:
    dataset, path, reason = three
    with pytest.raises(DataError, match=f"{reason}.*; its records cannot be counted") as caught:
        ASKED[ask](dataset)

    assert caught.value.file == path
    assert isinstance(caught.value, LengthError) == (ask not in ("shuffle", "split"))  # which ask while elements come
    version = version_of(path)
    assert version is None or INDEXES.get(path, version) is None  # what is not whole is not kept


def test_a_list_needs_no_length_to_begin_with(three: tuple[Dataset, str, str]) -> None:
    """`list` asks for one, only to save work."""
    dataset, _, reason = three
    assert list(dataset.take(4)) == [b"%d" % i * 20_000 for i in range(4)]
    with pytest.raises(DataError, match=reason) as caught:
        list(dataset)
    assert not isinstance(caught.value, LengthError)
