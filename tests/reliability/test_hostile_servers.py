"""Servers that answer other things than they were asked for: right elements or an error, in bounded memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from tests.chains.data import ROOT
from tests.reliability.faulty import Faulty
from tests.reliability.served import BLOCK, RANGES, READERS, events, records, write_files
from tests.reliability.unlike import UNLIKE
from tests.selection import FULL

pytestmark = pytest.mark.usefixtures("afresh")

POLICIES = ("raise", "skip", "replace")
STRONG = {"ETag": '"1"', "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"}
LATER = {"Last-Modified": "Mon, 01 Jan 2024 00:00:01 GMT"}
VERSIONS: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "another ETag": (STRONG, {**STRONG, "ETag": '"2"'}),
    "another weak ETag": ({"ETag": 'W/"1"'}, {"ETag": 'W/"2"'}),
    "a later time": ({**STRONG, "ETag": 'W/"1"'}, {**LATER, "ETag": 'W/"1"'}),
    "a later time, no ETag any more": (STRONG, LATER),
}
"""What a server says of a file, and of the one that takes its place."""

RIGHT = {
    "HEAD 403",
    "HEAD 405",
    "HEAD 501",
    "whole",
    "untold",
    "of a file",
    "in chunks",
    "file in chunks",
    "gzip of a file",
}
"""Unusual answers that have what was asked for; and servers that do not tell sizes in the usual way."""

LASTING = {*VERSIONS, "of a longer file", "flood of an error", "400", "401", "403", "404", "410", "416"}
"""Answers after which none is asked for again."""

PASSING = (
    {"304", "408", "429", "500", "502", "503", "504", "drop", "reset", "refuse", "short", *UNLIKE} - RIGHT - LASTING
)
KINDS = sorted(RIGHT | LASTING | PASSING)
WHEN: dict[str, Callable[[int], bool]] = {
    "once": lambda number: number == 1,
    "always": lambda number: True,
    "after two": lambda number: number > 2,
}


def cases() -> list[tuple[str, str, str, str]]:
    """Every kind of answer, reader and policy in full; else every kind once."""
    when = list(WHEN)
    if FULL:
        table = product(enumerate(KINDS), enumerate(READERS), enumerate(POLICIES))
        return [(kind, name, when[(i + j + k) % 3], on_error) for (i, kind), (j, name), (k, on_error) in table]
    readers = list(READERS)
    return [(kind, readers[i % len(readers)], when[i % 3], POLICIES[i // 3 % 3]) for i, kind in enumerate(KINDS)]


@pytest.fixture(autouse=True)
def _small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in RANGES:
        monkeypatch.setattr(module, name, BLOCK)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("served")
    write_files(made)
    return made


def server(folder: Path, kind: str, when: Callable[[int], bool] = lambda number: True) -> Faulty:
    version, new = VERSIONS.get(kind, (STRONG, {}))
    what = "replaced" if kind in VERSIONS else kind
    head = what.removeprefix("HEAD ") if what.startswith("HEAD") else None
    return Faulty(
        folder,
        lambda number: what if when(number) and head is None else None,
        lambda number: head,
        retry_after="soon",
        keeps=True,
        version=version,
        new_version=new,
    )


@pytest.mark.parametrize(("kind", "name", "when", "on_error"), cases())
def test_what_comes_is_right_and_what_does_not_is_an_error(
    folder: Path, kind: str, name: str, when: str, on_error: str
) -> None:
    with server(folder, kind, WHEN[when]).serving() as running:
        good, bad, left_out = events(name, running.url(name), on_error=on_error)

    everything = records()
    right = kind in RIGHT and (kind, when) != ("untold", "after two")  # a version once told with data has to be told
    if not running.faults or right or (when == "once" and kind in PASSING):
        assert (good, bad, left_out) == (everything, [], 0)
        return
    found = list(dict.fromkeys(good))  # "replace" gives the last good one again
    rest = iter(everything)
    assert all(one in rest for one in found)
    assert len(good) - len(found) <= (left_out if on_error == "replace" else 0)
    assert bad or left_out or (when == "once" and found == everything)  # some readers ask for each record alone then


def peak(url: str) -> int:
    """The most memory of a process that reads everything, in bytes."""
    command = [sys.executable, "-m", "tests.reliability.served", url]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=100)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="what a process holds is read from /proc")
@pytest.mark.parametrize("kind", sorted(UNLIKE) if FULL else ["flood", "flood of a file", "bomb"])
def test_an_answer_without_end_takes_no_memory(folder: Path, kind: str) -> None:
    with server(folder, "untold").serving() as running:
        usual = peak(running.url(""))
    with server(folder, kind).serving() as running:
        found = peak(running.url(""))

    assert found < usual + (64 << 20)
