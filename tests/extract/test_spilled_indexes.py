"""Indexes that have no room in memory: no header is walked twice in two epochs, and a changed file is noticed."""

from __future__ import annotations

import errno
import logging
import os
from array import array
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gpupipe as gp
from gpupipe.errors import RecordError
from gpupipe.extract.records import index as module
from gpupipe.extract.records.index import INDEXES, Version
from gpupipe.extract.records.spilled import Spilled
from gpupipe.extract.records.walk import walk_headers
from tests.behaviour.manifests import written

V1, V2 = Version(1, 1, 1), Version(1, 2, 1)


@pytest.fixture(autouse=True)
def _little_room(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Room for about two of the indexes below."""
    INDEXES.clear()
    monkeypatch.setattr(INDEXES, "limit", 700)
    yield
    INDEXES.clear()


@pytest.fixture
def walked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the headers of each file were walked."""
    found: Counter[str] = Counter()

    def counted(path: str, **how: Any) -> Any:
        found[path] += 1
        return walk_headers(path, **how)

    monkeypatch.setattr(module, "walk_headers", counted)
    return found


def test_no_header_is_walked_twice_in_two_epochs(tmp_path: Path, walked: Counter[str]) -> None:
    _, paths, values = written(tmp_path, [40] * 20)
    walked.clear()
    ds = gp.TFRecordDataset(paths).shuffle(gp.ALL, seed=1)

    for _ in range(2):
        assert sorted(map(bytes, ds)) == sorted(value for file in values for value in file)
    assert len(ds) == 800
    assert bytes(ds.epoch(0)[3]) in values[0] + [value for file in values for value in file]

    assert walked == dict.fromkeys(paths, 1)
    assert INDEXES.nbytes <= 700


def test_damaged_records_are_remembered(tmp_path: Path, walked: Counter[str]) -> None:
    _, paths, _ = written(tmp_path, [40] * 4)
    data = Path(paths[0]).read_bytes()
    Path(paths[0]).write_bytes(data[:-3])
    walked.clear()
    ds = gp.TFRecordDataset(paths).shuffle(gp.ALL, seed=1).with_options(gp.Options(on_error="skip"))

    assert [len(list(ds)) for _ in range(2)] == [159, 159]
    assert walked == dict.fromkeys(paths, 1)
    with pytest.raises(RecordError, match=r"000\.tfrecord"):
        gp.TFRecordDataset(paths)[39]


def test_a_full_disk_is_said_once_and_costs_a_second_walk(
    tmp_path: Path, walked: Counter[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    _, paths, _ = written(tmp_path, [40] * 6)
    walked.clear()
    monkeypatch.setattr(os, "pwrite", full)

    with caplog.at_level(logging.WARNING):
        assert [len(gp.TFRecordDataset(paths)) for _ in range(2)] == [240, 240]

    assert max(walked.values()) == 2
    assert [record.message for record in caplog.records if "built again when needed" in record.message] == [
        caplog.records[0].message
    ]


def test_what_was_put_comes_back_for_its_version_only() -> None:
    kept: Spilled[Version] = Spilled()
    kept.put("a", V1, array("Q", range(10)), {})
    kept.put("b", V1, array("Q", range(5, 9)), {})

    assert kept.get("a", V1) == (array("Q", range(10)), {})
    assert kept.get("b", V1) == (array("Q", range(5, 9)), {})
    assert kept.get("a", V2) is None
    kept.put("a", V2, array("Q", [7]), {})
    assert kept.get("a", V1) is None
    assert kept.get("a", V2) == (array("Q", [7]), {})
    kept.drop("a")
    assert kept.get("a", V2) is None
    kept.clear()
    assert kept.get("b", V1) is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_writes_to_a_file_of_its_own() -> None:
    kept: Spilled[Version] = Spilled()
    kept.put("a", V1, array("Q", [1]), {})
    child = os.fork()
    if not child:
        kept.put("b", V1, array("Q", [2, 2]), {})
        os._exit(kept.get("a", V1) != (array("Q", [1]), {}) or kept.get("b", V1) != (array("Q", [2, 2]), {}))
    kept.put("c", V1, array("Q", [3]), {})

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert kept.get("c", V1) == (array("Q", [3]), {})
