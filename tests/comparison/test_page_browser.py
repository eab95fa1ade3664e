"""The page of a comparison in headless Chromium: it asks for nothing, says nothing, and shows what it should."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpupipe.comparison.page.write import page_of
from tests.comparison.browser import Browser, chromium
from tests.comparison.looks import PHONE, SCREEN, problems
from tests.comparison.results import full, with_texts

HOSTILE = "<script>console.error(1)</script>\"'><img src=x onerror=console.error(2)>{{ 7 * 7 }}&lt;"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = chromium()
    if not program:
        pytest.skip("no Chromium or Chrome is installed")
    pytest.importorskip("jinja2", reason="the extra `page` is not installed")
    # Chromium's children may still write when it is killed.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile, Browser(program, Path(profile)) as opened:
        yield opened


@pytest.fixture(scope="module")
def text() -> str:
    return page_of(full())


@pytest.fixture
def page(text: str, tmp_path: Path) -> Path:
    path = tmp_path / "comparison.html"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(("width", "scheme"), [(SCREEN, "light"), (PHONE, "dark")])
def test_a_page_asks_for_nothing_and_shows_plots_and_pictures(
    browser: Browser, page: Path, width: int, scheme: str
) -> None:
    assert problems(browser, page, width, scheme) == []


def test_dots_may_lie_on_the_start_of_a_bar(browser: Browser, page: Path, text: str) -> None:
    left = re.search('<rect class="bar[^>]* x="([^"]*)"', text)
    assert left
    page.write_text(re.sub('cx="[^"]*"', f'cx="{float(left[1]) + 3}"', text), encoding="utf-8")
    assert problems(browser, page, PHONE, "light") == []


def test_a_page_is_printed_on_white_even_from_a_dark_screen(browser: Browser, page: Path) -> None:
    assert problems(browser, page, 800, "dark", media="print") == []


def test_a_pair_of_images_stands_side_by_side_in_any_window(browser: Browser, page: Path) -> None:
    for width, in_a_row in ((SCREEN, 3), (PHONE, 2)):
        browser.show(page.as_uri(), width)
        boxes = browser.boxes(".trio img")
        assert len(boxes) == 12
        for start in range(0, 12, 3):
            tops = [box["y"] for box in boxes[start : start + 3]]
            assert tops.count(tops[0]) == in_a_row


def test_tables_fit_a_screen_and_scroll_in_their_boxes_on_a_phone(browser: Browser, page: Path) -> None:
    scrolls = "[...document.querySelectorAll('.box')].map(e => e.scrollWidth > e.clientWidth)"
    browser.show(page.as_uri(), SCREEN)
    assert not any(browser.evaluate(scrolls))
    browser.show(page.as_uri(), PHONE)
    assert any(browser.evaluate(scrolls))
    assert all(box["x"] + box["width"] <= PHONE for box in browser.boxes(".box"))


def test_markup_in_the_data_is_text_and_runs_nothing(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "hostile.html"
    page.write_text(page_of(with_texts(full(), lambda text: text + HOSTILE)), encoding="utf-8")

    assert problems(browser, page, PHONE, "light") == []
    assert browser.evaluate("document.querySelectorAll('script, [onerror], img:not([src^=data])').length") == 0
    assert HOSTILE in browser.evaluate("document.querySelector('h1').textContent")


BROKEN: dict[str, tuple[str | re.Pattern[str], str, str]] = {
    "a picture from elsewhere": ("</header>", '</header><img src="https://example.invalid/a.png" alt="">', "asked for"),
    "a script": ("</header>", "</header><script>1</script>", "the browser says"),
    "a changed style": ("--paper: #ffffff", "--paper: #fffff0", "Content Security Policy"),
    "pale text": ("--muted: #55606b", "--muted: #8090a0", "contrast of text"),
    "no dark scheme": ("prefers-color-scheme: dark", "prefers-color-scheme: none", "not dark"),
    "tables that do not scroll": (".box { overflow-x: auto", ".box { overflow-x: visible", "wider than its window"),
    "a picture that is damaged": ("data:image/jpeg;base64,/9j", "data:image/jpeg;base64,AAA", "is blank"),
    "no bars": ('height="14"', 'height="0"', "bar 0 is not there"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_wrong_with_a_page_is_found(browser: Browser, page: Path, text: str, case: str) -> None:
    old, new, expected = BROKEN[case]
    changed = old.sub(new, text) if isinstance(old, re.Pattern) else text.replace(old, new)
    if case != "a changed style":  # any style may be changed
        changed = re.sub("'sha256-[^']*'", "'unsafe-inline'", changed)
    assert changed != text
    page.write_text(changed, encoding="utf-8")

    found = problems(browser, page, PHONE, "dark" if "dark" in case else "light")

    assert any(expected in one for one in found), found
