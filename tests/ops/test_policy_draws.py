"""What policies draw: ops, strengths and signs as frequent as the papers say."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.graph.op import Array
from gpupipe.ops._shared.mixing import dirichlet
from gpupipe.ops._shared.policy import MOST, NUMBER, OPS, strengths
from gpupipe.ops.aug_mix import ALL, BINS, SIDE, AugMix
from gpupipe.ops.auto_augment import POLICIES, AutoAugment
from gpupipe.ops.rand_augment import RandAugment
from gpupipe.ops.trivial_augment_wide import WIDE, TrivialAugmentWide
from tests.ops.frequencies import assert_joint_law, assert_shares, chi_square, deviations, independent
from tests.ops.originals import torchvision
from tests.ops.test_policies import THEIRS, rng, sizes
from tests.ops.test_random_choices import in_order
from tests.ops.value_chains import on

COUNT = 100_000
FEWER = 20_000
"""Elements of a chain, which costs more than to draw; of laws of a few bins."""
SIGNED = OPS[1:10]
"""Ops whose strength is negative half of the time."""
NAMES = {theirs: ours for ours, theirs in THEIRS.items()}

Law = dict[tuple[float, ...], float]
"""The probability of what may be drawn: of an op's number and its strength with its sign, for each of some layers."""


def of_op(name: str, values: Iterable[float], share: float = 1.0) -> Law:
    """The law of one op whose strength is one of these, all equally likely, and both signs, too."""
    law: defaultdict[tuple[float, ...], float] = defaultdict(float)
    values = list(values)
    for value in values:
        for sign in (1, -1) if name in SIGNED else (1,):
            law[NUMBER[name], sign * value + 0.0] += share / len(values) / (2 if name in SIGNED else 1)
    return dict(law)


def cells(drawn: Array, strength: Array, *layers: int) -> Array:
    """[N,2k]: the op and the strength of some layers."""
    return np.stack([x[:, layer] for layer in layers for x in (drawn, strength)], axis=1)


def test_rand_augment_draws_every_op_equally_often_and_both_signs() -> None:
    drawn, strength = RandAugment(2, 9).plan(rng(COUNT), sizes(COUNT))

    one: Law = {}
    for name in OPS[:14]:
        one |= of_op(name, strengths(name, 31, sizes(1), MOST, 4)[0][9:10], 1 / 14)
    assert_joint_law(cells(drawn, strength, 0, 1), independent([one, one]))


def test_trivial_augment_draws_every_op_and_every_strength_equally_often() -> None:
    drawn, strength = TrivialAugmentWide().plan(rng(COUNT), sizes(COUNT))

    law: Law = {}
    for name in OPS[:14]:
        law |= of_op(name, strengths(name, 31, sizes(1), WIDE, 6)[0].tolist(), 1 / 14)
    assert_joint_law(cells(drawn, strength, 0), law)


def of_pairs(pairs: Any) -> Law:
    """The law of a policy of pairs of ops, each with its probability and the index of its strength: torchvision's."""
    law: defaultdict[tuple[float, ...], float] = defaultdict(float)
    for pair in pairs:
        layers = []
        for name, p, index in pair:
            ours = NAMES[name]
            value = strengths(ours, 10, sizes(1), MOST, 4)[0][index or 0]
            layers.append({**of_op("identity", [0.0], 1 - p), **of_op(ours, [value], p)})
        for cell, share in independent(layers).items():
            law[cell] += share / len(pairs)
    return {cell: share for cell, share in law.items() if share > 0}


@pytest.mark.parametrize("policy", POLICIES)
def test_auto_augment_draws_every_pair_equally_often_and_each_op_with_its_probability(policy: str) -> None:
    pairs = torchvision().v2.AutoAugment(torchvision().v2.AutoAugmentPolicy(policy))._policies
    law = of_pairs(pairs)

    drawn, strength = AutoAugment(policy).plan(rng(COUNT), sizes(COUNT))

    assert_joint_law(cells(drawn, strength, 0, 1), law)


def test_aug_mix_draws_ops_strengths_signs_and_depths_equally_often() -> None:
    kinds, strength = AugMix(severity=4).plan(rng(COUNT), sizes(COUNT))

    depths = (kinds.reshape(COUNT, 3, 3) != NUMBER["identity"]).sum(axis=2)
    depth: Law = {(n,): 1 / 3 for n in (1, 2, 3)}
    assert_joint_law(depths, independent([depth] * 3))
    law: Law = {}
    for name in ALL:
        values = strengths(name, BINS, sizes(1), SIDE, 4)[0][:4] - (4 if name == "posterize" else 0)
        law |= of_op(name, values.tolist(), 1 / 13)
    assert_joint_law(cells(kinds, strength, 0), law)
    assert_joint_law(cells(kinds, strength, 3, 6), independent([law, law]))


@pytest.mark.parametrize("alpha", [0.001, 0.3, 2.5, 1000.0])
@pytest.mark.parametrize("count", [3])
def test_shares_have_the_moments_of_the_dirichlet_distribution(alpha: float, count: int) -> None:
    shares = dirichlet(rng(FEWER), alpha, count)

    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-12)
    mean, spread = 1 / count, math.sqrt((count - 1) / (count**2 * (count * alpha + 1)))
    assert shares.mean(axis=0) == pytest.approx(mean, abs=4 * spread / math.sqrt(FEWER))
    assert shares.std(axis=0) == pytest.approx(spread, rel=0.04)


def test_weights_that_are_uniform_by_default_are_uniform() -> None:
    numbers = AugMix().draw(rng(COUNT), sizes(COUNT))[1]

    weights = numbers[:, AugMix().weighed :]
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-5)
    # Beta(1, 1) of the image, and a flat Dirichlet distribution of the chains, whose first share is 1 - sqrt(u).
    assert_shares(np.histogram(weights[:, 0], 20, (0, 1))[0], 1 / 20)
    first = weights[:, 1] / (1 - weights[:, 0])
    assert_shares(np.histogram((1 - first) ** 2, 20, (0, 1))[0], 1 / 20)


def test_three_augment_and_random_apply_draw_with_their_probabilities() -> None:
    chain = gp.Dataset.from_tensor_slices(np.zeros((FEWER, 1, 1, 1), np.uint8))

    def draw(x: Any) -> Any:
        options = [lambda y: y + 0.0, lambda y: y + 1.0, lambda y: y + 2.0]
        weighed = ops.random_choice(options, x, p=(1, 0, 3))
        return ops.random_choice(options, x), weighed, ops.random_apply(lambda y: ~y, x, 0.25)

    even, weighed, applied = next(chain.batch(FEWER).map(draw, traced=True).with_options(on("numpy")).iterator(epoch=0))

    assert_shares(np.bincount(even.ravel().astype(int), minlength=3), 1 / 3)
    assert_shares(np.bincount(weighed.ravel().astype(int), minlength=3), [0.25, 0, 0.75])
    assert_shares([(applied == 255).sum(), (applied == 0).sum()], [0.25, 0.75])


def test_all_orders_are_equally_likely() -> None:
    chain = gp.Dataset.from_tensor_slices(np.ones((FEWER, 1, 1, 1), np.float32))
    steps = [lambda y: y * 2, lambda y: y + 3, lambda y: y * y]
    results = [float(in_order(1.0, order)) for order in itertools.permutations(steps)]

    batches = chain.batch(FEWER).map(lambda x: (ops.random_order(steps, x),), traced=True).with_options(on("numpy"))
    (got,) = next(batches.iterator(epoch=0))

    values, counts = np.unique(got, return_counts=True)
    assert values.tolist() == sorted(set(results))
    assert_shares(counts, 1 / 6)


def test_a_bin_that_is_off_and_bins_that_are_off_together_are_found() -> None:
    shares = np.full(100, 1 / 100)
    drawn = np.random.default_rng(0).multinomial(COUNT, shares)
    one, many = drawn.copy(), 1000 + 45 * np.tile([1, -1], 50)
    one[0] += 1100 - one[0]
    one[1] += COUNT - one.sum()

    assert np.abs(deviations(one, shares)).max() > 3 > abs(chi_square(one, shares))
    assert np.abs(deviations(many, shares)).max() < 3 < chi_square(many, shares)
    with pytest.raises(AssertionError, match=r"of 100 bins, one is 3\.18 standard deviations off"):
        assert_shares(one, shares)
    with pytest.raises(AssertionError, match="chi-square over 100 bins is "):
        assert_shares(many, shares)
    with pytest.raises(AssertionError, match="chi-square over 100 bins is -"):
        assert_shares(np.full(100, 1000), shares)  # closer than chance allows
    with pytest.raises(AssertionError, match="cannot be drawn"):
        assert_joint_law(np.array([[1.0], [3.0]]), {(1.0,): 1.0})
