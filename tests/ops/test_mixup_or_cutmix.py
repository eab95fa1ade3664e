"""mixup_or_cutmix: the choice for each batch, and torchvision's own MixUp and CutMix on the same draws."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from gpupipe import ops
from gpupipe.errors import PlanTypeError, SpecError
from gpupipe.ops._shared.mixing import beta
from gpupipe.ops.cutmix import Cutmix
from gpupipe.ops.mixup import Mixup
from gpupipe.ops.mixup_or_cutmix import MixupOrCutmix
from gpupipe.random import BatchRng
from tests.ops.originals import photograph, torchvision
from tests.ops.refusals import refused

X = np.random.default_rng(0).integers(0, 256, (12, 8, 6, 3), dtype=np.uint8)
Y = np.arange(12) % 4


def numbers(count: int, first: int = 0) -> BatchRng:
    return BatchRng(1, 0, np.arange(first, first + count, dtype=np.uint64), 5)


def test_the_chosen_one_is_computed_with_its_own_numbers() -> None:
    labels = np.eye(4, dtype=np.float32)[Y]
    window, share, kept = np.array([1, 2, 5, 6], np.int32), np.float32(0.75), np.float32(0.6)
    op = MixupOrCutmix()

    for cuts, expected in (
        (False, Mixup().array(np, X, labels, share)),
        (True, Cutmix().array(np, X, labels, window, kept)),
    ):
        for got, meant in zip(op.array(np, X, labels, np.bool_(cuts), share, window, kept), expected, strict=True):
            np.testing.assert_array_equal(got, meant)


def test_batches_are_mixed_as_by_torchvision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within float32 rounding of a level: the shares here are float32, there float64."""
    of = torchvision()
    torch = pytest.importorskip("torch")
    op, chosen = MixupOrCutmix(0.8, 1.0, 0.5), []
    for number in range(2):
        images = np.stack([photograph(number)[:96, :80], photograph(number + 1)[:96, :80]] * 2)
        hw, labels = np.array([[96, 80]], np.int32), np.array([0, 3, 1, 2])
        batch = torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2))).to(torch.float32)
        for draw in range(20):
            cuts, share, window, kept = (p[0] for p in op.draw(numbers(1, 20 * number + draw), hw))
            again = numbers(1, 20 * number + draw)
            again.uniform()
            own, other = beta(again, 0.8)[0], beta(again, 1.0)[0]
            row, column = np.floor(again.uniform(2)[0] * hw[0]).astype(int).tolist()
            theirs = (of.v2.CutMix if cuts else of.v2.MixUp)(alpha=1.0, num_classes=4)
            theirs._dist = SimpleNamespace(sample=lambda _, lam=other if cuts else own: lam)
            order = iter((column, row))  # torchvision draws x first
            monkeypatch.setattr(torch, "randint", lambda *_, order=order, **__: torch.tensor([next(order)]))
            expected, soft = theirs(batch.clone(), torch.from_numpy(labels))

            got, ours = op.array(np, images, np.eye(4, dtype=np.float32)[labels], cuts, share, window, kept)

            np.testing.assert_allclose(got, expected.numpy().transpose(0, 2, 3, 1), atol=1e-4, rtol=0)
            np.testing.assert_allclose(ours, soft.numpy(), atol=1e-6, rtol=0)
            chosen.append(bool(cuts))
    assert 10 < sum(chosen) < 30


test_mistakes_are_plan_errors = refused(
    (PlanTypeError, "mixup_or_cutmix needs num_classes to make vectors", lambda: ops.mixup_or_cutmix(X, Y)),
    (SpecError, r"needs mixup_alpha from 0\.001 to", lambda: ops.mixup_or_cutmix(X, Y, 0, num_classes=4)),
    (SpecError, r"needs cutmix_alpha from 0\.001 to", lambda: ops.mixup_or_cutmix(X, Y, 1, -1, num_classes=4)),
    (SpecError, "needs switch_prob from 0 to 1, got 1.5", lambda: ops.mixup_or_cutmix(X, Y, 1, 1, 1.5, 4)),
    (PlanTypeError, "a number for mixup_alpha", lambda: ops.mixup_or_cutmix(X, Y, "a", num_classes=4)),  # type: ignore[arg-type]
    (SpecError, "mixup_or_cutmix needs an image", lambda: ops.mixup_or_cutmix(X[0, 0], Y[:6], num_classes=4)),
    (SpecError, "batches of one length", lambda: ops.mixup_or_cutmix(X, Y[:6], num_classes=4)),
)
