"""The parts of the day about speed, and about what a training loop and CUDA graphs notice of the loader."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.gpu_day import inputs, threads
from benchmarks.gpu_day.day import Day
from benchmarks.gpu_day.parts import bench, capture, speed, stall, train
from benchmarks.gpu_day.threads import ThreadTimes, switch_interval
from gpupipe.comparison.photographs import Shot
from gpupipe.transform import machine

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="benchmarks need /proc")
needs_dali = pytest.mark.skipif(not machine.has_dali(), reason="DALI is not installed")


def burn(seconds: float) -> None:
    """Compute for that CPU time of this thread."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def test_a_dry_run_has_the_smallest_and_the_largest_photographs(day: Day, wet: Day) -> None:
    def sizes(day: Day) -> list[int]:
        shots = [Shot.of(number) for number in inputs.drawn(day)]
        sides = [[shot.height for shot in shots], [shot.width for shot in shots]]
        return [limit(side) for limit in (min, max) for side in sides]

    assert sizes(day) == sizes(wet) == [240, 300, 500, 640]
    assert len(set(inputs.photographs(day, 8))) == 4


@needs_dali
def test_the_chain_by_hand_runs_on_photographs_of_every_size_and_comes_first(day: Day) -> None:
    asked = speed.questions(day)
    names = list(asked)
    last = max(i for i, name in enumerate(names) if name.startswith("chain"))

    assert all(name.startswith("chain") for name in names[: last + 1]) and last >= 3
    assert asked[names[0]]()["images_s"] > 0


class FakeTorch:
    """A torch whose first product needs a handle, which cannot be made within a capture."""

    def __init__(self, fails_at: int = 0) -> None:
        self.fails_at = fails_at
        self.captures = 0
        self.capturing = self.warm = self.side = False
        self.cuda: Any = self
        self.CUDAGraph = lambda: SimpleNamespace(replay=lambda: None)
        self.current_stream = self.Stream = lambda: SimpleNamespace(wait_stream=lambda other: None)
        self.synchronize = lambda: None

    def randn(self, *_: Any, **__: Any) -> Any:
        return self

    def __matmul__(self, other: Any) -> None:
        if self.capturing and not self.warm:
            raise RuntimeError("CUBLAS_STATUS_NOT_INITIALIZED")
        if self.capturing and self.captures == self.fails_at:
            raise RuntimeError("operation not permitted when stream is capturing\nmore")
        self.warm = self.warm or self.side

    @contextlib.contextmanager
    def stream(self, _: Any) -> Iterator[None]:
        self.side = True
        yield
        self.side = False

    @contextlib.contextmanager
    def graph(self, _: Any, capture_error_mode: str) -> Iterator[None]:
        self.captures += 1
        self.capturing = True
        try:
            yield
        except RuntimeError:
            raise RuntimeError("operation failed due to a previous error during capture")  # noqa: B904 - as torch does
        finally:
            self.capturing = False


class Batches:
    """The loader's batches, of which one may fail."""

    def __init__(self, bad: int = -1) -> None:
        self._items = iter(range(4))
        self._bad = bad

    def iterator(self, epoch: int) -> Batches:
        return self

    def __enter__(self) -> Batches:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __next__(self) -> int:
        item = next(self._items)
        if item == self._bad:
            raise ValueError("no batch") from RuntimeError("cudaErrorStreamCaptureUnsafe")
        return item


@pytest.mark.parametrize(
    ("torch", "batches", "answer"),
    [
        (FakeTorch(), Batches(), {"captures": 4, "capture": "", "loader": ""}),
        (FakeTorch(2), Batches(), {
            "captures": 1, "loader": "",
            "capture": "RuntimeError: operation not permitted when stream is capturing"}),
        (FakeTorch(1), Batches(1), {
            "captures": 0, "capture": "RuntimeError: operation not permitted when stream is capturing",
            "loader": "RuntimeError: cudaErrorStreamCaptureUnsafe"}),
        (FakeTorch(), Batches(1), {
            "captures": 1, "capture": "", "loader": "RuntimeError: cudaErrorStreamCaptureUnsafe"}),
    ],
    ids=["none fails", "a capture", "a capture and the loader", "the loader"],
)  # fmt: skip
def test_captures_end_at_the_first_failure_with_the_error_that_came_first(
    wet: Day, monkeypatch: pytest.MonkeyPatch, torch: FakeTorch, batches: Batches, answer: dict[str, Any]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(capture, "photographs", lambda day, count: [])
    monkeypatch.setattr(capture, "chain", lambda day, files: batches)

    assert capture.questions(wet)["global"]() == answer

    (line,) = capture.summary({"global": answer})
    assert line.startswith(f"global: {answer['captures']} captures")
    assert all(answer[who] in line for who in ("capture", "loader"))
    assert capture.PART.alone


COMPARISON = """
import json, signal, sys, time
from pathlib import Path

words = sys.argv[1:]
out = Path(words[words.index("--out") + 1])
one = {name: {"median": 1.0} for name in ("items_per_s", "cpu_ms_per_item", "rate_ratio", "cpu_ratio")}
document = {"reference": "dali-gpu-fancy", "not_measured": {"dali-gpu-roi": "x"},
            "summary": {name: one for name in words[words.index("--contestants") + 1].split(",")}}

def write(stopped):
    (out / f"chain-gpu-{len(list(out.iterdir()))}.json").write_text(json.dumps({**document, **stopped}))

def stop(number, frame):
    write({"stopped": "SIGTERM after 2 of 6 pairs"})
    sys.exit(143)

kind = Path(sys.argv[0]).stem
signal.signal(signal.SIGTERM, stop)
if kind == "refused":
    sys.exit(2)
if kind == "long":
    time.sleep(60)
write({})
"""


def comparison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Comparisons of the part end at once, never, or without a result."""
    script = tmp_path / f"{kind}.py"
    script.write_text(COMPARISON)
    monkeypatch.setattr(bench, "tied", SimpleNamespace(command=lambda _, *words: [sys.executable, str(script), *words]))


def test_gpupipe_is_compared_first_and_a_comparison_that_is_refused_costs_no_other(
    wet: Day, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    comparison(tmp_path, monkeypatch, "quick")
    asked = bench.questions(wet)
    first, second = asked

    answers = {first: asked[first](), second: asked[second]()}

    assert answers[first]["contestants"].keys() == {"dali-gpu-fancy", "gpupipe-gpu"}
    assert answers[second]["contestants"].keys() == {"dali-gpu-fancy", "dali-gpu", "dali-gpu-roi"}
    lines = bench.summary(answers)
    assert lines[1].startswith("gpupipe-gpu: 1.0 images/s")
    assert lines[2:4] == ["dali-gpu-roi took no part: x", "chain-gpu-0.json"]
    comparison(tmp_path, monkeypatch, "refused")
    with pytest.raises(RuntimeError, match="the comparison ended with 2 and no result"):
        asked[second]()


def test_a_comparison_that_takes_too_long_is_asked_to_end_and_its_pairs_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    comparison(tmp_path, monkeypatch, "long")
    until = time.monotonic() + bench._ENDING + 2
    found = bench.questions(Day(False, True, str(tmp_path / "out"), str(tmp_path), until))["gpupipe"]()

    assert found["stopped"] == "SIGTERM after 2 of 6 pairs"
    assert bench.summary({"gpupipe": found})[-1].endswith("chain-gpu-0.json, stopped by SIGTERM after 2 of 6 pairs")
    assert time.monotonic() < until


def test_the_process_of_a_part_knows_when_it_ends(wet: Day) -> None:
    assert Day.from_json(wet.to_json()) == wet
    assert Day.from_json(Day(True, False, "", "", 12.5).to_json()).until == 12.5


def test_the_cpu_time_of_each_group_of_threads_is_told_apart() -> None:
    ready, go, seen, end = (threading.Event() for _ in range(4))

    def work() -> None:
        burn(0.05)  # before the measurement, of which it is no part
        ready.set()
        go.wait()
        burn(0.2)
        seen.set()
        end.wait()

    thread = threading.Thread(target=work, name="gpupipe-transform-batches")
    thread.start()
    ready.wait()
    times = ThreadTimes()
    go.set()
    burn(0.1)
    seen.wait()
    found = times.groups(10)
    end.set()
    thread.join()

    assert found["gpupipe"] == pytest.approx(20, abs=3)
    assert found["main"] == pytest.approx(10, abs=3)
    assert list(found)[:2] == ["gpupipe", "main"]


def test_a_thread_that_ends_counts_as_far_as_it_was_seen() -> None:
    times = ThreadTimes()
    for name in times.watching(("gpupipe-prefetch", "gpupipe-prefetch", "quick")):
        go, end = threading.Event(), threading.Event()

        def work(go: threading.Event = go, end: threading.Event = end) -> None:
            burn(0.05)
            go.set()
            end.wait()

        thread = threading.Thread(target=work, name=name)
        thread.start()
        go.wait()
        ending = threading.Timer(0.3, end.set)  # after it was seen
        ending.start()
        if name == "quick":
            end.set()
            thread.join()

    found = times.groups(10)

    assert found["gpupipe"] == pytest.approx(10, abs=3)
    # The kernel may still know a thread that was joined: then it has its own name.
    assert sum(ms for group, ms in found.items() if group not in ("gpupipe", "main")) == pytest.approx(5, abs=3)


def test_a_thread_that_ends_while_its_name_is_read_still_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_group", lambda thread: "main" if thread == os.getpid() else "ended")
    times = ThreadTimes()
    seen, end = threading.Event(), threading.Event()

    def work() -> None:
        burn(0.05)
        seen.set()
        end.wait()

    thread = threading.Thread(target=work)
    thread.start()
    seen.wait()
    found = times.groups(10)
    end.set()
    thread.join()

    assert found["ended"] == pytest.approx(5, abs=3)


@needs_dali
def test_the_threads_of_a_pipeline_are_dali_s(day: Day) -> None:
    ds = inputs.chain(day, inputs.photographs(day, 8), backend="dali").repeat()
    with ds.iterator(0) as items:
        next(items)
        times = ThreadTimes()
        for _ in range(8):
            next(items)
        found = times.groups(32)

    assert found["DALI"] > 0 and found["gpupipe"] > 0
    assert not set(found) & {"", "gpupipe-transform"}


def test_threads_take_turns_as_before_afterwards() -> None:
    before = sys.getswitchinterval()
    with pytest.raises(ValueError, match="a step"), switch_interval(0.0005):
        assert sys.getswitchinterval() == pytest.approx(0.0005)
        raise ValueError("a step")
    with switch_interval(None):
        assert sys.getswitchinterval() == before
    assert sys.getswitchinterval() == before


@needs_dali
def test_a_step_beside_the_loader_says_whose_the_cpu_time_was(day: Day) -> None:
    found = stall.questions(day)["on the host"]()

    assert found["loader_ms"] > 0 and found["threads"]["main"] > 0
    (line,) = stall.summary({"on the host": found})
    assert f"a batch alone {found['loader_ms']} ms; CPU-ms an image by thread: " in line
    assert stall.summary({"old": {"alone_ms": 1, "beside_ms": 2, "loader_ms": 3}}) == [
        "old: a step takes 1 ms alone, 2 ms with the loader; a batch alone 3 ms"
    ]


def test_a_training_step_names_the_batches_alone_and_the_threads() -> None:
    one = {"ms": 100.0, "images_s": 1, "cpu_ms": 1, "batch_ms": 26.1, "threads": {"DALI": 0.6, "main": 0.2}}

    (line,) = train.summary({"the loader": one})

    assert line.endswith("; a batch alone 26.1 ms; CPU-ms an image by thread: DALI 0.6, main 0.2")


@needs_dali
def test_a_loader_beside_a_training_loop_is_measured_alone_too(day: Day) -> None:
    pytest.importorskip("torch")
    asked = train.questions(day)

    found = asked["the loader, turns of 0.5 ms"]()

    assert found["batch_ms"] > 0 and found["ms"] > 0 and found["threads"]["main"] > 0
    assert "batch_ms" not in asked["a batch that stays"]()
