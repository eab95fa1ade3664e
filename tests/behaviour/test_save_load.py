"""save and load: what comes back, what a folder holds at every moment, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, Options, TensorSpec, ops
from gpupipe.errors import RecordError
from gpupipe.load.save import _Seen as Seen
from gpupipe.plan.node import ANYTHING, ElementType
from gpupipe.spec import Structure, spec_of
from tests.behaviour.elements import start_of
from tests.behaviour.model import fails_where, interleaved, outcomes, run


class Pair(NamedTuple):
    number: Any
    text: Any


ELEMENTS: dict[str, Callable[[], Dataset]] = {
    "scalars": lambda: Dataset.range(3),
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


def change_manifest(folder: Path, **changes: Any) -> None:
    place = folder / "saved.json"
    place.write_text(json.dumps({**json.loads(place.read_text()), **changes}))


@pytest.mark.parametrize("make", ELEMENTS.values(), ids=ELEMENTS.keys())
def test_what_was_saved_comes_back(tmp_path: Path, make: Callable[[], Dataset]) -> None:
    expected = list(make())
    for compression in (None, "GZIP"):
        make().save(tmp_path / "s", compression)
        loaded = Dataset.load(tmp_path / "s")

        assert repr(list(loaded)) == repr(list(loaded)) == repr(expected)
        assert len(loaded) == loaded.cardinality() == len(expected)


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
def test_a_shard_function_that_gives_no_number_or_raises_is_an_error(tmp_path: Path, answer: Any) -> None:
    with pytest.raises(gp.DataError, match="save needs a shard_func that returns an integer >= 0"):
        Dataset.range(3).save(tmp_path / "s", shard_func=lambda x: answer)
    assert os.listdir(tmp_path / "s") == []
    with pytest.raises(gp.DataError, match="range at index 0: save: raised KeyError") as caught:
        Dataset.range(3).save(tmp_path / "s", shard_func=lambda x: dict[str, int]()["no"])
    assert isinstance(caught.value.__cause__, KeyError)


# ---- bad elements


def test_bad_elements_do_what_the_options_say(tmp_path: Path) -> None:
    dataset = Dataset.range(5).map(fails_where(lambda x: x in (0, 2)), traced=False)

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
        Dataset.range(5).map(fails_where(lambda x: x == 3), traced=False).save(tmp_path / "s", shard_func=lambda x: x)

    assert sorted(os.listdir(tmp_path / "s")) == held
    assert run(Dataset.load(tmp_path / "s")) == [0, 1, 2]


def test_a_saved_dataset_may_be_saved_where_it_is_read(tmp_path: Path) -> None:
    Dataset.range(3).save(tmp_path / "s")
    Dataset.load(tmp_path / "s").map(lambda x: x + 10).save(tmp_path / "s")

    assert run(Dataset.load(tmp_path / "s")) == [10, 11, 12]


def test_waiting_for_somebody_elses_save(tmp_path: Path) -> None:
    threading.Timer(0.1, lambda: Dataset.range(3).save(tmp_path / "s")).start()

    assert run(Dataset.load(tmp_path / "s", wait=True)) == [0, 1, 2]


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
    assert done.stdout.splitlines() == ["[(0, b't'), (1, b't')]", "gpupipe.serial.structures"]


@pytest.mark.parametrize("shard_func", [None, lambda x: x % 2])
def test_a_relative_path_is_that_of_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shard_func: Callable[[Any], Any] | None
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)

    def moves(x: Any) -> Any:
        os.chdir(tmp_path / "elsewhere")
        return x

    Dataset.range(5).map(moves, traced=False).save("s", shard_func=shard_func)

    assert sorted(Dataset.load(tmp_path / "s")) == list(range(5))
    assert os.listdir(tmp_path / "elsewhere") == []


# ---- what is refused


def test_a_class_that_only_the_folder_names_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its constructor would run with values of the file."""
    made: list[Any] = []
    library = types.ModuleType("some_library")
    log: Any = dataclasses.make_dataclass(
        "Log", [("path", object)], namespace={"__post_init__": lambda self: made.append(self)}
    )
    log.__module__, vars(library)["Log"] = "some_library", log
    monkeypatch.setitem(sys.modules, "some_library", library)
    Dataset.from_tensor_slices(([b"victim"],)).save(tmp_path / "s")
    manifest = json.loads((tmp_path / "s/saved.json").read_text())
    manifest["element"]["structure"] = {"class": "some_library:Log", "fields": ["path"], "children": ["leaf"]}
    (tmp_path / "s/saved.json").write_text(json.dumps(manifest))

    found = Dataset.load(tmp_path / "s").first()
    assert (type(found).__name__, type(found).__module__, found.path) == ("Log", "gpupipe.serial.structures", b"victim")
    assert not made
    spec = log(TensorSpec((), bytes))  # the program names it
    found = Dataset.load(tmp_path / "s", element_spec=spec).first()
    assert type(found) is log
    assert found.path == b"victim"


def test_nothing_saved_there_is_no_file_found(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(gp.DataError, match="nothing was saved there") as caught:
            Dataset.load(path)
        assert isinstance(caught.value, FileNotFoundError)
        assert caught.value.file == str(path)


R: Any = Dataset.range(3)
LOAD: Any = Dataset.load

WRONG: list[tuple[Callable[[str], Any], type[Exception], str]] = [
    (lambda path: R.save(3), TypeError, "save needs the path"),
    (lambda path: R.save(path, "SNAPPY"), ValueError, '"NONE" or "GZIP"'),
    (lambda path: R.save(path, shard_func=3), TypeError, "save needs a function"),
    (lambda path: R.save(path, shard_func=lambda a, b: 0), TypeError, "1 argument"),
    (lambda path: R.repeat().save(path), ValueError, "infinite"),
    (lambda path: R.save("s3://bucket/s"), ValueError, "a local path"),
    (lambda path: R.window(2).save(path), TypeError, "got a dataset of"),
    (lambda path: LOAD(3), TypeError, "load needs the path"),
    (lambda path: LOAD(path, compression="SNAPPY"), ValueError, '"NONE" or "GZIP"'),
    (lambda path: LOAD(path, "int64"), TypeError, "structure of TensorSpec"),
    (lambda path: LOAD(path, TensorSpec((), "int32")), gp.DataError, "load needs int32 .*got int64"),
    (lambda path: LOAD(path, {"x": TensorSpec((), "int64")}), gp.DataError, "load needs"),
    (lambda path: LOAD(path, compression="GZIP"), gp.DataError, "compression 'GZIP', got 'NONE'"),
    (lambda path: LOAD(path, reader_func=lambda files: 3), TypeError, "returns a Dataset, got int"),
]


@pytest.mark.parametrize(("call", "kind", "text"), WRONG)
def test_wrong_arguments_are_errors_and_change_nothing(tmp_path: Path, call: Any, kind: Any, text: str) -> None:
    R.save(tmp_path / "s")

    with pytest.raises(kind, match=text):
        call(str(tmp_path / "s"))
    assert run(Dataset.load(tmp_path / "s")) == [0, 1, 2]


@pytest.mark.parametrize(
    "change",
    [
        lambda m: 3,
        lambda m: {**m, "gpupipe": "?"},
        lambda m: {**m, "version": 1},
        lambda m: {**m, "sites": {"map": -1}},
        lambda m: {**m, "sites": None},
        lambda m: {**m, "shards": []},
        lambda m: {**m, "shards": [{"file": "../escape", "count": 1}]},
        lambda m: {**m, "shards": [{"file": "/etc/passwd", "count": 1}]},
        lambda m: {**m, "shards": [{"file": "a", "count": -1}]},
        lambda m: {**m, "shards": ["a"]},
        lambda m: {**m, "shards": m["shards"] * 2},
        lambda m: {**m, "shards": [{**m["shards"][0], "count": 10**15}]},
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


@pytest.mark.parametrize(("part", "compression"), [("payload", None), ("length", "GZIP")])
def test_a_damaged_element_costs_no_other(tmp_path: Path, part: str, compression: str | None) -> None:
    import gzip

    Dataset.range(5000).save(tmp_path / "s", compression)
    (path,) = (tmp_path / "s").glob("*.elements*")
    data = bytearray((gzip.decompress if compression else bytes)(path.read_bytes()))
    start = start_of(data, 2499)
    data[start + (2 if part == "length" else 25)] ^= 1
    path.write_bytes((gzip.compress if compression else bytes)(data))
    loaded = Dataset.load(tmp_path / "s")
    others = [x for x in range(5000) if x != 2499]

    assert outcomes(loaded) == [*range(2499), "error", *range(2500, 5000)]
    items = iter(loaded.with_options(Options(on_error="skip")))
    assert [int(x) for x in items] == others
    assert items.left_out == 1
    assert run(loaded.with_options(Options(on_error="replace"))) == [*range(2499), 2498, *range(2500, 5000)]
    assert run(loaded.batch(7).unbatch().with_options(Options(on_error="skip"))) == others
    with pytest.raises(gp.DataError, match="damaged") as caught:
        list(loaded)
    assert (caught.value.file, caught.value.offset) == (str(path), start)


def test_of_a_file_whose_head_is_damaged_everything_is_read(tmp_path: Path) -> None:
    Dataset.range(30).save(tmp_path / "s")
    (path,) = (tmp_path / "s").glob("*.elements")
    whole = path.read_bytes()

    for place in (3, 20, 40):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert run(Dataset.load(tmp_path / "s")) == list(range(30))
    path.write_bytes(whole[: len(whole) // 2])
    got = outcomes(Dataset.load(tmp_path / "s"))
    assert got == [*range(len(got) - 1), "error"]
    with pytest.raises(gp.DataError, match=f"ends after {len(got) - 1} elements"):
        list(Dataset.load(tmp_path / "s"))


# ---- what does not fit the manifest

USES: list[Callable[[Dataset], Any]] = [
    list,
    lambda d: list(d.batch(2)),
    lambda d: list(d.padded_batch(2)),
    lambda d: list(d.shuffle(gp.ALL)),
    lambda d: list(d.filter(lambda x: True)),
    lambda d: list(d.map(lambda x: x, traced=False)),
    lambda d: d[2],
]


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize(
    ("said", "text"),
    [
        ({"a": np.zeros(4), "b": np.zeros(4)}, r"needs elements with 2 leaves, got one with 1"),
        (np.zeros(4, np.float32), r"needs float32 for all elements, got int64"),
        (np.zeros((4, 2), np.int64), r"needs int64\[2\] for all elements, got int64"),
        (np.array([b""] * 4), "needs bytes for all elements, got int64"),
    ],
    ids=["leaves", "dtype", "rank", "bytes"],
)
def test_elements_of_another_type_than_the_manifest_says_are_errors(
    tmp_path: Path, said: Any, text: str, use: Callable[[Dataset], Any]
) -> None:
    Dataset.range(4).save(tmp_path / "s")
    Dataset.from_tensor_slices(said).save(tmp_path / "other")
    change_manifest(tmp_path / "s", element=json.loads((tmp_path / "other" / "saved.json").read_text())["element"])

    with pytest.raises(RecordError, match=text) as caught:
        use(Dataset.load(tmp_path / "s"))
    assert caught.value.file == str(next((tmp_path / "s").glob("*.elements")))
    assert outcomes(Dataset.load(tmp_path / "s")) == ["error"] * 4


def test_one_element_of_another_type_costs_no_other(tmp_path: Path) -> None:
    Dataset.from_generator(lambda: iter([np.ones(2), np.ones(3), np.ones(2)])).save(tmp_path / "s")
    Dataset.from_tensor_slices(np.ones((1, 2))).save(tmp_path / "other")
    change_manifest(tmp_path / "s", element=json.loads((tmp_path / "other" / "saved.json").read_text())["element"])

    items = iter(Dataset.load(tmp_path / "s").with_options(Options(on_error="skip")))
    assert [x.tolist() for x in items] == [[1, 1], [1, 1]]
    assert [str(error.reason).partition(";")[0] for error in items.errors] == [
        "load needs float64[2] for all elements, got float64[3]"
    ]


@pytest.mark.parametrize("compression", [None, "GZIP"])
@pytest.mark.parametrize(("said", "text"), [(4, "the 4 elements .* got a file of more"), (6, "the 6 .* file of 5")])
def test_another_number_of_elements_is_an_error_in_order_too(
    tmp_path: Path, compression: str | None, said: int, text: str
) -> None:
    Dataset.range(5).save(tmp_path / "s", compression)
    (path,) = (tmp_path / "s").glob("*.elements*")
    change_manifest(tmp_path / "s", shards=[{"file": path.name, "count": said}])
    loaded = Dataset.load(tmp_path / "s")

    assert run(loaded.take(4)) == [0, 1, 2, 3]
    for dataset in (loaded, loaded.with_options(Options(on_error="skip"))):
        with pytest.raises(RecordError, match=text) as caught:
            list(dataset)
        assert caught.value.file == str(path)
    assert run(loaded.with_options(Options(lost_files="skip"))) == list(range(min(said, 5)))


def test_the_elements_of_another_save_are_not_taken_for_those_of_this_one(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        Dataset.range(5).save(tmp_path / folder)
    (path,), (other,) = ((tmp_path / folder).glob("*.elements") for folder in ("a", "b"))
    os.replace(other, path)

    for use in (list, lambda d: d[0], lambda d: list(d.skip(1))):
        with pytest.raises(RecordError, match="got one of another save") as caught:
            use(Dataset.load(tmp_path / "a"))
        assert caught.value.file == str(path)


# ---- the type of what was saved


def test_the_spec_holds_for_all_elements(tmp_path: Path) -> None:
    def saved(dataset: Dataset) -> Any:
        dataset.save(tmp_path / "s")
        loaded = Dataset.load(tmp_path / "s")
        for element in loaded:
            assert loaded.element_spec.accepts(spec_of(element))
        return loaded.element_spec

    shapes = Dataset.from_generator(lambda: iter([np.ones((2, 3)), np.ones((2, 4))]))
    ranks = Dataset.from_generator(lambda: iter([1, np.ones(2, int)]), output_signature=TensorSpec(None, "int64"))
    assert saved(shapes) == TensorSpec((2, None), "float64")
    assert saved(ranks) == TensorSpec(None, "int64")
    assert saved(Dataset.range(4).batch(2)) == TensorSpec((None,), "int64")  # what the chain says, where it says it
    assert saved(Dataset.from_generator(lambda: iter([1, 2]))) == TensorSpec((), "int64")
    rows = saved(Dataset.from_generator(lambda: iter([gp.Ragged([1], [0, 1]), gp.Ragged([1, 2], [0, 1, 2])])))
    assert rows.shape == (None, None)


def test_elements_of_another_dtype_are_refused_where_they_are_saved(tmp_path: Path) -> None:
    mixed = Dataset.from_generator(lambda: iter([1, 1.5, 2]))

    with pytest.raises(gp.DataError, match="one dtype") as caught:
        mixed.save(tmp_path / "s")
    assert (caught.value.file, caught.value.offset) == ("from_generator", 1)
    assert os.listdir(tmp_path / "s") == []
    mixed.with_options(Options(on_error="skip")).save(tmp_path / "s")
    assert Dataset.load(tmp_path / "s").element_spec == TensorSpec((), "int64")
    assert run(Dataset.load(tmp_path / "s").map(lambda x: x + 1)) == [2, 3]


def test_what_save_cannot_write_is_named_by_its_leaf() -> None:
    pair = Structure(tuple, (), (Structure(), Structure()), 2)
    seen = Seen(ElementType(pair, (TensorSpec(None, None),) * 2), ANYTHING)

    assert seen.add((np.int64(1), b"a")) is None
    assert "one dtype for [0], got float64 after int64" in str(seen.add((np.float64(1), b"a")))
    assert "got 1 leaves after 2" in str(seen.add((np.int64(1),)))


def test_a_spec_that_some_elements_may_not_have_is_refused(tmp_path: Path) -> None:
    Dataset.from_generator(lambda: iter([np.ones(2), np.ones(3)])).save(tmp_path / "s")

    with pytest.raises(gp.DataError, match=r"load needs float64\[2\] for elements, got float64\[\?\]"):
        Dataset.load(tmp_path / "s", TensorSpec((2,), "float64"))
    for spec in (TensorSpec(None, None), TensorSpec((None,), "float64")):
        assert Dataset.load(tmp_path / "s", spec).element_spec == spec


# ---- random numbers


def drawn(x: Any, rng: np.random.Generator) -> Any:
    return x, rng.integers(10**9)


def again(x: Any, y: Any, rng: np.random.Generator) -> Any:
    return x, y, rng.integers(10**9)


def images(count: int) -> Dataset:
    return Dataset.from_tensor_slices(np.arange(count * 4 * 4 * 3, dtype=np.uint8).reshape(count, 4, 4, 3))


def flipped(x: Any) -> Any:
    return ops.random_flip_left_right(x)


CHAINS: dict[str, tuple[Callable[[], Dataset], Callable[[Dataset], Dataset]]] = {
    "numbers": (lambda: Dataset.range(9).shuffle(9, seed=1), lambda d: d.map(drawn, rng=True)),
    "behind another random map": (lambda: Dataset.range(9).map(drawn, rng=True), lambda d: d.map(again, rng=True)),
    "rows of batches": (lambda: Dataset.range(9).batch(4), lambda d: d.unbatch().map(drawn, rng=True)),
    "passes": (lambda: Dataset.range(4).repeat(2), lambda d: d.map(drawn, rng=True)),
    "traced ops": (lambda: images(6), lambda d: d.map(flipped).map(lambda x: x)),
    "traced ops behind one": (lambda: images(9).map(lambda x: x + x).map(flipped), lambda d: d.map(flipped)),
}


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("chain", CHAINS)
def test_a_loaded_dataset_draws_what_the_saved_one_draws(tmp_path: Path, chain: str, shards: int) -> None:
    make, draw = CHAINS[chain]
    numbers = iter(range(10**6))
    saved = make().with_options(Options(device="cpu", backend="numpy"))
    saved.save(tmp_path / "s", shard_func=lambda *x: next(numbers) % shards)
    loaded = Dataset.load(tmp_path / "s").with_options(Options(device="cpu", backend="numpy"))

    def shown(dataset: Dataset) -> list[str]:
        return sorted(repr(element) for element in draw(dataset).iterator(epoch=0))

    expected = shown(saved)
    assert shown(loaded) == expected
    assert len(shown(loaded.repeat(2))) == 2 * len(expected)
    assert sorted(shown(loaded.repeat(2))) != sorted(2 * expected)  # a later pass draws anew
