"""python -m benchmarks approximate: its photographs, and the measurement of decoding alone."""

from __future__ import annotations

import json

import pytest

from benchmarks import large
from benchmarks.compare import GOALS
from benchmarks.contestants import CONTESTANTS
from gpupipe.extract.images.headers import read_header
from gpupipe.ops._shared import decode_smaller


@pytest.fixture(scope="module")
def drawn() -> bytes:
    return large.draw(1)


def test_photographs_have_three_megapixels_and_are_compressed_as_cameras_do(drawn: bytes) -> None:
    header = read_header(drawn)

    assert (header.height, header.width) == (1536, 2048)
    assert 500_000 < len(drawn) < 1_500_000


def test_decoding_alone_is_compared_and_so_are_its_pixels(
    drawn: bytes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(large, "PASSES", 1)
    found = json.loads(json.dumps(large.decoding([drawn])))

    assert found["goal"] == 0.72
    for name in ("windows", "whole images"):
        assert found[name]["cpu_ratio"]["count"] == 1
        assert 0 < found[name]["mean_difference"] < found[name]["mean_difference_without_antialias"]
        assert found[name]["psnr_db"] > 40
    assert "decoding alone, windows" in capsys.readouterr().out


def test_the_other_contestant_s_rule_is_the_same() -> None:
    from benchmarks.contestants import tf_chain

    assert tf_chain.MARGIN == decode_smaller.MARGIN


@pytest.mark.parametrize("work", GOALS)
def test_goals_are_about_contestants_of_their_work(work: str) -> None:
    known = {name for name, one in CONTESTANTS.items() if one.work == work}

    assert {name for goal in GOALS[work] for name in goal[:2]} <= known
