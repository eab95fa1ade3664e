"""A manifest is there as a whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import gpupipe as gp
from gpupipe.extract.storage.replacing import replacing
from gpupipe.tools import manifest
from gpupipe.tools.manifest import WholeManifest
from tests.tools.damage import OLD_MANIFEST


def test_it_appears_at_the_end_and_replaces_an_older_one_unless_something_is_raised(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(OLD_MANIFEST)
    with WholeManifest(str(path)) as written:
        written.write(["a\n", "b\n"])
        assert path.read_text() == OLD_MANIFEST

    assert path.read_text() == "a\nb\n"
    path.write_text(OLD_MANIFEST)
    with pytest.raises(KeyboardInterrupt), WholeManifest(str(path)) as written:
        written.write(["a\n"])
        raise KeyboardInterrupt
    assert path.read_text() == OLD_MANIFEST
    assert os.listdir(tmp_path) == ["bad.jsonl"]


@pytest.mark.parametrize(("old", "lines"), [(True, 1), (False, 100_000)], ids=["at the end", "on the way"])
def test_a_full_disk_is_an_error_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: bool, lines: int
) -> None:
    path = tmp_path / "bad.jsonl"
    if old:
        path.write_text(OLD_MANIFEST)

    @contextmanager
    def full(name: str) -> Iterator[Any]:
        with replacing(name), open("/dev/full", "wb") as file:
            yield file

    monkeypatch.setattr(manifest, "replacing", full)

    kept = "an older one is unchanged" if old else "nothing is left of it"
    said = f"cannot be written, {kept}: the disk is full"
    with pytest.raises(gp.GpupipeError, match=said), WholeManifest(str(path)) as written:
        written.write(["x" * 99 + "\n"] * lines)

    assert os.listdir(tmp_path) == ["bad.jsonl"] * old
    assert not old or path.read_text() == OLD_MANIFEST


def test_a_place_where_no_file_can_be_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(gp.PlanError, match="--manifest needs an existing folder"):
        WholeManifest(str(tmp_path / "missing" / "bad.jsonl"))
    for other in (tmp_path, Path("/dev/null")):
        with pytest.raises(gp.PlanError, match="--manifest needs the name of a file"):
            WholeManifest(str(other))


def test_there_are_no_more_records_than_a_chain_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "RECORDS", 3)
    path, said = str(tmp_path / "bad.jsonl"), "4 bad records are more than the 3"
    with pytest.raises(gp.GpupipeError, match=said), WholeManifest(path) as written:
        written.write(["{}\n"] * 4)

    assert os.listdir(tmp_path) == []
