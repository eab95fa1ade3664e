"""cardinality: never a wrong number. The table of all steps is compared with that of tf.data in tests/differential."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpupipe as gp
from gpupipe import Dataset, TensorSpec
from tests.behaviour.model import run

INFINITE, UNKNOWN = gp.INFINITE_CARDINALITY, gp.UNKNOWN_CARDINALITY


def _generated(count: int) -> Dataset:
    return Dataset.from_generator(lambda: iter(range(count)), output_signature=TensorSpec((), "int64"))


_SOURCES: tuple[Callable[[int], Dataset], ...] = (
    Dataset.range,
    _generated,
    lambda n: Dataset.range(n).filter(lambda x: x < 1),
    lambda n: Dataset.range(9).filter(lambda x: x > 8 + n),  # n = 0: nothing, which only reading tells
    lambda n: Dataset.counter().take(n),
)
_SMALL = st.integers(-1, 4)
_STEPS: tuple[st.SearchStrategy[Callable[[Dataset], Dataset]], ...] = (
    st.just(lambda d: d.repeat()),
    st.builds(lambda n: lambda d: d.repeat(n), st.integers(0, 3)),
    st.builds(lambda n: lambda d: d.take(n), _SMALL),
    st.builds(lambda n: lambda d: d.skip(n), _SMALL),
    st.builds(lambda n: lambda d: d.shard(3, n), st.integers(0, 2)),
    st.builds(lambda n, drop: lambda d: d.batch(n, drop_remainder=drop), st.integers(1, 3), st.booleans()),
    st.builds(lambda n, drop: lambda d: d.batch(n, drop_remainder=drop).unbatch(), st.integers(1, 3), st.booleans()),
    st.builds(
        lambda n, drop, to: lambda d: d.batch(n, drop_remainder=drop).rebatch(to), st.integers(1, 4), st.booleans(),
        st.one_of(st.integers(1, 3), st.lists(st.integers(1, 3), min_size=1, max_size=3)),
    ),
    st.builds(lambda n, drop: lambda d: d.window(n, 2, 2, drop), st.integers(1, 3), st.booleans()),
    st.builds(
        lambda make, n: lambda d: d.concatenate(_numbered(make(n))), st.sampled_from(_SOURCES), st.integers(0, 2)
    ),
    st.builds(lambda make, n: lambda d: Dataset.zip(d, make(n)), st.sampled_from(_SOURCES), st.integers(0, 3)),
    st.builds(
        lambda make, n, stop: lambda d: Dataset.sample_from_datasets(
            [d, _numbered(make(n))], seed=1, stop_on_empty_dataset=stop
        ),
        st.sampled_from(_SOURCES), st.integers(0, 2), st.booleans(),
    ),
    st.builds(
        lambda make, n: lambda d: Dataset.choose_from_datasets([d.repeat(), d.repeat()], make(n).map(lambda x: x % 2)),
        st.sampled_from(_SOURCES), st.integers(0, 3),
    ),
    st.just(lambda d: d.filter(lambda x: x > 1)),
    st.just(lambda d: d.map(lambda x: x + 1)),
    st.just(lambda d: d.shuffle(2)),
    st.just(lambda d: d.cache()),
    st.just(lambda d: d.prefetch(1)),
    st.just(lambda d: d.enumerate()),
    st.just(lambda d: d.flat_map(lambda x: Dataset.from_tensors(x))),
)  # fmt: skip


def _numbered(dataset: Dataset) -> Dataset:
    """The same number of elements, each the number 0: it can stand beside any chain of `_chains`."""
    return dataset.map(_nothing, spec=TensorSpec((), "int64"))


def _nothing(*element: object) -> int:
    return 0


@st.composite
def _chains(draw: st.DrawFn) -> Dataset:
    """A chain of up to five steps. Each step gets single numbers, so that any may stand behind any."""
    dataset = draw(st.sampled_from(_SOURCES))(draw(st.integers(0, 6)))
    for _ in range(draw(st.integers(0, 5))):
        dataset = _numbered(draw(st.one_of(_STEPS))(dataset))
    return dataset


@settings(max_examples=200, deadline=None, database=None, derandomize=True)
@given(dataset=_chains())
def test_random_chains_have_as_many_elements_as_they_say(dataset: Dataset) -> None:
    count = dataset.cardinality()

    if count >= 0:
        assert len(run(dataset)) == count == len(dataset)
    elif count == INFINITE:
        assert len(run(dataset.take(40))) == 40


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
    for name, count in (("some", 3), ("none", 0)):
        with gp.io.TFRecordWriter(tmp_path / name) as writer:
            for _ in range(count):
                writer.write(b"record")
    some, none = (gp.TFRecordDataset(tmp_path / name).repeat() for name in ("some", "none"))

    assert len(some.take(9)) == len(list(some.take(9))) == 9
    assert len(none.take(9)) == len(list(none.take(9))) == len(none) == 0
    with pytest.raises(TypeError, match="infinite"):
        len(some)
    assert some[7] == b"record"
    with pytest.raises(gp.PlanError, match="needs a dataset that ends"):
        some.shuffle(gp.ALL)
