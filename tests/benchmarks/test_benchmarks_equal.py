"""Unequal work is refused, with every difference named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from benchmarks.equal import UnequalWork, check, expected_counts, refusals
from benchmarks.job import Audit

COUNTS = expected_counts(512, 40)
FIGURES = {"share": 0.43, "contrast": 0.28, "flipped": 0.5, "level": 128.0}
A = Audit("a", (64, 224, 224, 3), "float32", "NHWC", COUNTS, FIGURES)


def changed(**figures: float) -> Audit:
    return replace(A, contestant="b", figures={**FIGURES, **figures})


def test_equal_work_passes() -> None:
    check([A, replace(A, contestant="b")], COUNTS)


def test_differences_within_the_limits_pass() -> None:
    check([A, changed(share=0.4385, contrast=0.30, flipped=0.52, level=129.0)], COUNTS)


@pytest.mark.parametrize(
    ("other", "text"),
    [
        (changed(share=0.37), "share: a 0.43, b 0.37"),  # tf.image.sample_distorted_bounding_box against torchvision
        (changed(share=0.4395), "share: a 0.43, b 0.4395"),  # just over 2 %
        (changed(contrast=0.6), "contrast: a 0.28, b 0.6"),
        (changed(flipped=0.0), "flipped: a 0.5, b 0"),
        (changed(level=2.0), "level: a 128, b 2"),
        (replace(A, contestant="b", dtype="float16"), "dtype: a float32, b float16"),
        (replace(A, contestant="b", layout="NCHW"), "layout: a NHWC, b NCHW"),
        (replace(A, contestant="b", shape=(64, 192, 192, 3)), "shape: a (64, 224, 224, 3), b (64, 192, 192, 3)"),
        (replace(A, contestant="b", counts={"39": 2, "40": 510}), "b delivered labels 2 of them 39x, 510 of them 40x"),
        (replace(A, contestant="b", figures={"share": 0.43}), "level: measured for one of a, b only"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_difference_is_refused_and_named(other: Audit, text: str) -> None:
    with pytest.raises(UnequalWork) as refused:
        check([A, other], COUNTS)

    assert text in str(refused.value)
    assert "leave one out with --contestants" in str(refused.value)


def test_every_pair_is_compared_not_only_with_the_first() -> None:
    low, high = changed(share=0.4265), replace(changed(share=0.4355), contestant="c")

    assert refusals([A, low], COUNTS) == []
    assert refusals([A, high], COUNTS) == []
    assert refusals([A, low, high], COUNTS) == ["share: b 0.4265, c 0.4355"]


def test_payloads_must_be_equal_to_the_last_bit() -> None:
    records: dict[str, Any] = {"shape": (256,), "dtype": "bytes", "layout": "records"}
    one = replace(A, figures={"bytes": 1e6, "digest": 123456.0}, **records)
    other = replace(one, contestant="b", figures={"bytes": 1e6, "digest": 123457.0})

    assert len(refusals([one, other], COUNTS)) == 1
