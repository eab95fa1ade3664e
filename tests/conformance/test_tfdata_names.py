"""The table of tf.data's names is complete, says nothing that is not tested, and is what the documentation shows."""

from __future__ import annotations

import os
import warnings
from typing import Any

import pytest

import gpupipe as gp
from tests.conformance.tfdata_names import COMPLAINTS, ROOT, TABLES, comparisons, document

KNOWN_ELSEWHERE = {"AUTOTUNE", "INFINITE_CARDINALITY", "UNKNOWN_CARDINALITY", "ThreadingOptions", "experimental"}
METHODS = [entry for entry in TABLES["Methods of Dataset"] if not entry.left_out]


@pytest.fixture(scope="module")
def tf() -> Any:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    return pytest.importorskip("tensorflow")


@pytest.mark.tf
def test_every_public_name_is_in_the_table(tf: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        public = [
            {name for name in dir(owner) if not name.startswith("_")}
            for owner in (tf.data.Dataset, tf.data, tf.data.experimental)
        ]

    methods, module, experimental = ({entry.name for entry in entries} for entries in TABLES.values())
    assert public == [methods, module | {"experimental"}, experimental | KNOWN_ELSEWHERE - {"experimental"}]


def test_every_method_that_is_not_left_out_exists() -> None:
    assert not [entry.name for entry in METHODS if not hasattr(gp.Dataset, entry.name)]


def test_every_name_that_is_not_left_out_is_compared_or_tested() -> None:
    found = comparisons()

    assert not [entry.name for entry in METHODS if not found[entry.name] and not (ROOT / entry.tested).is_file()]
    assert all((ROOT / entry.tested).exists() for entries in TABLES.values() for entry in entries)
    assert found["range"] > 100  # most chains begin with it: the count reads the tables


def test_the_documentation_shows_the_table() -> None:
    page = (ROOT / "gpupipe" / "dataset" / "README.md").read_text(encoding="utf-8")

    assert page == document() + "\n", "run python -m tests.conformance.tfdata_names > gpupipe/dataset/README.md"


def test_every_complaint_has_an_answer_that_something_shows() -> None:
    assert len(COMPLAINTS) == 29
    assert not [where for *_, where in COMPLAINTS if not (ROOT / where.strip("`")).is_file()]
    assert all(cell for row in COMPLAINTS for cell in row)
