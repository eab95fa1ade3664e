"""cache(file) and snapshot: whose elements a file holds, who may write it, what is left when things go wrong."""

from __future__ import annotations

import copy
import gc
import gzip
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, Options, TensorSpec, ops
from gpupipe.errors import RecordError
from gpupipe.extract.storage import temporary
from gpupipe.flow.element import Stream
from gpupipe.serial.elements_file import ElementsReader, stored
from gpupipe.serial.elements_writer import ElementsWriter, framed
from gpupipe.transform import choose
from gpupipe.transform.choose import Choice
from tests.behaviour.elements import start_of
from tests.behaviour.model import outcomes, plain, run
from tests.behaviour.test_save_load import ELEMENTS as SAVED
from tests.reliability.faulty import Faulty


def noted(x: Any) -> Any:
    # Kept in a module that is no part of the chain: what a function has in its own module counts as part of it.
    sys.noted_calls.append(int(x))  # type: ignore[attr-defined]
    return x


@pytest.fixture(autouse=True)
def calls() -> Iterator[list[int]]:
    sys.noted_calls = []  # type: ignore[attr-defined]
    yield sys.noted_calls  # type: ignore[attr-defined]
    del sys.noted_calls  # type: ignore[attr-defined]


def numbers(n: int = 5) -> Dataset:
    return Dataset.range(n).map(noted, traced=False)


def files(path: Path) -> list[str]:
    return sorted(os.listdir(path))


KINDS: dict[str, Callable[[Dataset, Path], Dataset]] = {
    "cache": lambda dataset, path: dataset.cache(path / "c"),
    "snapshot": lambda dataset, path: dataset.snapshot(path / "s"),
    "snapshot GZIP": lambda dataset, path: dataset.snapshot(path / "s", compression="GZIP"),
}


@pytest.fixture(params=[*KINDS])
def kept(request: pytest.FixtureRequest) -> Callable[[Dataset, Path], Dataset]:
    return KINDS[request.param]


def test_the_second_pass_comes_from_the_file(tmp_path: Path, calls: list[int], kept: Any) -> None:
    dataset = kept(numbers(), tmp_path)

    assert run(dataset.repeat(2)) == [0, 1, 2, 3, 4] * 2  # of one iterator
    assert run(dataset) == run(kept(numbers(), tmp_path)) == [0, 1, 2, 3, 4]
    assert calls == [0, 1, 2, 3, 4]


def ragged() -> Dataset:
    return (
        Dataset.range(1, 4).map(lambda x: np.arange(x), traced=False, spec=TensorSpec((None,), "int64")).ragged_batch(2)
    )


ELEMENTS: dict[str, Callable[[], Dataset]] = {**SAVED, "ragged": ragged}


@pytest.mark.parametrize("make", ELEMENTS.values(), ids=ELEMENTS.keys())
def test_elements_are_what_the_chain_gives(tmp_path: Path, make: Callable[[], Dataset], kept: Any) -> None:
    expected = list(make())
    for _ in range(3):
        got = list(kept(make(), tmp_path))

        assert repr(got) == repr(expected)


def test_bad_elements_are_kept_as_errors(tmp_path: Path, calls: list[int]) -> None:
    def fail(x: Any) -> Any:
        noted(x)
        if x == 1:
            raise ValueError("one is bad")
        return x

    dataset = Dataset.range(3).map(fail, traced=False).cache(tmp_path / "c")

    assert outcomes(dataset) == outcomes(dataset) == [0, "error", 2]
    assert calls == [0, 1, 2]
    with pytest.raises(gp.errors.FunctionError, match=r"range at index 1: .*one is bad"):
        list(dataset)
    assert run(dataset.with_options(Options(on_error="skip"))) == [0, 2]


# ---- whose elements they are


FACTOR = 2


def scaled(x: Any) -> Any:
    return x * FACTOR


def doubly(x: Any) -> Any:
    return scaled(scaled(x))


def test_what_a_function_uses_is_part_of_the_chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def chain(fn: Any) -> list[Any]:
        return run(Dataset.range(3).map(fn, traced=False).cache(tmp_path / "c"))

    assert chain(doubly) == [0, 4, 8]
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", 3)  # a global that a function it calls reads
    assert chain(doubly) == [0, 9, 18]
    array = np.arange(1 << 19)  # 4 MB
    assert chain(lambda x: array[x]) == [0, 1, 2]
    array[:3] = 9  # the same memory
    assert chain(lambda x: array[x]) == [9, 9, 9]
    assert len(files(tmp_path)) == 4


def test_saved_data_is_told_apart_whoever_reads_it(tmp_path: Path) -> None:
    for n in (2, 3):
        Dataset.range(n).save(tmp_path / "s")
        plain_one = Dataset.load(tmp_path / "s").cache(tmp_path / "c")
        read = Dataset.load(tmp_path / "s", reader_func=lambda files: files.flat_map(lambda f: f)).cache(tmp_path / "d")
        assert run(plain_one) == run(read) == run(read) == list(range(n))


def test_inputs_and_inner_plans_are_part_of_the_chain(tmp_path: Path) -> None:
    a, b = Dataset.range(2), Dataset.range(2, 4)
    chains = {
        "ab": (a.concatenate(b), [0, 1, 2, 3]),
        "ba": (b.concatenate(a), [2, 3, 0, 1]),
        "aa": (a.concatenate(a), [0, 1, 0, 1]),
        "inner a": (a.flat_map(lambda x: Dataset.range(5).take(1)), [0, 0]),
        "inner b": (a.flat_map(lambda x: Dataset.range(5).take(2)), [0, 1, 0, 1]),
        "traced +": (a.map(lambda x: x + 1), [1, 2]),
        "traced *": (a.map(lambda x: x * 3), [0, 3]),
        "closure": (a.flat_map(lambda x: b), [2, 3, 2, 3]),
    }
    for _ in range(2):
        for chain, expected in chains.values():
            assert run(chain.cache(tmp_path / "c")) == expected
    assert len(files(tmp_path)) == len(chains)


def test_large_arrays_count_by_content(tmp_path: Path) -> None:
    array = np.zeros((3, 1 << 18))  # 6 MB: not copied by the dataset
    for value in (0, 1):
        array[1] = value
        assert [x[0] for x in Dataset.from_tensor_slices(array).cache(tmp_path / "c")] == [0, value, 0]


@pytest.mark.parametrize("options", [Options(seed=1), Options(on_error="skip"), Options(max_pixels=3)], ids=str)
def test_settings_that_change_elements_have_their_own_file(tmp_path: Path, calls: list[int], options: Options) -> None:
    dataset = numbers(2).cache(tmp_path / "c")

    run(dataset)
    run(dataset.with_options(options))
    run(dataset.with_options(Options(threads=3)))

    assert calls == [0, 1, 0, 1]
    assert len(files(tmp_path)) == 2


def test_changed_data_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "data"
    dataset = gp.TextLineDataset(str(path)).cache(tmp_path / "c")
    listed = Dataset.from_tensor_slices([str(path)]).flat_map(gp.TextLineDataset).cache(tmp_path / "d")

    for text in ("a\nb\n", "other\nlines\n"):
        path.write_text(text)
        os.utime(path, ns=(1, len(text)))
        assert run(dataset) == run(listed) == run(dataset) == [line.encode() for line in text.split()]


@pytest.mark.parametrize(
    ("version", "told"),
    [({}, False), ({"ETag": '"1"'}, True), ({"Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"}, True)],
    ids=["nothing", "ETag", "time"],
)
def test_changed_data_of_a_server_is_read_anew_unless_it_tells_the_size_alone_which_is_said(
    tmp_path: Path, version: dict[str, str], told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("x", "y"):
        (tmp_path / name).write_bytes(b"old")
    with Faulty(tmp_path, version=version).serving() as server:
        ds = gp.TextLineDataset([server.url("x"), server.url("y")]).cache(tmp_path / "c")
        assert [list(ds), list(ds)] == [[b"old"] * 2] * 2
        for name in ("x", "y"):
            (tmp_path / name).write_bytes(b"new")
        server.version = {name: f"{value[:-1]}+" for name, value in version.items()}

        assert list(ds) == [b"new" if told else b"old"] * 2

    said = [record.message for record in caplog.records if "tells neither an ETag nor a time" in record.message]
    assert len(said) == (0 if told else 1)
    assert told or f"the server of {server.url('x')} and others tells" in said[0]


def test_executors_have_their_own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = Dataset.from_tensors(np.zeros((4, 4, 3), np.uint8)).map(ops.flip_left_right).cache(tmp_path / "c")
    keys = set()
    for executor in ("dali-cpu", "dali-gpu", "fast", "numpy"):
        choice = Choice(executor, None, "")
        monkeypatch.setattr(choose, "resolve_device", lambda settings, choice=choice: choice)
        keys.add(images.plan.store.key(images.options().resolve()))  # type: ignore[attr-defined]

    assert len(keys) == 4


@pytest.mark.parametrize("data", [[3, 5, 7], (3, 5, 7), np.array([3, 5, 7])], ids=["list", "tuple", "array"])
def test_plain_data_that_is_indexed_is_compared_by_its_content(
    data: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def cached(items: Any) -> list[Any]:
        return run(Dataset.from_indexable(items).cache(tmp_path / "c"))

    assert cached(data) == cached(copy.deepcopy(data)) == [3, 5, 7]
    assert "only this process" not in caplog.text
    assert len(files(tmp_path)) == 1
    assert cached([4]) == [4]
    assert len(files(tmp_path)) == 2


def test_random_state_in_a_chain_keeps_the_file_to_this_process(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rng = np.random.default_rng(0)
    dataset = Dataset.range(3).map(lambda x: x + 0 * rng.integers(5), traced=False).cache(tmp_path / "c")

    assert run(dataset) == run(dataset) == [0, 1, 2]

    assert "only this process can use the file" in caplog.text
    (name,) = files(tmp_path)
    assert name.endswith(".private")
    del dataset
    gc.collect()
    assert files(tmp_path) == []


SCRIPT = """
import sys
import gpupipe as gp
def f(x):
    print("called", x)
    return {"x": x, "y": (x * 2, b"z")}
ds = gp.Dataset.range(3).map(f, traced=False).shuffle(3, seed=5).cache(sys.argv[1])
print([(int(e["x"]), int(e["y"][0])) for e in ds])
"""


def test_another_process_reads_the_file(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)

    command = [sys.executable, str(script), str(tmp_path / "c")]

    first, second = (subprocess.check_output(command, text=True, timeout=60).splitlines() for _ in range(2))

    assert [line[:6] for line in first[:3]] == ["called"] * 3
    assert second == first[3:]


# ---- partial passes, several writers, crashes


def test_a_partial_pass_leaves_nothing(tmp_path: Path, calls: list[int], kept: Any) -> None:
    dataset = kept(numbers(), tmp_path)

    assert run(dataset.take(2)) == [0, 1]
    items = iter(dataset)
    next(items)
    assert len([name for _, _, names in os.walk(tmp_path) for name in names]) == 1  # the one being written
    del items  # dropped, as if it were closed

    assert [name for _, _, names in os.walk(tmp_path) for name in names] == []
    assert run(dataset) == [0, 1, 2, 3, 4]
    assert calls[-5:] == [0, 1, 2, 3, 4]


def test_a_pass_that_is_stopped_by_another_thread_is_no_full_pass(tmp_path: Path) -> None:
    go, inside = threading.Event(), threading.Event()

    def slow(x: Any) -> Any:
        if x == 3:
            inside.set()
            go.wait(20)
        return x

    source = Dataset.range(9).map(slow, traced=False).filter(lambda x: True)
    for dataset in (source.cache(tmp_path / "c"), source.cache()):
        go.clear()
        inside.clear()
        items = iter(dataset.prefetch(1).map(lambda x: x, traced=False).prefetch(2))
        assert next(items) == 0
        assert inside.wait(20)
        closing = threading.Thread(target=items.close)
        closing.start()
        while not items._run.stopped.is_set():  # type: ignore[union-attr]
            pass
        go.set()
        closing.join(20)

        assert files(tmp_path) == []
        assert run(dataset) == list(range(9))
        for name in files(tmp_path):
            os.remove(tmp_path / name)


def test_two_live_iterators_both_compute_and_one_file_stays(tmp_path: Path, calls: list[int]) -> None:
    dataset = numbers(4).cache(tmp_path / "c")

    pairs = list(zip(iter(dataset), iter(dataset), strict=True))

    assert plain(tuple(a for a, _ in pairs)) == plain(tuple(b for _, b in pairs)) == (0, 1, 2, 3)
    assert sorted(calls) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert len(files(tmp_path)) == 1
    assert run(dataset) == [0, 1, 2, 3]
    assert len(calls) == 8


def test_a_file_replaced_while_it_is_read_is_read_to_its_end(tmp_path: Path) -> None:
    dataset = Dataset.range(30_000).cache(tmp_path / "c")
    writer = iter(dataset)
    next(writer)
    run(dataset)
    reader = iter(dataset)
    seen = [next(reader)]

    rest = list(writer)  # puts its own file in place

    assert len(rest) == 29_999
    assert [*seen, *reader] == list(range(30_000))


def test_what_dead_processes_left_is_removed_and_what_live_ones_write_is_not(tmp_path: Path) -> None:
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    here = temporary._here()
    dead = f"c-0123456789abcdef.elements.{here}-{done.pid}-00000000.tmp"
    names = {
        dead: False,
        dead.replace(f"-{done.pid}-", f"-{os.getppid()}-"): True,
        dead.replace(here, "00000000"): True,  # of another machine
        f"other-{dead}": True,
        dead.removesuffix(".tmp"): True,
    }
    for name in names:
        (tmp_path / name).write_bytes(b"")

    run(numbers(1).cache(tmp_path / "c"))

    assert {name: (tmp_path / name).exists() for name in names} == names


KILLED = """
import os, signal, sys
import gpupipe as gp
items = iter(gp.Dataset.range(10**6).cache(sys.argv[1]))
for _ in range(1000): next(items)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(os.name != "posix", reason="kills a process as POSIX systems do")
def test_a_writer_that_is_killed_does_no_harm(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "c")], timeout=60)
    (left,) = files(tmp_path)
    assert left.endswith(".tmp")

    assert run(numbers(2).cache(tmp_path / "c")) == [0, 1]
    (whole,) = files(tmp_path)
    assert whole.endswith(".elements")


def test_a_disk_that_cannot_be_written_ends_no_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(self: Any) -> None:
        raise OSError(28, "No space left on device")

    dataset = numbers(3).cache(tmp_path / "c")
    with monkeypatch.context() as patch:
        patch.setattr("gpupipe.serial.elements_writer.ElementsWriter._flush", full)
        assert run(dataset) == [0, 1, 2]

    assert "cannot be written, this pass continues without it: [Errno 28]" in caplog.text
    assert files(tmp_path) == []
    assert run(dataset) == [0, 1, 2]


def test_a_folder_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    dataset = numbers(2).cache(tmp_path / "none" / "c")

    with pytest.raises(gp.DataError, match="needs a folder") as caught:
        list(dataset)
    assert isinstance(caught.value, FileNotFoundError)
    assert run(numbers(2).snapshot(tmp_path / "made" / "s")) == [0, 1]


# ---- damage


def the_file(path: Path) -> Path:
    (name,) = files(path)
    return path / name


@pytest.mark.parametrize("what", ["empty", "head", "cut", "foreign"])
def test_a_file_that_does_not_begin_or_end_well_is_computed_again(
    tmp_path: Path, calls: list[int], what: str, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = numbers(3).cache(tmp_path / "c")
    run(dataset)
    path = the_file(tmp_path)
    data = path.read_bytes()
    path.write_bytes({"empty": b"", "head": data[:30] + b"?" + data[31:], "cut": data[:-5], "foreign": b"text"}[what])

    assert run(dataset) == [0, 1, 2]
    assert calls == [0, 1, 2] * 2
    assert "is computed again" in caplog.text
    assert path.read_bytes() == data
    assert run(dataset) == [0, 1, 2]
    assert calls == [0, 1, 2] * 2


def test_a_file_that_was_renamed_is_not_taken_for_another_chain(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = numbers(3).cache(tmp_path / "c"), numbers(2).cache(tmp_path / "c")
    run(one)
    path = the_file(tmp_path)
    run(two)
    (other,) = [tmp_path / name for name in files(tmp_path) if name != path.name]
    os.replace(path, other)

    assert run(two) == [0, 1]
    assert "belongs to another chain" in caplog.text


def packed(data: bytes) -> bytes:
    """Compress a file as it is written: the elements, what it says of all of them, and the end, which is stored."""
    end = 12 + 21 + 4
    about = data.rindex(b"I" + data[-end + 13 : -end + 17]) - 12
    first = gzip.compress(data[:about])
    last = framed([data[-end + 12 : -12], struct.pack("<Q", len(first))])
    return first + gzip.compress(data[about:-end]) + stored(last)


@pytest.mark.parametrize("byte", [2, 30], ids=["length", "payload"])
def test_a_damaged_element_costs_no_other_and_the_file_is_computed_again(
    tmp_path: Path, calls: list[int], kept: Any, byte: int
) -> None:
    everything = list(range(600))
    run(kept(numbers(600), tmp_path))
    (path,) = [found for found in tmp_path.rglob("*") if found.is_file()]
    pack, unpack = (packed, gzip.decompress) if path.suffix == ".gz" else (bytes, bytes)
    whole = unpack(path.read_bytes())
    data = bytearray(whole)
    data[start_of(data, 300) + byte] ^= 1
    path.write_bytes(pack(bytes(data)))

    short = [*range(300), "error", *range(301, 600)]
    dataset = kept(numbers(600), tmp_path)
    assert outcomes(dataset.repeat(2)) == short * 2  # one iterator, two passes
    items = iter(kept(numbers(600), tmp_path).ignore_errors())
    assert [int(x) for x in items] == [*range(300), *range(301, 600)]
    assert items.left_out == 1
    assert calls == everything

    assert run(dataset) == everything
    assert calls == everything * 2
    assert unpack(path.read_bytes()) == whole
    assert run(kept(numbers(600), tmp_path)) == everything
    assert calls == everything * 2


@pytest.mark.parametrize(
    ("leaves", "text"),
    [((np.int64(1),) * 2, "elements with 1 leaves, got one with 2"), ((b"x",), "int64 for all elements, got bytes")],
    ids=["leaves", "dtype"],
)
def test_elements_of_another_type_than_the_head_says_are_errors_and_the_file_is_computed_again(
    tmp_path: Path, calls: list[int], leaves: Any, text: str
) -> None:
    dataset = numbers(3).cache(tmp_path / "c")
    run(dataset)
    path = the_file(tmp_path)
    with closing(ElementsReader(str(path))) as reader:
        head = reader.head
    path.unlink()
    writer, stream = ElementsWriter(str(path), head, told=True), Stream(1, "x")
    writer.begin()
    for i in range(3):
        writer.write(leaves, stream, i)
    writer.finish()

    with pytest.raises(RecordError, match=f"cache needs {text}; the next iterator computes the file again") as caught:
        list(numbers(3).cache(tmp_path / "c").batch(2))
    assert caught.value.file == str(path)
    assert outcomes(dataset) == ["error"] * 3
    assert run(dataset) == [0, 1, 2]
    assert calls == [0, 1, 2] * 2


def test_a_file_that_shrinks_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    dataset = Dataset.range(40_000).cache(tmp_path / "c")
    assert len(list(dataset)) == 40_000
    path = the_file(tmp_path)
    items = iter(dataset)
    assert next(items) == 0
    os.truncate(path, 1000)

    with pytest.raises(gp.DataError) as caught:
        list(items)
    assert caught.value.file == str(path)
    assert len(list(dataset)) == 40_000


# ---- arguments


def test_what_cannot_be_cached_is_refused_on_the_users_line(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="snapshot needs the path"):
        Dataset.range(3).snapshot("")
    with pytest.raises(ValueError, match=r"save\(path, shard_func"):
        Dataset.range(3).snapshot(tmp_path, shard_func=lambda x: x)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match='"AUTO", "NONE"'):
        Dataset.range(3).snapshot(tmp_path, compression="SNAPPY")
    with pytest.raises(ValueError, match="a local path"):
        Dataset.range(3).cache("s3://bucket/c")
    with pytest.raises(TypeError, match="got a dataset of"):
        Dataset.range(3).window(2).cache(tmp_path / "c")


def test_a_chain_that_a_function_makes_for_each_element_has_a_file_for_each(tmp_path: Path) -> None:
    dataset = Dataset.range(1, 4).flat_map(lambda i: Dataset.range(int(i)).cache(tmp_path / "c"))
    traced = Dataset.range(1, 4).flat_map(lambda i: Dataset.range(i).cache(str(tmp_path / "c")))

    assert run(traced) == [0, 0, 1, 0, 1, 2]
    assert run(dataset) == run(dataset) == [0, 0, 1, 0, 1, 2]
    assert len(files(tmp_path)) == 3


@pytest.mark.parametrize("where", ["", "c"])
def test_a_cache_in_a_traced_function_is_one_for_each_element(tmp_path: Path, where: str) -> None:
    for i in range(3):
        (tmp_path / f"{i}.txt").write_text(f"a{i}\nb{i}\n")
    listed = Dataset.list_files(f"{tmp_path}/*.txt", shuffle=False)

    dataset = listed.flat_map(lambda path: gp.TextLineDataset(path).cache(where and str(tmp_path / where)))

    assert run(dataset) == run(dataset) == [b"a0", b"b0", b"a1", b"b1", b"a2", b"b2"]
