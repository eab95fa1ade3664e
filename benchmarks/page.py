"""page: a screenshot of the page that `gpupipe compare` writes, of photographs that are drawn.

    python -m benchmarks.page gpupipe/guide/pictures/compare.webp              figures of the committed comparison
    python -m benchmarks.page --measure gpupipe/guide/pictures/compare.webp    measure again, and keep those figures

Needs Chromium, DALI and the extra `page`. The figures are those of one file in `results/`; the images are drawn, and
compared, each time, since the file has no pixels. README.md shows the picture; tests/guide/test_pictures.py holds it to
the file, whose SHA-256 is in the picture's EXIF description.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np
from PIL import Image

from gpupipe.comparison.page.write import page_of
from gpupipe.comparison.photographs import write_shards
from gpupipe.comparison.result import FORMAT, Result
from gpupipe.tools.contest_of import contest_of

__all__ = ["COMPARISON", "WIDTH", "committed", "digest", "draw", "measured"]

COMPARISON = Path(__file__).parent / "results" / "compare-2026-11-24.json"

WIDTH = 960
"""Pixels of the picture, and of the window."""

TALL = 4000
"""Pixels of a window that the whole page fits in; what is left of it is cut off."""

IMAGES = 800
SHARDS = 4
DATA = "photos-*.tfrecord"
DESCRIPTION = 0x010E
"""The EXIF tag ImageDescription."""

LEFT_OUT = """
nav, section[aria-labelledby=cost] h3, section[aria-labelledby=cost] dl, section[aria-labelledby=pixels],
section[aria-labelledby=pairs] ~ section { display: none }
"""
"""What the picture does not show: the pixels step by step, kinds of images, how it was measured."""

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def committed() -> Result:
    """The comparison of `COMPARISON`, without pairs of images."""
    found: dict[str, Any] = json.loads(COMPARISON.read_text(encoding="utf-8"))
    if found["format"] != FORMAT:
        raise SystemExit(f"{COMPARISON.name} has format {found['format']}, this is gpupipe for {FORMAT}: --measure")
    made: Result = _made(Result, found)
    return made


def digest() -> str:
    """The SHA-256 of `COMPARISON`, with any ends of lines as LF."""
    return hashlib.sha256(COMPARISON.read_text(encoding="utf-8").encode()).hexdigest()


def _made(kind: Any, value: Any) -> Any:
    """What `Result.to_dict` made plain, as the type that it had."""
    kinds = [one for one in get_args(kind) if one is not NoneType]
    if value is None:
        return None
    if get_origin(kind) is tuple:
        return tuple(_made(kinds[0], one) for one in value)
    if get_origin(kind) is Mapping:
        return {name: _made(kinds[1], one) for name, one in value.items()}
    if len(kinds) == 1:  # or None
        return _made(kinds[0], value)
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        given = {one.name: _made(hints[one.name], value[one.name]) for one in fields(kind) if one.name in value}
        return kind(**given)  # type: ignore[operator]  # a type, as hints have no instances
    return value


def measured() -> Result:
    """Compare the executors of this machine on photographs that are drawn; no text has a path of this machine."""
    with tempfile.TemporaryDirectory() as folder:
        write_shards(Path(folder), IMAGES, SHARDS)
        found = contest_of(f"{folder}/{DATA}", images=IMAGES)
        plain = found.json()
        for path in (folder, str(Path(__file__).parents[1])):
            plain = plain.replace(json.dumps(path + os.sep)[1:-1], "")
    made: Result = replace(_made(Result, json.loads(plain)), pairs=found.pairs)
    return made


def draw(path: Path, result: Result, source: str) -> None:
    """Write the picture of a comparison's page as WebP.

    Args:
        path: the picture.
        result: the comparison, with its pairs.
        source: of the figures, for the EXIF description.
    """
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        raise SystemExit("a picture of a page needs Chromium or Chrome, found none")
    start, end = page_of(result).split("<meta http-equiv", 1)
    text = f"{start}<style>{LEFT_OUT}</style>{end[end.index('>') + 1 :]}"  # its policy allows for no other style
    # Chromium's children may still write when it has ended.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        page, shot = Path(name, "page.html"), Path(name, "shot.png")
        page.write_text(text, encoding="utf-8")
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
        flags += [f"--user-data-dir={name}/profile", f"--window-size={WIDTH},{TALL}", f"--screenshot={shot}"]
        subprocess.run([program, *flags, page.as_uri()], check=True, timeout=120, capture_output=True)
        with Image.open(shot) as opened:
            image = opened.convert("RGB")
    rows = np.flatnonzero((np.asarray(image) != image.getpixel((0, 0))).any((1, 2)))
    if rows[-1] > TALL - 20:
        raise SystemExit(f"the page is taller than {TALL} pixels")
    exif = Image.Exif()
    exif[DESCRIPTION] = source
    image.crop((0, 0, WIDTH, int(rows[-1]) + 20)).save(path, quality=55, method=6, exif=exif)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--measure", action="store_true", help=f"write {COMPARISON.name} too")
    parsed = parser.parse_args()
    found = measured()
    if parsed.measure:
        COMPARISON.write_text(found.json() + "\n", encoding="utf-8")
    figures = committed()
    if figures.steps != found.steps:
        raise SystemExit(f"the pixels of this machine differ from those of {COMPARISON.name}: use --measure")
    draw(parsed.picture, replace(figures, pairs=found.pairs), digest())


if __name__ == "__main__":
    main()
