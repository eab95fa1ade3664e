"""Dataset.profile(): what it measures of chains that really run. `test_profile_model.py` has what it concludes."""

from __future__ import annotations

import io
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import gpupipe as gp
from gpupipe import Dataset, ops, progress
from gpupipe.comparison.photographs import write_shards
from gpupipe.errors import MissingDependencyError, PlanError
from gpupipe.load.stats import IteratorStats, QueueStats, StepStats
from gpupipe.profile.report import Profile
from gpupipe.timing import TRACKER
from gpupipe.transform.machine import has_dali
from tests.behaviour import test_process_functions as functions
from tests.reliability.resume import plain
from tests.test_progress import Terminal

NAP = 0.02  # seconds; everything else in a step of these chains takes a hundredth of it
LEAST = NAP / 2  # of what is counted for a step of the loop: up to a third was made ahead, before the count starts


def _slow(x: Any) -> Any:
    time.sleep(NAP)
    return x


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("shards")
    write_shards(folder, 24, 3)
    return str(folder / "*.tfrecord")


def _image(record: Any) -> Any:
    x = gp.io.parse_single_example(record, {"image/encoded": gp.io.FixedLenFeature((), bytes)})
    return ops.resize(ops.decode_jpeg(x["image/encoded"], channels=3), (16, 16))


def _images(shards: str, threads: int = 2) -> Dataset:
    records = Dataset.list_files(shards, seed=1).interleave(gp.TFRecordDataset, cycle_length=2).shuffle(8, seed=1)
    return records.map(_image).batch(3).with_options(gp.Options(device="cpu", backend="numpy", threads=threads))


def _seconds(profile: Profile, step: str) -> float:
    return sum(part.seconds for part in profile.parts if step in part.step)


def test_a_slow_function_is_named_with_its_line() -> None:
    profile = Dataset.range(20).map(_slow).prefetch(2).profile(8, warmup=2)

    assert (profile.steps, profile.rows) == (8, 8)
    assert profile.verdict.kind == "python"
    assert "map(_slow())" in profile.verdict.step
    assert "test_profile.py:" in profile.verdict.line
    assert _seconds(profile, "map") >= LEAST
    assert profile.waiting_share > 0.9
    assert "the bottleneck is a Python function: map(_slow())" in str(profile)
    document = json.loads(profile.json())
    assert (document["steps"], document["verdict"]["kind"], document["queues"][0]["step"]) == (
        8,
        "python",
        "prefetch(2)",
    )
    assert {part["resource"] for part in document["parts"]} >= {"the loop's thread", "gpupipe-prefetch"}


@pytest.mark.skipif(not has_dali(), reason="DALI is not installed")
def test_images_that_the_host_decodes_for_dali_are_work_of_their_stage() -> None:
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (96, 96, 4), np.uint8), "CMYK").save(file, "JPEG")
    dataset = Dataset.from_tensor_slices([file.getvalue()] * 24)
    dataset = dataset.map(lambda data: ops.resize(ops.decode_jpeg(data, channels=3), (8, 8))).batch(4)

    profile = dataset.with_options(gp.Options(device="cpu", backend="dali")).profile(4, warmup=1)

    (stage,) = (part for part in profile.parts if part.kind == "executor" and part.resource == part.step)
    assert stage.seconds == stage.cpu > 0
    assert str(profile.verdict)


def test_work_in_threads_and_processes_belongs_to_its_step() -> None:
    threads = Dataset.range(24).map(_slow, num_parallel_calls=3).profile(12, warmup=3)
    processes = (
        Dataset.range(24).map(functions.process_of, num_parallel_calls=2, workers="process").profile(9, warmup=4)
    )

    (pool,) = (part for part in threads.parts if "3 threads" in part.resource)
    assert pool.seconds >= LEAST
    assert threads.verdict.mend is not None
    assert "num_parallel_calls=6" in threads.verdict.mend.change
    (far,) = (part for part in processes.parts if part.resource.startswith("processes"))
    assert far.seconds >= LEAST > far.cpu
    assert processes.verdict.kind == "python"


def test_the_loop_itself_may_be_slow() -> None:
    seen: list[Any] = []

    def consumer(x: Any) -> None:
        time.sleep(NAP)
        seen.append(int(x))

    profile = Dataset.range(20).prefetch(2).profile(6, warmup=2, consumer=consumer)
    by_seconds = Dataset.range(20).prefetch(2).profile(6, warmup=2, consumer=NAP)

    assert seen == list(range(8))
    assert profile.verdict.kind == by_seconds.verdict.kind == "loop"
    assert min(profile.waiting_share, by_seconds.waiting_share) < 0.1  # one of them may meet a busy machine


def test_storage_is_apart_from_what_reads_it(shards: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from gpupipe.extract.storage import files

    real = files._pread_into

    def slow(fd: int, out: memoryview, offset: int) -> int:
        time.sleep(NAP)
        return real(fd, out, offset)

    monkeypatch.setattr(files, "_pread_into", slow)
    records = Dataset.list_files(shards, seed=1).interleave(gp.TFRecordDataset).shuffle(4, seed=1)
    features = {"image/class/label": gp.io.FixedLenFeature((), "int64")}
    parsed = records.map(lambda record: gp.io.parse_single_example(record, features))
    profile = parsed.prefetch(1).profile(8, warmup=2)

    assert profile.verdict.kind == "storage"
    assert _seconds(profile, "storage") >= LEAST
    assert _seconds(profile, "host:") < LEAST


def test_a_stage_of_images_has_its_parts(shards: str) -> None:
    profile = _images(shards).profile(5, warmup=1)

    steps = {part.step for part in profile.parts}
    assert {"stage 1: NumPy on CPU", "stage 1: NumPy on CPU, host values", "payloads of the records"} <= steps
    assert any("parse_single_example" in step for step in steps)
    assert profile.rows == 15
    assert profile.cpu_ms_per_row > 0
    stage = next(part for part in profile.parts if part.resource == "stage 1: NumPy on CPU")
    assert stage.cpu > 0
    assert "test_profile.py:" in stage.line
    assert [queue.step for queue in profile.queues] == ["stage 1: NumPy on CPU"]


@pytest.mark.parametrize(
    "make",
    [
        lambda s: Dataset.range(40).shuffle(9, seed=3).skip(3).shard(2, 1).batch(4).prefetch(1),
        lambda s: Dataset.zip((Dataset.range(20).map(float), Dataset.range(20).prefetch(2))).batch(3),
        lambda s: Dataset.range(6).interleave(lambda x: Dataset.range(x).map(str), 3, num_parallel_calls=2),
        lambda s: Dataset.range(30).filter(lambda x: x % 3 == 0).repeat(2).enumerate(),
        lambda s: Dataset.range(8).shuffle(gp.ALL, seed=5).unique().concatenate(Dataset.range(3)),
        lambda s: _images(s),
    ],
)  # fmt: skip
def test_a_profile_changes_no_element(make: Callable[[str], Dataset], shards: str) -> None:
    seen: list[Any] = []
    ds = make(shards)
    profile = ds.profile(1000, warmup=0, consumer=seen.append)
    expected = list(ds.iterator(epoch=0))

    assert profile.steps == len(seen) == len(expected)
    assert list(map(plain, seen)) == list(map(plain, expected))


def test_a_profile_is_of_the_epoch_of_first_and_counts_as_none() -> None:
    ds = Dataset.range(50).shuffle(50)
    ds.set_epoch(4)
    seen: list[Any] = []
    ds.profile(50, warmup=0, consumer=seen.append)

    assert seen == list(ds.iterator(epoch=4))
    loop = iter(ds)
    next(loop)
    assert loop.epoch == 4


def test_nothing_is_measured_outside_of_a_profile() -> None:
    Dataset.range(20).map(_slow).prefetch(1).profile(2, warmup=0)

    assert TRACKER.get() is None
    items = iter(Dataset.range(3).prefetch(1))
    next(items)
    assert items._items._channel._log is None  # nor do queues keep a log of times


def test_a_trace_has_spans_that_do_not_overlap_in_a_row(tmp_path: Path, shards: str) -> None:
    profile = _images(shards).profile(4, warmup=1, consumer=0.001)
    profile.chrome_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]

    names = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert any("gpupipe-numpy" in name for name in names)
    assert any(name.endswith(": the loop") for name in names)
    ends: dict[int, float] = {}
    spans = [event for event in events if event["ph"] == "X"]
    for event in sorted(spans, key=lambda event: float(event["ts"])):
        assert event["dur"] >= 0 <= event["ts"]
        assert event["ts"] >= ends.get(event["tid"], 0.0) - 0.2  # rounded to a tenth of a microsecond
        ends[event["tid"]] = event["ts"] + event["dur"]


def test_a_timeline_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra plot is not installed")
    profile = Dataset.range(20).map(_slow).prefetch(2).profile(4, warmup=1, consumer=NAP)
    profile.plot(tmp_path / "all.png")
    profile.plot(tmp_path / "end.svg", seconds=60)
    for seconds in (0, -1.0, float("nan"), "1"):
        with pytest.raises(PlanError, match=r"Profile\.plot needs seconds > 0"):
            profile.plot(tmp_path / "never.png", seconds=seconds)  # type: ignore[arg-type]
    profile.plot(tmp_path / "plain")
    with pytest.raises(PlanError, match=r"suffix of a format \(.*png.*\), got '.*a\.txt'"):
        profile.plot(str(tmp_path / "a.txt"))
    assert not (tmp_path / "a.txt").exists()

    assert (tmp_path / "all.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "plain").read_bytes().startswith(b"\x89PNG")
    assert "map(_slow())" in (tmp_path / "end.svg").read_text()


def test_a_timeline_needs_matplotlib(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    profile = Dataset.range(5).profile(3, warmup=0)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)

    with pytest.raises(MissingDependencyError, match="pip install matplotlib"):
        profile.plot(tmp_path / "a.png")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"steps": 0}, "steps"),
        ({"warmup": -1}, "warmup"),
        ({"consumer": -1.0}, "seconds from 0 to 3600"),
        ({"consumer": "fast"}, "a consumer that is a function"),
        ({"seconds": "1"}, "profile needs seconds > 0, got '1'"),
        ({"seconds": 0}, "seconds > 0"),
        ({"warmup": 20}, "more elements than its warm-up of 20, got 5"),
    ],
)
def test_wrong_arguments_of_profile(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(PlanError, match=text):
        Dataset.range(5).profile(**arguments)


def test_a_profile_ends_after_its_seconds() -> None:
    profile = Dataset.counter().map(_slow).profile(10_000, warmup=0, seconds=5 * NAP)

    assert profile.steps < 100


def test_progress_shows_a_line_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setattr(progress, "INTERVAL", 0.0)
    elements = list(Dataset.range(4).batch(2).progress())

    assert len(elements) == 2
    text = terminal.getvalue()
    assert "epoch: 2/2 elements, " in text and " rows/s, waited " in text and text.endswith("\n")


def test_an_error_of_the_chain_or_of_the_consumer_is_raised() -> None:
    def fails(x: Any) -> Any:
        raise ValueError("bad element")

    with pytest.raises(gp.DataError, match="bad element"):
        Dataset.range(5).map(fails).profile(2, warmup=0)
    with pytest.raises(ValueError, match="bad element"):
        Dataset.range(5).profile(2, warmup=0, consumer=fails)


# ---- iterator.stats(): what every run counts about its loop, its threads, its queues and its reads


def _ended(ds: Dataset, nap: float = 0.0) -> IteratorStats:
    items = iter(ds)
    for _ in items:
        time.sleep(nap)
    return items.stats()


def _step(stats: IteratorStats, name: str) -> StepStats:
    (found,) = (step for step in stats.steps if name in step.step)
    return found


def _queue(stats: IteratorStats, name: str) -> QueueStats:
    (found,) = (queue for queue in stats.queues if name in queue.step)
    return found


def test_elements_and_rows_are_counted() -> None:
    single, batches = _ended(Dataset.range(25)), _ended(Dataset.range(25).batch(10))

    assert (single.elements, single.rows) == (25, 25)
    assert (batches.elements, batches.rows) == (3, 25)


def test_time_in_next_is_waiting_and_time_outside_is_not() -> None:
    waits, works = _ended(Dataset.range(6).map(_slow)), _ended(Dataset.range(6), NAP)

    # A sleep takes at least its time, on a loaded machine more: nothing is asserted to be short.
    assert waits.seconds >= waits.waiting >= 5 * NAP  # the first element is apart
    assert waits.startup >= NAP
    assert works.seconds - works.waiting >= 5 * NAP
    assert waits.waiting_share == waits.waiting / waits.seconds


def test_only_what_this_iterator_delivered_is_counted() -> None:
    ds = Dataset.range(20).batch(2)
    first = iter(ds)
    for _ in range(7):
        next(first)
    second = iter(ds)
    second.load_state_dict(first.state_dict())

    assert len(list(second)) == 3
    assert (second.stats().elements, second.stats().rows) == (3, 6)


def test_a_queue_is_full_before_a_slow_loop_and_empty_behind_a_slow_step() -> None:
    full = _queue(_ended(Dataset.range(8).prefetch(2), NAP), "prefetch(2)")
    empty = _queue(_ended(Dataset.range(8).map(_slow).prefetch(2)), "prefetch(2)")

    assert (full.taken, empty.taken, full.most) == (8, 8, 2)
    assert full.fill > 1.0 > empty.fill
    assert full.full > 4 * NAP > full.empty
    assert empty.empty > 4 * NAP > empty.full
    assert "test_profile.py:" in full.line


def test_workers_count_their_work() -> None:
    processes = Dataset.range(6).map(functions.process_of, num_parallel_calls=2, workers="process")
    far = _step(_ended(processes), "map")
    assert (far.workers, far.elements, far.processes) == (2, 6, True)
    assert far.worked >= 6 * NAP
    threads = _step(_ended(Dataset.range(8).map(_slow, num_parallel_calls=4)), "map")
    again = _step(_ended(Dataset.range(4).map(_slow, num_parallel_calls=2).repeat(3)), "map")

    assert (threads.workers, threads.elements, threads.processes) == (4, 8, False)
    assert threads.worked >= 8 * NAP
    assert threads.cpu_seconds < threads.worked / 2  # a function that sleeps takes none
    assert (again.workers, again.elements) == (2, 12)


@pytest.mark.parametrize("close", [False, True])
def test_work_after_the_end_of_an_iterator_is_not_counted(close: bool) -> None:
    items = iter(Dataset.range(9))
    for _ in items:
        if close:
            items.close()
            break
    before = items.stats().cpu_seconds

    until = time.process_time() + 0.05
    while time.process_time() < until:
        pass

    assert items.stats().cpu_seconds == before


def test_reads_are_counted_with_their_bytes(tmp_path: Path) -> None:
    (path,) = write_shards(tmp_path, 4, 1)
    stats = _ended(gp.TFRecordDataset([str(path)]))

    assert stats.read_bytes >= path.stat().st_size
    assert stats.reads > 0
    assert 0 < stats.read_seconds < stats.startup + stats.seconds


def test_a_stage_counts_its_rows_and_threads(shards: str) -> None:
    stats = _ended(_images(shards))

    host, run = _step(stats, "host values"), stats.steps[-1]
    assert (host.elements, run.elements, run.workers) == (24, 24, 2)
    assert run.step == "stage 1: NumPy on CPU"
    assert run.bytes == 24 * 16 * 16 * 3 * np.dtype(np.float32).itemsize
    assert min(host.seconds, host.cpu_seconds, run.worked, run.cpu_seconds) > 0
    assert _queue(stats, "stage 1").taken == 8
    assert "stage 1: NumPy on CPU" in str(stats)


def test_counts_go_on_after_an_interrupt() -> None:
    calls: list[int] = []

    def struck(x: int) -> int:
        calls.append(x)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return x

    items = iter(Dataset.range(8).map(struck, num_parallel_calls=1))
    with pytest.raises(KeyboardInterrupt):
        list(items)
    list(items)

    assert items.stats().elements == 8
    assert _step(items.stats(), "map").elements >= 8
