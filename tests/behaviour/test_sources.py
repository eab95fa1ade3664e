"""Where elements come from: values, structure, and what is read when."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, TensorSpec, TFRecordDataset
from gpupipe.errors import MissingFileError
from tests.behaviour.model import plain, run

Pair = namedtuple("Pair", "left right")


# ---- from_tensors, from_tensor_slices


def test_a_named_tuple_stays_one() -> None:
    (first, second) = Dataset.from_tensor_slices(Pair([1, 2], [3, 4]))

    assert isinstance(first, Pair)
    assert plain(second) == Pair(2, 4)


def test_values_convert_by_the_rules_of_numpy() -> None:
    (element,) = Dataset.from_tensors((1, 1.5, True, np.float32(1), np.uint8(7), [1, 2], []))

    names = ["int64", "float64", "bool", "float32", "uint8", "int64", "float64"]
    assert [leaf.dtype.name for leaf in element] == names


def test_bytes_keep_trailing_zeros_also_in_a_batch() -> None:
    (batch,) = Dataset.from_tensor_slices([b"ab\0", b"\0\0", b""]).batch(3)

    assert batch.dtype == object
    assert batch.tolist() == [b"ab\0", b"\0\0", b""]


def test_errors_name_paths_and_number_what_is_no_path() -> None:
    def fail(data: Any) -> Any:
        raise KeyError("x")

    for element, place in (
        (b"a/b.jpg", r"^a/b\.jpg at index 0: map"),
        (b"\xff\xd8/\0" * 9, "^from_tensor_slices at index 1: map"),
    ):
        items = iter(Dataset.from_tensor_slices([b"first", element]).map(fail).skip(1))
        with pytest.raises(gp.DataError, match=place):
            next(items)


# ---- range


@pytest.mark.parametrize("args", [(5,), (2, 5), (0, 10, 3), (5, 0, -2), (5, 0), (-3,)], ids=str)
def test_range_follows_python(args: tuple[int, ...]) -> None:
    dataset = Dataset.range(*args)

    assert run(dataset) == list(range(*args))
    assert len(dataset) == len(range(*args))


# ---- from_generator


def test_the_older_form_with_types_and_shapes() -> None:
    dataset = Dataset.from_generator(
        lambda: iter([(1, [1, 2])]), output_types=(np.int32, np.float32), output_shapes=((), (2,))
    )

    ((number, pair),) = dataset

    assert (number.dtype, pair.dtype) == (np.dtype("int32"), np.dtype("float32"))
    assert dataset.element_spec == (TensorSpec((), np.int32), TensorSpec((2,), np.float32))


def test_a_generator_may_yield_tuples_where_its_signature_has_an_array_and_lists_where_it_has_a_tuple() -> None:
    rows = Dataset.from_generator(lambda: iter([(1, 2), (3, 4)]), output_signature=TensorSpec((2,), "int64"))
    pairs = Dataset.from_generator(
        lambda: iter([[(("a",), ("b",)), 1]]), output_signature=(TensorSpec((2, 1), bytes), TensorSpec((), "int64"))
    )

    assert run(rows) == [[1, 2], [3, 4]]
    assert run(pairs) == [([[b"a"], [b"b"]], 1)]


def test_python_floats_take_the_precision_of_the_signature() -> None:
    spec = (TensorSpec((), "float32"), TensorSpec((2,), "float16"))
    ((one, two),) = Dataset.from_generator(lambda: iter([(0.1, [0.2, float("inf")])]), output_signature=spec)

    assert (one.dtype, one) == (np.float32, np.float32(0.1))
    np.testing.assert_array_equal(two, np.array([0.2, np.inf], np.float16), strict=True)


def test_an_exception_in_a_generator_ends_it_and_is_the_cause() -> None:
    def numbers() -> Iterator[int]:
        yield 1
        raise KeyError("gone")

    items = iter(Dataset.from_generator(numbers))

    assert next(items) == 1
    with pytest.raises(gp.DataError, match=r"from_generator.*KeyError") as caught:
        next(items)
    assert isinstance(caught.value.__cause__, KeyError)
    assert list(items) == []


# ---- list_files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.txt", "a.txt", "c.dat"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "d.txt").write_bytes(b"")
    return tmp_path


def _names(dataset: Dataset) -> list[str]:
    return [Path(path.decode()).name for path in dataset]


def test_files_are_shuffled_unless_told_otherwise_and_reproducibly(tmp_path: Path) -> None:
    for i in range(40):
        (tmp_path / f"{i:02}").write_bytes(b"")
    listed = _names(Dataset.list_files(f"{tmp_path}/*", shuffle=False))

    dataset = Dataset.list_files(f"{tmp_path}/*")
    first, second = _names(dataset), _names(dataset)

    assert first != listed
    assert sorted(first) == listed
    assert first != second
    assert first == _names(Dataset.list_files(f"{tmp_path}/*"))
    assert first != _names(Dataset.list_files(f"{tmp_path}/*", seed=5))


def test_files_are_listed_when_the_chain_is_written_with_their_duplicates(folder: Path) -> None:
    patterns = [folder / "*.txt", f"{folder}/**/d.*", f"{folder}/{{a,c}}.*".encode()]
    dataset = Dataset.list_files(patterns, shuffle=False)
    (folder / "z.txt").write_bytes(b"")

    assert _names(dataset) == ["a.txt", "a.txt", "b.txt", "c.dat", "d.txt"]


# ---- TFRecordDataset


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"shard-{i}" for i in range(3)]
    for i, path in enumerate(paths):
        with gp.io.TFRecordWriter(path) as out:
            for j in range(3):
                out.write(b"%d.%d" % (i, j))
    return paths


@pytest.mark.parametrize("how", [str, Path, lambda path: str(path).encode()], ids=["str", "Path", "bytes"])
def test_file_names_come_in_any_form(shards: list[Path], how: Any) -> None:
    assert run(TFRecordDataset(how(shards[0]))) == [b"0.0", b"0.1", b"0.2"]


def test_file_names_may_be_nested_lists_or_a_dataset(shards: list[Path]) -> None:
    one_after_the_other = [b"%d.%d" % (i, j) for i in range(3) for j in range(3)]

    assert run(TFRecordDataset([[str(shards[0])], [str(shards[1]), shards[2]]])) == one_after_the_other
    assert run(TFRecordDataset(Dataset.from_tensor_slices([str(path) for path in shards]))) == one_after_the_other
    assert run(TFRecordDataset([])) == []


def test_a_missing_file_fails_once_and_the_rest_is_read(shards: list[Path], tmp_path: Path) -> None:
    items = iter(TFRecordDataset([shards[0], tmp_path / "gone", shards[1]]))

    got = [plain(next(items)) for _ in range(3)]
    with pytest.raises(MissingFileError, match="gone") as caught:
        next(items)
    assert isinstance(caught.value, FileNotFoundError)

    assert [*got, *run(items)] == [b"0.0", b"0.1", b"0.2", b"1.0", b"1.1", b"1.2"]


def test_building_a_chain_reads_nothing(tmp_path: Path) -> None:
    dataset = TFRecordDataset(tmp_path / "not there yet").map(lambda x: (x, x)).shuffle(10).batch(2)

    assert dataset.element_spec == (TensorSpec((None,), bytes), TensorSpec((None,), bytes))
    assert dataset.cardinality() == gp.UNKNOWN_CARDINALITY
