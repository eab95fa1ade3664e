"""What trainers do with a loader: epochs, resumes, evaluation on ranks, prediction; each in a process of its own."""

from __future__ import annotations

import re

import pytest

from tests.docs.test_pages import GUIDE
from tests.tensors.launch import run


def test_lightning_trains_and_resumes_on_the_batches_of_a_run_that_is_not_interrupted() -> None:
    pytest.importorskip("lightning")

    (found,) = run("on_lightning")

    assert len(found["resumed"]) >= 14 and all(found["resumed"].values()), found["resumed"]
    assert "strict_states=False" in found["refused"] and found["ignored"]
    assert found["epochs"] and found["reloaded"] and found["fabric"] and found["fabric_resumed"]
    assert found["overfit"] == found["predicted"] == [True, True]
    assert found["validated"] == 2 * 4  # batches, of the 7 good elements: the number with the bad ones is 5


ROWS = [[], [0]], [[0, 1], [0, 1, 2]], [[0, 1, 2, 3]] * 2
"""Three batches of ragged rows, the last completed."""
SIZES = {2: [[ROWS[0], ROWS[2]], [ROWS[1], ROWS[0]]], 4: [[ROWS[0]], [ROWS[1]], [ROWS[2]], [ROWS[0]]]}
"""By ranks, those of each."""


@pytest.mark.parametrize(("ranks", "part"), [(2, 0), (4, 5)])
def test_an_evaluation_under_accelerate_counts_each_row_once(ranks: int, part: int) -> None:
    pytest.importorskip("accelerate")

    for found in run("on_metrics", str(part), "12", ranks=ranks):
        assert found["cases"] == 75 and found["wrong"] == []
        assert found["by_rank"] == list(range(8 * ranks))
        assert found["sizes"] == [SIZES[ranks][found["rank"]]] * 2  # ragged rows, and lists of them
        shard, padded = found["refused"]
        assert re.search(rf"prepare needs the batches of all ranks.*shard\({ranks}, .*leave shard out", shard)
        assert re.search(r"by_rank\(remainder='drop'\), got by_rank\(.*leave by_rank out", padded)


def test_transformers_trainer_resumes_anywhere_with_the_callback_and_is_refused_without() -> None:
    pytest.importorskip("transformers")

    (found,) = run("on_transformers")

    assert all(found["resumed"].values()), found["resumed"]
    inside = {"4", "9", "14"}
    assert {step for step, one in found["plain"].items() if one is True} == set(found["plain"]) - inside
    assert all("skip_first_batches needs the epoch" in found["plain"][step] for step in inside)
    assert 0 < found["detected"] < 100


def test_transformers_trainer_evaluates_each_row_once_on_two_ranks() -> None:
    pytest.importorskip("transformers")

    for found in run("on_transformers", "evaluate", ranks=2):
        assert (found["rows"], found["each"]) == (50, True)


def test_the_page_of_trainers_names_tests_that_exist() -> None:
    named = set(re.findall(r"`(\w+\.py)`", (GUIDE / "trainers.md").read_text(encoding="utf-8")))

    folder = GUIDE.parents[1] / "tests" / "tensors"
    assert named and all((folder / name).is_file() for name in named)
