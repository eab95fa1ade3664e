"""A resume is exact or says so, whatever failed or healed meanwhile: random chains against the iterator that went on.

After some elements a state is taken. Then other elements fail, or those that failed can be had again, or both. What a
resumed iterator gives has to be what the old one gives: it holds what was made before, and meets the rest as it is now.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import logging
import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import cycle, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np
import pytest

import gpupipe as gp
from gpupipe.flow import run
from gpupipe.flow.bad import found
from gpupipe.flow.maps import read_payloads
from gpupipe.load.iterator import DatasetIterator
from gpupipe.load.state import sealed
from tests.reliability.resume import through_json
from tests.reliability.resume_programs import (
    FAULTS,
    SOURCES,
    STEPS,
    Program,
    build,
    damage_now,
    programs_with,
    write_files,
)
from tests.reliability.test_resume_programs import FILES, LONGEST, Case, Chain, cases, marked
from tests.reliability.test_resume_programs import outcomes as with_texts
from tests.selection import FULL, QUICK
from tests.selection import programs as programs_of

PROGRAMS = programs_of(2000 if FULL else 160)

CHANGES = ("anew", "healed", "anew healed")

KINDS: Counter[str] = Counter()
"""How the resumes went."""


@contextmanager
def nothing_ahead() -> Iterator[None]:
    """No payload is read before its element is asked for: the old iterator would have what it read until then."""
    with (
        mock.patch.object(run, "cpu_count", lambda: 2),
        mock.patch.object(read_payloads, "AT_ONCE", 1),
        mock.patch.object(read_payloads, "MOST", 1),
    ):
        yield


@pytest.fixture(autouse=True)
def _files(tmp_path: Path) -> Iterator[None]:
    write_files(tmp_path)
    FILES[:] = [tmp_path]
    logging.getLogger("gpupipe").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("gpupipe").setLevel(logging.NOTSET)
    change("", 0)


def change(how: str, salt: int) -> None:
    """Change what is bad; "" is as it was in the beginning."""
    FAULTS.anew, FAULTS.healed, FAULTS.salt = "anew" in how, "healed" in how, salt
    damage_now(FILES[0])


def outcomes(items: Any, count: int) -> list[Any]:
    """What so many calls of `next` give, fewer at the end; an error by its kind, as texts name what was bad before."""
    return [(kind, "" if isinstance(leaves, str) else leaves) for kind, leaves in with_texts(items, count)]


def shown(found: list[Any]) -> str:
    """Short texts of some elements."""
    return " ".join("!" if leaves == "" else hashlib.md5(repr(leaves).encode()).hexdigest()[:4] for _, leaves in found)


def errors(found: list[Any]) -> int:
    return sum(leaves == "" for _, leaves in found)


def check_second(chain: Chain, state: Any, want: list[Any], worse: bool) -> None:
    """A state of the resumed iterator is exact, or refused where something lacked then, or lacks now.

    Args:
        chain: to open.
        state: of the resumed iterator.
        want: what followed it.
        worse: whether anything fails that was good when one of the two states was taken.
    """
    with chain.open("third") as items:
        items.load_state_dict(state)
        try:
            got = [leaves for _, leaves in outcomes(items, LONGEST)]
        except gp.StateError:
            assert worse, "nothing fails that was good, and the second resume is refused"
            KINDS["refused then"] += 1
            return
    KINDS["the same then"] += got == want
    assert got == want, (
        f"a state of the resume\ngot  {shown([('', x) for x in got])}\nwant {shown([('', x) for x in want])}"
    )


def resumes(case: Case, how: str, policy: str) -> str:
    """Compare a resume after a change with the iterator that goes on; answer how it went."""
    change("", 0)
    count = case.walk[0][0]
    with TemporaryDirectory() as folder, marked(policy, case.seed, small=True), nothing_ahead():
        chain = Chain(case, Path(folder))
        with chain.open("run") as items:
            if case.seed % 2:  # of a program that saves before its first step
                items.load_state_dict(through_json(items.state_dict()))
            if len(outcomes(items, count)) < count:
                return "too short"
            state = through_json(items.state_dict())
            left_out = items.left_out
            shutil.copytree(Path(folder) / "run", Path(folder) / "again")  # caches as they are: the old one fills them
            change(how, case.seed)
            want = outcomes(items, LONGEST)
            more = items.left_out - left_out
        with chain.open("again") as items:
            items.load_state_dict(state)
            try:
                got = outcomes(items, case.seed % 5)
                ended, second = len(got) < case.seed % 5, through_json(items.state_dict())
                shutil.copytree(Path(folder) / "again", Path(folder) / "third", ignore=shutil.ignore_patterns("*.tmp"))
                if case.seed % 4 == 3:  # what failed can be had again
                    change("", case.seed)
                got += outcomes(items, LONGEST)
            except gp.StateError:
                assert "anew" in how, "nothing fails that was good, and the resume is refused"
                return "refused"
            told = items.left_out - left_out - more + errors(got) - errors(want)
        if not ended and case.program.counts:
            worse = "anew" in how or case.seed % 4 == 3  # what was healed fails again
            check_second(chain, second, [leaves for _, leaves in got[case.seed % 5 :]], worse)
    if got == want:
        return "the same"
    if case.seed % 4 == 3:
        return "other data"
    if case.program.reads_ahead:  # the old iterator has: what comes then depends on when
        return "other elements ahead"
    assert told > 0 and "anew" in how, f"told {told}\ngot  {shown(got)}\nwant {shown(want)}"
    return "told"


@pytest.mark.timeout(3600 if FULL else 400)
@pytest.mark.programs
@pytest.mark.parametrize("how", CHANGES)
def test_random_chains_go_on_exactly_or_say_so(how: str) -> None:
    KINDS.clear()
    usual = sorted((SOURCES | STEPS) - {"overtaking", "overtaking interleave"})
    parts = cycle(usual)
    for case in cases(PROGRAMS, lambda rng: programs_with(next(parts), rng), seed=7, backend="numpy"):
        if case.known:
            continue
        policy = random.Random(case.seed).choice(["always", "never", "sometimes"])
        try:
            KINDS[resumes(case, how, policy)] += 1
        except Exception as error:
            raise AssertionError(f"{case}\n{policy} {how}\n{type(error).__name__}: {error}") from error
    assert KINDS["the same"] > PROGRAMS // 10, KINDS
    assert KINDS["the same then"] > PROGRAMS // 10, KINDS
    assert QUICK or "anew" not in how or KINDS["refused"], KINDS


class Marked:
    """Numbers from 0, some of which cannot be had for now."""

    def __init__(self, bad: set[int]) -> None:
        self.bad = bad

    def __call__(self, x: Any) -> Any:
        if int(x) in self.bad:
            raise OSError(5, "Input/output error")
        return x


def numbers(items: Any) -> list[int]:
    """The numbers that are left; errors are left away."""
    out: list[int] = []
    while True:
        try:
            out += np.ravel(next(items)).tolist()
        except StopIteration:
            return out
        except gp.DataError:
            continue


def resumed(chain: gp.Dataset, state: Any) -> DatasetIterator:
    items = iter(chain)
    items.load_state_dict(state)
    return items


SKIP = gp.Options(on_error="skip")


def test_a_refused_resume_names_the_element_and_goes_on_without_it_on_demand() -> None:
    make = Marked(set())
    chain = gp.Dataset.range(27).map(make, traced=False).filter(lambda x: x % 3 > 0).batch(2)
    again = chain.batch(2, drop_remainder=True).unbatch().with_options(SKIP)  # counts what comes again
    with iter(again) as items:
        next(items)
        state = through_json(items.state_dict())
    make.bad = {1}

    with (
        resumed(again, state) as items,
        pytest.raises(gp.StateError, match=r"filter needs .*range at index 1: map: .*Input/output.*resume_without"),
    ):
        next(items)
    with resumed(again.with_options(gp.Options(resume_without=True)), state) as items:
        rest = numbers(items)
        assert items.left_out == 1 and items.errors[0].offset == 1

    assert set(rest) <= set(range(2, 27)) and len(rest) == len(set(rest))


@pytest.mark.parametrize("loaded", [0, 1, 2])
def test_a_state_behind_a_loaded_one_knows_what_was_good(loaded: int) -> None:
    """Also behind one of the beginning, which is taken before anything is read."""
    make = Marked(set())
    chain = gp.Dataset.range(30).map(make, traced=False).filter(lambda x: x % 3 > 0).batch(2)
    chain = chain.batch(2, drop_remainder=True).unbatch().with_options(SKIP)
    state = through_json(iter(chain).state_dict())
    for _ in range(loaded):
        with resumed(chain, state) as items:
            state = through_json(items.state_dict())
    with resumed(chain, state) as items:
        next(items)
        state = through_json(items.state_dict())
    make.bad = {1}

    with resumed(chain, state) as items, pytest.raises(gp.StateError, match="filter needs an element that was good"):
        next(items)


def test_what_is_looked_at_for_its_type_again_may_be_bad_in_an_earlier_pass() -> None:
    """A step without a good element is looked at in each run, from the start, of which a state in a later pass knows
    nothing."""
    function = Marked({1})
    empty = (
        gp.Dataset.range(5).map(function, traced=False).flat_map(lambda x: gp.Dataset.range(5).filter(lambda y: y > 6))
    )
    chain = (
        empty.map(lambda x: int(x)).concatenate(gp.Dataset.range(3)).repeat(3).with_options(gp.Options(on_error="skip"))
    )
    items = iter(chain)
    given = [int(next(items)) for _ in range(7)]

    assert given + numbers(resumed(chain, items.state_dict())) == [0, 1, 2] * 3


@pytest.mark.parametrize("count", range(6))
def test_what_is_looked_at_for_its_type_again_is_left_for_the_pass(count: int) -> None:
    """All elements that a slice of a cache has are bad, so each run looks at them, and then gives them."""

    def chain() -> gp.Dataset:
        bad = gp.Dataset.range(12).map(Marked({2, 5, 8, 11}), traced=False).cache()[2::3]
        return bad.interleave(lambda x: gp.Dataset.range(2)).map(lambda x: int(x)).concatenate(gp.Dataset.range(3))

    items = iter(chain())
    before = outcomes(items, count)
    again = resumed(chain(), items.state_dict())

    assert before + outcomes(again, 99) == outcomes(iter(chain()), 99)


@pytest.mark.parametrize("count", range(5))
@pytest.mark.parametrize("policy", ["skip", "replace"])
def test_what_was_looked_at_for_its_type_stays_bad_until_it_is_given(policy: Any, count: int) -> None:
    """Both inputs are opened at the start; the first elements of the second one were read by then."""
    make = Marked({0, 2})

    def chain() -> gp.Dataset:
        looked_at = R(9).map(make, traced=False).batch(3).unbatch()
        picks = gp.Dataset.from_list([np.int64(i) for i in (0, 0, 0, 1, 1, 0, 1, 1)])
        inputs = [R(20, 30), looked_at]
        return gp.Dataset.choose_from_datasets(inputs, picks).with_options(gp.Options(on_error=policy))

    items = iter(chain())
    for _ in range(count):
        next(items)
    state = through_json(items.state_dict())
    make.bad = set()
    rest = numbers(items)

    assert numbers(resumed(chain(), state)) == rest


@pytest.mark.parametrize("count", range(1, 4))
@pytest.mark.parametrize("policy", ["always", "never", "sometimes"])
def test_what_was_bad_while_it_was_looked_at_is_in_states_of_the_start(policy: str, count: int, tmp_path: Path) -> None:
    """A key that failed before the pass was opened fails again, which is no change."""
    steps = (("slice", -4, 14, 1), ("unique", 5), ("group", 1, 4, 3, (5, 2)), ("unbatch",))
    chain = build(Program(("loaded", "parts"), steps), FILES[0], tmp_path, True)[0].with_options(SKIP)
    with marked(policy, 117, small=True):
        items = iter(chain)
        for _ in range(count):
            next(items)
        state = through_json(items.state_dict())

        assert numbers(resumed(chain, state)) == numbers(items)


def test_a_batch_keeps_the_place_of_a_row_that_fails_now() -> None:
    make = Marked(set())
    chain = gp.Dataset.range(24).map(make, traced=False).batch(4).unbatch().with_options(SKIP)
    with iter(chain) as items:
        for _ in range(10):
            next(items)
        state = through_json(items.state_dict())

    make.bad = {8, 21}  # of the batch that is being given, and of a later one
    with resumed(chain, state) as items:
        rest = numbers(items)

        assert rest == [*range(12, 21), 22, 23]
        assert items.left_out == 2  # the batch, of which two rows were still to come, is one error; and 21


@pytest.mark.parametrize("workers", ["thread", "process"])
def test_what_was_bad_stays_bad_until_the_state_and_not_behind_it(workers: Any) -> None:
    make = Marked({3, 9, 17})
    bad = set(make.bad)
    chain = gp.Dataset.range(24).map(Marked(bad), traced=False, num_parallel_calls=2, workers=workers)
    chain = chain.batch(3).unbatch().with_options(SKIP)
    with iter(chain) as items:
        got = [int(next(items)) for _ in range(7)]
        state = through_json(items.state_dict())

    bad.clear()  # processes have a copy
    healed = gp.Dataset.range(24).map(Marked(bad), traced=False, num_parallel_calls=2, workers=workers)
    with resumed(healed.batch(3).unbatch().with_options(SKIP), state) as items:
        rest = numbers(items)

    assert got == [0, 1, 2, 4, 5, 6, 7]
    assert rest in ([8, *range(10, 24)], [8, *range(10, 17), *range(18, 24)])  # 17 was read ahead, or was not


@pytest.mark.parametrize("lost", ["raise", "skip"])
@pytest.mark.parametrize("step", ["batch", "padded", "prefetch", "shuffle", "scan"])
def test_a_file_that_is_lost_at_the_resume_takes_no_rows_of_others(step: str, lost: Any, tmp_path: Path) -> None:
    for i in range(3):
        with gp.io.TFRecordWriter(tmp_path / f"{i}") as out:
            for j in range(8):
                out.write(b"%d%d" % (i, j))
    records = gp.Dataset.range(3).flat_map(lambda i: gp.TFRecordDataset(str(tmp_path / str(i))))
    steps = {
        "batch": lambda: records.batch(3).unbatch(),
        "padded": lambda: records.padded_batch(3).unbatch(),
        "prefetch": lambda: records.prefetch(2).batch(3).unbatch(),
        "shuffle": lambda: records.shuffle(2, seed=1).batch(3).unbatch(),
        "scan": lambda: records.scan(0, lambda n, x: (n + 1, x)).batch(3).unbatch(),
    }
    chain = steps[step]().with_options(gp.Options(on_error="skip", lost_files=lost))
    with iter(chain) as items:
        for _ in range(11):
            next(items)
        state = through_json(items.state_dict())
    (tmp_path / "1").unlink()

    with resumed(chain, state) as items, pytest.raises(gp.StateError, match="what follows needs an element that was"):
        list(items)


R = gp.Dataset.range


class Struck(Marked):
    """Ctrl-C comes while the next number is made, if `strike` says so."""

    strike = False

    def __call__(self, x: Any) -> Any:
        if self.strike:
            self.strike = False
            raise KeyboardInterrupt
        return super().__call__(x)


def digits(numbers: Any) -> Any:
    """Some numbers as one, in base 100."""
    return np.int64(functools.reduce(lambda sum_, x: 100 * sum_ + int(x), numbers, 0))


PLACES = [4, 0, 1, 4, 2, 4, 3, 4, 5, 4, 6, 7, 0]

TWICE: dict[str, Any] = {
    "shuffle": lambda f: R(8).map(f, traced=False).pick(PLACES, redraw=False).shuffle(2, seed=1),
    "rebatch": lambda f: R(8).map(f, traced=False).pick(PLACES, redraw=False).batch(2).rebatch(3).unbatch(),
    "windows": lambda f: (
        R(8).window(3, 1).flat_map(lambda w: w.batch(3)).unbatch().map(f, traced=False).batch(2).unbatch()
    ),
    "inside": lambda f: R(8).window(3, 1).flat_map(lambda w: w.map(f, traced=False).batch(2)).unbatch(),
    "before windows": lambda f: R(12).map(f, traced=False).window(3, 1).map(digits, traced=False),
    "before wide windows": lambda f: R(20).map(f, traced=False).window(5, 2, 2).map(digits, traced=False),
    "before windows of rows": lambda f: (
        R(16).map(f, traced=False).batch(2).unbatch().window(4, 1).map(digits, traced=False)
    ),
    "before windows of windows": lambda f: (
        R(12).map(f, traced=False).window(3, 1).map(digits, traced=False).window(2, 1).map(digits, traced=False)
    ),
    "before groups": lambda f: (
        R(24)
        .map(f, traced=False)
        .group_by_window(lambda x: x % 2, lambda _, group: group.batch(2), 2)
        .map(digits, traced=False)
    ),
}


@pytest.mark.parametrize("by", ["state", "Ctrl-C"])
@pytest.mark.parametrize("name", TWICE)
def test_an_element_that_comes_again_is_bad_as_often_as_it_was(name: str, by: str) -> None:
    """It can be read from some time on: what comes before the position is made as it was, what follows as it is."""
    make = Struck(set())
    chain = TWICE[name](make).with_options(SKIP)
    for count, healed in product((1, 2, 4, 6), (0, 1, 3, 9)):
        rests: list[list[int]] = []
        for stopped in (False, True):
            make.bad, make.strike, given = {1, 3, 4}, False, []
            items = chain.iterator(epoch=0)
            for i in range(count):
                make.bad = set() if i == healed else make.bad
                next(items)
            make.bad = set()
            if stopped and by == "state":
                items = resumed(chain, items.state_dict())
            make.strike = stopped and by == "Ctrl-C"
            try:
                while True:
                    with suppress(KeyboardInterrupt):
                        given.append(int(next(items)))
            except StopIteration:
                rests.append(given)
        assert rests[0] == rests[1], (healed, count)


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_a_window_keeps_the_place_of_an_element_that_fails_now(count: int) -> None:
    make = Marked(set())
    chain = R(12).map(make, traced=False).window(3, 1).map(digits, traced=False).with_options(SKIP)
    items = chain.iterator(epoch=0)
    for _ in range(count):
        next(items)
    state, left_out = through_json(items.state_dict()), items.left_out
    make.bad = {count + 1, count + 5}  # one that is held, and one that follows

    again = resumed(chain, state)
    rest = numbers(again)

    assert rest == [x for x in numbers(items) if count + 1 not in (x // 10000, x // 100 % 100, x % 100)]
    assert (again.left_out, items.left_out - left_out) == (2, 1)


CHANGED_FILES: dict[str, Any] = {
    "overwritten": lambda path, new: path.write_bytes(new.read_bytes()),
    "replaced": lambda path, new: new.replace(path),
    "shorter": lambda path, new: (new.write_bytes(new.read_bytes()[:-8]), new.replace(path)),
    "appended": lambda path, new: path.write_bytes(path.read_bytes() + new.read_bytes()),
}


@pytest.mark.parametrize("digests", [False, True])
@pytest.mark.parametrize("how", CHANGED_FILES)
def test_a_state_is_over_the_version_of_a_file_that_was_opened(how: str, digests: bool, tmp_path: Path) -> None:
    path, new = tmp_path / "x", tmp_path / "new"
    path.write_bytes(b"".join(b"A%06d\n" % i for i in range(1000)))
    new.write_bytes(b"".join(b"B%06d\n" % i for i in range(1000)))
    os.utime(path, ns=(10**18, 10**18))
    chain = gp.TextLineDataset(str(path)).with_options(gp.Options(compare_files="contents" if digests else None))
    with iter(chain) as items:
        first = [bytes(next(items)) for _ in range(10)]
        CHANGED_FILES[how](path, new)
        state = through_json(items.state_dict())
    assert first == [b"A%06d" % i for i in range(10)]

    with iter(chain) as items, pytest.raises(gp.StateError, match="needs a state over the same files"):
        items.load_state_dict(state)


GATHERED: dict[str, Any] = {
    "rows": lambda ds: ds,
    "batch": lambda ds: ds.batch(4).unbatch(),
    "padded": lambda ds: ds.padded_batch(4).unbatch(),
    "rebatch": lambda ds: ds.batch(2).rebatch(5).unbatch(),
    "whole": lambda ds: ds.batch(4, drop_remainder=True).unbatch(),
    "twice": lambda ds: ds.batch(2).batch(2).unbatch().unbatch(),
    "mapped": lambda ds: ds.batch(4).map(lambda x: x * 1).unbatch(),
    "window": lambda ds: ds.window(4).flat_map(lambda w: w.batch(4)).unbatch(),
    "shuffle": lambda ds: ds.shuffle(6, seed=1),
    "interleave": lambda ds: ds.batch(4).interleave(gp.Dataset.from_tensor_slices, cycle_length=2),
    "repeat": lambda ds: ds.batch(4).unbatch().repeat(2),
    "cache": lambda ds: ds.batch(4).cache().unbatch(),
    "ignored": lambda ds: ds.batch(4).unbatch().ignore_errors(),
    "scan": lambda ds: ds.batch(4).unbatch().scan(np.int64(0), lambda s, x: (s + 1, x)),
    "sample": lambda ds: gp.Dataset.sample_from_datasets([ds.batch(4).unbatch(), R(100, 110)], seed=1),
}


@pytest.mark.parametrize("policy", ["raise", "skip", "replace"])
@pytest.mark.parametrize("name", GATHERED)
def test_a_state_of_a_resume_in_which_an_element_lacked_is_exact_or_refused(name: str, policy: Any) -> None:
    make = Marked(set())
    chain = GATHERED[name](R(24).map(make, traced=False)).with_options(gp.Options(on_error=policy))
    for count, more, healed in product((3, 5), (0, 1, 2, 5), (False, True)):
        make.bad = set()
        with iter(chain) as items:
            outcomes(items, count)
            state = through_json(items.state_dict())
        make.bad = {2}
        with resumed(chain, state) as items:
            try:
                outcomes(items, more)
            except gp.StateError:
                continue
            second = through_json(items.state_dict())
            make.bad = set() if healed else {2}
            try:
                rest = [leaves for _, leaves in outcomes(items, LONGEST)]
            except gp.StateError:
                continue
        if not more:  # nothing was made again before the second state
            continue
        with resumed(chain, second) as items:
            try:
                got = [leaves for _, leaves in outcomes(items, LONGEST)]
            except gp.StateError as error:
                assert "was good when the state was taken" in str(error)
                continue
            assert got == rest, (count, more, healed)


@pytest.mark.parametrize("below", ["batch", "repeat", "window"])
def test_a_state_of_a_resume_knows_what_is_bad_behind_a_checkpoint_of_what_it_made_again(below: str) -> None:
    make = Marked(set())
    rows = {
        "batch": lambda: R(600).map(make, traced=False).batch(4),
        "repeat": lambda: R(60).map(make, traced=False).batch(4).repeat(10),
        "window": lambda: R(600).map(make, traced=False).window(4).flat_map(lambda w: w.batch(4)),
    }
    chain = rows[below]().unbatch().window(90, 40).map(lambda w: next(iter(w)), traced=False).with_options(SKIP)
    for count, more in product((2, 5, 8), (1, 2, 3)):
        make.bad = {n for n in range(600) if n % 15 == 3}
        with iter(chain) as items:
            outcomes(items, count)
            state = through_json(items.state_dict())
        make.bad = set()
        with resumed(chain, state) as items:
            outcomes(items, more)
            second = through_json(items.state_dict())
            rest = numbers(items)

        assert numbers(resumed(chain, second)) == rest, (count, more)


def test_the_rest_of_a_file_stays_lost(tmp_path: Path) -> None:
    paths = [str(tmp_path / f"{i}.gz") for i in range(2)]
    for i, path in enumerate(paths):
        lines = b"".join(b"%02d\n" % (10 * i + n) for n in range(10))
        Path(path).write_bytes(gzip.compress(lines[:12], 0, mtime=0) + gzip.compress(lines[12:], 0, mtime=0))
    whole, status = Path(paths[0]).read_bytes(), os.stat(paths[0])
    second = whole.index(b"\x1f\x8b", 2)
    Path(paths[0]).write_bytes(whole[: second + 10] + b"\xff" * 5 + whole[second + 15 :])  # its first block's header
    options = gp.Options(on_error="skip", lost_files="skip")
    chain = gp.TextLineDataset(paths, "GZIP").batch(3).unbatch().with_options(options)
    with iter(chain) as items:
        got = [bytes(next(items)) for _ in range(5)]
        state = through_json(items.state_dict())

    Path(paths[0]).write_bytes(whole)
    os.utime(paths[0], ns=(status.st_atime_ns, status.st_mtime_ns))
    with resumed(chain, state) as items:
        rest = [bytes(item) for item in items]

    assert got == [b"00", b"01", b"02", b"03", b"10"]
    assert rest == [b"%02d" % n for n in range(11, 20)]


def test_an_interrupt_makes_elements_again_as_they_were() -> None:
    make = Marked({4, 11})
    struck: list[int] = []

    def once(x: Any) -> Any:
        if int(x) == 20 and not struck:
            struck.append(20)
            raise KeyboardInterrupt
        return x

    chain = gp.Dataset.range(30).map(make, traced=False).batch(4).unbatch().map(once, traced=False).with_options(SKIP)
    got: list[int] = []
    with iter(chain) as items:
        with pytest.raises(KeyboardInterrupt):
            while True:
                got.append(int(next(items)))
        make.bad = {25}
        got += numbers(items)
        assert items.left_out == 3

    assert got == [n for n in range(30) if n not in (4, 11, 25)]


@pytest.mark.parametrize("step", ["shuffle", "unbatch"])
def test_a_state_has_the_bad_elements_since_its_checkpoint_only(step: str) -> None:
    chain = gp.Dataset.range(6000).map(Marked(set(range(0, 6000, 5))), traced=False)
    chain = (chain.shuffle(50) if step == "shuffle" else chain.batch(4).unbatch()).with_options(SKIP)
    with iter(chain) as items:
        for _ in range(4000):
            next(items)
        kept, exact, _ = items.state_dict()["bad"]
        assert items.left_out > 900

    assert exact and len(kept) < 200  # a checkpoint is taken after 64 elements and more


def test_a_state_that_does_not_name_all_says_so_when_it_is_loaded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(found, "MOST", 5)
    chain = gp.Dataset.range(100).map(Marked(set(range(0, 100, 2))), traced=False).batch(9).unbatch().with_options(SKIP)
    with iter(chain) as items:
        for _ in range(20):
            next(items)
        state = through_json(items.state_dict())
    logging.getLogger("gpupipe").setLevel(logging.WARNING)

    with resumed(chain, state) as items:
        assert "does not name all" in caplog.text
        assert numbers(items) == list(range(41, 100, 2))


def test_states_of_an_earlier_version_go_on_as_they_did() -> None:
    chain = gp.Dataset.range(24).map(Marked({5}), traced=False).batch(4).unbatch().with_options(SKIP)
    with iter(chain) as items:
        for _ in range(10):
            next(items)
        state = through_json(items.state_dict())
    del state["bad"]

    with resumed(chain, sealed(state)) as items:
        assert numbers(items) == list(range(11, 24))


@pytest.mark.parametrize(
    "bad",
    [[[[1, 2]], True], [[[1, 2, -3]], True], [[[1, 2, 3, "a", "b", 5, False]], True], [[[1, 2, 3, "a"]], True], 7],
)
def test_mad_bad_elements_of_a_state_are_refused(bad: Any) -> None:
    chain = gp.Dataset.range(9)
    with iter(chain) as items:
        next(items)
        state = through_json(items.state_dict())

    with pytest.raises(gp.StateError):
        resumed(chain, sealed({**state, "bad": bad}))
