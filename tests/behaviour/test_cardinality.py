"""cardinality: what may be empty, and what files that were counted tell.

The table of all steps, and the numbers of random chains, are compared with those of tf.data in tests/differential.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import gpupipe as gp
from gpupipe import Dataset
from tests.behaviour.manifests import written

UNKNOWN = gp.UNKNOWN_CARDINALITY


def test_a_repeat_of_what_may_be_empty_is_no_endless_one() -> None:
    empty = Dataset.range(3).filter(lambda x: x > 5).repeat()

    assert list(empty.take(9)) == []
    assert empty.cardinality() == empty.take(9).cardinality() == UNKNOWN
    assert "endless or none x int64" in empty.explain()
    with pytest.raises(TypeError, match="unknown before it is read"):
        len(empty.take(9))
    with pytest.raises(TypeError, match="is infinite or empty, which is unknown"):
        len(empty)


def test_what_never_ends_if_it_has_an_element_is_still_refused_where_an_end_is_needed(tmp_path: Path) -> None:
    endless = Dataset.range(3).filter(lambda x: x >= 0).repeat()
    dicts = endless.map(lambda x: {"x": x})

    with pytest.raises(gp.PlanError, match="save needs a dataset that ends"):
        endless.map(lambda x: x + 1).batch(2).prefetch(1).save(tmp_path / "saved")
    with pytest.raises(gp.PlanError, match="pad_to_cardinality needs a finite dataset"):
        dicts.pad_to_cardinality(9)


def test_files_that_were_counted_tell_what_a_repeat_of_them_is(tmp_path: Path) -> None:
    some, none = (gp.TFRecordDataset(path).repeat() for path in written(tmp_path, [3, 0])[1])

    assert len(some.take(9)) == len(list(some.take(9))) == 9
    assert len(none.take(9)) == len(list(none.take(9))) == len(none) == 0
    with pytest.raises(TypeError, match="infinite"):
        len(some)
    assert some[7] == b"0:1"
    with pytest.raises(gp.PlanError, match="needs a dataset that ends"):
        some.shuffle(gp.ALL)
