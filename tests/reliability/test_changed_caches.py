"""A state over a cache that is lost, filled by another run, or damaged: the resume is exact or says so."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe.flow.cache.memory import CacheStore
from gpupipe.plan.cache import Cache
from gpupipe.plan.node import walk
from tests.reliability.resume import through_json
from tests.reliability.test_changed_resume import SKIP, Marked, Struck, numbers, resumed


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.getLogger("gpupipe").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("gpupipe").setLevel(logging.NOTSET)


CACHES: dict[str, Any] = {
    "memory": lambda ds, path: ds.cache(),
    "file": lambda ds, path: ds.cache(path),
    "GZIP": lambda ds, path: ds.snapshot(path, "GZIP"),
}

BEHIND: dict[str, Any] = {
    "cache": lambda ds: ds,
    "shuffle": lambda ds: ds.shuffle(2, seed=3),  # its checkpoint is the beginning
    "prefetch": lambda ds: ds.prefetch(1),
    "replace": lambda ds: ds,
    "cached": lambda ds: ds.map(lambda x: x, traced=False).cache(),
}
"""What follows the cache: steps that count from a checkpoint of their own."""


def over_a_cache(kind: str, behind: str, make: Marked, folder: Path) -> gp.Dataset:
    batches = gp.Dataset.range(20).map(make, traced=False).batch(4)
    kept: gp.Dataset = BEHIND[behind](CACHES[kind](batches, str(folder / "c")))
    return kept.with_options(gp.Options(on_error="replace" if behind == "replace" else "skip"))


def lose(folder: Path) -> None:
    for left in folder.glob("c*"):
        shutil.rmtree(left) if left.is_dir() else left.unlink()


def start(chain: gp.Dataset) -> tuple[Any, list[int]]:
    """The state after two elements, and the rest."""
    with iter(chain) as items:
        next(items)
        next(items)
        return through_json(items.state_dict()), numbers(items)


BEFORE_AND_AFTER = [({3, 5}, set()), (set(), {3, 5}), ({3, 5}, {3, 9})]


@pytest.mark.parametrize(("before", "after"), BEFORE_AND_AFTER)
@pytest.mark.parametrize("behind", BEHIND)
@pytest.mark.parametrize("kind", CACHES)
def test_a_state_over_a_full_cache_is_gone_on_with_when_the_cache_is_lost(
    kind: str, behind: str, before: set[int], after: set[int], tmp_path: Path
) -> None:
    make = Marked(before)
    list(over_a_cache(kind, behind, make, tmp_path))
    chain = over_a_cache(kind, behind, make, tmp_path)
    if kind == "memory":
        list(chain)
    state, rest = start(chain)
    make.bad = after
    lose(tmp_path)

    with resumed(over_a_cache(kind, behind, make, tmp_path), state) as items:
        try:
            got = numbers(items)
        except gp.StateError as error:  # where the value itself is needed
            assert after - before and "was good when the state was taken" in str(error), error
            return
        told = items.left_out
    assert got == rest or (after - before and set(got) < set(rest) and told)


@pytest.mark.parametrize("when", ["filled before", "being filled"])
@pytest.mark.parametrize(("before", "after"), BEFORE_AND_AFTER)
@pytest.mark.parametrize("behind", BEHIND)
@pytest.mark.parametrize("kind", CACHES)
def test_a_cache_that_was_filled_while_others_were_bad_is_not_gone_on_with(
    kind: str,
    behind: str,
    before: set[int],
    after: set[int],
    when: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    make = Marked(before)
    chain = over_a_cache(kind, behind, make, tmp_path)
    if when == "filled before":
        list(chain)
        state, _ = start(chain)
        lose(tmp_path)
        for node in walk(chain.plan):
            if isinstance(node, Cache) and isinstance(node.store, CacheStore):
                node.store.filled.clear()
    else:
        with iter(chain) as items:
            next(items)
            next(items)
            state = through_json(items.state_dict())
    make.bad = after
    list(chain)

    if behind == "replace" and when == "being filled":  # no row takes the place of another
        with resumed(chain, state) as items:
            assert len(numbers(items)) == 12
        return
    with resumed(chain, state) as items, pytest.raises(gp.StateError, match=r"got others: it was filled while other"):
        list(items)
    logging.getLogger("gpupipe").setLevel(logging.WARNING)
    with resumed(chain.with_options(gp.Options(resume_without=True)), state) as items:
        list(items)
        assert "rows would be lost or come twice" in caplog.text


@pytest.mark.parametrize("behind", BEHIND)
@pytest.mark.parametrize("kind", CACHES)
def test_a_cache_that_is_filled_again_with_the_same_ones_bad_is_gone_on_with(
    kind: str, behind: str, tmp_path: Path
) -> None:
    make = Marked({3, 5, 13})
    chain = over_a_cache(kind, behind, make, tmp_path)
    with iter(chain) as items:
        next(items)
        next(items)
        early = through_json(items.state_dict())  # while it is filled
        rest = numbers(items)
    late, again = start(chain)  # over the full one

    for _ in range(2):
        for state, want in ((early, rest), (late, again)):
            with resumed(chain, state) as items:
                assert numbers(items) == want
        lose(tmp_path)  # and by another run
        chain = over_a_cache(kind, behind, make, tmp_path)
        if kind != "memory":
            list(chain)
    lose(tmp_path)
    for state, want in ((early, rest), (late, again)):
        with resumed(over_a_cache(kind, behind, make, tmp_path), state) as items:
            assert numbers(items) == want
        lose(tmp_path)


R = gp.Dataset.range

AMONG: dict[str, Any] = {
    "zip": lambda f, kept: gp.Dataset.zip((kept(R(24)), R(24).map(f, traced=False))).map(lambda a, b: b, traced=False),
    "zip of caches": lambda f, kept: gp.Dataset.zip(
        (kept(R(24).map(f, traced=False)), kept(R(30, 54).map(f, traced=False)))
    ).map(lambda a, b: a, traced=False),
    "datasets of a cache": lambda f, kept: kept(R(6)).flat_map(lambda i: R(i * 4, i * 4 + 4).map(f, traced=False)),
    "interleave": lambda f, kept: kept(R(6)).interleave(
        lambda i: R(i * 4, i * 4 + 4).map(f, traced=False), cycle_length=2
    ),
    "caches inside": lambda f, kept: R(3).flat_map(lambda i: kept(R(i * 8, i * 8 + 8).map(f, traced=False))),
    "one behind the other": lambda f, kept: kept(R(8).map(f, traced=False)).concatenate(
        kept(R(8, 24).map(f, traced=False))
    ),
    "sample": lambda f, kept: gp.Dataset.sample_from_datasets(
        [kept(R(8).map(f, traced=False)), kept(R(8, 24).map(f, traced=False))], seed=1
    ),
    "window": lambda f, kept: kept(R(24)).window(4).flat_map(lambda w: w.map(f, traced=False)),
    "above": lambda f, kept: kept(R(24)).map(f, traced=False),
    "nested": lambda f, kept: kept(kept(R(24).map(f, traced=False).batch(3)).unbatch().batch(4)).unbatch(),
    "batches of batches": lambda f, kept: kept(R(24).map(f, traced=False).batch(2).batch(3)).unbatch().unbatch(),
    "repeated": lambda f, kept: kept(R(24).map(f, traced=False).batch(4)).unbatch().take(20).repeat(2),
    "by index": lambda f, kept: kept(R(24).map(f, traced=False)).shuffle(gp.ALL, seed=1),
}
"""Chains with a cache in one place or another: what is bad in it, beside it and behind it must not be mistaken."""


@pytest.mark.parametrize("file", [False, True])
@pytest.mark.parametrize("name", AMONG)
def test_what_is_bad_in_one_cache_is_bad_nowhere_else(name: str, file: bool, tmp_path: Path) -> None:
    if file and name in ("by index", "caches inside"):
        pytest.skip("no such chain")
    make, numbered = Marked(set()), iter(range(100_000))

    def chain() -> gp.Dataset:
        def kept(ds: gp.Dataset) -> gp.Dataset:
            return ds.cache(str(tmp_path / f"c{next(numbered)}")) if file else ds.cache()

        ds: gp.Dataset = AMONG[name](make, kept).batch(4).unbatch().with_options(SKIP)
        return ds

    for full, count, (before, after) in product((False, True), (1, 5, 9), [({4, 9}, {4, 9}), *BEFORE_AND_AFTER]):
        make.bad = before
        one = chain()
        if full:
            list(one)
            make.bad = after  # and in this epoch others are bad beside the cache
        with iter(one) as items:
            got = [int(next(items)) for _ in range(count)]
            state, left_out = through_json(items.state_dict()), items.left_out
            make.bad = after
            want = numbers(items)
        with resumed(chain(), state) as items:  # all its caches are lost
            try:
                rest = numbers(items)
            except gp.StateError:
                assert after - before, (full, count, before, after)
                continue
            told = items.left_out > left_out
        assert rest == want or (told and after - before), (full, count, before, after, got, want, rest)


FILLED_LATER: dict[str, Any] = {
    "repeat": lambda f, kept: kept(R(6).map(f, traced=False)).repeat(2),
    "parts": lambda f, kept: (lambda c: c.concatenate(c.take(2)).concatenate(c))(kept(R(6).map(f, traced=False))),
    "nested": lambda f, kept: kept(kept(R(6).map(f, traced=False)).map(lambda x: x + 1)).repeat(3),
    "two": lambda f, kept: gp.Dataset.zip((kept(R(6).map(f, traced=False)), kept(R(6)))).map(lambda a, b: a).repeat(2),
    "batches": lambda f, kept: kept(R(6).map(f, traced=False).batch(2)).repeat(2).unbatch(),
    "comes twice": lambda f, kept: kept(R(6).map(f, traced=False).pick([0, 1, 0, 2, 0, 3], redraw=False)).repeat(2),
    "by index": lambda f, kept: R(6).map(f, traced=False).cache().shuffle(gp.ALL, seed=1).repeat(3),
}


@pytest.mark.parametrize("by", ["state", "Ctrl-C"])
@pytest.mark.parametrize("kind", CACHES)
@pytest.mark.parametrize("name", FILLED_LATER)
def test_a_pass_that_is_resumed_while_it_fills_a_cache_holds_the_next_one_to_what_was_bad(
    name: str, kind: str, by: str, tmp_path: Path
) -> None:
    """It keeps nothing, so a later pass fills the cache, with the same ones bad: other rows would follow."""
    make, numbered = Struck(set()), iter(range(100))

    def kept(ds: gp.Dataset) -> gp.Dataset:
        cached: gp.Dataset = CACHES[kind](ds, str(tmp_path / f"c{next(numbered)}"))
        return cached

    for bad, count in product([{0}, {0, 3}], [1, 3]):
        rests: list[list[int]] = []
        for stopped in (False, True):
            chain = FILLED_LATER[name](make, kept).with_options(SKIP)
            make.bad, make.strike, given = bad, False, []
            items = iter(chain)
            for _ in range(count):
                next(items)
            if stopped and by == "state":
                items = resumed(chain, through_json(items.state_dict()))
            make.bad, make.strike = set(), stopped and by == "Ctrl-C"
            try:
                while True:
                    with suppress(KeyboardInterrupt):
                        given += np.ravel(next(items)).tolist()
            except StopIteration:
                rests.append(given)
        assert rests[0] == rests[1], (bad, count)


@pytest.mark.parametrize("name", ["batches of batches", "batch", "padded", "window", "by index"])
def test_rows_of_a_cache_that_was_filled_with_others_neither_come_twice_nor_get_lost(name: str) -> None:
    make = Marked(set())
    rows = R(22).map(make, traced=False)
    kept: Any = {
        "batches of batches": lambda: rows.batch(2).batch(3).cache().unbatch().unbatch(),
        "batch": lambda: rows.batch(4).cache().unbatch(),
        "padded": lambda: rows.padded_batch(4).cache().unbatch(),
        "window": lambda: rows.window(4).flat_map(lambda w: w.batch(4)).cache().unbatch(),
        "by index": lambda: rows.cache().shuffle(gp.ALL, seed=1),
    }[name]
    refused = 0
    for before, after, count in product([set(), {2}, {5}, {20}], [set(), {1}, {2, 6}, {21}], range(1, 22, 2)):
        make.bad = before
        chain = kept().with_options(SKIP)
        with iter(chain) as items:
            got = [int(x) for x in islice(items, count)]
            if len(got) < count:
                continue
            state = through_json(items.state_dict())
        make.bad = after
        list(chain)
        with resumed(chain, state) as items:
            try:
                got += numbers(items)
            except gp.StateError:
                refused += 1
                continue
        assert len(set(got)) == len(got), (before, after, count, got)
        pairs = {n ^ 1 for n in before | after} if name == "batches of batches" else set[int]()  # batches of one row
        assert set(range(22)) - set(got) <= before | after | pairs, (before, after, count, got)
    assert 0 < refused < 170


@pytest.mark.parametrize("kind", CACHES)
def test_a_resume_keeps_no_batch_that_is_bad_for_a_row_that_was_good(kind: str, tmp_path: Path) -> None:
    make = Marked(set())

    def chain() -> gp.Dataset:
        rows = R(16).map(make, traced=False).batch(4)
        kept: gp.Dataset = CACHES[kind](rows, str(tmp_path / "c")).unbatch().with_options(SKIP)
        return kept

    one = chain()
    list(one)
    with iter(one) as items:
        assert [int(next(items)) for _ in range(6)] == [*range(6)]
        state = through_json(items.state_dict())
    lose(tmp_path)
    make.bad = {2}
    one = chain()
    with resumed(one, state) as items:
        assert numbers(items) == [*range(6, 16)]
    make.bad = set()

    assert numbers(iter(one)) == [*range(16)]


@pytest.mark.parametrize("behind", ["batch", "shuffle", "prefetch"])
@pytest.mark.parametrize("kind", ["file", "snapshot"])
@pytest.mark.parametrize("how", ["computed again", "lost", "as it is"])
def test_a_state_over_a_cache_with_a_damaged_element_is_one_over_that_file(
    how: str, kind: str, behind: str, tmp_path: Path
) -> None:
    (folder := tmp_path / "kept").mkdir()

    def chain() -> gp.Dataset:
        kept = R(24).cache(str(folder / "c")) if kind == "file" else R(24).snapshot(str(folder / "c"))
        steps: Any = {"batch": lambda: kept.batch(4).unbatch(), "shuffle": lambda: kept.shuffle(4, seed=1)}
        ds: gp.Dataset = steps.get(behind, lambda: kept.prefetch(2).batch(4).unbatch())()
        return ds.with_options(SKIP)

    list(chain())
    (path,) = (found for found in folder.rglob("*") if found.is_file())
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 0xFF
    path.write_bytes(data)
    one = chain()
    with iter(one) as items:
        got = [int(next(items)) for _ in range(9)]
        state = through_json(items.state_dict())
        rest = numbers(items)
        assert items.left_out == 1
    if how == "lost":
        path.unlink()
    other = one if how == "computed again" else chain()

    with resumed(other, state) as items:
        try:
            again = numbers(items)
        except gp.StateError as error:
            assert how != "as it is" and "some of its elements were damaged" in str(error)
            return
    assert again == rest
    assert how == "as it is" or len(got) + len(again) == 24


@pytest.mark.parametrize("policy", ["raise", "skip"])
@pytest.mark.parametrize("kind", CACHES)
@pytest.mark.parametrize("bad", [0, 1, 4])
def test_an_element_that_is_looked_at_for_its_type_lacks_like_any_other(
    bad: int, kind: str, policy: Any, tmp_path: Path
) -> None:
    make = Marked(set())

    def chain() -> gp.Dataset:
        batches = R(24).map(make).batch(3).map(lambda x: np.asarray(x) + 0)
        ds: gp.Dataset = CACHES[kind](batches, str(tmp_path / "c")).unbatch()
        return ds.with_options(gp.Options(on_error=policy))

    one = chain()
    list(one)
    with iter(one) as items:
        for _ in range(8):
            next(items)
        state = through_json(items.state_dict())
        rest = numbers(items)
    lose(tmp_path)
    make.bad = {bad}

    with resumed(chain(), state) as items:
        try:
            assert numbers(items) == rest == [*range(8, 24)]
        except gp.StateError as error:
            assert "was good when the state was taken" in str(error)


LOST_LATER: dict[str, Any] = {
    "cache": lambda f: R(7).map(f, traced=False).cache().batch(3),
    "repeat": lambda f: R(7).map(f, traced=False).cache().repeat(2).batch(3),
    "part": lambda f: R(7).map(f, traced=False).cache().take(3).concatenate(R(10, 14)),
    "behind": lambda f: R(7).map(f, traced=False).cache().shuffle(2, seed=1).concatenate(R(10, 14)),
    "nested": lambda f: R(7).map(f, traced=False).cache().map(lambda x: x + 1).cache().concatenate(R(10, 12)),
    "by index": lambda f: R(7).map(f, traced=False).cache().shuffle(gp.ALL, seed=1).batch(3),
    "function": lambda f: R(2).flat_map(lambda y: R(5).map(f, traced=False).cache()).concatenate(R(10, 12)),
}


@pytest.mark.parametrize("name", LOST_LATER)
def test_a_cache_that_is_lost_has_the_same_elements_bad_in_later_epochs(name: str) -> None:
    """Wherever the state is, also where the epoch needs no more of the cache."""
    make = Marked({1, 4})
    for healed in (1, 2, 5):
        make.bad = {1, 4}
        items = iter(LOST_LATER[name](make).with_options(SKIP).epochs(3))
        states: list[tuple[Any, list[int]]] = []
        for count in range(99):
            make.bad = {1, 4} if count < healed else set()
            states.append((through_json(items.state_dict()), []))
            try:
                given = np.ravel(next(items)).tolist()
            except StopIteration:
                break
            for _, rest in states:
                rest += given
        for count, (state, rest) in enumerate(states):
            if count < healed or (count > healed + 3 and count % 4):
                continue
            items = resumed(LOST_LATER[name](make).with_options(SKIP).epochs(3), state)
            assert numbers(items) == rest, (healed, count)


@pytest.mark.parametrize("bad", [{0}, {1, 4}, {5}])
def test_records_read_by_index_into_a_cache_are_bad_again_when_it_is_lost(bad: set[int], tmp_path: Path) -> None:
    def write(damaged: set[int]) -> None:
        path = tmp_path / "a.tfrecord"
        with gp.io.TFRecordWriter(tmp_path / "new") as writer:
            for n in range(6):
                writer.write(b"%d" % n)
        data = bytearray((tmp_path / "new").read_bytes())
        for n in damaged:
            data[n * 17 + 12] ^= 64
        path.write_bytes(data)
        os.utime(path, ns=(10**18, 10**18))

    def chain() -> gp.Dataset:
        records = gp.TFRecordDataset(tmp_path / "a.tfrecord").map(int, traced=False)
        return records.cache().shuffle(gp.ALL, seed=2).batch(2).repeat(2).with_options(SKIP)

    for count in range(1, 4):
        write(bad)
        items = iter(chain())
        for _ in range(count):
            next(items)
        state = through_json(items.state_dict())
        write(set())
        rest = numbers(items)

        assert rest
        assert numbers(resumed(chain(), state)) == rest, count


def test_a_state_names_what_is_bad_in_a_full_cache_once_however_many_passes_there_are() -> None:
    chain = R(6).map(Marked({1, 4}), traced=False).cache().repeat().with_options(SKIP)
    items = iter(chain)
    sizes = []
    for _ in range(3):
        for _ in range(40):
            next(items)
        sizes.append(len(items.state_dict()["caches"]))

    assert sizes == [1, 1, 1]
