"""save and load: what comes back, what a folder holds at every moment, and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, Options, TensorSpec
from tests.behaviour.model import interleaved, outcomes, run


class Pair(NamedTuple):
    number: Any
    text: Any


ELEMENTS: dict[str, Callable[[], Dataset]] = {
    "scalars": lambda: Dataset.range(3),
    "float32 scalars": lambda: Dataset.range(3, output_type=np.float32),
    "bytes": lambda: Dataset.from_tensor_slices([b"a\0", b"", b"\xff" * 5000]),
    "nested": lambda: Dataset.range(3).map(
        lambda x: {"a": (int(x), np.ones((int(x), 2), np.float32)), "b": Pair(x, b"t")}, traced=False
    ),
    "absent leaves": lambda: Dataset.from_tensors({"a": 1, "b": None}),
    "unknown spec": lambda: Dataset.from_generator(lambda: iter([(1, "x"), (2, "y")])),
    "batches": lambda: Dataset.from_tensor_slices((np.arange(5.0), [b"a", b"b", b"c", b"d", b"e"])).batch(2),
    "nothing": lambda: Dataset.range(0),
    "nothing of a known type": lambda: Dataset.from_tensor_slices(np.zeros((0, 4, 4, 3), np.uint8)),
}


@pytest.mark.parametrize("compression", [None, "GZIP"])
@pytest.mark.parametrize("make", ELEMENTS.values(), ids=ELEMENTS.keys())
def test_what_was_saved_comes_back(tmp_path: Path, make: Callable[[], Dataset], compression: str | None) -> None:
    expected = list(make())
    make().save(tmp_path / "s", compression)

    loaded = Dataset.load(tmp_path / "s")

    assert repr(list(loaded)) == repr(list(loaded)) == repr(expected)
    assert len(loaded) == loaded.cardinality() == len(expected)


def test_the_spec_comes_back(tmp_path: Path) -> None:
    dataset = Dataset.from_tensor_slices({"x": np.zeros((4, 2, 3), np.uint8), "y": [b"a"] * 4}).batch(3)
    dataset.save(tmp_path / "s")

    assert Dataset.load(tmp_path / "s").element_spec == dataset.element_spec
    assert run(Dataset.load(tmp_path / "s").unbatch()) == run(dataset.unbatch())


def test_elements_keep_what_identifies_them(tmp_path: Path) -> None:
    def drawn(x: Any, rng: np.random.Generator) -> Any:
        return x, rng.random()

    numbers = Dataset.range(20).shuffle(20, seed=3)
    numbers.save(tmp_path / "one")
    numbers.save(tmp_path / "three", shard_func=lambda x: x % 3)

    one = run(Dataset.load(tmp_path / "one").map(drawn, rng=True))
    three = run(Dataset.load(tmp_path / "three").map(drawn, rng=True))

    assert one != three
    assert dict(one) == dict(three)
    assert len(set(dict(one).values())) == 20


def test_saving_runs_the_chain_once_and_loading_does_not(tmp_path: Path) -> None:
    calls: list[int] = []

    def noted(x: Any) -> Any:
        calls.append(int(x))
        return x

    dataset = Dataset.range(3).map(noted, traced=False)
    dataset.save(tmp_path / "s")
    assert run(Dataset.load(tmp_path / "s")) == [0, 1, 2]

    assert calls == [0, 1, 2]


# ---- shards


@pytest.mark.parametrize("compression", [None, "GZIP"])
def test_shards_are_read_in_turn(tmp_path: Path, compression: str | None) -> None:
    Dataset.range(20).save(tmp_path / "s", compression, shard_func=lambda x: (x * x) % 5)
    shards = [[x for x in range(20) if x * x % 5 == rest] for rest in range(5)]

    loaded = Dataset.load(tmp_path / "s")

    assert run(loaded) == interleaved([shard for shard in shards if shard], 16, 1)
    assert len(loaded) == 20


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors as Linux shows them")
def test_many_shards_need_no_descriptors(tmp_path: Path) -> None:
    held: list[int] = []

    def noted(x: Any) -> Any:
        held.append(len(os.listdir("/proc/self/fd")))
        return x

    Dataset.range(100).save(tmp_path / "s", shard_func=noted)

    assert max(held) < held[0] + 20
    assert sorted(run(Dataset.load(tmp_path / "s"))) == list(range(100))


def test_a_shard_function_gets_tuples_unpacked(tmp_path: Path) -> None:
    Dataset.from_tensor_slices(([3, 1], [b"a", b"b"])).save(tmp_path / "s", shard_func=lambda number, text: number)

    assert run(Dataset.load(tmp_path / "s")) == [(1, b"b"), (3, b"a")]


def test_a_reader_function_decides_the_order(tmp_path: Path) -> None:
    Dataset.range(6).save(tmp_path / "s", shard_func=lambda x: x % 2)

    def one_after_the_other(files: Any) -> Any:
        assert files.element_spec.element_spec == TensorSpec((), "int64")
        assert len(files) == 2
        return files.flat_map(lambda file: file)

    assert run(Dataset.load(tmp_path / "s", reader_func=one_after_the_other)) == [0, 2, 4, 1, 3, 5]
    backwards = Dataset.load(
        tmp_path / "s", reader_func=lambda files: files.interleave(lambda f: f.take(2), cycle_length=2)
    )
    assert run(backwards) == [0, 1, 2, 3]


@pytest.mark.parametrize("answer", [-1, 1.5, None, "a", np.array([1])], ids=repr)
def test_a_shard_number_is_an_integer(tmp_path: Path, answer: Any) -> None:
    with pytest.raises(gp.DataError, match="shard_func must give an integer >= 0"):
        Dataset.range(3).save(tmp_path / "s", shard_func=lambda x: answer)
    assert os.listdir(tmp_path / "s") == []


def test_a_shard_function_that_raises_names_the_element(tmp_path: Path) -> None:
    def fail(x: Any) -> int:
        raise KeyError("no")

    with pytest.raises(gp.DataError, match="range at index 0: save: raised KeyError") as caught:
        Dataset.range(3).save(tmp_path / "s", shard_func=fail)
    assert isinstance(caught.value.__cause__, KeyError)


# ---- bad elements


def bad(x: Any) -> Any:
    if x in (0, 2):
        raise ValueError("bad")
    return x


def test_bad_elements_do_what_the_options_say(tmp_path: Path) -> None:
    dataset = Dataset.range(5).map(bad, traced=False)

    with pytest.raises(gp.DataError, match="bad"):
        dataset.save(tmp_path / "s")
    assert os.listdir(tmp_path / "s") == []
    dataset.with_options(Options(on_error="skip")).save(tmp_path / "s")
    assert run(Dataset.load(tmp_path / "s")) == [1, 3, 4]
    dataset.with_options(Options(on_error="replace")).save(tmp_path / "s")
    assert run(Dataset.load(tmp_path / "s")) == [1, 1, 1, 3, 4]


# ---- the folder at every moment


def test_a_second_save_takes_the_place_of_the_first(tmp_path: Path) -> None:
    Dataset.range(10).save(tmp_path / "s", shard_func=lambda x: x)
    (tmp_path / "s" / "mine.txt").write_text("not gpupipe's")
    before = Dataset.load(tmp_path / "s")
    Dataset.range(2).save(tmp_path / "s", "GZIP")

    assert run(Dataset.load(tmp_path / "s")) == [0, 1]
    assert len(os.listdir(tmp_path / "s")) == 3
    assert set(outcomes(before)) == {"error"}  # its files are gone


def test_a_save_that_fails_leaves_the_first_one(tmp_path: Path) -> None:
    Dataset.range(3).save(tmp_path / "s")
    held = sorted(os.listdir(tmp_path / "s"))

    with pytest.raises(gp.DataError):
        Dataset.range(5).map(lambda x: bad(x - 1), traced=False).save(tmp_path / "s", shard_func=lambda x: x + 1)

    assert sorted(os.listdir(tmp_path / "s")) == held
    assert run(Dataset.load(tmp_path / "s")) == [0, 1, 2]


def test_a_saved_dataset_may_be_saved_where_it_is_read(tmp_path: Path) -> None:
    Dataset.range(3).save(tmp_path / "s")
    Dataset.load(tmp_path / "s").map(lambda x: x + 10).save(tmp_path / "s")

    assert run(Dataset.load(tmp_path / "s")) == [10, 11, 12]


def test_waiting_for_somebody_elses_save(tmp_path: Path) -> None:
    asked = threading.Event()

    def later() -> None:
        asked.wait(20)
        Dataset.range(3).save(tmp_path / "s")

    thread = threading.Thread(target=later)
    thread.start()
    try:
        asked.set()
        assert run(Dataset.load(tmp_path / "s", wait=True)) == [0, 1, 2]
    finally:
        thread.join(20)


SCRIPT = """
import sys, gpupipe as gp
print([(int(e.number), e.text) for e in gp.Dataset.load(sys.argv[1])])
print(type(gp.Dataset.load(sys.argv[1]).first()).__module__)
"""


def test_another_program_reads_named_tuples_of_classes_that_it_has_not(tmp_path: Path) -> None:
    Dataset.range(2).map(lambda x: Pair(x, b"t"), traced=False).save(tmp_path / "s")

    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "s")], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines() == ["[(0, b't'), (1, b't')]", "gpupipe.extract.element_json"]


# ---- what is refused


def test_nothing_saved_there_is_no_file_found(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(gp.DataError, match="nothing was saved there") as caught:
            Dataset.load(path)
        assert isinstance(caught.value, FileNotFoundError)
        assert caught.value.file == str(path)


@pytest.mark.parametrize(
    "spec",
    [
        TensorSpec((), "int32"),
        TensorSpec((None,), "int64"),
        (TensorSpec((), "int64"),),
        {"x": TensorSpec((), "int64")},
        TensorSpec((), bytes),
    ],
    ids=str,
)
def test_another_spec_is_refused(tmp_path: Path, spec: Any) -> None:
    Dataset.range(3).save(tmp_path / "s")

    with pytest.raises(gp.DataError, match="load needs"):
        Dataset.load(tmp_path / "s", spec)
    assert run(Dataset.load(tmp_path / "s", TensorSpec((), "int64"))) == [0, 1, 2]
    assert Dataset.load(tmp_path / "s", TensorSpec(None, "int64")).element_spec == TensorSpec(None, "int64")


def test_another_compression_is_refused(tmp_path: Path) -> None:
    Dataset.range(3).save(tmp_path / "s", "GZIP")

    with pytest.raises(gp.DataError, match="compression 'NONE', got 'GZIP'"):
        Dataset.load(tmp_path / "s", compression="NONE")
    assert run(Dataset.load(tmp_path / "s", compression="GZIP")) == [0, 1, 2]


def test_wrong_arguments_are_errors_on_the_users_line(tmp_path: Path) -> None:
    dataset = Dataset.range(3)
    with pytest.raises(TypeError, match="save needs the path"):
        dataset.save(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match='"NONE" or "GZIP"'):
        dataset.save(tmp_path / "s", "SNAPPY")
    with pytest.raises(TypeError, match="save needs a function"):
        dataset.save(tmp_path / "s", shard_func=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="1 argument"):
        dataset.save(tmp_path / "s", shard_func=lambda a, b: 0)
    with pytest.raises(ValueError, match="infinite"):
        dataset.repeat().save(tmp_path / "s")
    with pytest.raises(ValueError, match="of this machine"):
        dataset.save("s3://bucket/s")
    assert os.listdir(tmp_path) == []
    dataset.save(tmp_path / "s")
    with pytest.raises(TypeError, match="load needs the path"):
        Dataset.load(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match='"NONE" or "GZIP"'):
        Dataset.load(tmp_path / "s", compression="SNAPPY")
    with pytest.raises(TypeError, match="structure of TensorSpec"):
        Dataset.load(tmp_path / "s", "int64")
    with pytest.raises(TypeError, match="returns a Dataset, got int"):
        Dataset.load(tmp_path / "s", reader_func=lambda files: 3)
    with pytest.raises(TypeError, match="got a dataset of"):
        dataset.window(2).save(tmp_path / "t")


@pytest.mark.parametrize(
    "change",
    [
        lambda m: 3,
        lambda m: {**m, "gpupipe": "?"},
        lambda m: {**m, "version": 2},
        lambda m: {**m, "shards": []},
        lambda m: {**m, "shards": [{"file": "../escape", "count": 1}]},
        lambda m: {**m, "shards": [{"file": "/etc/passwd", "count": 1}]},
        lambda m: {**m, "shards": [{"file": "a", "count": -1}]},
        lambda m: {**m, "shards": ["a"]},
        lambda m: {**m, "compression": "LZ4"},
        lambda m: {**m, "run": None},
        lambda m: {**m, "element": {"structure": "leaf", "specs": []}},
        lambda m: {**m, "element": None},
    ],
)
def test_a_damaged_folder_says_so(tmp_path: Path, change: Callable[[Any], Any]) -> None:
    Dataset.range(3).save(tmp_path / "s")
    place = tmp_path / "s" / "saved.json"
    place.write_text(json.dumps(change(json.loads(place.read_text()))))

    with pytest.raises(gp.DataError, match="damaged") as caught:
        Dataset.load(tmp_path / "s")
    assert caught.value.file == str(place)


def test_a_damaged_file_is_an_error_behind_the_good_elements(tmp_path: Path) -> None:
    Dataset.range(3).save(tmp_path / "s")
    (path,) = (tmp_path / "s").glob("*.elements")
    data = bytearray(path.read_bytes())
    data[data.rindex(b"E", 0, len(data) - 30) + 3] ^= 1
    path.write_bytes(data)
    loaded = Dataset.load(tmp_path / "s")

    assert outcomes(loaded) == [0, 1, "error"]
    with pytest.raises(gp.DataError, match="damaged") as caught:
        list(loaded)
    assert caught.value.file == str(path)
