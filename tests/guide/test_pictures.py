"""Pictures that README.md shows are those of the committed measurements."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_the_chart_shows_the_committed_measurements(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from benchmarks.chart import bars, draw

    draw(tmp_path / "measured.svg", bars())

    shown = _text(ROOT / "gpupipe" / "guide" / "pictures" / "measured.svg")
    assert shown == _text(tmp_path / "measured.svg"), "python -m benchmarks.chart gpupipe/guide/pictures/measured.svg"
    assert all(text in shown for bar in bars() for text in (bar.name, f"against {bar.against}"))
    assert [f"{bar.median:.2f}" for bar in bars()[::-1]] == [word for word in shown if re.fullmatch(r"\d\.\d\d", word)]


def test_pictures_that_documents_show_exist() -> None:
    documents = [ROOT / "README.md", *(ROOT / "gpupipe" / "guide").glob("*.md")]
    shown = {
        file.parent / link
        for file in documents
        for link in re.findall(r'(?:!\[[^]]*\]\(|<img[^>]* src=")([^")]+)', file.read_text(encoding="utf-8"))
    }

    assert ROOT / "gpupipe/guide/pictures/measured.svg" in shown
    assert [picture for picture in shown if not picture.is_file()] == []


def _text(picture: Path) -> list[str]:
    """The texts of an SVG in their order, ticks of the axis left out: which are drawn is matplotlib's choice."""
    words = [element.text for element in ElementTree.parse(picture).iter() if element.tag.endswith("}text")]
    return [word for word in words if word and not re.fullmatch(r"\d\.\d", word)]
