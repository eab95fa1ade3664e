"""What a state holds, how large it is, what it costs to go on from it, and what it refuses."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe.compat import NotInitializedError, make_initializable_iterator, make_one_shot_iterator
from gpupipe.errors import StateError
from gpupipe.load import iterator
from gpupipe.load.state import sealed
from gpupipe.transform import choose
from tests.chains import damage
from tests.chains.data import Spy
from tests.reliability.consumer import crop
from tests.reliability.faulty import Disk
from tests.reliability.resume import behind, refused, state_after, taken, through_json

CALLS: list[int] = []


def noted(x: Any) -> Any:
    CALLS.append(int(x))
    return np.asarray(x) + 1


def third(x: Any) -> Any:
    return bool(int(x) % 3)


def write_records(folder: Path, files: int, records: int) -> list[str]:
    paths = [folder / f"part-{i:04}-of-{files:04}.tfrecord" for i in range(files)]
    for i, path in enumerate(paths):
        damage.write(path, [b"%d" % (i * records + j) for j in range(records)])
    return list(map(str, paths))


# ---- size


def threes(x: Any) -> Any:
    return gp.Dataset.range(9).shuffle(3)


def of_files(paths: list[str]) -> Any:
    return gp.Dataset.list_files(paths, seed=1).interleave(gp.TFRecordDataset, cycle_length=16)


SIZES: dict[str, tuple[int, int, Any, int]] = {  # files and records of each, a chain, the elements of its buffer
    "without a buffer": (40, 30, lambda paths: of_files(paths).batch(8).prefetch(2), 0),
    "a full shuffle": (4, 500, lambda paths: gp.TFRecordDataset(paths).shuffle(gp.ALL).batch(8), 0),
    "records": (50, 300, lambda paths: of_files(paths).shuffle(10_000).batch(8), 10_000),
    "anything else": (
        *(0, 0),
        lambda _: gp.Dataset.range(30_000).map(noted).filter(third).enumerate().shuffle(10_000).batch(8),
        10_000,
    ),
    "many files": (700, 1, lambda paths: of_files(paths).batch(8), 0),
    "many inner datasets": (0, 0, lambda _: gp.Dataset.range(999).interleave(threes, cycle_length=256).batch(8), 0),
    "many steps": (0, 0, lambda _: gp.Dataset.zip(tuple(gp.Dataset.range(999).shuffle(3) for _ in range(30))), 0),
}


@pytest.mark.parametrize("name", SIZES)
def test_a_state_needs_16_bytes_for_an_element_of_a_buffer_and_little_else(name: str, tmp_path: Path) -> None:
    files, records, make, buffer = SIZES[name]
    state = state_after(make(write_records(tmp_path, files, records)), 60)
    assert buffer < len(json.dumps(state)) <= 10_000 + 16 * buffer


def test_no_payload_is_in_it(tmp_path: Path) -> None:
    damage.write(tmp_path / "a", [b"secret %d" % i * 100 for i in range(50)])
    state = state_after(gp.TFRecordDataset(str(tmp_path / "a")).shuffle(20).batch(2), 5)
    assert "secret" not in json.dumps(state)
    assert len(json.dumps(state)) < 3000


# ---- what going on costs


@pytest.mark.parametrize("calls", [None, 2])
def test_a_python_function_is_called_for_what_follows_only(calls: int | None) -> None:
    ds = gp.Dataset.range(5000).map(noted, num_parallel_calls=calls).batch(10)
    state = state_after(ds, 300)
    CALLS.clear()
    with iter(ds) as items:
        items.load_state_dict(state)
        assert next(items).tolist() == list(range(3001, 3011))
    assert list(range(3000, 3010)) == CALLS if calls is None else min(CALLS) == 3000


@pytest.mark.parametrize("backend", ["dali", "numpy"])
@pytest.mark.parametrize("last", ["batch", "Python", "cache"])
def test_nothing_before_the_state_is_decoded(
    last: str, backend: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if backend == "dali":
        pytest.importorskip("nvidia.dali")
    damage.write(tmp_path / "a.tfrecord", [damage.example(i) for i in range(60)])
    ds = gp.TFRecordDataset(str(tmp_path / "a.tfrecord")).shuffle(9).map(crop)
    if last == "Python":
        ds = ds.map(lambda image, label: (np.asarray(image), np.asarray(label)), traced=False)
    if last == "cache":
        ds = ds.cache()
    ds = ds.batch(4).with_options(gp.Options(device="cpu", backend=backend, threads=1))
    state = state_after(ds, 14)

    spy = Spy().install(monkeypatch)
    behind(ds, state)
    # Rows of single images come in groups: the one that the state lies in is decoded again.
    assert 4 <= spy.decoded <= (4 if last == "batch" else 4 + 2 * 16)


def test_no_payload_is_read_that_is_not_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record, count = 20_000, 200
    damage.write(tmp_path / "a", [np.int64(i).tobytes() * (record // 8) for i in range(count)])
    ds = gp.TFRecordDataset(str(tmp_path / "a")).shuffle(50).batch(4)
    state = state_after(ds, count // 4 - 2)
    read: list[int] = []

    def counted(number: int, start: int, stop: int) -> None:
        read.append(stop - start)

    Disk(str(tmp_path / "a"), counted).install(monkeypatch)
    assert len(behind(ds, state)) == 2
    assert sum(read) < 8 * (record + 16) + 100_000  # the eight records that are left, and headers


# ---- what is refused


def test_another_chain_is_refused_by_its_step() -> None:
    state = state_after(gp.Dataset.range(9).shuffle(4).batch(2), 2)
    refused(gp.Dataset.range(9).shuffle(5).batch(2), state, r"step 2 was shuffle\(4, .* this one has shuffle\(5, ")
    refused(gp.Dataset.range(10).shuffle(4).batch(2), state, "step 1 was range")
    refused(gp.Dataset.range(9).shuffle(4).batch(2).repeat(2), state, "of 4 steps, got one of 3 steps")


def test_a_function_is_compared_by_its_name_a_traced_one_by_what_it_computes() -> None:
    refused(gp.Dataset.range(9).map(third), state_after(gp.Dataset.range(9).map(noted), 2), "step 2 was map")
    state = state_after(gp.Dataset.range(9).map(lambda x: x * 2), 2)
    assert len(behind(gp.Dataset.range(9).map(lambda y: y * 2), state)) == 7
    refused(gp.Dataset.range(9).map(lambda x: x * 3), state, "step 2 was map")


def test_changed_code_under_the_same_name_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    def make(source: str) -> Any:
        scope: dict[str, Any] = {"__name__": "tests.made"}
        exec(source, scope)
        return gp.Dataset.range(9).map(scope["f"], traced=False)

    state = state_after(make("def f(x): return x + 1"), 2)
    with caplog.at_level(logging.WARNING, "gpupipe"):
        behind(make("def f(x): return x + 2"), state)
    assert "has changed since the state was made" in caplog.text


def test_another_executor_of_images_is_warned_of(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = gp.Dataset.from_tensor_slices(np.zeros((6, 4, 4, 3), np.uint8)).map(gp.ops.flip_left_right)
    images = images.with_options(gp.Options(device="cpu", threads=2))
    plain = gp.Dataset.range(6).map(lambda x: x + 1)
    caplog.set_level(logging.WARNING, "gpupipe")
    states = []
    for found in (False, True):
        for name in ("has_dali", "has_fast"):
            monkeypatch.setattr(choose, name, lambda found=found: found)
        states += [state_after(ds, 0) for ds in (images, plain)]
        assert "by the executor" not in caplog.text

    behind(plain, states[1], 0)
    assert "by the executor" not in caplog.text
    behind(images, states[0], 0)
    assert "computed by the executor 'numpy', here by 'fast'" in caplog.text


@pytest.mark.parametrize(
    "options", [{"threads": 1}, {"backend": "numpy"}, {"host_memory": 1 << 20}, {"device": "cpu"}], ids=str
)
def test_options_that_change_no_result_are_not_warned_of(
    options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    ds = gp.Dataset.range(9).map(noted).batch(2)
    state = state_after(ds, 2)
    other = gp.Dataset.range(9).map(noted).with_options(gp.Options(**options)).batch(2)
    with caplog.at_level(logging.WARNING, "gpupipe"):
        assert behind(other, state) == taken(iter(ds))[2:]
    assert caplog.text == ""


def test_changed_files_are_refused_by_name(tmp_path: Path) -> None:
    paths = write_records(tmp_path, 3, 20)

    def everything() -> gp.Dataset:
        return gp.Dataset.list_files(str(tmp_path / "*")).flat_map(gp.TFRecordDataset)

    one = gp.TFRecordDataset(paths[0])
    state, state_of_all = state_after(one, 5), state_after(everything(), 2)
    damage.write(Path(paths[0]), [b"another"])
    refused(one, state, r"same files, got one over .*part-0000.* of \d+ bytes where there is .* of 23 bytes now")
    Path(paths[0]).unlink()
    refused(one, state, "which is not there")
    refused(everything(), state_of_all, "same 2 files, got one over 3")


@pytest.mark.parametrize(("name", "one", "other"), [("seed", 1, 2), ("on_error", "skip", "replace")])
def test_other_options_are_refused(name: str, one: Any, other: Any) -> None:
    ds = gp.Dataset.range(9).shuffle(4)
    state = state_after(ds.with_options(gp.Options(**{name: one})), 2)
    refused(ds.with_options(gp.Options(**{name: other})), state, f"made with {name}={other!r}, got one made with")


@pytest.mark.parametrize("given", [None, 3, [], {}, {"gpupipe_state": 0}, {"gpupipe_state": 99}, "text"])
def test_what_is_no_state_is_refused(given: Any) -> None:
    refused(gp.Dataset.range(9), given, "load_state_dict needs")


def broken(state: Any) -> Any:
    """Every way to put nonsense in the place of one part of a state."""
    parts = state.items() if isinstance(state, dict) else enumerate(state) if isinstance(state, list) else ()
    for key, part in parts:
        nonsense: list[Any] = [None, -1, 1 << 70, "x" * 50, [], {}, [[1]], "AAAA", 1.5, True]
        for other in [x for x in nonsense if x != part or type(x) is not type(part)] + list(broken(part)):
            copy = dict(state) if isinstance(state, dict) else list(state)
            copy[key] = other
            yield copy


@pytest.mark.timeout(120)
def test_a_damaged_state_is_an_error_of_its_own(tmp_path: Path) -> None:
    paths = write_records(tmp_path, 3, 9)
    records = gp.Dataset.list_files(paths, seed=1).interleave(gp.TFRecordDataset, cycle_length=2)
    ds = records.shuffle(5).repeat(2).batch(2)
    state = state_after(ds, 3)
    ways = list(broken(state["flow"]))[::3]
    assert len(ways) > 80 / 3
    for flow in ways:
        with contextlib.suppress(StateError, gp.DataError):
            behind(ds, sealed({**state, "flow": flow}), 3)


NONSENSE: dict[str, list[Any]] = {  # by part of a state
    "epoch": [7, -1, "1", [1]],
    "begin_at": [3, "3"],
    "stand": [None, "outside"],
    "flow": [None, {"zlib": "AAAA", "letters": 3}],
    "types": [[[1, 2]], None, [[float("inf"), 1]], [["1", 1]]],
    "noted": [None, 3, "x", {"1": 150_000_000}, {"1": "x"}, ["1"], [-1], [1 << 64], [True], [[1]]],
    "engine": ["by_rank", 3],
    "first": [100, "1"],
    "delivered": [None],
    "in_epoch": [10_000],
    "left_out": [-1],
    "raised": [-1],
}


@pytest.mark.parametrize(
    "changed",
    [*({part: x} for part, values in NONSENSE.items() for x in values), {"engine": "on_ray", "place": 2}],
    ids=str,
)
def test_a_refused_state_leaves_the_iterator_as_new(changed: dict[str, Any]) -> None:
    ds = gp.Dataset.range(7).shuffle(4)
    with ds.epochs(3) as items:
        whole = taken(items)
    state = state_after(ds.epochs(3), 9)
    for other in (False, True):
        with ds.epochs(3) as items:
            with pytest.raises(StateError):
                items.load_state_dict(sealed({**state, **changed}))
            assert items.epoch is None
            if other:
                assert behind(items, state) == whole[9:]
            else:
                assert taken(items, 4) == whole[:4]
                begun = items.state_dict()
                assert [begun[x] for x in ("stand", "epoch", "delivered", "in_epoch")] == ["inside", 0, 4, 4]


def test_a_state_says_where_in_its_epoch_it_stands() -> None:
    ds = gp.Dataset.range(3)
    with iter(ds) as items:
        begin = items.state_dict()
        assert [next(items), next(items)] == [0, 1]
        inside = items.state_dict()
        assert list(items) == [2]
        end = items.state_dict()

    assert [state["stand"] for state in (begin, inside, end)] == ["begin", "inside", "end"]
    assert ["flow" in state for state in (begin, inside, end)] == [False, True, False]
    assert [len(behind(ds.iterator(epoch=0), state)) for state in (begin, inside, end)] == [3, 1, 0]
    with iter(ds) as items:  # the next epoch
        items.load_state_dict(end)
        assert (list(items), items.epoch) == ([0, 1, 2], 1)


def test_a_closed_iterator_takes_no_state() -> None:
    ds = gp.Dataset.range(5)
    items = iter(ds)
    items.close()
    with pytest.raises(gp.PlanError, match="has not started"):
        items.load_state_dict(state_after(ds, 2))


def test_an_epoch_that_was_asked_for_is_kept() -> None:
    ds = gp.Dataset.range(9).shuffle(9)
    refused(ds.iterator(epoch=2), state_after(ds.iterator(epoch=3), 4), "epoch 3")


# ---- explain


def gives(n: int = 5) -> Any:
    yield from map(np.int64, range(n))


def test_explain_says_what_is_done_again() -> None:
    ds = gp.Dataset.from_generator(gives, output_signature=gp.TensorSpec((), "int64")).cache().unique()
    text = str(ds.explain())
    assert "after load_state_dict" in text
    for part in ("is called again", "starts empty", "reads its elements again"):
        assert part in text
    assert "after load_state_dict" not in str(gp.Dataset.range(9).shuffle(3).batch(2).explain())


def third_is_bad(x: Any) -> Any:
    if int(x) % 3 == 1:
        raise ValueError("third")
    return np.asarray(x)


@pytest.mark.parametrize("strike", [1, 2, 5])
def test_it_is_listed_once_where_ctrl_c_follows_the_state(strike: int) -> None:
    strikes: Iterator[bool] = iter(())

    def struck(batch: Any) -> Any:
        if next(strikes, False):
            raise KeyboardInterrupt
        return batch

    row, rows = gp.TensorSpec((), "int64"), gp.TensorSpec((None,), "int64")
    ds = gp.Dataset.range(40).map(third_is_bad, spec=row).batch(4).map(np.negative, spec=rows).prefetch(2)
    ds = ds.map(struck, spec=rows).with_options(gp.Options(on_error="skip"))
    with iter(ds) as items:
        taken(items, 1)
        while items.left_out < 6:  # of three batches, two of which wait
            time.sleep(0.001)
        state = through_json(items.state_dict())
    with iter(ds) as items:
        items.load_state_dict(state)
        strikes = iter([False] * (strike - 1) + [True])
        with pytest.raises(KeyboardInterrupt):
            taken(items)
        taken(items)

        assert items.left_out == 13


@pytest.mark.parametrize("nonsense", ["", "AAAA", "x" * 50, None, 3])
def test_a_damaged_text_is_an_error_of_its_own(nonsense: Any, tmp_path: Path) -> None:
    ds = gp.TFRecordDataset(write_records(tmp_path, 3, 500)).shuffle(900).batch(2)
    state = state_after(ds, 100)
    assert "zlib" in state["flow"]
    for changed in ({"zlib": nonsense}, {"letters": nonsense}, {"letters": 1}, {"letters": 1 << 60}):
        refused(ds, sealed({**state, "flow": {**state["flow"], **changed}}), "damaged|needs")


def test_a_changed_number_is_noticed() -> None:
    ds = gp.Dataset.range(9).take(5).repeat(3)
    state = state_after(ds, 3)
    for part in ({"pass": 2}, {"empty": 3}):
        refused(ds, {**state, "flow": {**state["flow"], **part}}, "damaged")
    refused(ds, {**state, "delivered": 99}, "damaged")


@pytest.mark.parametrize("prefetch", [False, True])
def test_a_function_of_the_chain_cannot_ask_for_the_state(prefetch: bool) -> None:
    def asks(x: Any) -> Any:
        items.state_dict()
        return np.asarray(x)

    ds = gp.Dataset.range(5).map(asks, spec=gp.TensorSpec((), "int64"))
    items = iter(ds.prefetch(1).map(noted) if prefetch else ds)
    with items, pytest.raises(gp.DataError, match=r"state_dict\(\) needs to be called from outside"):
        next(items)


def test_a_signal_handler_is_told_when_to_ask() -> None:
    def asks(signum: int, frame: Any) -> None:
        items.state_dict()

    def waits(x: Any) -> Any:
        os.kill(os.getpid(), signal.SIGUSR1)
        return np.asarray(x)

    before = signal.signal(signal.SIGUSR1, asks)
    try:
        items = iter(gp.Dataset.range(4).batch(2).map(waits, spec=gp.TensorSpec((None,), "int64")))
        with (
            items,
            pytest.raises(gp.GpupipeError, match=r"state_dict\(\) needs .* from outside, between two"),
        ):
            next(items)
    finally:
        signal.signal(signal.SIGUSR1, before)


def fails_for_long(x: Any) -> Any:
    if int(x) < 120:
        raise ValueError("long")
    return np.asarray(x) + 0


@pytest.mark.parametrize("epochs", [1, 3])
def test_an_epoch_that_could_not_be_opened_is_over(epochs: int) -> None:
    """No element tells what the elements are: one error says so, and the next epoch follows."""
    ds = gp.Dataset.range(125).map(fails_for_long).shuffle(3)
    with ds.epochs(epochs) as items:
        whole = taken(items)
    assert len(whole) == epochs
    assert "and so did the next 99 elements" in whole[0][1]
    for count in range(epochs + 1):
        assert goes_on_twice(ds.epochs(epochs), ds.epochs(epochs), ds.epochs(epochs), count) == whole[count:]


def test_more_epochs_follow_where_there_were_fewer() -> None:
    ds = gp.Dataset.range(7).shuffle(7)
    with ds.epochs(5) as items:
        whole = taken(items)

    assert goes_on_twice(ds.epochs(3), ds.epochs(5), ds.epochs(5), None) == whole[21:]


def goes_on_twice(first: Any, second: Any, third: Any, count: int | None) -> list[Any]:
    """What follows behind a state of the first, by it in the second, and by its state in the third."""
    state = state_after(first, count)
    with second:
        second.load_state_dict(state)
        again = through_json(second.state_dict())
        rest = taken(second)
    assert behind(third, again) == rest
    return rest


@pytest.mark.parametrize("count", [0, 3], ids=["at the begin", "inside"])
def test_an_epoch_that_this_machine_cannot_run_is_not_over(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who saves a state on the way out of a failed start has not lost the epoch."""
    ds = gp.Dataset.range(7).shuffle(7)
    with ds.epochs(2) as items:
        whole = taken(items)
    state = state_after(ds.epochs(2), count)
    with ds.epochs(2) as items:
        items.load_state_dict(state)
        with monkeypatch.context() as patch:
            patch.setattr(iterator, "lower_in", _no_gpu)
            for _ in range(2):
                with pytest.raises(gp.PlanError, match="no GPU"):
                    next(items)
            saved = through_json(items.state_dict())
        assert taken(items) == whole[count:]
    assert behind(ds.epochs(2), saved) == whole[count:]


def _no_gpu(*_: Any) -> Any:
    raise gp.PlanError("no GPU")


def numbers() -> gp.Dataset:
    return gp.Dataset.range(9).shuffle(9)


def rest(items: Any) -> list[int]:
    return [int(x) for x in items]


def test_a_one_shot_iterator_goes_on() -> None:
    state = state_after(make_one_shot_iterator(numbers()), 4)
    with make_one_shot_iterator(numbers()) as items:
        items.load_state_dict(state)
        assert rest(items) == rest(make_one_shot_iterator(numbers()))[4:]
        assert items.state_dict()["stand"] == "end"


@pytest.mark.parametrize("begun", [False, True])
def test_an_initializable_iterator_goes_on_in_its_pass(begun: bool) -> None:
    items = make_initializable_iterator(numbers())
    items.initializer()
    list(items)
    items.initializer()
    state = state_after(items, 4)
    with make_initializable_iterator(numbers()) as items:
        if begun:
            items.initializer()
        items.load_state_dict(state)
        assert rest(items) == rest(numbers().iterator(epoch=1))[4:]
        items.initializer()  # the next pass
        assert rest(items) == rest(numbers().iterator(epoch=2))


def test_what_cannot_be_is_refused() -> None:
    with make_initializable_iterator(numbers()) as items:
        with pytest.raises(NotInitializedError, match=r"state_dict needs .* call initializer\(\) first"):
            items.state_dict()
        with pytest.raises(gp.StateError):
            items.load_state_dict({})
        with pytest.raises(NotInitializedError):  # a state that was refused has begun nothing
            items.get_next()
    with make_one_shot_iterator(numbers()) as items:
        items.get_next()
        state = items.state_dict()
        with pytest.raises(gp.PlanError, match="has not started"):
            items.load_state_dict(state)


# ---- states that nothing has made, with a right digest


def changed(state: Any, path: list[Any], value: Any) -> Any:
    """A state with another value in its flow's part."""
    at = state["flow"]
    for name in path[:-1]:
        at = at[name]
    at[path[-1]] = value
    return sealed(state)


def numbers_of(part: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all integers in a part of a state."""
    items = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    for name, value in items:
        if type(value) is int:
            yield (*path, name)
        yield from numbers_of(value, (*path, name))


MADE: dict[str, Callable[[gp.Dataset], gp.Dataset]] = {
    "counting": lambda ds: ds.batch(4).unbatch(),
    "endless": lambda ds: ds.repeat().batch(3).unbatch().shuffle(5),
    "windows": lambda ds: ds.window(3).flat_map(lambda w: w),
    "generator": lambda ds: gp.Dataset.from_generator(
        lambda: iter(range(30)), output_signature=gp.TensorSpec((), "int64")
    ),
    "choice": lambda ds: gp.Dataset.choose_from_datasets([ds, ds], gp.Dataset.range(2).repeat()).prefetch(2),
    "interleave": lambda ds: ds.interleave(lambda x: gp.Dataset.range(x, x + 3), 2).rebatch(2),
}


@pytest.mark.parametrize("value", [1 << 45, (1 << 61) - 1, -1, None, "x", [1, 2], {"a": 1}])
@pytest.mark.parametrize("name", MADE)
def test_mad_numbers_are_refused_and_never_skipped_for_ever(name: str, value: Any) -> None:
    def build() -> gp.Dataset:
        return MADE[name](gp.Dataset.range(20))

    state = state_after(build(), 7)
    for path in numbers_of(state["flow"]):
        if isinstance(value, int) and path[-1] in ("bad", "since"):
            continue  # a place for what the run itself counts
        mad = changed(json.loads(json.dumps(state)), list(path), value)
        with build().iterator(epoch=0) as items, contextlib.suppress(gp.StateError, StopIteration, gp.DataError):
            items.load_state_dict(mad)
            for _ in range(5):  # some numbers of a buffer only choose what comes
                next(items)


TOO_MANY: list[tuple[Callable[[gp.Dataset], gp.Dataset], str, list[int]]] = [
    (lambda ds: ds.concatenate(ds).repeat(2), "pass", [3, 1 << 40]),
    (lambda ds: ds.filter(lambda x: x >= 0).repeat(2), "pass", [3]),
    (lambda ds: ds.filter(lambda x: x >= 0).shuffle(5), "opened", [0, 2, 1 << 40]),
    (lambda ds: ds.filter(lambda x: x >= 0).shuffle(5).repeat(2), "opened", [0, 3]),
    (lambda ds: ds.shuffle(5).repeat(2), "opened", [0, 3]),
    (lambda ds: ds.filter(lambda x: x >= 0).skip(2), "left", [3]),
    (lambda ds: ds.filter(lambda x: x >= 0).shard(2, 1), "place", [3]),
    (lambda ds: ds.assert_cardinality(20), "seen", [21]),
]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("make", "part", "numbers"), TOO_MANY)
def test_a_pass_or_count_that_the_chain_does_not_have_is_refused(
    make: Callable[[gp.Dataset], gp.Dataset], part: str, numbers: list[int]
) -> None:
    ds = make(gp.Dataset.range(20))
    state = state_after(ds, 7)
    for number in numbers:
        with iter(ds) as items, pytest.raises(StateError, match=f"for {part}, got"):
            items.load_state_dict(changed(json.loads(json.dumps(state)), [part], number))
            taken(items)
