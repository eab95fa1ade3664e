"""What is wrong with a page as a browser shows it: what it asks for, says and paints, in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.comparison.browser import Box, Browser

__all__ = ["PHONE", "SCREEN", "problems"]

SCREEN, PHONE = 1280, 390
"""Widths of windows."""

# The contrast of each text with what is behind it, and of each bar, by the formula of WCAG 2. Colours behind are those
# of the element or of the nearest one around it: nothing here is half transparent, or is painted over something else.
CONTRAST = """
(() => {
  const numbers = colour => (colour.match(/[\\d.]+/g) || []).map(Number);
  const light = colour => numbers(colour).slice(0, 3).map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = e => {
    for (; e; e = e.parentElement) {
      const colour = getComputedStyle(e).backgroundColor, alpha = numbers(colour)[3] ?? 1;
      if (alpha === 1) return colour;
      if (alpha > 0) return 'rgb(127, 127, 127)';
    }
    return 'rgb(127, 127, 127)';
  };
  const ratio = (a, b) => {
    const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
    return (x + 0.05) / (y + 0.05);
  };
  const found = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const text = walk.currentNode.textContent.trim(), e = walk.currentNode.parentElement;
    if (!text) continue;
    const style = getComputedStyle(e);
    found.push(['text', text.slice(0, 40), ratio(e instanceof SVGElement ? style.fill : style.color, behind(e))]);
  }
  for (const e of document.querySelectorAll('rect.bar'))
    found.push(['bar', e.getAttribute('class'), ratio(getComputedStyle(e).fill, behind(e.ownerSVGElement))]);
  return found;
})()
"""
LEAST = {"text": 4.5, "bar": 3.0}
"""Ratios that WCAG 2 asks for, level AA: 1.4.3 for text, 1.4.11 for graphics."""


def problems(browser: Browser, page: Path, width: int, scheme: str, media: str = "screen") -> list[str]:
    """Open a page and say what is wrong with it.

    Args:
        browser: which shows it.
        page: the file.
        width: of the window, in CSS pixels.
        scheme: "light" or "dark".
        media: "screen" or "print".
    """
    browser.show(page.as_uri(), width, scheme=scheme, media=media)
    found = [f"asked for {url}" for url in browser.requests()]
    found += [f"the browser says: {text}" for text in browser.complaints()]
    found += [f"wider than its window of {width}: {wide}" for wide in _widths(browser) if wide != width]
    contrast = browser.evaluate(CONTRAST)
    found += [f"contrast of {kind} {name!r} is {ratio:.2f}" for kind, name, ratio in contrast if ratio < LEAST[kind]]
    found += [] if len(contrast) > 50 else [f"only {len(contrast)} texts"]
    return found + _painted(browser, dark=scheme == "dark" and media == "screen")


def _widths(browser: Browser) -> list[float]:
    widths: list[float] = browser.evaluate("[innerWidth, document.documentElement.scrollWidth]")
    return widths


def _painted(browser: Browser, dark: bool) -> list[str]:
    """What a screenshot of the whole page lacks."""
    picture = browser.picture().astype(int)
    found = []
    paper = float(np.median(picture))
    if (paper < 60) != dark or 60 <= paper < 200:
        found.append(f"the page is not {'dark' if dark else 'light'}: {paper:.0f}")

    def within(box: Box) -> Any:
        x, y = round(box["x"]), round(box["y"])
        return picture[max(0, y) : y + round(box["height"]), max(0, x) : x + round(box["width"])].reshape(-1, 3)

    plots, pictures = browser.boxes("svg"), browser.boxes(".trio img")
    found += [] if plots else ["no plot"]
    found += [] if pictures else ["no picture"]
    # Text, two axes and bars, with soft edges, have many more colours than an empty drawing with a frame.
    found += [f"plot {i} is blank" for i, box in enumerate(plots) if len(np.unique(within(box), axis=0)) < 12]
    for i, box in enumerate(pictures):
        # A photograph has thousands of colours; every third picture is a difference, which may be a few dots in black.
        colours = len(np.unique(within(box), axis=0)) if within(box).size else 0
        if colours < (2 if i % 3 == 2 else 500):
            found.append(f"picture {i} is blank: {colours} colours")
    fills = browser.evaluate("[...document.querySelectorAll('rect.bar')].map(e => getComputedStyle(e).fill)")
    for i, (box, fill) in enumerate(zip(browser.boxes("rect.bar"), fills, strict=True)):
        if box["width"] > 12:  # the pixel is left of all dots
            seen = picture[round(box["y"] + box["height"] / 2), round(box["x"]) + 3]
            wanted = np.array([int(part) for part in fill.strip("rgb()").split(",")])
            found += [] if np.abs(seen - wanted).max() <= 2 else [f"bar {i} is not there: {seen} instead of {fill}"]
    return found
