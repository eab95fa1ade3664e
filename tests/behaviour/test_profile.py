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
        profile.plot(tmp_path / "a.txt")
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
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setattr(progress, "INTERVAL", 0.0)
    elements = list(Dataset.range(4).batch(2).progress())

    assert len(elements) == 2
    text = sys.stderr.getvalue()  # type: ignore[attr-defined]
    assert "epoch: 2/2 elements, " in text and " rows/s, waited " in text and text.endswith("\n")


def test_an_error_of_the_chain_or_of_the_consumer_is_raised() -> None:
    def fails(x: Any) -> Any:
        raise ValueError("bad element")

    with pytest.raises(gp.DataError, match="bad element"):
        Dataset.range(5).map(fails).profile(2, warmup=0)
    with pytest.raises(ValueError, match="bad element"):
        Dataset.range(5).profile(2, warmup=0, consumer=fails)
