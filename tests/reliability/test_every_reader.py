"""What every reader promises: identities, states, an index, and that damage of one file is an error of that file."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from tests.reliability.readers import ReaderCase, every_reader
from tests.reliability.resume import goes_on, taken

FULL = bool(os.environ.get("GPUPIPE_FULL"))
ALL = [*range(5), *range(10, 14), *range(20, 26)]


def values(ds: Any, **options: Any) -> list[int]:
    return [int(value) for value in ds.with_options(gp.Options(**options)).iterator(epoch=0)]


def drawn(ds: Any) -> dict[int, int]:
    """What each number draws."""
    pairs = ds.map(lambda number, rng: (number, rng.integers(1 << 60)), rng=True).iterator(epoch=0)
    found = {int(number): int(draw) for number, draw in pairs}
    assert len(set(found.values())) == len(found) == len(ALL)
    return found


@every_reader
def test_an_element_draws_the_same_for_any_number_of_readers_and_in_another_folder(
    case: ReaderCase, tmp_path: Path
) -> None:
    paths = case.files(tmp_path / "here")
    shutil.copytree(tmp_path / "here", tmp_path / "or" / "there")
    moved = [str(tmp_path / "or" / "there" / Path(path).name) for path in paths]

    expected = drawn(case.make(paths, None))

    assert sorted(expected) == ALL
    assert drawn(case.make(paths, 2)) == drawn(case.make(paths, 3)) == drawn(case.make(moved, 2)) == expected


@every_reader
@pytest.mark.parametrize("readers", [None, 2])
def test_a_state_behind_any_element_goes_on_with_the_next(
    case: ReaderCase, readers: int | None, tmp_path: Path
) -> None:
    paths = case.files(tmp_path / "files")

    def build() -> Any:
        return case.make(paths, readers)

    goes_on(build)
    assert sorted(values(build())) == ALL


@every_reader
def test_a_million_elements_have_an_index_or_the_error_says_that_they_cannot(case: ReaderCase, tmp_path: Path) -> None:
    if not case.indexed:
        paths = case.files(tmp_path / "files")
        with pytest.raises(gp.PlanError, match=r"(FixedLengthRecordDataset|TextLineDataset)\(.*cannot be indexed"):
            case.make(paths, None).shuffle(gp.ALL)
        with pytest.raises(TypeError, match="cannot be indexed"):
            case.make(paths, None)[0]
        return
    assert case.many is not None
    count = 1_000_000 if FULL else case.cost
    case.many(tmp_path / "many", count)
    ds = case.make([str(tmp_path / "many")], None)
    modulo = 256 if case.name == "images" else 1000  # of gray values
    places = [0, 1, count // 3, count - 2, count - 1]

    assert len(ds) == count
    assert [int(ds[i]) for i in places] == [i % modulo for i in places]
    assert values(ds.skip(count - 3)) == [i % modulo for i in range(count - 3, count)]
    shuffled = values(ds.shuffle(gp.ALL, seed=1).take(200))
    # 6 standard deviations of the mean of 200 values between 0 and the largest
    assert np.mean(shuffled) == pytest.approx(min(modulo, count) / 2, abs=modulo / 8)


DAMAGE: dict[str, Any] = {
    "cut": lambda data: data[: len(data) * 4 // 7],
    "changed": lambda data: data[:13] + bytes([data[13] ^ 0xFF]) + data[14:],
    "empty": lambda data: b"",
    "zeros": lambda data: bytes(len(data)),
    "another kind": lambda data: b"what stands here is prose" * 9,
}


@every_reader
@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_of_a_file_is_an_error_of_that_file_and_the_others_are_read(
    case: ReaderCase, damage: str, tmp_path: Path
) -> None:
    paths = case.files(tmp_path / "files")
    target = case.data(Path(paths[1]))
    target.write_bytes(DAMAGE[damage](target.read_bytes()))
    ds = case.make(paths, None)

    with iter(ds.with_options(gp.Options(on_error="skip", lost_files="skip"))) as items:
        found = [int(value) for value in items]
        errors = items.errors

    assert set(found) >= {n for n in ALL if not 10 <= n < 14}
    assert {error.file for error in errors} == ({str(target)} if damage in case.notices else set())
    if damage in case.notices:
        assert set(found) <= set(ALL)
        assert sum(text.count(str(target)) for kind, text in taken(iter(ds)) if kind == "error") >= 1
