"""The table of tf.data's names is complete, says nothing that is not tested, and is what the documentation shows."""

from __future__ import annotations

import os
import warnings
from typing import Any

import pytest

import gpupipe as gp
from tests.conformance.tfdata_names import COMPLAINTS, DATASET, EXPERIMENTAL, MODULE, NAMES, ROOT, comparisons, document

KNOWN_ELSEWHERE = {"AUTOTUNE", "INFINITE_CARDINALITY", "UNKNOWN_CARDINALITY", "ThreadingOptions", "experimental"}


@pytest.fixture(scope="module")
def tf() -> Any:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    return pytest.importorskip("tensorflow")


@pytest.mark.tf
def test_every_public_name_is_in_the_table(tf: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        methods = {name for name in dir(tf.data.Dataset) if not name.startswith("_")}
        module = {name for name in dir(tf.data) if not name.startswith("_")} - {"experimental"}
        experimental = {name for name in dir(tf.data.experimental) if not name.startswith("_")} - KNOWN_ELSEWHERE

    assert methods == set(DATASET)
    assert module == set(MODULE)
    assert experimental == set(EXPERIMENTAL)


def test_every_method_that_is_not_left_out_exists() -> None:
    missing = [name for name, entry in DATASET.items() if not entry.left_out and not hasattr(gp.Dataset, name)]

    assert not missing


def test_every_name_that_is_not_left_out_is_compared_or_tested() -> None:
    found = comparisons()
    silent = [
        name
        for name, entry in DATASET.items()
        if not entry.left_out and not found[name] and not (ROOT / entry.tested).is_file()
    ]

    assert not silent
    assert all((ROOT / entry.tested).exists() for entry in NAMES.values())


def test_there_are_enough_comparisons() -> None:
    assert comparisons()["range"] > 100  # most chains begin with it: the count reads the tables


def test_the_documentation_shows_the_table() -> None:
    page = (ROOT / "gpupipe" / "dataset" / "README.md").read_text(encoding="utf-8")

    assert page == document() + "\n", "run python -m tests.conformance.tfdata_names > gpupipe/dataset/README.md"


def test_every_complaint_has_an_answer_that_something_shows() -> None:
    rows = [line.strip("|").split("|") for line in COMPLAINTS.read_text(encoding="utf-8").splitlines()[2:]]

    assert len(rows) == 29
    assert not [where for *_, where in rows if not (ROOT / where.strip(" `")).is_file()]
    assert all(cell.strip() for row in rows for cell in row)
