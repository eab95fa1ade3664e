"""An epoch that gives nothing says so once: a loop over it looks like one that worked."""

from __future__ import annotations

import pytest

import gpupipe as gp


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if "gave no element" in record.message]


def test_too_few_elements_for_a_batch_are_named(caplog: pytest.LogCaptureFixture) -> None:
    dataset = gp.Dataset.range(16).shuffle(4).batch(64, drop_remainder=True).prefetch(1)
    (finding,) = (found for found in dataset.check() if found.rule == "batch_of_too_few")
    assert "there are 16 elements, fewer than a batch" in finding.text

    assert [list(dataset), list(dataset)] == [[], []]

    (text,) = warnings(caplog)
    assert "batch(64, drop_remainder=True) at " in text


def test_a_filter_that_keeps_nothing_is_named(caplog: pytest.LogCaptureFixture) -> None:
    assert not list(gp.Dataset.range(16).filter(lambda x: x < 0))
    assert len(warnings(caplog)) == 1


def test_an_epoch_that_is_resumed_at_its_end_gave_elements(
    caplog: pytest.LogCaptureFixture,
) -> None:
    dataset = gp.Dataset.range(2)
    items = iter(dataset)
    first = next(items), next(items)
    rest = iter(dataset)
    rest.load_state_dict(items.state_dict())

    assert (first, list(rest)) == ((0, 1), [])
    assert not warnings(caplog)


def test_what_says_that_it_is_empty_is_not_named(caplog: pytest.LogCaptureFixture) -> None:
    batches = gp.Dataset.range(20).batch(8, drop_remainder=True)
    for dataset in (gp.Dataset.range(0), gp.Dataset.range(9).take(0), batches.take(0), batches.skip(5)):
        assert not list(dataset)
    assert not warnings(caplog)
