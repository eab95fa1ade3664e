"""The log of bad elements: each damaged file is named once, however many of its records are bad."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

import gpupipe as gp
from tests.tools.damage import write

EACH = 30
"""Records of a file."""


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    """Twenty files; of the first fifteen, the payload of every second record is damaged."""
    paths = [tmp_path / f"{number:02d}.tfrecord" for number in range(20)]
    for number, path in enumerate(paths):
        write(path, [b"record %02d" % n for n in range(EACH)])
        if number < 15:
            data = bytearray(path.read_bytes())
            for record in range(0, EACH, 2):
                data[record * 25 + 15] ^= 1
            path.write_bytes(data)
    return list(map(str, paths))


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "so far" in record.getMessage()]


@pytest.mark.parametrize("readers", [None, 4])
def test_each_damaged_file_is_named_once_in_all_epochs(readers: Any, paths: list[str], caplog: Any) -> None:
    caplog.set_level(logging.WARNING, "gpupipe")
    chain = gp.TFRecordDataset(paths, num_parallel_reads=readers)
    items = chain.with_options(gp.Options(on_error="skip")).epochs(2)

    assert sum(1 for _ in items) == 2 * (15 * EACH // 2 + 5 * EACH)
    first = [text for text in said(caplog) if not text.endswith("(100 so far)")]
    assert sorted(text.split(": ")[1].split(" at ")[0] for text in first) == paths[:15]
    assert items.left_out == 2 * 15 * EACH // 2


def test_of_elements_that_are_in_no_file_the_first_ten_are_logged(caplog: Any) -> None:
    caplog.set_level(logging.WARNING, "gpupipe")
    bad = gp.Dataset.range(150).map(lambda x: 1 // 0, traced=False)

    assert list(bad.with_options(gp.Options(on_error="skip"))) == []
    assert [int(text.split("(")[-1].split()[0]) for text in said(caplog)] == [*range(1, 11), 100]


def test_so_they_are_of_files_that_are_one_element_each(tmp_path: Path, caplog: Any) -> None:
    caplog.set_level(logging.WARNING, "gpupipe")
    for number in range(12):
        (tmp_path / f"{number:02d}.jpg").write_bytes(b"no image")
    names = gp.Dataset.list_files(str(tmp_path / "*.jpg"), shuffle=False)
    images = names.map(gp.io.read_file).map(gp.ops.decode_jpeg).batch(4)

    assert list(images.with_options(gp.Options(on_error="skip"))) == []
    assert [Path(text.split(": ")[1].split(" at ")[0]).stem for text in said(caplog)] == [f"{n:02d}" for n in range(10)]
