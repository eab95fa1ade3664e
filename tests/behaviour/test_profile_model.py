"""What a profile concludes: chains with made-up times, so that every prediction is known exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import pytest

from gpupipe import timing
from gpupipe.load.stats import IteratorStats, StepStats
from gpupipe.profile.measure import Measurement, Slice, Turn
from gpupipe.profile.model import Model, queued
from gpupipe.profile.trace import rows_of
from gpupipe.profile.verdict import Verdict, judge
from gpupipe.timing import Clock, Log, Meter, Span, Tracker

STEPS = 100
MAP = Meter("map(f)", "a.py:3", "python")
POOL = Meter("map(f) in 2 threads", "a.py:3", "workers")
HOST = Meter("host: parse", "a.py:2", "host")
STAGE = Meter("stage 1: NumPy on CPU", "a.py:4", "executor")
ON_GPU = Meter("stage 1: DALI on GPU 0", "a.py:4", "executor")


def _slice(meter: Meter, ms: float, cpu: float = 0.0, thread: str = "gpupipe-prefetch", carried: bool = False) -> Slice:
    """`ms` milliseconds in each step, `cpu` of these CPU time."""
    looping = thread == "MainThread"
    work = None if looping else MAP
    return Slice(meter, thread, work, looping, carried, STEPS, ms * STEPS / 1e3, (ms - cpu) * STEPS / 1e3)


def _measured(
    slices: Sequence[Slice],
    wait: float,
    loop: float,
    made: Sequence[float] = (),
    room: int = 2,
    cpu: float = 0.0,
    workers: int = 0,
    flights: Sequence[tuple[str, float, float, float]] = (),
) -> Measurement:
    """A window in which the loop waits and works so many milliseconds in each step; `made` is what the queue gets."""
    period = (wait + loop) / 1e3
    turns = [Turn(i * period, i * period + wait / 1e3, (i + 1) * period) for i in range(STEPS)]
    log = Log("prefetch(2)", "a.py:9", room, takers={"MainThread"})
    log.puts += [(at / 1e3, at / 1e3) for at in accumulate(made)]
    log.gets += [(turn.asked, turn.got) for turn in turns]
    stats = IteratorStats(), IteratorStats(steps=(StepStats(STAGE.step, workers=workers),))
    logs, seconds = [log] if made else [], cpu * STEPS / 1e3
    return Measurement(turns, STEPS, 0.0, slices, seconds, 2, 3, stats, logs, flights, [], 0, 0.0, 0.0, "MainThread")


def _judged(*arguments: Any, **named: Any) -> Verdict:
    return judge(Model(_measured(*arguments, **named)))


def _mended(*arguments: Any, **named: Any) -> tuple[Any, ...]:
    verdict = _judged(*arguments, **named)
    assert verdict.mend is not None
    return verdict.kind, verdict.mend.change, verdict.mend.gain


def test_a_pool_a_queue_or_a_decoder_of_twice_the_size_makes_the_loop_twice_as_fast() -> None:
    twice = pytest.approx(2, rel=0.05)
    pool = [*(_slice(POOL, 10, 0.1, f"gpupipe-map-{i}", carried=True) for i in range(2)), _slice(POOL, 9, 0.1)]
    stage = [_slice(STAGE, 20, 20, "gpupipe-numpy-0", carried=True)]
    turns = [_slice(MAP, 6, 0.1, "MainThread")]

    assert _mended(pool, 8, 2, made=[10] * STEPS) == ("python", "num_parallel_calls=4", twice)
    assert _mended(turns, 6, 6) == ("queue", "prefetch(2) at the end of the chain", twice)
    decoding = _mended(stage, 18, 2, made=[20] * STEPS, cpu=20, workers=1)
    assert decoding == ("decode", "Options(threads=2)", twice)


def test_a_function_that_sleeps_gets_another_thread() -> None:
    verdict = _judged([_slice(MAP, 10, 0.1), _slice(HOST, 1, 1)], 8, 3, made=[11] * STEPS)

    assert (verdict.kind, verdict.step, verdict.line) == ("python", "map(f)", "a.py:3")
    assert verdict.mend is not None
    assert verdict.mend.change == "num_parallel_calls=2"
    assert verdict.mend.gain == pytest.approx(11 / 5, rel=0.05)  # two threads: 5 ms each; then they limit the rate
    assert verdict.share == pytest.approx(10 / 11, rel=0.02)


def test_a_function_that_computes_gets_processes() -> None:
    verdict = _judged([_slice(MAP, 10, 10), _slice(HOST, 0.1, 0.1)], 8, 2, made=[10] * STEPS)

    assert verdict.mend is not None
    assert 'workers="process"' in verdict.mend.change
    assert verdict.mend.gain == pytest.approx(2, rel=0.05)
    threads = next(one for one in verdict.others if one.change == "num_parallel_calls=2")
    assert threads.gain == pytest.approx(1, abs=0.02)  # they share the interpreter's lock


def test_of_two_functions_of_one_name_the_slow_one_is_named_by_its_line() -> None:
    quick, slow = (Meter("map(the lambda)", f"a.py:{line}", "python") for line in (3, 4))

    verdict = _judged([_slice(quick, 2), _slice(slow, 8)], 9, 2, made=[10] * STEPS)

    assert (verdict.kind, verdict.line) == ("python", "a.py:4")
    assert verdict.share == pytest.approx(0.8, rel=0.02)
    halved = next(one for one in verdict.others if one.change == "map(the lambda) at a.py:4 in half the time")
    assert halved.gain == pytest.approx(10 / 6, rel=0.05)  # the other one stays as it is


def test_processes_of_two_functions_of_one_name_are_two_pools() -> None:
    steps = tuple(
        StepStats("map(the lambda)", f"a.py:{line}", STEPS, workers=2, worked=0.01 * STEPS, processes=True)
        for line in (3, 4)
    )
    measured = replace(_measured([], 8, 2), stats=(IteratorStats(), IteratorStats(steps=steps)))

    pools = {name for name in Model(measured).resources if name.startswith("processes of")}
    assert pools == {"processes of map(the lambda)", "processes of map(the lambda) at a.py:4"}


def test_threads_of_one_name_that_work_at_once_have_rows_of_their_own() -> None:
    spans = [Span("map(f)", "python", "pool-0", start, start + 2.0) for start in (0.0, 1.0, 2.5, 3.0)]

    rows = rows_of(spans)

    assert {row: [span.start for span in of_row] for row, of_row in rows.items()} == {
        ("pool-0", "map(f)"): [0.0, 2.5],
        ("pool-0 (2)", "map(f)"): [1.0, 3.0],
    }


def test_bursts_need_a_longer_queue() -> None:
    made = [22.0 if i % 8 == 0 else 2.0 for i in range(STEPS)]
    gain = pytest.approx(queued([ms / 1e3 for ms in made], [5e-3] * STEPS, 1) / (STEPS * 5e-3), rel=0.06)

    found = _mended([_slice(MAP, 4.5, 0)], 2.7, 5, made=made, room=1)

    assert found == ("queue", "prefetch(8) instead of 1 waiting", gain)


@pytest.mark.parametrize("made", [8.0, 7.0])
def test_equal_times_are_balanced(made: float) -> None:
    verdict = _judged([_slice(MAP, made, 0)], 0.1, 8, made=[made] * STEPS)

    assert verdict.kind == "balanced" or made < 8
    assert (verdict.mend is None) == (verdict.kind == "balanced")
    assert str(verdict).startswith("balanced") == (verdict.kind == "balanced")


def test_native_threads_are_what_no_python_thread_used() -> None:
    meter = Meter("stage 1: DALI on CPU", "a.py:4", "executor")
    flights = [(meter.step, i * 10e-3, i * 10e-3 + 1e-3, (i + 1) * 10e-3) for i in range(STEPS)]
    measured = _measured([_slice(meter, 10, 0.5), _slice(HOST, 1, 1)], 8, 2, made=[10] * STEPS, cpu=20, flights=flights)
    model = Model(measured)

    (part,) = (part for part in model.parts if part.resource == meter.step)
    assert part.cpu == pytest.approx((20 - 1.5) / 1e3)
    assert judge(model).kind == "decode"


def test_a_gpu_that_nobody_waits_for_is_no_bottleneck() -> None:
    late = [(ON_GPU.step, i * 10e-3, i * 10e-3 + 9e-3, i * 10e-3 + 9e-3) for i in range(STEPS)]
    busy = [(ON_GPU.step, i * 10e-3, i * 10e-3 + 1e-3, i * 10e-3 + 10e-3) for i in range(STEPS)]
    runner = [_slice(ON_GPU, 9, 0.1)]

    assert _judged(runner, 0.1, 10, made=[0.5] * STEPS, flights=late).kind == "loop"
    assert _judged(runner, 9, 1, made=[10] * STEPS, flights=busy).kind == "decode"


def test_items_go_through_a_queue_one_after_another() -> None:
    assert queued([1, 1, 1], [0, 0, 0], 1) == 3
    assert queued([1, 1, 1], [2, 2, 2], 1) == 7  # the first is made, then the loop is never idle
    assert queued([1, 1, 7], [3, 3, 3], 1) == pytest.approx(14)  # the third starts when the second is taken, at 4
    assert queued([1, 1, 7], [3, 3, 3], 2) == pytest.approx(12)  # ... when the first is


def test_a_section_pushes_and_pops_a_range_and_spans_beyond_the_most_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[str] = []
    section = timing.Section(STAGE)
    with section:
        done.append("without a GPU")
    section.ranges = done.append, lambda: done.append("pop")
    with section:
        done.append("work")
    assert done == ["without a GPU", f"gpupipe {STAGE.step}", "work", "pop"]

    monkeypatch.setattr(timing, "MOST_SPANS", 1)
    tracker = Tracker()
    for _ in range(3):
        tracker.draw(timing.Span("a", "step", "main", 0.0, 1.0))
    assert (len(tracker.spans), tracker.dropped) == (1, 2)


def test_a_clock_runs_for_one_meter_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now, cpu = [10.0], [0.0]
    monkeypatch.setattr(timing, "perf_counter", lambda: now[0])
    monkeypatch.setattr(timing, "thread_time", lambda: cpu[0])
    tracker = Tracker()
    clock = Clock(tracker, "main")
    outer, inner = Meter("outer"), Meter("inner")

    def passes(seconds: float, computing: float) -> None:
        now[0] += seconds
        cpu[0] += computing

    clock.enter(outer)
    passes(1.0, 1.0)
    clock.enter(inner)
    passes(3.0, 0.5)
    clock.leave()
    passes(0.25, 0.25)
    clock.leave()

    spent = {meter.step: one for (meter, _), one in clock.spent.items()}
    assert (spent["outer"].seconds, spent["outer"].blocked, spent["outer"].nested) == (1.25, 0.0, 1)
    assert (spent["inner"].seconds, spent["inner"].blocked, spent["inner"].calls) == (3.0, 2.5, 1)
    for one in clock.spent.values():
        clock.flush(one)
    assert [(span.step, span.start, span.end) for span in tracker.spans] == [
        ("outer", 10.0, 14.25),
        ("inner", 11.0, 14.0),
    ]
