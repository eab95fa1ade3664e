"""Files on tf.data and on gpupipe: lines, records of all kinds, CSV, caches, saved datasets, and their errors."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from tests.behaviour.model import plain

pytestmark = [pytest.mark.tf, pytest.mark.filterwarnings("ignore")]

Chain = Callable[[Any, Path], Any]

NESTED = {"a": [1.5, 2.5], "b": (np.zeros((2, 2, 3), np.uint8), [b"x", b"y\0"])}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the cases read."""
    folder = tmp_path_factory.mktemp("data")
    texts = {
        "empty": b"",
        "newline": b"\n",
        "unix": b"one\ntwo\n\nfour\n",
        "dos": b"one\r\ntwo\r\n\r\nfour\r\n",
        "unfinished": b"one\ntwo",
        "blank": b"\n\n\n",
        "binary": b"a\0b\n\xff\xfe\n",
        "long": b"x" * 300_000 + b"\n" + b"y" * 10,
    }
    for name, text in texts.items():
        (folder / f"{name}.txt").write_bytes(text)
        (folder / f"{name}.txt.gz").write_bytes(gzip.compress(text))
        (folder / f"{name}.txt.zz").write_bytes(zlib.compress(text))
    (folder / "members.gz").write_bytes(gzip.compress(b"one\ntw") + gzip.compress(b"o\nthree"))
    for i in range(3):
        body = bytes(range(i * 12, i * 12 + 12))
        (folder / f"{i}.bin").write_bytes(body)
        (folder / f"{i}.hf").write_bytes(b"HEAD" + body + b"FO")
        (folder / f"{i}.hf.gz").write_bytes(gzip.compress(b"HEAD" + body + b"FO"))
        (folder / f"{i}.hf.zz").write_bytes(zlib.compress(b"HEAD" + body + b"FO"))
        with gp.io.TFRecordWriter(folder / f"{i}.tfrecord") as out:
            for j in range(i + 2):
                out.write(b"%d-%d" % (i, j))
    (folder / "bare.hf").write_bytes(b"HEADFO")
    return folder


def _all(d: Path, end: str) -> list[str]:
    return [str(d / f"{i}.{end}") for i in range(3)]


def _texts(d: Path, end: str = "txt") -> list[str]:
    return [str(d / f"{name}.{end}") for name in ("unix", "empty", "dos", "unfinished", "blank", "binary", "long")]


def _lines_of(name: str, compression: str | None = None) -> Chain:
    return lambda tf, d: tf.TextLineDataset(str(d / name), compression)


CASES: dict[str, Chain] = {
    **{
        f"lines of {name}": _lines_of(f"{name}.txt")
        for name in ("empty", "newline", "unix", "dos", "unfinished", "blank", "binary", "long")
    },
    **{
        f"lines of {name}, GZIP": _lines_of(f"{name}.txt.gz", "GZIP")
        for name in ("empty", "unix", "unfinished", "long")
    },
    **{
        f"lines of {name}, ZLIB": _lines_of(f"{name}.txt.zz", "ZLIB")
        for name in ("unix", "unfinished", "long")
    },
    "lines of two gzip members": lambda tf, d: tf.TextLineDataset(str(d / "members.gz"), "GZIP"),
    "lines of several files": lambda tf, d: tf.TextLineDataset(_texts(d)),
    "lines of several files in turn": lambda tf, d: tf.TextLineDataset(_texts(d), num_parallel_reads=3),
    "lines of a path": lambda tf, d: tf.TextLineDataset(d / "unix.txt"),
    "lines of nested lists": lambda tf, d: tf.TextLineDataset([[str(d / "unix.txt")], [str(d / "dos.txt")]]),
    "lines of no file": lambda tf, d: tf.TextLineDataset([]) if tf is gp else tf.TextLineDataset(
        __import__("tensorflow").constant([], "string")),
    "lines of a dataset": lambda tf, d: tf.TextLineDataset(tf.Dataset.from_tensor_slices(_texts(d))),
    "lines interleaved": lambda tf, d: tf.Dataset.from_tensor_slices(_texts(d))
        .interleave(tf.TextLineDataset, cycle_length=3, block_length=2),
    "fixed": lambda tf, d: tf.FixedLengthRecordDataset(str(d / "0.bin"), 3),
    "fixed, header and footer": lambda tf, d: tf.FixedLengthRecordDataset(_all(d, "hf"), 4, 4, 2),
    "fixed, header": lambda tf, d: tf.FixedLengthRecordDataset(_all(d, "hf"), 7, header_bytes=4),
    "fixed, footer": lambda tf, d: tf.FixedLengthRecordDataset(_all(d, "hf"), 8, footer_bytes=2),
    "fixed, no record": lambda tf, d: tf.FixedLengthRecordDataset(str(d / "bare.hf"), 4, 4, 2),
    "fixed, empty file": lambda tf, d: tf.FixedLengthRecordDataset(str(d / "empty.txt"), 4),
    "fixed, in turn": lambda tf, d: tf.FixedLengthRecordDataset(_all(d, "hf"), 4, 4, 2, num_parallel_reads=2),
    "fixed, GZIP": lambda tf, d: tf.FixedLengthRecordDataset(_all(d, "hf.gz"), 4, 4, 2, compression_type="GZIP"),
    "records in turn": lambda tf, d: tf.TFRecordDataset(_all(d, "tfrecord"), num_parallel_reads=2),
    "cache in a file": lambda tf, d: tf.Dataset.range(5).cache(str(d / f"cache-{tf.__name__}")).repeat(2),
    "cache of pairs in a file": lambda tf, d: tf.TFRecordDataset(_all(d, "tfrecord"))
        .enumerate().cache(str(d / f"pairs-{tf.__name__}")).repeat(2),
    "snapshot": lambda tf, d: tf.Dataset.range(5).snapshot(str(d / f"snapshot-{tf.__name__}")),
    "save and load": lambda tf, d: _saved(tf, d, lambda D: D.range(9), "numbers"),
    "save and load, GZIP": lambda tf, d: _saved(tf, d, lambda D: D.range(9), "packed", "GZIP"),
    "save and load, structure": lambda tf, d: _saved(tf, d, lambda D: D.from_tensor_slices(NESTED), "dict"),
    "save and load, batches": lambda tf, d: _saved(tf, d, lambda D: D.range(9).batch(4), "batch"),
}  # fmt: skip


def _saved(tf: Any, d: Path, make: Callable[[Any], Any], name: str, compression: str | None = None) -> Any:
    path = str(d / f"{name}-{tf.__name__}")
    make(tf.Dataset).save(path, compression)
    return tf.Dataset.load(path, compression=compression)


def _of_tf(dataset: Any) -> list[Any]:
    return [plain(element) for element in dataset.as_numpy_iterator()]


@pytest.mark.parametrize("chain", CASES.values(), ids=CASES.keys())
def test_elements_are_those_of_tensorflow(tf: Any, data: Path, chain: Chain) -> None:
    expected = _of_tf(chain(tf.data, data))
    ours = chain(gp, data)

    assert [plain(element) for element in ours] == expected
    assert [plain(element) for element in ours] == expected


def test_a_carriage_return_inside_a_line_is_kept_here_and_dropped_there(tf: Any, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a\rb\nc\r\r\n")

    assert list(gp.TextLineDataset(str(tmp_path / "a"))) == [b"a\rb", b"c\r"]
    assert _of_tf(tf.data.TextLineDataset(str(tmp_path / "a"))) == [b"ab", b"c"]


# What is an error there is one here. TensorFlow repeats some of them for ever: only the first is looked at.
ERRORS: dict[str, Chain] = {
    "lines of a missing file": lambda tf, d: tf.TextLineDataset(str(d / "none")),
    "lines of a folder": lambda tf, d: tf.TextLineDataset(str(d)),
    "lines of a plain file as GZIP": lambda tf, d: tf.TextLineDataset(str(d / "unix.txt"), "GZIP"),
    "fixed: a missing file": lambda tf, d: tf.FixedLengthRecordDataset(str(d / "none"), 3),
    "fixed: no multiple": lambda tf, d: tf.FixedLengthRecordDataset(str(d / "0.bin"), 5),
    "fixed: shorter than its ends": lambda tf, d: tf.FixedLengthRecordDataset(str(d / "0.bin"), 5, 10, 10),
    "fixed: record_bytes 0": lambda tf, d: tf.FixedLengthRecordDataset(str(d / "0.bin"), 0),
    "fixed: negative header": lambda tf, d: tf.FixedLengthRecordDataset(str(d / "0.bin"), 1, -1),
    "lines of numbers": lambda tf, d: tf.TextLineDataset(3),
    "lines, no parallel read": lambda tf, d: tf.TextLineDataset(str(d / "unix.txt"), num_parallel_reads=0),
    "cache: no text": lambda tf, d: tf.Dataset.range(3).cache(3),
    "cache: no folder": lambda tf, d: tf.Dataset.range(3).cache(str(d / "no" / "folder")),
    "load: nothing there": lambda tf, d: tf.Dataset.load(str(d / "nothing")),
    "load: another dtype": lambda tf, d: _other_dtype(tf, d),
    "fixed: no multiple, GZIP": lambda tf, d: tf.FixedLengthRecordDataset(
        str(d / "0.hf.gz"), 5, 4, 2, compression_type="GZIP"),
    "fixed: negative footer": lambda tf, d: tf.FixedLengthRecordDataset(str(d / "0.bin"), 1, 0, -1),
    "lines of a dataset of numbers": lambda tf, d: tf.TextLineDataset(tf.Dataset.range(3)),
    "lines, -2 parallel reads": lambda tf, d: tf.TextLineDataset(str(d / "unix.txt"), num_parallel_reads=-2),
}  # fmt: skip


def _other_dtype(tf: Any, d: Path) -> Any:
    path = str(d / f"dtype-{tf.__name__}")
    tf.Dataset.range(3).save(path)
    spec = gp.TensorSpec((), "float32") if tf is gp else __import__("tensorflow").TensorSpec((), "float32")
    return tf.Dataset.load(path, element_spec=spec)


@pytest.mark.parametrize("chain", ERRORS.values(), ids=ERRORS.keys())
def test_what_is_an_error_there_is_one_here(tf: Any, data: Path, chain: Chain) -> None:
    def fails(module: Any) -> Exception:
        try:
            for _ in chain(module, data):
                pass
        except Exception as error:  # TensorFlow has its own tree
            return error
        raise AssertionError(f"no error with {module.__name__}")

    fails(tf.data)
    assert isinstance(fails(gp), gp.GpupipeError)


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
def test_a_dataset_is_written_as_tensorflow_writes_it(tf: Any, tmp_path: Path, compression: str) -> None:
    values = [b"", b"a\0", b"x" * 100_000, b"last"]
    gp.io.TFRecordWriter(tmp_path / "ours", compression).write(gp.Dataset.from_tensor_slices(values))
    theirs = tf.data.experimental.TFRecordWriter(str(tmp_path / "theirs"), compression)
    theirs.write(tf.data.Dataset.from_tensor_slices(values))

    assert _of_tf(tf.data.TFRecordDataset(str(tmp_path / "ours"), compression)) == values
    assert list(gp.TFRecordDataset(str(tmp_path / "theirs"), compression)) == values
    assert compression or (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()


# ---- CSV


RECORDS: dict[str, tuple[bytes, list[Any], dict[str, Any]]] = {
    "plain": (b"1,a\n2,b\n", ["int32", "string"], {}),
    "empty lines": (b"1,a\n\n2,b\n", ["int32", "string"], {}),
    "an empty line of one column": (b"a\n\nb\n", ["string"], {}),
    "quotes": (b'1,"a\nb"\r\n2,"c""d"\n"3","e,f"\n4,""""\n', ["int32", "string"], {}),
    "ends of lines in quotes": (b'1,"a\r\nb\n\nc"\n2,d\n', ["int32", "string"], {}),
    "missing values": (b'1,""\n,b\n,\n', [[5], ["z"]], {}),
    "a required value is missing": (b"1,\n2,b\n,c\n", ["int32", "string"], {}),
    "quotes in wrong places": (b'1,a"b\n2,c\n', ["int32", "string"], {}),
    "too few and too many": (b"1,a,3\n2\n3,c\n", ["int32", "string"], {}),
    "blanks": (b" 12 , a \n+5,c\n-7,d\n", ["int32", "string"], {}),
    "not numbers": (b"1_0,a\n0x1,b\n1.0,c\n2147483648,d\n8,e\n", ["int32", "string"], {}),
    "large numbers": (b"9223372036854775807\n-9223372036854775808\n9223372036854775808\n", ["int64"], {}),
    "floats": (b"1e3,inf\n1.5 ,nan\nx,1\n.5,-0\n", ["float32", "float64"], {}),
    "a text for missing": (b"NA,x\n2,NA\n", [[7], ["d"]], {"na_value": "NA"}),
    "chosen columns": (b"1,a,x\n2,b,y\n", ["int32", "string"], {"select_cols": [0, 2]}),
    "a chosen column is missing": (b"1,a,x\n2,b\n", ["int32", "string"], {"select_cols": [0, 2]}),
    "a header": (b"h,i\n1,a\n", ["int32", "string"], {"header": True}),
    "no quotes": (b'1,"a"\n2,b"c\n', ["int32", "string"], {"use_quote_delim": False}),
    "nothing": (b"", ["int32"], {}),
    "bytes that are no text": (b"1,\xff\xfe\0\n", ["int32", "string"], {}),
    "no last newline": (b"1,a\r\n2,b", ["int64", "string"], {}),
    "an empty line with a default": (b"a\n\nb\n", [["z"]], {}),
    "a header alone": (b"h,i\n", ["int32", "string"], {"header": True}),
    "tabs": (b"1\ta,b\n", ["int32", "string"], {"field_delim": "\t"}),
}


def _records(dataset: Any, error: Any) -> list[Any]:
    """The elements with their dtypes; "error" where there is one."""
    found: list[Any] = []
    items = iter(dataset)
    while True:
        try:
            element = next(items)
        except StopIteration:
            return found
        except error:
            found.append("error")
            continue
        leaves = [value.numpy() if hasattr(value, "numpy") else value for value in element]
        found.append([(type(leaf).__name__, repr(leaf)) for leaf in leaves])


@pytest.mark.parametrize("name", RECORDS)
def test_records_and_errors_are_those_of_tensorflow(tf: Any, name: str, tmp_path: Path) -> None:
    data, columns, options = RECORDS[name]
    path = str(tmp_path / "one.csv")
    Path(path).write_bytes(data)
    kinds = {"int32": tf.int32, "int64": tf.int64, "float32": tf.float32, "float64": tf.float64, "string": tf.string}
    theirs = [kinds.get(column, column) if isinstance(column, str) else column for column in columns]

    expected = _records(tf.data.experimental.CsvDataset(path, theirs, **options), tf.errors.OpError)

    assert _records(gp.CsvDataset(path, columns, **options), gp.DataError) == expected


def test_floats_beyond_their_type_are_infinite_as_tensorflows(tmp_path: Path, tf: Any) -> None:
    texts = "1e39 -1e39 3.4028235e38 3.4028236e38 -3.4028236e38 1e-60 1e400 99999999999999999999 nan inf".split()
    (tmp_path / "a").write_text("\n".join(texts))

    for dtype in ("float32", "float64"):
        found = list(gp.CsvDataset(str(tmp_path / "a"), [dtype]))
        theirs = [
            row[0].numpy() for row in tf.data.experimental.CsvDataset(str(tmp_path / "a"), [tf.dtypes.as_dtype(dtype)])
        ]
        np.testing.assert_array_equal(np.array(found)[:, 0], np.array(theirs))
