"""Datasets of a manifest: the records of its files by index, over URLs too, with few requests."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import gpupipe as gp
from gpupipe import Options, TFRecordDataset, ops
from gpupipe.errors import MissingFileError, PlanTypeError, RecordError
from gpupipe.extract.records.manifest import AGAIN
from gpupipe.extract.records.manifest_writer import write_manifest
from gpupipe.extract.storage import retry
from gpupipe.flow.sources import far_records
from tests.behaviour.manifests import pretended, written

pytest.importorskip("fsspec")

from tests.reliability.faulty import Faulty, every
from tests.reliability.resume import taken

COUNTS = [5, 0, 12, 1, 30]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits long before another try."""
    monkeypatch.setattr(retry, "PAUSE", 0.001)
    retry.GIVEN_UP.clear()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Faulty]:
    """A server of the files of a folder, with their manifest."""
    written(tmp_path / "d", COUNTS)
    with Faulty(tmp_path / "d", keeps=True).serving() as found:
        yield found


def flat(values: list[list[bytes]]) -> list[bytes]:
    return [value for file in values for value in file]


def drawn(ds: gp.Dataset) -> list[float]:
    """A random number for each record."""
    return [float(x) for x in ds.map(lambda record: ops.random_uniform(0, 1)).epoch(3)]


def test_the_elements_are_those_of_the_files_in_order(tmp_path: Path) -> None:
    manifest, paths, values = written(tmp_path, COUNTS)

    ds = TFRecordDataset.from_manifest(manifest)

    assert list(map(bytes, ds)) == flat(values) == list(map(bytes, TFRecordDataset(paths)))
    assert len(ds) == 48
    assert [bytes(ds[i]) for i in (0, 4, 5, 17, 18, 47, -1)] == [flat(values)[i] for i in (0, 4, 5, 17, 18, 47, -1)]
    near = TFRecordDataset(paths)
    assert drawn(ds) == drawn(near)
    assert drawn(ds.shuffle(gp.ALL, seed=1)) == drawn(near.shuffle(gp.ALL, seed=1)) != drawn(near)
    with pytest.raises(MissingFileError, match=r"nothing\.gpindex"):
        TFRecordDataset.from_manifest(tmp_path / "nothing.gpindex")
    with pytest.raises(PlanTypeError, match="from_manifest needs a manifest that is a path or URL"):
        TFRecordDataset.from_manifest(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("fault", ["503", "drop", "flip", "short"])
def test_over_a_url_and_passing_faults_of_its_server_nothing_changes(
    server: Faulty, fault: str, tmp_path: Path
) -> None:
    near = TFRecordDataset.from_manifest(tmp_path / "d" / "files.gpindex")
    far = TFRecordDataset.from_manifest(server.url("files.gpindex"))
    assert list(map(bytes, far)) == list(map(bytes, near))
    assert [bytes(far[i]) for i in (40, 3)] == [bytes(near[i]) for i in (40, 3)]
    server.fault = every(5, fault)

    assert drawn(far.shuffle(gp.ALL, seed=1)) == drawn(near.shuffle(gp.ALL, seed=1))
    assert server.faults


def test_a_rank_of_many_starts_with_three_requests(tmp_path: Path) -> None:
    """`benchmarks far` has the seconds that it takes."""
    pretended(tmp_path / "files.gpindex", [128] * 10_000, scheme=b"faulty")
    with Faulty(tmp_path, keeps=True).serving() as server:
        url = server.url("files.gpindex")

        ds = TFRecordDataset.from_manifest(url).shuffle(gp.ALL, streams=1024, window=1250, seed=1)
        rank = ds.batch(8192).by_rank(517, 1024, check=False)
        steps, state = len(rank), rank.iterator(epoch=0).state_dict()

        assert server.gets + server.heads <= 3
    assert steps == 156
    assert state["files"]["count"] == 10_000


def test_records_that_come_next_are_requested_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(far_records, "RANGE", 1 << 10)
    manifest, _, values = written(tmp_path / "d", [200] * 2, size=40)
    with Faulty(tmp_path / "d", keeps=True, delay=0.02).serving() as server:
        ds = TFRecordDataset.from_manifest(server.url(os.path.basename(manifest))).shuffle(gp.ALL, seed=1)
        few = ds.with_options(Options(host_memory=4096))

        assert sorted(map(bytes, few)) == sorted(flat(values))

        alone = server.gets
        assert server.most >= 2
        server.delay = 0.3  # in which a machine with much to do sends 16 requests, too
        assert sorted(map(bytes, ds)) == sorted(flat(values))
        assert server.most >= 16
    assert alone >= 400  # each record by itself, where four ranges are all that may be held


def test_each_file_is_compared_once_and_many_at_a_time(tmp_path: Path) -> None:
    manifest, _, values = written(tmp_path, [3] * 60)
    with Faulty(tmp_path, keeps=True, delay=0.3).serving() as server:  # in which a slow machine sends 8, too
        ds = TFRecordDataset.from_manifest(server.url(os.path.basename(manifest))).shuffle(gp.ALL, seed=1)

        assert sorted(map(bytes, ds)) == sorted(flat(values))

        assert server.most_heads >= 8
        assert server.heads == 1 + 60


def test_an_iterator_that_is_closed_early_leaves_no_thread_and_asks_for_no_more(tmp_path: Path) -> None:
    manifest, _, _ = written(tmp_path, [300] * 20, size=100)
    with Faulty(tmp_path, keeps=True, delay=0.05).serving() as server:
        ds = TFRecordDataset.from_manifest(server.url(os.path.basename(manifest))).shuffle(gp.ALL, seed=1)
        with ds.with_options(Options(host_memory=1 << 20)).iterator(epoch=0) as items:
            next(items)
        asked = server.gets
        time.sleep(0.2)

        assert server.gets == asked < 600
    assert [thread.name for thread in threading.enumerate() if "gpupipe-remote" in thread.name] == []


def test_a_file_of_another_size_is_an_error_that_says_what_to_do(server: Faulty, tmp_path: Path) -> None:
    with open(tmp_path / "d" / "002.tfrecord", "ab") as file:
        file.write(b"more")
    ds = TFRecordDataset.from_manifest(server.url("files.gpindex"))

    with pytest.raises(RecordError, match=r"002\.tfrecord.* lists 230 bytes, and the file has 234: it has changed"):
        list(ds)
    with pytest.raises(RecordError, match="gpupipe index FILES --out MANIFEST"):
        ds[5]
    assert len(list(ds.with_options(Options(on_error="skip")))) == 36
    assert len(list(ds.with_options(Options(on_error="replace")))) == 48


def test_a_file_of_another_time_is_an_error_and_a_copy_with_the_same_time_is_none(tmp_path: Path) -> None:
    manifest, paths, _ = written(tmp_path / "d", COUNTS)
    shutil.copytree(tmp_path / "d", tmp_path / "e")
    assert len(list(TFRecordDataset.from_manifest(tmp_path / "e" / "files.gpindex"))) == 48

    for before, now in ((None, 1), (1, -1), (-1, -5_000_000_000)):
        if before is not None:
            write_manifest(paths, manifest, 1)
        os.utime(paths[4], ns=(1, now))

        with pytest.raises(RecordError, match=r"004\.tfrecord.* another version of this file: its time or version"):
            list(TFRecordDataset.from_manifest(manifest))


def test_a_missing_file_is_an_error_of_each_of_its_records(tmp_path: Path) -> None:
    manifest, paths, _ = written(tmp_path, COUNTS)
    os.unlink(paths[2])

    found = taken(iter(TFRecordDataset.from_manifest(manifest)))

    assert [i for i, (kind, _) in enumerate(found) if kind == "error"] == list(range(5, 17))
    assert len(found) == 48 and "no such file" in found[5][1]


def test_a_damaged_file_counts_as_it_does_on_a_disk(tmp_path: Path) -> None:
    manifest, paths, _ = written(tmp_path, [20, 20])
    data = bytearray(Path(paths[1]).read_bytes())
    data[3 * 19 + 9] ^= 1  # the checksum of a length
    Path(paths[1]).write_bytes(data[:-3])
    listed = write_manifest(paths, manifest, 1)

    found, near = taken(iter(TFRecordDataset.from_manifest(manifest))), taken(iter(TFRecordDataset(paths)))

    assert listed.damaged == 2
    assert [kind for kind, _ in found] == [kind for kind, _ in near]
    assert AGAIN in found[23][1]


def test_a_state_resumes_in_the_middle_and_asks_for_no_file(server: Faulty) -> None:
    ds = TFRecordDataset.from_manifest(server.url("files.gpindex")).shuffle(gp.ALL, seed=1).batch(5)
    first = ds.iterator(epoch=0)
    for _ in range(4):
        next(first)
    heads = server.heads

    state = first.state_dict()

    assert server.heads == heads
    again = ds.iterator(epoch=0)
    again.load_state_dict(state)
    assert [list(batch) for batch in again] == [list(batch) for batch in first]


def test_other_files_refuse_a_state(tmp_path: Path) -> None:
    manifest, _, _ = written(tmp_path / "a", COUNTS)
    other, _, _ = written(tmp_path / "b", [5, 0, 12, 1, 31])
    state = TFRecordDataset.from_manifest(manifest).iterator(epoch=0).state_dict()

    with pytest.raises(gp.StateError, match=r"004\.tfrecord"):
        TFRecordDataset.from_manifest(other).iterator(epoch=0).load_state_dict(state)
