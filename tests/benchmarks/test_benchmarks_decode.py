"""Decoding alone: the same pixels from every library, and what is written down."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.equal import UnequalWork
from benchmarks.suites import decode, decoders

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="benchmarks need /proc")


@pytest.fixture(scope="module")
def drawn() -> list[bytes]:
    return decode.photographs("", ["0.2 MP"], 2)["0.2 MP"]


@pytest.mark.parametrize("name", [name for name in decoders.DECODERS if name != "turboloader"])
def test_every_decoder_gives_the_pixels_of_libjpeg_turbo(name: str, drawn: list[bytes]) -> None:
    pytest.importorskip("simplejpeg")
    if name == "tensorflow":
        pytest.skip("setting its threads would slow down every later test of this process")
    try:
        one = decoders.DECODERS[name][1]()
    except ImportError as error:
        pytest.skip(str(error))
    exact, places = decoders.DECODERS["simplejpeg"][1](), [(10, 21, 100, 81), (0, 0, 375, 500)]

    windows = one.windows(drawn, places), exact.windows(drawn, places)
    for ours, theirs in ((one.whole(drawn), exact.whole(drawn)), windows):
        for a, b in zip(ours, theirs, strict=True):
            assert np.asarray(a).shape == np.asarray(b).shape
            assert np.abs(np.asarray(a).astype(int) - b).mean() < 0.1


def test_decoding_is_written_down_with_ratios_and_who_is_not_exact(
    drawn: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("simplejpeg")
    exact = decoders.DECODERS["simplejpeg"][1]()

    def off() -> decoders.Decoder:
        return decoders.Decoder(lambda images: [one ^ 4 for one in exact.whole(images)], exact.windows, True)

    def absent() -> decoders.Decoder:
        raise ModuleNotFoundError("No module named 'absent'")

    names = {
        "simplejpeg": decoders.DECODERS["simplejpeg"],
        "off": ("an inexact one", off),
        "absent": ("nobody", absent),
    }
    monkeypatch.setattr(decode, "DECODERS", names)

    path = decode.decode(tmp_path, {"some": drawn}, tuple(names), rounds=2)

    found = json.loads(path.read_text())
    assert found["not_measured"] == {"absent": "not installed: No module named 'absent'"}
    assert found["summary"]["some"]["simplejpeg"]["whole_ratio"]["values"] == [1.0, 1.0]
    assert found["summary"]["some"]["off"]["mean_difference"] == pytest.approx(4)
    assert [one["equal"] for one in found["summary"]["some"].values()] == [True, False]
    text = capsys.readouterr().out
    assert "an inexact one *" in text and "* not equal work" in text and "nobody: not installed" in text


def test_photographs_to_decode_are_drawn_or_read_from_shards(shards: str, tmp_path: Path) -> None:
    assert len(decode.photographs(shards, (), 5)["photographs"]) == 5
    with pytest.raises(FileNotFoundError, match="got none for"):
        decode.photographs(str(tmp_path / "no*"), ())
    with pytest.raises(UnequalWork, match="decode needs sizes out of"):
        decode.photographs("", ["9 MP"])
    with pytest.raises(UnequalWork, match="decode needs contestants out of"):
        decode.decode(tmp_path, {}, ("nobody",))
