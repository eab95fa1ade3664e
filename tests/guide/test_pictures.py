"""Pictures that README.md shows are those of the committed measurements."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
PAGE = "gpupipe/guide/pictures/compare.webp"
MOST = 150_000
"""Bytes of a picture: the README is to open at once."""


def test_the_chart_shows_the_committed_measurements(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from benchmarks.chart import bars, draw

    draw(tmp_path / "measured.svg", bars())

    shown = _text(ROOT / "gpupipe" / "guide" / "pictures" / "measured.svg")
    assert "(gpupipe/guide/pictures/measured.svg)" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert shown == _text(tmp_path / "measured.svg"), "python -m benchmarks.chart gpupipe/guide/pictures/measured.svg"
    assert all(text in shown for bar in bars() for text in (bar.name, f"against {bar.against}"))
    assert [f"{bar.median:.2f}" for bar in bars()[::-1]] == [word for word in shown if re.fullmatch(r"\d\.\d\d", word)]


def test_the_page_of_a_comparison_is_the_committed_one_in_a_picture_of_bounded_size() -> None:
    from benchmarks.page import COMPARISON, DESCRIPTION, WIDTH, digest

    with Image.open(ROOT / PAGE) as picture:
        picture.load()
        assert picture.getexif()[DESCRIPTION] == digest(), f"python -m benchmarks.page {PAGE}"
        assert picture.width == WIDTH
        assert 1000 < picture.height < 2500
        assert len(picture.convert("RGB").getcolors(1 << 24) or ()) > 1000  # photographs, not a blank page
    assert (ROOT / PAGE).stat().st_size < MOST
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.search(rf'<img src="{PAGE}" width="\d+" alt="[^"]{{40,}}">', readme)
    assert COMPARISON.relative_to(ROOT).as_posix() in readme


def test_the_page_can_be_written_again_from_the_committed_comparison() -> None:
    pytest.importorskip("jinja2", reason="the extra `page` is not installed")
    from benchmarks.page import COMPARISON, committed
    from gpupipe.comparison.page.write import page_of

    found = committed()
    page = page_of(found)

    assert found.to_dict() == json.loads(COMPARISON.read_text(encoding="utf-8"))
    assert [cost.key for cost in found.costs if cost.measured] == ["dali-cpu", "numpy"]
    assert all(finding.text.replace("'", "&#39;") in page for finding in found.findings)


def test_a_committed_comparison_names_no_path_and_is_of_drawn_photographs() -> None:
    from benchmarks.page import COMPARISON, DATA

    text = COMPARISON.read_text(encoding="utf-8")

    assert json.loads(text)["data"] == DATA
    assert re.findall(r'[" ]/\w+', text) == []  # a path from the root


def _text(picture: Path) -> list[str]:
    """The texts of an SVG in their order, ticks of the axis left out: which are drawn is matplotlib's choice."""
    words = [element.text for element in ElementTree.parse(picture).iter() if element.tag.endswith("}text")]
    return [word for word in words if word and not re.fullmatch(r"\d\.\d", word)]
