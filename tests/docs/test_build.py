"""The documentation is built whole: every public name, every op, and no link that leads nowhere."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import gpupipe as gp
from gpupipe import ops
from tests.docs import gallery
from tests.docs.recipes import SOURCES
from tests.docs.test_pages import RECIPES


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documentation."""
    pytest.importorskip("pdoc", reason="the extra `dev` brings pdoc")
    pytest.importorskip("keras", reason="keras is not installed, whose classes annotations name")
    from tests.docs.build import build

    folder = tmp_path_factory.mktemp("docs")
    build(folder)
    return folder


PRIVATE = pytest.mark.filterwarnings("ignore:Error parsing type annotation:UserWarning")
"""Annotations that only type checkers read, of private attributes."""


@PRIVATE
def test_every_public_name_and_method_is_in_the_reference_and_links_lead_somewhere(built: Path) -> None:
    reference = (built / "gpupipe.html").read_text(encoding="utf-8")
    ids = set(re.findall(r'id="([\w.]+)"', reference))
    public = {name for name in gp.__all__ if callable(getattr(gp, name))}  # constants have no docstring of their own
    methods = {f"Dataset.{name}" for name in ("map", "batch", "interleave", "shuffle", "as_torch", "profile", "split")}
    assert public | methods <= ids
    of_ops = set(re.findall(r'id="(\w+)"', (built / "gpupipe" / "ops.html").read_text(encoding="utf-8")))
    assert set(ops.__all__) - {"IMAGENET_MEAN", "IMAGENET_STD"} <= of_ops

    # `$`: links that pdoc's search makes in the browser
    for page in built.glob("*.html"):
        for target in re.findall(r'(?:href|src)="([^"#:$]+)(?:#[^"]*)?"', page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


@PRIVATE
def test_every_recipe_is_shown(built: Path) -> None:
    page = (built / "recipes.html").read_text(encoding="utf-8")
    chains = set(re.findall(r'src="recipes/(\w+)\.png"', page))

    assert chains == {path.stem for path in (built / "recipes").glob("*.png")} == set(RECIPES) - SOURCES
    for name in chains:
        with Image.open(built / "recipes" / f"{name}.png") as picture:
            pixels = np.asarray(picture)
        assert pixels.shape[0] >= 116 and pixels.shape[1] >= 200
        assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 300, name
        assert (pixels == 255).all(axis=2).mean() < 0.7, name


def test_every_op_is_shown_on_a_photograph_or_says_why_not() -> None:
    assert set(gallery.WITHOUT) <= set(ops.__all__)
    for name in set(ops.__all__) - {"IMAGENET_MEAN", "IMAGENET_STD"} - set(gallery.WITHOUT):
        assert gallery.shown(name), name
        for one in gallery.shown(name):
            assert min(one.before.shape[:2]) >= 80, name
            assert one.after and all(image.dtype == "uint8" and image.std() > 5 for image in one.after), name


def test_boxes_are_shown_where_an_op_moves_them() -> None:
    (flip, *_), (resize, *_) = gallery.shown("flip_left_right"), gallery.shown("resize")
    red, yellow = (255, 0, 0), (255, 255, 0)

    for one in (flip, resize):
        for picture in (one.before, one.after[0]):
            assert all((picture == colour).all(axis=2).sum() > 50 for colour in (red, yellow))
    np.testing.assert_array_equal(flip.after[0], flip.before[:, ::-1])
    assert not any((gallery.shown("invert")[0].before == colour).all(axis=2).sum() > 50 for colour in (red, yellow))
