"""Files that cannot be read to their end: what an index knows is an error of each record, anything else is raised."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gpupipe as gp
from gpupipe import Dataset, Options
from gpupipe.extract.records.index import INDEXES
from gpupipe.extract.storage import retry
from gpupipe.flow import run as flow_run
from tests.reliability.faulty import Faulty
from tests.reliability.lost import BROKEN, EACH, FIRST, RECORD, SECOND, bad_sector, dead, of_kind
from tests.reliability.record_files import SIZE, chain, taken
from tests.reliability.test_failed_reads import POLICIES

pytestmark = pytest.mark.usefixtures("afresh")

UNCOUNTED = ["records", "gzip", "lines"]


# ---- without an index


@pytest.mark.parametrize("calls", [None, 1])
@pytest.mark.parametrize("kind", UNCOUNTED)
@pytest.mark.parametrize("on_error", POLICIES)
def test_a_read_that_fails_for_good_is_raised_under_every_policy(
    tmp_path: Path, on_error: str, kind: str, calls: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow_run, "cpu_count", lambda: 4)
    paths = of_kind(tmp_path, kind)
    bad_sector(paths[0], monkeypatch)

    with chain(paths, kind, calls, on_error=on_error).iterator(epoch=0) as items:
        good, bad = taken(items)
        (listed,) = items.errors

    begun = [record for record in good if record.startswith(b"00")]
    assert begun == FIRST[: len(begun)]
    assert good == begun + SECOND
    (error,) = bad
    assert error.lost
    assert error.file == paths[0]
    assert error.offset is not None and 0 <= error.offset <= BROKEN
    assert error.offset == len(begun) * {"lines": SIZE + 1}.get(kind, RECORD)
    assert re.search(r"cannot be read: Input/output error \((as )?(6 tries in|in 6 tries)", str(error))
    assert 'Options(lost_files="skip")' in str(error)
    assert (listed.file, listed.offset, listed.unit, listed.action) == (paths[0], error.offset, "file", "raised")
    assert items.left_out == 0


@pytest.mark.parametrize("kind", UNCOUNTED)
@pytest.mark.parametrize("on_error", POLICIES)
def test_the_rest_of_a_file_may_be_lost_where_that_is_allowed(
    tmp_path: Path, on_error: str, kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "gpupipe")
    paths = of_kind(tmp_path, kind)
    bad_sector(paths[0], monkeypatch)

    with chain(paths, kind, on_error=on_error, lost_files="skip").iterator(epoch=0) as items:
        good, bad = taken(items)
        (listed,) = items.errors

    begun = [record for record in good if record.startswith(b"00")]
    assert (good, bad) == (FIRST[: len(begun)] + SECOND, [])
    assert (listed.file, listed.unit, listed.action, items.left_out) == (paths[0], "file", "left out", 1)
    (said,) = caplog.messages
    assert paths[0] in said
    assert "cannot be counted" in said
    assert "unless" in said.partition("raised")[2]  # this one is not


@pytest.mark.parametrize("kind", [*UNCOUNTED, "fixed"])
@pytest.mark.parametrize("on_error", POLICIES)
def test_a_missing_file_is_raised_under_every_policy_unless_it_is_allowed(
    tmp_path: Path, on_error: str, kind: str
) -> None:
    paths = of_kind(tmp_path, kind)
    os.unlink(paths[0])

    good, bad = taken(chain(paths, kind, on_error=on_error).iterator(epoch=0))
    assert good == SECOND
    (error,) = bad
    assert isinstance(error, FileNotFoundError)
    assert error.lost

    with chain(paths, kind, on_error=on_error, lost_files="skip").iterator(epoch=0) as items:
        assert taken(items) == (SECOND, [])
        assert [(record.file, record.action) for record in items.errors] == [(paths[0], "left out")]


def test_a_read_that_stalls_for_good_is_raised(two: list[str], tmp_path: Path) -> None:
    with Faulty(tmp_path, lambda number: "hang").serving() as server:
        paths = [server.url("first"), two[1]]

        good, bad = taken(chain(paths, on_error="skip", read_timeout=0.05).iterator(epoch=0))

        assert good == SECOND
        (error,) = bad
        assert error.lost
        assert "a read was given up after 0.05 s (Options.read_timeout)" in str(error)
        assert server.gets == retry.TRIES


def test_a_whole_file_that_is_one_element_is_one_bad_element(two: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    dead(two[0], monkeypatch)
    ds = Dataset.from_tensor_slices([*two, two[0] + "-none"]).map(gp.io.read_file)

    with ds.with_options(Options(on_error="skip")).iterator() as items:
        assert list(items) == [Path(two[1]).read_bytes()]
        assert [record.file for record in items.errors] == ["from_tensor_slices"] * 2 or items.left_out == 2
    assert len(list(ds.with_options(Options(on_error="replace")))) == 3


# ---- with one


HIDDEN = {  # a kind of files, from where on how many bytes cannot be read, their records, where those begin
    "an index": ("records", BROKEN, 5000, range(298, 300), 0, RECORD),
    "headers": ("records", 300 * RECORD + 50, 2000, range(300, 301), 0, RECORD),
    "one length": ("fixed", BROKEN, 5000, range((BROKEN - 100) // SIZE, (BROKEN + 4899) // SIZE + 1), 100, SIZE),
}
WAYS: dict[str, tuple[str, Callable[[list[str]], Dataset]]] = {
    "an index": ("an index", lambda two: gp.TFRecordDataset(two, index="memory")),
    "an index beside": ("an index", lambda two: gp.TFRecordDataset(two, index="beside")),
    "headers": ("headers", chain),
    "headers, by a thread": ("headers", lambda two: chain(two, calls=1)),
    "headers of references": ("headers", lambda two: chain(two).shuffle(1)),
    "headers of references, by a thread": ("headers", lambda two: chain(two, calls=1).shuffle(1)),
    "one length": ("one length", lambda two: chain(two, "fixed")),
    "one length, by a thread": ("one length", lambda two: chain(two, "fixed", 1)),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("on_error", POLICIES)
def test_where_the_next_record_begins_is_known_bytes_that_cannot_be_read_cost_their_records(
    tmp_path: Path, on_error: Any, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow_run, "cpu_count", lambda: 4)
    known, make = WAYS[way]
    kind, begin, n, hidden, first, length = HIDDEN[known]
    two = of_kind(tmp_path, kind)
    if known == "an index":
        gp.io.build_index(two, "beside" if "beside" in way else "memory")
        if "beside" in way:
            INDEXES.clear()
    bad_sector(two[0], monkeypatch, begin, n)

    with make(two).with_options(Options(on_error=on_error)).iterator(epoch=0) as items:
        good, bad = taken(items)
        listed = items.errors

    stand_ins = [FIRST[hidden.start - 1]] * len(hidden) if on_error == "replace" else []
    places = [first + i * length for i in hidden]
    assert good == FIRST[: hidden.start] + stand_ins + FIRST[hidden.stop :] + SECOND
    assert [(record.file, record.offset, record.unit) for record in listed] == [(two[0], at, "offset") for at in places]
    assert [error.offset for error in bad] == (places if on_error == "raise" else [])
    assert not any(error.lost for error in bad)


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_of_a_file_that_is_gone_for_good_every_record_is_one(
    two: list[str], on_error: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opened before, or the index could not tell that it is of this file."""
    ds = gp.TFRecordDataset(two[::-1]).with_options(Options(on_error=on_error))
    assert len(ds) == 2 * EACH
    dead(two[0], monkeypatch)

    for chosen in (ds, ds.shuffle(50), ds.shuffle(gp.ALL), ds.skip(3)):
        with chosen.iterator(epoch=0) as items:
            good, bad = taken(items)
            count = 2 * EACH - 3 * (chosen is not ds and len(chosen) < 2 * EACH)
            assert bad == []
            assert len(good) == (count if on_error == "replace" else count - EACH)
            assert items.left_out == EACH


@pytest.mark.parametrize("begin", [0, 50, 100 + SIZE * EACH, 100 + SIZE * EACH - 1])
def test_a_header_and_a_footer_need_not_be_read(tmp_path: Path, begin: int, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = of_kind(tmp_path, "fixed")
    bad_sector(paths[0], monkeypatch, begin, 5)

    good, bad = taken(chain(paths, "fixed").iterator(epoch=0))

    last = begin == 100 + SIZE * EACH - 1
    assert good == FIRST[: EACH - last] + SECOND
    assert len(bad) == last


# ---- the index itself


@pytest.mark.parametrize("on_error", POLICIES)
def test_where_losses_are_allowed_what_can_be_counted_counts(
    two: list[str], on_error: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "gpupipe")
    bad_sector(two[0], monkeypatch)
    ds = gp.TFRecordDataset(two).with_options(Options(on_error=on_error, lost_files="skip"))

    count = len(ds)

    assert len(ds) == count
    assert len(caplog.messages) == 1
    known = count - EACH
    assert 0 < known <= BROKEN // RECORD + 1
    assert bytes(ds[known]) == SECOND[0]
    with ds.shuffle(gp.ALL).iterator() as items:
        assert sorted(items) == FIRST[:known] + SECOND
        assert [(record.unit, record.action) for record in items.errors] == [("file", "left out")]
