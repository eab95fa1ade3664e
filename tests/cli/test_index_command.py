"""`gpupipe index`: a manifest that a chain is pointed at, and plain words when something is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import gpupipe as gp
from tests.behaviour.manifests import written
from tests.cli.commands import Cli


@pytest.fixture
def data(tmp_path: Path) -> Path:
    manifest, _, _ = written(tmp_path / "data", [3, 4])
    Path(manifest).unlink()
    return tmp_path / "data"


def test_it_says_what_it_wrote_and_how_it_is_read(data: Path, cli: Cli) -> None:
    said = f"2 files, 7 records: written to {data}/files.gpindex\n"
    said += f"read it with gp.TFRecordDataset.from_manifest('{data}/files.gpindex')\n"
    for _ in range(2):  # the second one replaces the first, which the wildcard does not take for data
        assert cli("index", data / "*")[:2] == (0, said)
    assert len(gp.TFRecordDataset.from_manifest(data / "files.gpindex")) == 7


def test_a_manifest_elsewhere_says_the_folder(data: Path, tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "other").mkdir()
    place = str(tmp_path / "other" / "m")

    status, out, _ = cli("index", data, "--out", place)

    call = out.splitlines()[-1].removeprefix("read it with ")
    assert (status, call) == (0, f"gp.TFRecordDataset.from_manifest({place!r}, folder='{data}/')")
    assert len(eval(call, {"gp": gp})) == 7


def test_damaged_records_are_counted_and_json_is_one_object(data: Path, cli: Cli) -> None:
    path = data / "001.tfrecord"
    path.write_bytes(path.read_bytes()[:-2])
    status, out, _ = cli("index", data)
    assert status == 0 and "7 records, 1 of them damaged" in out

    status, out, _ = cli("index", data, "--json")

    written = {"manifest": f"{data}/files.gpindex", "folder": f"{data}/"}
    assert (status, json.loads(out)) == (0, {**written, "files": 2, "records": 7, "bytes": 7 * 19 - 2, "damaged": 1})
