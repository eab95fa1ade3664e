"""The real sample, where it is at hand: every record is read, parsed and scanned."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from PIL import Image

from gpupipe.errors import DataError
from gpupipe.extract.examples.example import ExampleParser
from gpupipe.extract.examples.features import FixedLenFeature
from gpupipe.extract.images.headers import check_complete, read_header
from gpupipe.extract.records.tfrecord import RecordReader
from gpupipe.extract.storage.patterns import expand

BESIDE = Path(__file__).parents[2].parent / "shared" / "data" / "imagenet-sample"
FILES = [path for path, _ in expand(Path(os.environ.get("GPUPIPE_SAMPLE", BESIDE)) / "*.tfrecord")]

pytestmark = pytest.mark.skipif(not FILES, reason="no sample: set GPUPIPE_SAMPLE to a folder of TFRecords")


def test_headers_of_all_images_say_what_pillow_and_the_record_say() -> None:
    parser = ExampleParser(
        {
            "image/encoded": FixedLenFeature((), bytes),
            "image/height": FixedLenFeature((), "int64"),
            "image/width": FixedLenFeature((), "int64"),
        }
    )
    for path in FILES:
        for _, record in RecordReader(path):
            assert not isinstance(record, DataError)
            encoded, height, width = parser.parse(record)
            header = read_header(encoded)
            check_complete(encoded, header)
            with Image.open(io.BytesIO(encoded)) as image:
                assert image.size == (header.width, header.height) == (width, height)
                assert len(image.getbands()) == header.channels
