"""The part of the day that climbs from DALI by hand to the chain, step by step."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pkgutil
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.gpu_day import inputs
from benchmarks.gpu_day.day import Day
from benchmarks.gpu_day.parts import overlap
from gpupipe.transform import machine

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="benchmarks need /proc")
needs_dali = pytest.mark.skipif(not machine.has_dali(), reason="DALI is not installed")


@needs_dali
def test_each_step_of_the_ladder_is_measured_and_its_functions_are_put_back(day: Day) -> None:
    places = [*overlap._STEPS.values(), *overlap._FUNCTIONS.values()]
    before = [pkgutil.resolve_name(place) for place in places]

    found = {name: ask() for name, ask in overlap.questions(day).items()}

    assert [pkgutil.resolve_name(place) for place in places] == before
    assert all(one["images_s"] > 0 and one["threads"] for one in found.values())
    watched = {name: one["watched"] for name, one in found.items() if "watched" in one}
    assert list(watched) == [
        "the chain's executor in a loop", "images and labels from memory, watched", "from TFRecords, watched"
    ]  # fmt: skip
    loop, memory, records = watched.values()
    assert {name: one["calls"] for name, one in loop["main"].items()} == dict.fromkeys(overlap._STEPS, 1)
    for one in (memory, records):
        assert {"next group", "prepare"} <= one["feeder"].keys()
        assert {"look at headers", "feed_input", "schedule_run", "share_outputs"} <= one["runner"].keys()
    # On two CPUs or fewer the feeder reads.
    reads = ["read payloads" in {name for called in one.values() for name in called} for one in (records, memory)]
    assert reads == [True, False]


@needs_dali
def test_the_graph_alone_gets_what_the_executor_fed_for_one_batch(day: Day, monkeypatch: pytest.MonkeyPatch) -> None:
    from nvidia.dali.pipeline import Pipeline

    fed: list[tuple[Any, str, Any]] = []
    feed_input = Pipeline.feed_input

    def noted(pipeline: Any, name: str, data: Any, **options: Any) -> None:
        fed.append((pipeline, name, data))
        feed_input(pipeline, name, data, **options)

    monkeypatch.setattr(Pipeline, "feed_input", noted)

    overlap._graph(day)

    inputs = len({name for _, name, _ in fed})
    alone = fed[-inputs:]
    assert inputs > 1 and fed[-2 * inputs : -inputs] == alone
    assert len({id(pipeline) for pipeline, _, _ in alone}) == 1


def test_spans_tell_waiting_from_computing_by_thread_and_begin_when_they_are_told_to() -> None:
    spans = overlap._Spans()
    wait = spans.timed("prepare", time.sleep)

    wait(0.05)
    spans.since = time.perf_counter()
    threads = [threading.Thread(target=wait, args=(0.05,), name=f"gpupipe-reader-{i}") for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with pytest.raises(TypeError, match="str"):
        wait("long")

    found = spans.of_a_batch(2)
    assert {role: [*names] for role, names in found.items()} == {"readers": ["prepare"], "main": ["prepare"]}
    readers = found["readers"]["prepare"]
    assert readers["calls"] == 1 and readers["ms"] >= 50 and readers["cpu_ms"] < 25
    assert found["main"]["prepare"]["calls"] == 0.5


def test_functions_are_put_back_if_one_of_them_is_not_there() -> None:
    place = overlap._FUNCTIONS["prepare"]
    before = pkgutil.resolve_name(place)

    with pytest.raises(AttributeError, match="_gone"), overlap._watching({"prepare": place, "gone": f"{place}_gone"}):
        pass

    assert pkgutil.resolve_name(place) is before


@pytest.mark.parametrize("status", [0, 3], ids=["started", "not started"])
def test_connections_are_set_only_before_cuda_starts(wet: Day, monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    def setting() -> str | None:
        return os.environ.get("CUDA_DEVICE_MAX_CONNECTIONS")

    monkeypatch.delenv("CUDA_DEVICE_MAX_CONNECTIONS", raising=False)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace(cuDeviceGetCount=lambda count: status))
    refused = pytest.raises(RuntimeError, match="process of its own") if status == 0 else contextlib.nullcontext()

    with refused, overlap._connections(wet):
        assert setting() == "32"

    assert setting() is None


def test_shards_are_written_once_a_day(day: Day) -> None:
    import gpupipe as gp

    paths = overlap._shards(day)
    before = [path.stat().st_mtime_ns for path in paths]

    again = overlap._shards(day)

    assert [path.stat().st_mtime_ns for path in again] == before
    records = list(gp.TFRecordDataset([str(path) for path in paths]))
    features = {
        "image/encoded": gp.io.FixedLenFeature((), bytes),
        "image/class/label": gp.io.FixedLenFeature((), "int64"),
    }
    parsed = [gp.io.parse_single_example(record, features) for record in records]
    labels = [int(one["image/class/label"]) for one in parsed]
    assert sorted(labels) == list(range(64)) and len(paths) == 8
    files = inputs.photographs(day, 64)
    assert all(bytes(one["image/encoded"]) == files[label] for one, label in zip(parsed, labels, strict=True))


def test_the_steps_of_the_ladder_are_compared_with_the_rate_by_hand() -> None:
    hand = {"images_s": 14000, "ms_batch": 18.29, "cpu_ms": 0.6, "threads": {"DALI": 0.6}}
    span = {"calls": 32.0, "ms": 25.5, "cpu_ms": 10.25}
    chain = {"images_s": 7000, "ms_batch": 36.57, "cpu_ms": 0.7, "threads": {"DALI": 0.6, "gpupipe": 0.1},
             "watched": {"readers": {"read payloads": span}}}  # fmt: skip

    assert overlap.summary({"by hand": hand, "from TFRecords, watched": chain}) == [
        "by hand: 14000 images/s, 0.6 CPU-ms; CPU-ms an image by thread: DALI 0.6",
        "from TFRecords, watched: 7000 images/s, 0.7 CPU-ms, 0.50 of the rate by hand; "
        "CPU-ms an image by thread: DALI 0.6, gpupipe 0.1",
        "  a batch takes 36.57 ms            calls      ms  CPU-ms   waits",
        "  readers   read payloads            32.0   25.50   10.25   15.25",
    ]
