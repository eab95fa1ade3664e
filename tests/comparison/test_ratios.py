"""Medians of repetitions, and ratios inside pairs."""

from __future__ import annotations

import pytest

from gpupipe.comparison.ratios import Spread, pair_order, ratios


def test_a_spread_has_the_median_and_a_ratio_is_taken_inside_each_pair() -> None:
    assert Spread.of([3.0, 1.0, 2.0, 10.0]) == Spread(1.0, 2.5, 10.0, 4)
    assert ratios([2.0, 20.0, 200.0], [1.0, 10.0, 400.0]) == Spread(0.5, 2.0, 2.0, 3)
    assert [pair_order(i) for i in range(3)] == [(0, 1), (1, 0), (0, 1)]


def test_what_is_no_pair_or_no_value_is_refused() -> None:
    with pytest.raises(ValueError, match="got 1 and 2 values"):
        ratios([1.0], [1.0, 2.0])
    with pytest.raises(ValueError, match="positive divisors"):
        ratios([1.0], [0.0])
    with pytest.raises(ValueError, match="at least one value, got none"):
        Spread.of([])
