"""The page of a comparison as a file: what it says, that its markup is sound, and that it stays small."""

from __future__ import annotations

import errno
import io
import os
import re
import sys
from base64 import b64decode
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import gpupipe as gp
from gpupipe.comparison.page.charts import Bar, Chart, charts_of_steps
from gpupipe.comparison.page.numbers import mebibytes, number, of_tolerance
from gpupipe.comparison.page.pictures import SIDE, address_of, shrunk
from gpupipe.comparison.page.write import page_of, write_page
from gpupipe.comparison.result import Pair, Result
from gpupipe.errors import MissingDependencyError, PlanError
from tests.comparison.results import full, with_texts


class Elements(HTMLParser):
    """The elements of a page with their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(page)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in ("meta", "link", "br", "img"):
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        if self._open[-1:] != ["style"]:
            self.text += data

    def named(self, *tags: str) -> list[dict[str, str]]:
        return [attributes for tag, attributes in self.found if tag in tags]


@pytest.fixture(autouse=True)
def _needs_jinja2(request: pytest.FixtureRequest) -> None:
    pytest.importorskip("jinja2", reason="the extra `page` is not installed")


@pytest.fixture(scope="module")
def result() -> Result:
    return full()


def alone() -> Result:
    """A comparison of which little is there: one executor, on a machine without a GPU."""
    result = full()
    costs = tuple(replace(cost, reason="no GPU") if cost.key == "dali-gpu" else cost for cost in result.costs[:1])
    numpy = replace(result.costs[2], host_bytes=None, waiting=None, accuracy=None, bottleneck="")
    return replace(
        result, costs=(*costs, numpy), delivered={}, steps=(), steps_missing="the chain has no images", classes=(),
        noise=None, rate=None, break_even=None, methods={}, findings=(), pairs=(),
    )  # fmt: skip


def test_a_page_says_all_that_was_found(result: Result) -> None:
    text = " ".join(Elements(page_of(result)).text.split())

    said = [finding.text for finding in result.findings] + list(result.machine.values())
    said += [text for cost in result.costs for text in (cost.title, cost.bottleneck)]
    said += [step.name for step in result.steps] + [step.tolerance_from for step in result.steps]
    said += [text for one in result.classes for text in (one.kind, one.decoder)]
    said += [*result.methods.values(), "CPU-ms per image"]
    said += [result.costs[3].reason.split("\n")[0], *(line.strip() for line in result.chain)]
    said += ["1.15", "1.12 to 1.20", "9,520", "2.31 s", "2.70 GiB", "62.0 %", "31.0 %", "2 / 8", "76.13 %", "48.2 dB"]
    assert [one for one in said if one not in text] == []
    assert "beyond tolerance" in text
    assert "looks like: no antialiasing" in text


def test_what_is_not_there_is_left_out(result: Result) -> None:
    page = Elements(page_of(alone()))

    assert "no GPU" in page.text
    assert "the chain has no images" in page.text
    for left_out in ("Model", "Kinds of images", "Worst images", "utilisation", "Noise"):
        assert left_out not in page.text
        assert left_out in Elements(page_of(result)).text


@pytest.mark.parametrize("make", [full, alone])
def test_the_markup_is_sound(make: Callable[[], Result]) -> None:
    page = Elements(page_of(make()))

    ids = [attributes["id"] for _, attributes in page.found if "id" in attributes]
    assert len(ids) == len(set(ids))
    pointed = [attributes["href"] for attributes in page.named("a")]
    pointed += [f"#{one['aria-labelledby']}" for _, one in page.found if "aria-labelledby" in one]
    assert {one[1:] for one in pointed} <= set(ids)
    assert all("scope" in one for one in page.named("th"))
    assert all(one["alt"] and int(one["width"]) and int(one["height"]) for one in page.named("img"))
    assert all(one["role"] == "img" and one["aria-label"] for one in page.named("svg"))
    levels = [int(tag[1]) for tag, _ in page.found if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_no_text_of_the_data_is_markup(result: Result) -> None:
    hostile = "<script>alert(1)</script>\" onload='x' {{ 7 }}&lt;"
    plain, page = Elements(page_of(result)), Elements(page_of(with_texts(result, lambda text: text + hostile)))

    # The figures that are left out for want of room are the same; so all elements are.
    assert [tag for tag, _ in page.found] == [tag for tag, _ in plain.found]
    assert [set(attributes) for _, attributes in page.found] == [set(attributes) for _, attributes in plain.found]
    assert page.text.count(hostile) > 60


def test_a_page_refers_to_nothing_outside_of_it(result: Result) -> None:
    page = Elements(page_of(result))

    for tag, attributes in page.found:
        for name in ("src", "href", "srcset", "action", "data", "poster"):
            assert attributes.get(name, "#").startswith(("#", "data:")), (tag, attributes)
        assert "style" not in attributes
    assert page.named("script", "iframe", "object") == []
    (policy,) = [one["content"] for one in page.named("meta") if one.get("http-equiv") == "Content-Security-Policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy


def test_the_pairs_beyond_a_tolerance_come_first_and_a_page_stays_below_two_megabytes(result: Result) -> None:
    noise = np.random.default_rng(1).integers(0, 255, (600, 800, 3), np.uint8)  # no picture is longer
    pairs = tuple(Pair("dali-gpu", "resize", i, noise, noise, noise, 1.0, "max 1") for i in range(9))
    steps = (replace(result.steps[1], gaps=(replace(result.steps[1].gaps[0], pair=8),)),)

    page = page_of(replace(result, pairs=pairs, steps=steps))

    shown = re.findall(r'id="pair-(\d+)"', page)
    assert shown[:4] == ["8", "0", "1", "2"]
    assert f"{len(shown)} of 9" in page
    assert 'href="#pair-8"' in page
    assert len(page.encode()) < 2_000_000


def test_the_file_is_what_the_page_is(result: Result, tmp_path: Path) -> None:
    write_page(result, tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page_of(result)
    write_page(replace(result, data=os.fsdecode(b"caf\xe9.jpg")), tmp_path / "page.html")
    assert "caf\\udce9.jpg" in (tmp_path / "page.html").read_text(encoding="utf-8")  # a name that is no text
    with pytest.raises(PlanError, match=r"needs an existing folder.*nowhere"):
        write_page(result, tmp_path / "nowhere" / "page.html")


def test_a_comparison_that_runs_writes_its_page(tmp_path: Path) -> None:
    gp.compare(gp.Dataset.range(8).batch(4), "numpy", images=8, steps=False, out=tmp_path / "page.html")

    assert "NumPy" in Elements((tmp_path / "page.html").read_text(encoding="utf-8")).text


def test_a_page_that_the_disk_has_no_room_for_leaves_the_older_one(
    result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    write_page(result, tmp_path / "page.html")
    older = (tmp_path / "page.html").read_text(encoding="utf-8")
    monkeypatch.setattr(os, "fsync", full_disk)

    with pytest.raises(OSError, match="No space left"):
        write_page(result, tmp_path / "page.html")
    assert [(path.name, path.read_text(encoding="utf-8")) for path in tmp_path.iterdir()] == [("page.html", older)]


def test_a_missing_template_engine_is_named_with_its_extra_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)

    with pytest.raises(MissingDependencyError, match=r"jinja2, .*: pip install jinja2"):
        gp.compare(gp.Dataset.range(4).map(lambda x: 1 // 0, traced=False), out=tmp_path / "page.html")


def test_a_single_wrong_pixel_is_still_there_when_its_picture_is_shrunk() -> None:
    picture = np.zeros((3 * SIDE - 1, 2 * SIDE + 1, 3), np.uint8)
    picture[700, 2 * SIDE, 1] = 255

    small = shrunk(picture, brightest=True)

    assert max(small.shape) <= SIDE and small.max() == 255 and np.count_nonzero(small) == 1
    assert shrunk(picture).max() < 255
    assert shrunk(picture[:SIDE, :SIDE]).shape == (SIDE, SIDE, 3)


@pytest.mark.parametrize(
    ("most", "ticks"),
    [(0.0, (0, 0.25, 0.5, 0.75, 1)), (8.4, (0, 2.5, 5, 7.5, 10)), (31, (0, 10, 20, 30, 40)),
     (1000.0, (0, 250, 500, 750, 1000))],
)  # fmt: skip
def test_ticks_are_round_and_reach_beyond_the_longest_bar(most: float, ticks: tuple[float, ...]) -> None:
    chart = Chart("", "", (Bar("", most / 2, "", 0, (most,)), Bar("", 0, "", 0)))

    assert chart.ticks == pytest.approx(ticks)
    assert chart.x(0) == chart.left
    assert chart.x(most or 1) <= chart.right
    for longest in (factor * 10.0**exponent for factor in (1.0, 1.9, 2.1, 4.9, 9.99) for exponent in range(-9, 10)):
        ticks = Chart("", "", (Bar("", longest, "", 0),)).ticks
        assert 3 <= len(ticks) <= 6
        assert ticks[-1] >= longest * (1 - 1e-9)


def test_a_difference_is_related_to_the_tolerance_of_where_it_is(result: Result) -> None:
    resize, flip = result.steps[1], result.steps[2]

    assert of_tolerance(resize.gaps[0]) == 31 / 2  # the ring: 44 / 8
    assert of_tolerance(resize.gaps[1]) is None
    assert of_tolerance(flip.gaps[0]) == 0
    assert of_tolerance(replace(resize.gaps[0], allowed=0.0)) == float("inf")
    (chart, _) = charts_of_steps(result)
    assert [bar.value for bar in chart.bars] == [50, 200, 0]
    assert [bar.bad for bar in chart.bars] == [False, True, False]


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0, "0"), (1234.5, "1,234"), (99.96, "100"), (12.34, "12.3"), (9.999, "10.0"), (0.1, "0.10"),
     (0.0123, "0.012"), (4.8e-6, "4.8e-06"), (-0.08, "-0.08")],
)  # fmt: skip
def test_a_number_has_three_digits_or_two(value: float | None, text: str) -> None:
    assert number(value) == text
    assert [mebibytes(size) for size in (None, 287 << 20, 3 << 30)] == ["–", "287 MiB", "3.00 GiB"]


@pytest.mark.parametrize(("channels", "mode"), [(1, "L"), (2, "L"), (3, "RGB"), (4, "RGB")])
def test_an_address_holds_the_picture(channels: int, mode: str) -> None:
    picture = np.tile(np.arange(64, dtype=np.uint8)[:, None, None] * 4, (1, 64, channels))

    address = address_of(picture)

    kind, encoded = address.removeprefix("data:image/").split(";base64,")
    assert kind in ("png", "jpeg")
    with Image.open(io.BytesIO(b64decode(encoded))) as opened:
        assert opened.mode == mode
        found = np.asarray(opened.convert("L"), int)
    assert np.abs(found - picture[..., 0]).max() <= 4  # quality 85 may lose as much
