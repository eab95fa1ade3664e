"""What is wrong with a page as a browser shows it: what it asks for, says and paints, in words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from tests.comparison.browser import Box, Browser

__all__ = ["PHONE", "SCREEN", "problems"]

Picture = npt.NDArray[np.uint8]
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
    picture = browser.picture()
    found = []
    paper = float(np.median(picture[::8, ::8]))
    if (paper < 60) != dark or 60 <= paper < 200:
        found.append(f"the page is not {'dark' if dark else 'light'}: {paper:.0f}")

    def part_of(box: Box) -> Picture:
        x, y = max(0, round(box["x"])), max(0, round(box["y"]))
        return picture[y : y + round(box["height"]), x : x + round(box["width"])]

    def colours(box: Box) -> int:
        return len(np.unique(part_of(box).astype(np.int32) @ (1 << 16, 1 << 8, 1)))

    plots, pictures = browser.boxes("svg"), browser.boxes(".trio img")
    found += [] if plots else ["no plot"]
    found += [] if pictures else ["no picture"]
    # Text, two axes and bars, with soft edges, have many more colours than an empty drawing with a frame.
    found += [f"plot {i} is blank" for i, box in enumerate(plots) if colours(box) < 12]
    for i, box in enumerate(pictures):
        # A photograph has thousands of colours; every third picture is a difference, which may be a few dots in black.
        if colours(box) < (2 if i % 3 == 2 else 500):
            found.append(f"picture {i} is blank: {colours(box)} colours")
    fills = browser.evaluate("[...document.querySelectorAll('rect.bar')].map(e => getComputedStyle(e).fill)")
    for i, (box, fill) in enumerate(zip(browser.boxes("rect.bar"), fills, strict=True)):
        if box["width"] > 12:
            wanted = np.array([int(part) for part in fill.strip("rgb()").split(",")])
            share = float((np.abs(part_of(box).astype(int) - wanted).max(-1) <= 2).mean()) if box["height"] else 0.0
            # Measured dots lie on it, wherever they were measured; each is lower than a bar.
            found += [] if share >= 0.1 else [f"bar {i} is not there: {share:.2f} of it is {fill}"]
    return found
