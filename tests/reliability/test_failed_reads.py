"""Reads that fail for a moment lose nothing, whatever `on_error` says, and nobody waits for them behind a close."""

from __future__ import annotations

import errno
import gzip
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, Options
from gpupipe import threads as pools
from gpupipe.extract.records.index import INDEXES
from gpupipe.extract.storage import files as storage
from gpupipe.extract.storage import retry
from gpupipe.extract.storage import waiting as waits
from gpupipe.extract.storage.files import LOCAL
from gpupipe.flow.sources import readers as flow_readers
from tests.behaviour.model import take_until_closed
from tests.reliability.faulty import Disk, Faulty, every
from tests.reliability.record_files import READERS, SIZE, all_of, chain, payloads, taken, write
from tests.reliability.resume import goes_on

FILES, EACH = 16, 96
POLICIES = ["raise", "skip", "replace"]
PATIENCE = 20.0


pytestmark = pytest.mark.usefixtures("afresh")


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small requests: some hundred, not sixteen."""
    monkeypatch.setattr(flow_readers, "REMOTE_BLOCK", 64 << 10)


ALL = [record for file in range(FILES) for record in payloads(file, EACH)]


def tfrecords(path: Path, file: int) -> None:
    write(path, "records", payloads(file, EACH))


def written(folder: Path, kind: str) -> list[str]:
    """The names of sixteen files."""
    names = [f"{file:02d}" for file in range(FILES)]
    for file, name in enumerate(names):
        write(folder / name, kind, payloads(file, EACH))
    return names


# ---- over a network


@pytest.mark.parametrize("keeps", [False, True], ids=["HTTP/1.0", "HTTP/1.1"])
@pytest.mark.parametrize(
    ("fault", "on_error"),
    [("503", "raise"), ("429", "skip"), ("500", "replace"), ("drop", "skip"), ("reset", "raise"), ("refuse", "replace"),
     ("short", "skip"), ("whole", "raise"), ("hang", "replace")],
)  # fmt: skip
def test_a_server_that_fails_now_and_then_loses_no_record(
    tmp_path: Path, on_error: str, fault: str, keeps: bool
) -> None:
    names = written(tmp_path, "records")
    looking = every(2, fault) if fault in ("503", "reset", "refuse") else lambda number: None
    timeout = 0.25 if fault == "hang" else None
    expected = list(chain([str(tmp_path / name) for name in names], "records", None, 8))
    with Faulty(tmp_path, every(20, fault), looking, keeps=keeps).serving() as server:
        paths = [server.url(name) for name in names]

        good, bad, items = all_of(chain(paths, "records", 2, 8, on_error=on_error, read_timeout=timeout))

        assert good == expected
        assert (bad, items.errors, items.left_out) == ([], (), 0)
        assert server.faults >= 3


@pytest.mark.parametrize("fault", ["503", "drop", "reset", "refuse", "short", "403"])
@pytest.mark.parametrize("on_error", POLICIES)
def test_answers_that_fail_for_good_are_raised_behind_the_records_that_came(
    tmp_path: Path, on_error: str, fault: str
) -> None:
    first, second = written(tmp_path, "records")[:2]
    with Faulty(tmp_path, lambda number: fault if number > 2 else None, keeps=True).serving() as server:
        paths = [server.url(first), str(tmp_path / second)]

        good, bad, items = all_of(chain(paths, "records", on_error=on_error))

        count = len(good) - EACH
        assert 0 < count < EACH
        assert good == ALL[:count] + ALL[EACH : 2 * EACH]
        assert [(error.file, error.offset, error.lost) for error in bad] == [(paths[0], count * (SIZE + 16), True)]
        assert ("6 tries in" in str(bad[0])) == (fault not in ("403", "short"))
        assert [(record.unit, record.action) for record in items.errors] == [("file", "raised")]


def test_a_server_that_is_busy_has_no_empty_list(tmp_path: Path) -> None:
    written(tmp_path, "records")
    with Faulty(tmp_path, lambda number: "503", lambda number: "503").serving() as server:
        url = server.url("00")
        with pytest.raises(gp.PlanError, match=r"00' cannot be listed: .*503.*6 tries in"):
            Dataset.list_files(url)
        retry.GIVEN_UP.clear()
        server.looking = lambda number: "503" if number % 3 else None
        server.fault = lambda number: None

        assert [bytes(name).decode() for name in Dataset.list_files(url)] == [url]


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("on_error", POLICIES)
def test_so_it_is_for_files_of_every_kind(tmp_path: Path, on_error: str, kind: str) -> None:
    names = written(tmp_path, kind)
    with Faulty(tmp_path, fault=every(7, "503"), looking=every(5, "503")).serving() as server:
        paths = [server.url(name) for name in names]

        assert list(chain(paths, kind, on_error=on_error)) == ALL
        assert server.faults >= 4


def test_a_server_says_how_long_to_wait(tmp_path: Path) -> None:
    written(tmp_path, "records")
    with Faulty(tmp_path, lambda number: "429" if number == 1 else None, retry_after="0.5").serving() as server:
        began = time.monotonic()
        assert next(iter(chain([server.url("00")], "records"))) == ALL[0]

        assert 0.5 <= time.monotonic() - began < PATIENCE
        _, first, second = server.times[:3]
        assert second - first >= 0.5


@pytest.mark.parametrize(("status", "gets"), [("403", 1), ("404", 1), ("416", 1), ("503", retry.TRIES)])
def test_what_is_forbidden_or_missing_is_asked_for_once(tmp_path: Path, status: str, gets: int) -> None:
    written(tmp_path, "records")
    with Faulty(tmp_path, lambda number: status).serving() as server:
        good, (error,), _ = all_of(chain([server.url("00")], "records"))

        assert good == []
        assert server.gets == gets
        assert error.lost
        assert ("6 tries in" in str(error)) == (status == "503")


@pytest.mark.parametrize("kind", ["records", "gzip"])
@pytest.mark.parametrize("n", [1, 2])
def test_what_a_network_changed_is_asked_for_once_more(
    tmp_path: Path, kind: str, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first answer, whose middle is in a payload; or every third one."""
    if kind == "records":
        names = written(tmp_path, kind)
    else:  # a change that zlib notices before anything was made of the bytes
        monkeypatch.setattr(flow_readers, "REMOTE_BLOCK", 1 << 20)
        names = ["x"]
        tfrecords(tmp_path / "plain", 0)
        (tmp_path / "x").write_bytes(gzip.compress((tmp_path / "plain").read_bytes(), 9))
    flips = (lambda number: "flip" if number == 1 else None) if n == 1 else (lambda n: "flip" if n % 3 == 1 else None)
    with Faulty(tmp_path, flips).serving() as server:
        good, bad, _ = all_of(chain([server.url(name) for name in names], kind))

        assert (good, bad) == (ALL[: EACH * len(names)], [])
        assert server.faults >= 1


def test_what_is_damaged_in_the_file_is_one_bad_record_over_a_network_too(tmp_path: Path) -> None:
    tfrecords(tmp_path / "x", 0)
    data = bytearray((tmp_path / "x").read_bytes())
    data[5 * (SIZE + 16) + 100] ^= 1
    data[9 * (SIZE + 16)] ^= 1
    (tmp_path / "x").write_bytes(data)
    with Faulty(tmp_path).serving() as server:
        good, bad, _ = all_of(chain([server.url("x")], "records"))

        assert good == [record for i, record in enumerate(ALL[:EACH]) if i not in (5, 9)]
        assert [error.offset for error in bad] == [5 * (SIZE + 16), 9 * (SIZE + 16)]
        assert not any(error.lost for error in bad)


def test_a_state_in_the_middle_goes_on_over_faults(tmp_path: Path) -> None:
    names = written(tmp_path, "records")
    with Faulty(tmp_path, fault=every(5, "503"), looking=every(5, "503")).serving() as server:
        paths = [server.url(name) for name in names]

        def build() -> Dataset:
            return chain(paths, "records", 2, 4, on_error="skip").shuffle(40, seed=3)

        assert len(goes_on(build, (1, 500, len(ALL) - 1))) == len(ALL)


# ---- on a disk


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("timeout", [None, PATIENCE])
@pytest.mark.parametrize("on_error", POLICIES)
def test_a_read_of_a_disk_that_fails_once_loses_nothing(
    tmp_path: Path, on_error: str, timeout: float | None, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [str(tmp_path / name) for name in written(tmp_path, kind)[:2]]
    disk = Disk(paths[0], lambda number, start, stop: errno.EIO if number == 1 else None).install(monkeypatch)

    good, bad, items = all_of(chain(paths, kind, on_error=on_error, read_timeout=timeout))

    assert (good, bad, items.errors) == (ALL[: 2 * EACH], [], ())
    assert disk.failed == 1


@pytest.mark.parametrize("on_error", POLICIES)
@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN], ids=errno.errorcode.get)
def test_whatever_asks_for_a_record_asks_again(
    tmp_path: Path, on_error: Any, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Headers, references, places, whole files: every other read fails."""
    paths = [str(tmp_path / name) for name in written(tmp_path, "records")[:2]]
    Disk(paths[0], lambda number, start, stop: code if number % 2 else None).install(monkeypatch)
    ds = gp.TFRecordDataset(paths).with_options(Options(on_error=on_error))
    expected = ALL[: 2 * EACH]

    assert sorted(ds.shuffle(50)) == expected
    INDEXES.clear()
    assert len(ds) == 2 * EACH
    assert sorted(ds.shuffle(gp.ALL)) == expected
    assert ds[3] == expected[3]
    assert list(ds[::7]) == expected[::7]
    assert list(ds.skip(5)) == expected[5:]
    whole = list(Dataset.from_tensor_slices(paths).map(gp.io.read_file).with_options(Options(on_error=on_error)))
    assert whole == [Path(path).read_bytes() for path in paths]
    assert gp.io.build_index(paths, "memory") == 2 * EACH


def test_opening_and_looking_are_done_again_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [str(tmp_path / name) for name in written(tmp_path, "records")[:2]]
    failed: list[str] = []

    def failing_twice(name: str, real: Callable[..., Any]) -> Any:
        def call(path: Any, *rest: Any, **more: Any) -> Any:
            if path == paths[0] and failed.count(name) < 2:
                failed.append(name)
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return real(path, *rest, **more)

        return call

    for name in ("stat", "open"):
        monkeypatch.setattr(os, name, failing_twice(name, getattr(os, name)))

    assert list(chain(paths, "records", on_error="skip")) == ALL[: 2 * EACH]
    assert sorted(failed) == ["open", "open", "stat", "stat"]


def test_a_descriptor_that_lost_its_file_is_opened_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [str(tmp_path / name) for name in written(tmp_path, "lines")[:1]]
    stale: set[int] = set()
    look = os.fstat

    def fstat(fd: int) -> os.stat_result:
        if fd in stale:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return look(fd)

    read = storage._pread

    def pread(fd: int, n: int, offset: int) -> bytes:
        if offset > 0 and not stale:
            stale.add(fd)
        if fd in stale:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return read(fd, n, offset)

    monkeypatch.setattr(os, "fstat", fstat)
    monkeypatch.setattr(storage, "_pread", pread)
    monkeypatch.setattr(storage, "_Descriptor", type("Descriptor", (storage._Descriptor,), {"__del__": lambda self: 0}))

    assert list(gp.TextLineDataset(paths)) == ALL[:EACH]
    assert stale


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM, errno.EISDIR], ids=errno.errorcode.get)
def test_what_no_patience_mends_is_asked_for_once(tmp_path: Path, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [str(tmp_path / name) for name in written(tmp_path, "lines")[:1]]
    disk = Disk(paths[0], lambda number, start, stop: code).install(monkeypatch)

    assert len(taken(iter(gp.TextLineDataset(paths)))[1]) == 1
    assert disk.reads == 1


# ---- patience and its end


@pytest.fixture
def waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A file of which each read fails, and pauses that nobody waits out."""
    paths = [str(tmp_path / name) for name in written(tmp_path, "records")[:2]]
    Disk(paths[0], lambda number, start, stop: errno.EIO).install(monkeypatch)
    monkeypatch.setattr(retry, "PAUSE", 10 * PATIENCE)
    return paths


PAUSES: dict[str, Callable[[list[str]], Dataset]] = {
    "in order": lambda paths: chain(paths, "records", 2, 2),
    "by place": lambda paths: chain(paths, "records", 2, 2).shuffle(gp.ALL),
    "inside a function": lambda paths: Dataset.range(9).map(
        lambda i: next(iter(gp.TFRecordDataset(paths))), traced=False
    ),
}


@pytest.mark.parametrize("timeout", [None, PATIENCE])
@pytest.mark.parametrize("way", PAUSES)
def test_close_ends_the_pause_before_another_try(
    waiting: list[str], timeout: float | None, way: str, monkeypatch: pytest.MonkeyPatch, no_threads_left: None
) -> None:
    monkeypatch.setattr(pools, "PATIENCE", 100.0)  # for a thread that does not end
    paused, pause = threading.Event(), waits.pause

    def noted(file: str, seconds: float) -> None:
        paused.set()
        pause(file, seconds)

    monkeypatch.setattr(retry, "pause", noted)
    items = PAUSES[way](waiting).prefetch(2).with_options(Options(on_error="skip", read_timeout=timeout)).iterator()
    taker = threading.Thread(target=take_until_closed, args=(items, []))
    taker.start()
    assert paused.wait(PATIENCE)

    began = time.monotonic()
    items.close()
    taker.join(PATIENCE)

    assert not taker.is_alive()
    assert time.monotonic() - began < 50
    assert items.errors == ()


@pytest.mark.alone
@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs signals to threads")
def test_ctrl_c_ends_the_pause_before_another_try(waiting: list[str], no_threads_left: None) -> None:
    items = chain(waiting, "records").iterator()
    timer = threading.Timer(0.3, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
    timer.start()
    began = time.monotonic()

    with pytest.raises(KeyboardInterrupt):
        next(items)

    assert time.monotonic() - began < PATIENCE
    timer.join()
    items.close()


def test_pauses_draw_from_no_generator_that_elements_or_users_draw_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [str(tmp_path / name) for name in written(tmp_path, "records")[:2]]

    def drawn() -> list[Any]:
        random.seed(7)
        np.random.seed(7)
        ds = chain(paths, "records", cycle=2).shuffle(50, seed=1)
        ds = ds.map(lambda r, rng: (r, rng.random()), rng=True, traced=False)
        return [list(ds.iterator(epoch=0)), random.random(), np.random.rand()]

    sound = drawn()
    LOCAL.close()
    disk = Disk(paths[0], lambda number, start, stop: errno.EIO if number % 2 else None).install(monkeypatch)

    assert drawn() == sound
    assert disk.failed
