"""Files and Examples go to TensorFlow and come back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpupipe.errors import DataError
from gpupipe.extract.examples.encode import encode_example
from gpupipe.extract.records.tfrecord import RecordReader
from gpupipe.extract.records.writer import TFRecordWriter

pytestmark = [pytest.mark.tf, pytest.mark.filterwarnings("ignore")]

RECORDS = [b"", b"hello", bytes(3), b"x" * 300_000, bytes(range(256)) * 40]
COMPRESSIONS = ["", "GZIP", "ZLIB"]


@pytest.fixture(scope="module")
def tf() -> Any:
    return pytest.importorskip("tensorflow")


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_tensorflow_reads_what_is_written_here(tf: Any, tmp_path: Path, compression: str) -> None:
    with TFRecordWriter(tmp_path / "x", compression) as out:
        for record in RECORDS:
            out.write(record)

    got = list(tf.data.TFRecordDataset(str(tmp_path / "x"), compression_type=compression).as_numpy_iterator())

    assert got == RECORDS


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_what_tensorflow_writes_is_read_here(tf: Any, tmp_path: Path, compression: str) -> None:
    with tf.io.TFRecordWriter(str(tmp_path / "x"), tf.io.TFRecordOptions(compression_type=compression)) as out:
        for record in RECORDS:
            out.write(record)

    got = [
        x if isinstance(x, DataError) else bytes(x)
        for _, x in RecordReader(str(tmp_path / "x"), compression=compression)
    ]

    assert got == RECORDS


def tf_example(tf: Any, values: dict[str, list[Any]]) -> Any:
    def feature(items: list[Any]) -> Any:
        if isinstance(items[0], bytes):
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=items))
        if isinstance(items[0], float):
            return tf.train.Feature(float_list=tf.train.FloatList(value=items))
        return tf.train.Feature(int64_list=tf.train.Int64List(value=items))

    return tf.train.Example(features=tf.train.Features(feature={name: feature(x) for name, x in values.items()}))


VALUES: dict[str, list[Any]] = {
    "image/encoded": [bytes(100_000)],
    "image/class/label": [7],
    "image/class/text": ["fish, é".encode()],
    "boxes": [0.5, 1.0, -3.25, 1e-30],
    "numbers": [0, 1, -1, 127, 128, 2**63 - 1, -(2**63)] * 30,
    "z": [b"", b"a", b"\0"],
    "é": [1],
}


def test_encoding_equals_tensorflows_deterministic_form(tf: Any) -> None:
    assert encode_example(VALUES) == tf_example(tf, VALUES).SerializeToString(deterministic=True)
