"""The guide to sources: every row of its tables runs, with the library that it names, and does what the row says."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from tests.guide.sources import FILES, RECIPES, built_in, in_memory, of_a_library

PAGE = (Path(gp.__file__).parent / "guide" / "sources.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    """The cells of the table below a heading."""
    table = PAGE.partition(f"## {heading}\n")[2].partition("\n#")[0]
    lines = [line for line in table.splitlines() if line.startswith("| ")][1:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


BUILT_IN = {cells[0]: cells for cells in rows("Built in")}
RUN = {found[1]: line for line in PAGE.splitlines() if (found := re.match(r"\| \[(.*?)\]\(#", line))}
BLOCKS = dict(re.findall(r"^### (.*?)\n.*?^```python\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE))


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def plain(value: Any) -> Any:
    """An element as plain Python; text as the bytes that it becomes."""
    if isinstance(value, dict):
        return {name: plain(leaf) for name, leaf in value.items()}
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    return value.encode() if isinstance(value, str) else np.asarray(value).tolist() if value is not None else None


def check(ds: Any, expected: list[Any] | None, index: bool) -> None:
    """Check the elements, those after a state, and those by index."""
    whole = [plain(value) for value in ds]
    assert expected is None or whole == [plain(value) for value in expected]
    assert len(whole) >= 3
    with iter(ds) as items:
        list(islice(items, 2))
        state = items.state_dict()
    with iter(ds) as items:
        items.load_state_dict(state)
        assert [plain(value) for value in items] == whole[2:]
    if index:
        assert len(ds) == len(whole)
        assert [plain(ds[i]) for i in (1, 0)] == [whole[1], whole[0]]
        assert sorted(map(str, map(plain, ds.shuffle(gp.ALL)))) == sorted(map(str, whole))
    else:
        with pytest.raises((gp.PlanError, TypeError), match=r"index|element"):
            ds[0]


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_source_that_is_built_in_gives_its_elements(name: str) -> None:
    code, index = BUILT_IN[name][1].strip("`"), BUILT_IN[name][2]
    built_in()

    check(eval(code, {"gp": gp, **of_a_library(code)}), None, index == "yes")


@pytest.fixture
def given(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    yield from RECIPES[request.param](monkeypatch)


@pytest.mark.parametrize(("name", "given"), [(name, name) for name in RECIPES], indirect=["given"], ids=list(RECIPES))
def test_a_recipe_gives_what_was_written(name: str, given: Any) -> None:
    names, expected = given
    names |= {"gp": gp, "np": np, "io": io}
    cells = [cell.strip() for cell in RUN[name].strip("|").split("|")]

    exec(BLOCKS[name], names)

    if cells[3].startswith("none"):
        assert [plain(value) for value in names["ds"]] == [plain(value) for value in expected]
    else:
        check(names["ds"], expected, cells[2] == "yes")


@pytest.mark.parametrize(("name", "given"), [(name, name) for name in FILES], indirect=["given"], ids=FILES)
def test_a_recipe_of_files_takes_urls(name: str, given: Any) -> None:
    names, expected = given
    code, count = re.subn(r'"((?:a|\*|train-[\w-]+)\.\S+?)"', rf'"{in_memory()}\1"', BLOCKS[name])
    assert count == (2 if name == "MNIST" else 1)
    names |= {"gp": gp, "np": np, "io": io}

    exec(code, names)

    assert [plain(value) for value in names["ds"]] == [plain(value) for value in expected]


def test_every_row_was_run_or_says_that_it_was_not() -> None:
    others = [cells for cells in rows("By recipe") if not cells[0].startswith("[")]

    assert list(RUN) == list(BLOCKS) and set(RUN) == set(RECIPES)
    assert len(others) == 2
    assert all(cells[-1] == "not run" for cells in others)
    assert not any("not run" in line for line in RUN.values())
    assert len(BUILT_IN) == 16
