"""AUTOTUNE: numbers that change while a chain runs, within budgets, without any effect on elements, order or states."""

from __future__ import annotations

import json
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, Options
from gpupipe.errors import PlanError, PlanTypeError
from gpupipe.flow import tuning
from gpupipe.flow.counters import Counters
from gpupipe.flow.stall import Where
from gpupipe.flow.tuning import Tuned, Tuner
from gpupipe.threads import Busy, DaemonPool
from tests.behaviour.model import plain, run
from tests.reliability.resume import resumed_after, taken

CPUS = 2


class Machine:
    """A chain in simulated time: its rate, and what its threads do, are functions of the numbers."""

    waiting = 1.0
    now = cpu = delivered = waited = 0.0

    def __init__(
        self, patch: pytest.MonkeyPatch, rate: Callable[[Machine], float], cpus: float = 0.1, **options: Any
    ) -> None:
        self.cpus = cpus
        self.counters = Counters()
        self.tuner = Tuner(Options(**options).resolve())
        self.rate = rate
        self.numbers: dict[str, Tuned] = {}
        self.seconds: dict[str, Callable[[], tuple[float, float]]] = {}
        self.highest: list[int] = []
        patch.setattr(tuning, "process_time", lambda: self.cpu)
        patch.setattr(tuning, "cpu_count", lambda: CPUS)
        self.tuner._cpus = CPUS

    def threads(self, name: str, start: int, use: Callable[[], tuple[float, float]], most: int = 1000) -> None:
        """Add a step; `use` gives the threads that work, and the CPUs that they use."""
        step = self.counters.step(name)
        step.work = [Busy()]
        self.numbers[name] = self.tuner.threads(self, Where(name, "a.py:1"), start, most, 2, step)
        self.seconds[name] = use

    def __getitem__(self, name: str) -> int:
        return self.numbers[name].value

    def go(self, seconds: float = 30.0) -> None:
        """Deliver elements for some seconds."""
        until, due = self.now + seconds, 0.0
        while self.now < until:
            took = 1 / self.rate(self)
            self.now += took
            self.cpu += took * self.cpus
            self.delivered += 1
            self.waited += took * self.waiting
            for name, use in self.seconds.items():
                busy, (working, cores) = self.counters.step(name).work[0], use()
                busy.seconds += took * working
                busy.cpu += took * cores
            if self.now >= due:
                due = self.tuner.look(self.now, int(self.delivered), self.waited)
            self.highest.append(sum(one.value for one in self.numbers.values() if one.workers is not None))


class Step(NamedTuple):
    """One step of a machine, and how many threads it is to have in the end."""

    start: int
    end: int
    rate: Callable[[int], float] = lambda threads: 100.0
    working: Callable[[int], float] = lambda threads: threads
    cores: float = 0.1  # CPUs that its threads use
    all_cores: float = 0.1  # CPUs that the process uses
    waiting: float = 1.0  # how much of its time the loop waits
    most: int = 1000


STEPS = {
    "threads that wait become as many as help": Step(3, 24, lambda n: 20 * min(n, 24), lambda n: min(n, 24)),
    "threads that need the CPUs become fewer": Step(16, 2, lambda n: min(100, 104 - 2 * n), cores=2.0, all_cores=2.0),
    "threads that hardly compute stay": Step(8, 8, working=lambda n: 0.2, all_cores=1.9),
    "a loop that does not wait is left alone": Step(2, 2, waiting=0.01),
    "no step gets more than it can use": Step(2, 5, lambda n: 20.0 * n, most=5),
}


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_a_step_gets_as_many_threads_as_help(step: Step, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, lambda m: step.rate(m["map"]), step.all_cores)
    machine.threads("map", step.start, lambda: (step.working(machine["map"]), step.cores), step.most)
    machine.waiting = step.waiting
    machine.go()

    assert machine["map"] == step.end
    assert bool(machine.tuner.decisions) == (step.start != step.end)


@pytest.mark.parametrize(
    ("cpus", "all_use", "start", "used", "most"),
    [(2, 1.65, 2, 0.8, 2), (2, 1.65, 2, 0.45, 4), (2, 1.65, 1, 0.95, 2), (5, 4.1, 4, 1.0, 8), (2, 1.5, 2, 0.72, 64)],
    ids=["compute", "wait", "fewer than CPUs", "fewer than five CPUs", "a quarter is free"],
)
def test_where_cpus_are_nearly_used_threads_that_compute_become_no_more(
    cpus: int, all_use: float, start: int, used: float, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(monkeypatch, lambda m: 20.0 * m["map"], all_use)
    machine.tuner._cpus = cpus
    machine.threads("map", start, lambda: (machine["map"], min(used * machine["map"], cpus)), most=64)
    machine.go()

    assert machine["map"] == most


def test_threads_that_hold_the_gil_are_not_more_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, lambda m: 100.0, cpus=1.0)
    machine.threads("map", 2, lambda: (machine["map"], 1.0))
    machine.go(120)

    assert machine["map"] == 2
    tried = [one for one in machine.tuner.decisions if not one.kept]
    pauses = np.diff([one.seconds for one in tried])
    assert 3 <= len(tried) <= 6
    assert all(later > 1.5 * earlier for earlier, later in pairwise(pauses))


def test_the_step_that_holds_up_the_others_gets_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def rate(m: Machine) -> float:
        return min(10 * m["reads"], 40 * m["map"])

    machine = Machine(monkeypatch, rate, threads=10)
    machine.threads("reads", 1, lambda: (rate(machine) / 10, 0.1))
    machine.threads("map", 9, lambda: (rate(machine) / 40, 0.1))
    machine.go(60)

    assert (machine["reads"], machine["map"]) == (8, 2)
    assert max(machine.highest) == 10  # the budget binds


@pytest.mark.parametrize("threads", [1, 5])
def test_all_steps_have_no_more_threads_than_the_options_allow(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, lambda m: 20.0 * m["a"] * m["b"], threads=threads)
    machine.threads("a", 64, lambda: (machine["a"], 0.1))
    machine.threads("b", 64, lambda: (machine["b"], 0.1))
    machine.go()

    assert max(machine.highest) <= max(threads, 2)  # one each, at least
    assert "threads=" in machine.numbers["a"].why


def test_a_step_that_comes_while_threads_are_lent_does_not_make_them_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, lambda m: 10.0 * m["a"], cpus=2.0, threads=8)
    machine.threads("a", 8, lambda: (machine["a"], 2.0))
    while machine["a"] == 8:
        machine.go(0.1)
    machine.threads("b", 4, lambda: (0.0, 0.0))
    machine.cpus = 0.1
    machine.go()

    assert not machine.tuner.decisions[0].kept  # 8 threads were better, but 4 of them are in use now
    assert max(machine.highest) == 8


def test_memory_bounds_what_time_would_not(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, lambda m: 20.0 * m["map"], host_memory=14_000)
    machine.threads("map", 64, lambda: (machine["map"], 0.1))
    machine.tuner.weighed(machine.numbers["map"], 1000)
    assert machine["map"] == 7  # twice as many elements of 1,000 bytes
    machine.go(2)
    machine.numbers["map"].set(1)
    machine.go()

    assert machine["map"] == 7
    assert "host_memory: 14,000 bytes, 14,000 allowed" in machine.numbers["map"].why

    machine.tuner.weighed(machine.numbers["map"], 100_000)
    assert machine["map"] == 1


def test_a_queue_grows_where_it_is_at_times_empty_and_at_times_full(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, lambda m: 50.0 + 10 * min(m["prefetch"], 8))
    gauge = machine.counters.queue(1, "prefetch")
    machine.numbers["prefetch"] = machine.tuner.ahead(machine, Where("prefetch", "a.py:2"), 1, gauge)
    calls = machine.rate

    def rate(m: Machine) -> float:
        gauge.empty += 0.3 / calls(m)
        gauge.full += 0.0 if m["prefetch"] >= 8 else 0.3 / calls(m)
        return calls(m)

    machine.rate = rate
    machine.go()

    assert machine["prefetch"] == gauge.most == 8


# ---- chains


def same(x: Any) -> Any:
    return np.int64(str(x))


def _augmented(x: Any, rng: Any) -> Any:
    return np.int64(str(x)), rng.integers(1 << 30)


def _ints(i: Any) -> Dataset:
    return Dataset.range(int(i) * 100, int(i) * 100 + 7 + int(i) % 5).map(lambda x: np.int64(str(x)))


def _chain(calls: int, ahead: int) -> Dataset:
    items = Dataset.range(12).interleave(_ints, cycle_length=5, block_length=2, num_parallel_calls=calls)
    items = items.prefetch(ahead).shuffle(20, seed=3).map(_augmented, num_parallel_calls=calls, rng=True)
    return items.repeat(2).batch(4).prefetch(ahead)


@contextmanager
def restless(seed: int, most: int = 9) -> Iterator[set[int]]:
    """Give every number another value at each element; yields the values."""
    rng, seen = random.Random(seed), set[int]()

    def look(self: Tuner, now: float, delivered: int, waiting: float) -> float:
        for one in list(self.numbers.values()):
            one.weigh = True
            one.set(rng.randint(1, min(most, one.most)))
            seen.add(one.value)
        return 0.0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tuner, "look", look)
        yield seen


@pytest.mark.parametrize("seed", range(2))
def test_elements_order_and_draws_do_not_depend_on_numbers_that_change(seed: int) -> None:
    expected = run(_chain(1, 1))
    with restless(seed) as seen:
        assert run(_chain(gp.AUTOTUNE, gp.AUTOTUNE)) == expected
    assert len(seen) > 3


@pytest.mark.parametrize("count", [5, 17])
def test_a_state_in_the_middle_of_changes_gives_the_same_rest(count: int) -> None:
    whole = taken(iter(_chain(1, 1)))
    with restless(count):
        assert resumed_after(lambda: _chain(gp.AUTOTUNE, gp.AUTOTUNE), count)[0] == whole[count:]


def test_in_any_order_no_element_is_lost_while_numbers_change() -> None:
    dataset = Dataset.range(300).map(same, num_parallel_calls=gp.AUTOTUNE, deterministic=False)
    with restless(5):
        assert sorted(run(dataset)) == list(range(300))


def _eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every element be a window, and every change be kept."""
    values = {"WINDOW": 0.0, "SETTLE": 0.0, "ENOUGH": 1, "GAIN": -1.0, "BUSY": 0.0, "FULL": 1e9, "NEARLY": 1e9}
    for name, value in values.items():
        monkeypatch.setattr(tuning, name, value)


class Counted:
    """A function that knows how many threads are inside at most."""

    def __init__(self, nap: float = 0.002) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._nap = nap
        self.most = 0

    def __call__(self, x: Any) -> Any:
        with self._lock:
            self._inside += 1
            self.most = max(self.most, self._inside)
        time.sleep(self._nap)
        with self._lock:
            self._inside -= 1
        return np.int64(str(x))


@pytest.mark.parametrize("threads", [None, 2])
def test_threads_that_run_never_exceed_their_budget(threads: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    _eager(monkeypatch)
    inside = Counted()
    dataset = Dataset.range(300)
    for _ in range(2):
        dataset = dataset.map(inside, num_parallel_calls=gp.AUTOTUNE)
    items = iter(dataset.with_options(Options(threads=threads)))

    assert [int(x) for x in items] == list(range(300))
    if threads is None:
        assert inside.most > 4  # so the budget is what holds the others back
    else:
        assert inside.most <= threads
        assert sum(one.value for one in items.stats().numbers) <= threads


# ---- ends


def test_ctrl_c_while_numbers_are_looked_at_loses_nothing_and_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, tuners = 0, set[Tuner]()

    def look(self: Tuner, now: float, delivered: int, waiting: float) -> float:
        nonlocal looks
        looks += 1
        tuners.add(self)
        for one in self.numbers.values():
            one.set(1 + looks % 3)
        if looks % 5 == 0:
            raise KeyboardInterrupt
        return 0.0

    items, found, struck = iter(_chain(gp.AUTOTUNE, gp.AUTOTUNE)), [], 0
    with monkeypatch.context() as patch:
        patch.setattr(Tuner, "look", look)
        while True:
            try:
                found.append(plain(next(items)))
            except StopIteration:
                break
            except KeyboardInterrupt:
                struck += 1

    assert struck > 3
    assert len(tuners) == 1  # what was found is not lost
    assert found == run(_chain(1, 1))


# ---- the pool


def _works_with(pool: DaemonPool, count: int) -> None:
    """Check that so many threads of a pool work at once, and no more, after those that are too many have ended."""
    for job in [pool.submit(time.sleep, 0) for _ in range(30)]:
        job.result(10)
    together = threading.Barrier(count)
    for job in [pool.submit(together.wait, 10) for _ in range(2 * count)]:
        job.result(20)
    inside = Counted(0.001)
    for job in [pool.submit(inside, 1) for _ in range(50)]:
        job.result(10)
    assert inside.most <= count


def test_a_pool_has_as_many_threads_as_it_was_resized_to() -> None:
    def running() -> int:
        return len([one for one in threading.enumerate() if one.name.startswith("gpupipe-test")])

    pool, rng, sizes = DaemonPool(5, "gpupipe-test"), random.Random(0), (2, 6, 1, 3, 3, 8, 2)
    for count in sizes:  # the first time before it starts
        pool.resize(count)
        _works_with(pool, count)
    for _ in range(200):
        pool.resize(rng.randint(1, 8))
        assert running() <= 8
    pool.resize(4)
    _works_with(pool, 4)
    pool.close()
    assert sum(one.jobs for one in pool.busy) == sum(80 + 2 * count for count in (*sizes, 4))
    assert len(pool.busy) <= 8
    pool.resize(9)
    assert running() == 0


def _tuned() -> Dataset:
    return Dataset.range(40).map(same, num_parallel_calls=gp.AUTOTUNE).batch(4).prefetch(gp.AUTOTUNE)


def test_stats_have_the_numbers_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    _eager(monkeypatch)
    items = iter(Dataset.range(300).map(Counted(), num_parallel_calls=gp.AUTOTUNE))
    list(items)
    stats = items.stats()

    (number,) = stats.numbers
    assert (number.what, stats.tuned) == ("threads", {number.step: number.value})
    assert number.line.startswith(f"{__file__}:")
    first = next(one for one in stats.decisions if one.kept)
    assert (first.step, first.after) == (number.step, 2 * first.before)
    assert "threads work" in first.reason
    assert "elements a second" in first.reason
    assert f"AUTOTUNE: {number.value} threads for {number.step}" in str(stats)


def test_a_second_run_starts_with_what_the_first_one_found() -> None:
    with restless(3):
        first = iter(_tuned())
        list(first)
    found = first.stats().tuned
    assert len(found) == 2
    assert "prefetch(AUTOTUNE)" in found

    for given in (first, first.stats(), json.loads(json.dumps(found))):
        options = Options.from_tuned(given)
        second = iter(_tuned().with_options(options))
        list(second)
        assert second.stats().tuned == found
        assert second.stats().decisions == ()


def test_numbers_that_are_given_stay_without_autotune_and_are_a_start_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    _eager(monkeypatch)
    dataset = Dataset.range(200).map(Counted(), num_parallel_calls=gp.AUTOTUNE)
    name = str(dataset.explain()).splitlines()[1].split("  ->")[0].strip()  # of its last step
    for autotune in (False, True):
        items = iter(dataset.with_options(Options(tuned={name: 3}, autotune=autotune)))
        next(items)
        begun = items.stats().numbers[0].value
        list(items)
        ended = items.stats().numbers[0].value
        assert begun >= 3 and ended > 3 if autotune else begun == ended == 3


def test_steps_with_one_text_are_told_apart_by_their_lines() -> None:
    dataset = Dataset.range(9).map(same, num_parallel_calls=gp.AUTOTUNE)
    dataset = dataset.map(same, num_parallel_calls=gp.AUTOTUNE)
    items = iter(dataset)
    list(items)
    first, second = sorted(items.stats().tuned)
    assert first.split(" at ")[0] == second.split(" at ")[0]

    again = iter(dataset.with_options(Options.from_tuned({first: 3, second: 5})))
    list(again)
    assert again.stats().tuned == {first: 3, second: 5}


def test_names_of_no_step_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    options = Options(tuned={"map(gone) [Python]": 3})
    with caplog.at_level(logging.WARNING, "gpupipe"):
        items = iter(_tuned().with_options(options))
        list(items)
        items.close()

    (text,) = [record.getMessage() for record in caplog.records]
    assert "Options.tuned names ['map(gone) [Python]'], but the steps with AUTOTUNE are: [" in text


def test_fixed_numbers_and_datasets_made_for_each_element_are_not_tuned() -> None:
    inner = Dataset.range(5).map(same, num_parallel_calls=gp.AUTOTUNE)
    dataset = Dataset.range(6).interleave(lambda i: inner, 2, num_parallel_calls=2)
    items = iter(dataset.map(same, num_parallel_calls=3).prefetch(2))
    list(items)

    assert (items.stats().numbers, items.stats().decisions, items.stats().tuned) == ((), (), {})


def test_explain_says_which_numbers_change_and_within_what() -> None:
    text = str(_tuned().explain())
    assert "[Python], prefetch(AUTOTUNE) change while it runs, at most 64 threads each, within host_memory" in text
    fixed = _tuned().with_options(Options(autotune=False, tuned={"prefetch(AUTOTUNE)": 7})).explain()
    assert "the numbers stay as they are at the start" in fixed and "prefetch(7): finished elements" in fixed
    assert "AUTOTUNE:" not in Dataset.range(3).prefetch(2).explain()


WRONG: dict[str, tuple[Any, type[Exception], str]] = {
    "a number": (3, PlanTypeError, r"Options\.tuned needs a dict of steps' names and numbers, got 3"),
    "a name that is none": ({3: 1}, PlanTypeError, r"needs a dict of steps' names and numbers"),
    "a bool": ({"a": True}, PlanTypeError, r"needs an integer for 'a', got True"),
    "zero": ({"a": 0}, PlanError, r"needs an integer from 1 to 65536 for 'a', got 0"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_numbers_are_refused(name: str) -> None:
    given, error, text = WRONG[name]
    with pytest.raises(error, match=text):
        Options(tuned=given)
    with pytest.raises(error, match=text):
        Options.from_tuned(given)
