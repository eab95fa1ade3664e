"""Augmentations beside operators by hand: equal pixels, what is written down, and threads that do not rest."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from time import process_time

import numpy as np
import pytest

from benchmarks import __main__ as command
from benchmarks.equal import UnequalWork
from benchmarks.suites import augment, augmenters
from gpupipe.transform.machine import has_dali
from tests.ops.originals import torchvision

pytestmark = [
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="benchmarks need /proc"),
    pytest.mark.skipif(not has_dali(), reason="DALI is not installed"),
]
ROWS = 4
FIXED = [name for name, question in augmenters.QUESTIONS.items() if question.fixed]


@pytest.mark.parametrize("name", FIXED)
def test_what_is_compared_gives_equal_pixels_with_equal_settings(name: str) -> None:
    rows = augment.photographs(ROWS)
    question = augmenters.QUESTIONS[name]

    assert augment.difference(question, rows, 1) < augment.CLOSE
    assert np.abs(augmenters.chain(question, rows, 1, fixed=True)(1).astype(int) - rows).mean() > 1
    with pytest.raises(UnequalWork, match=f"needs equal pixels of gpupipe and {question.other}, got"):
        augment.difference(replace(question, ours=lambda x, fixed: x), rows, 1)


@pytest.mark.parametrize("name", augmenters.QUESTIONS)
def test_contestants_draw_anew_for_each_image_and_batch(name: str) -> None:
    if name == "rand_augment":
        torchvision()  # or the test is skipped
    question = augmenters.QUESTIONS[name]
    rows = np.repeat(augment.photographs(1), ROWS, axis=0)

    for take in (augmenters.chain(question, rows, 1), question.by_hand(rows, 1, False)):
        batches = [np.array(take(1)) for _ in range(2)]
        assert all(batch.shape == (ROWS, augmenters.SIDE, augmenters.SIDE, 3) for batch in batches)
        assert all(batch.dtype == np.uint8 for batch in batches)
        assert len({row.tobytes() for batch in batches for row in batch}) > ROWS


def test_a_pair_is_written_down_with_its_noise_and_goals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["augment", "--only", "blur", "--pairs", "1", "--seconds", "0.01", "--threads", "1"]

    assert command.main([*words, "--out", str(tmp_path)]) == 0

    (path,) = tmp_path.glob("augment-*.json")
    found = json.loads(path.read_text())
    assert found["audits"]["blur"] < augment.CLOSE
    one = found["summary"]["blur"]
    assert one["ratio"]["median"] == pytest.approx(one["gpupipe_ms"]["median"] / one["other_ms"]["median"])
    assert one["noise"]["count"] == 1 and one["goal"] == 1.3 and one["goal_ms"] is None
    printed = capsys.readouterr().out
    assert "(goal: at most 1.3)" in printed and "gpupipe with itself: the noise" in printed


def test_a_window_has_the_work_of_threads_and_begins_when_they_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(seconds: float) -> None:
        end = process_time() + seconds
        while process_time() < end:
            pass

    def behind(count: int) -> augmenters.Pixels:
        threading.Thread(target=work, args=(0.2,)).start()
        return np.zeros(0, np.uint8)

    assert 0.2 <= augment.window(behind, 1) < 0.4
    monkeypatch.setattr(augment, "PATIENCE", 0.1)
    endless = threading.Thread(target=work, args=(0.5,))
    endless.start()
    with pytest.raises(RuntimeError, match="needs threads that rest between batches"):
        augment.settle()
    endless.join()


def test_an_unknown_question_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["augment", "--only", "sepia", "--out", str(tmp_path)]) == 2
    assert (
        "augment needs questions out of color_jitter, affine, blur, rand_augment, got sepia" in capsys.readouterr().err
    )
