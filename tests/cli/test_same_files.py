"""Which files a path means: every command and `image_folder` find the same ones, and say what is left out."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import gpupipe as gp
from gpupipe.comparison.chain import training_chain
from gpupipe.comparison.source import find_source
from gpupipe.extract.examples.encode import encode_example
from gpupipe.extract.finder import find
from gpupipe.ops._shared.samples import encoded, picture
from tests.cli.commands import Cli
from tests.tools.damage import write
from tests.tools.packing import archive

JPEG = encoded(picture(20, 24))
NO_CLASSES = "image_folder needs a folder with a folder for each class"
NO_FOLDER = "image_folder needs a folder, got"
NO_RECORDS = "pack needs images, tar archives or Parquet files, got TFRecord files"
HIDDEN, LOOSE = "hidden files and folders", "images beside the class folders"


def images(root: Path, *names: str) -> None:
    """Write an image to each name, in the format of its suffix."""
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        kind = {".png": "PNG", ".webp": "WEBP", ".tiff": "TIFF", ".tif": "TIFF", ".bmp": "BMP", ".gif": "GIF"}
        path.write_bytes(encoded(picture(20, 24), kind.get(path.suffix.lower(), "JPEG")))


def others(root: Path, *names: str) -> None:
    """Write a text to each name."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("words, and no image")


def flat(root: Path) -> None:
    images(root, "1.jpg", "2.JPEG", "3.jpeg")


def nested(root: Path) -> None:
    images(root, "cat/deep/1.jpg", "cat/deep/2.jpg", "cat/deep/er/3.jpg", "dog/1.jpg", "dog/2.jpg", "dog/3.jpg")


def mixed(root: Path) -> None:
    nested(root)
    images(root, "loose.jpg", "other.png")


def formats(root: Path) -> None:
    images(root, *(f"a/{i}.{name}" for i, name in enumerate("jpg PNG webp bmp tif tiff gif gif".split())))


def junk(root: Path) -> None:
    nested(root)
    others(
        root, "README", "labels.json", "cat/notes.txt", "dog/.DS_Store", ".git/config", "cat/.cache/1.jpg", "z/0.txt"
    )


def junk_flat(root: Path) -> None:
    flat(root)
    others(root, "README", "labels.json", ".DS_Store", "docs/page.md")


def linked(root: Path) -> None:
    other = root.parent / "elsewhere"
    images(other, "1.jpg", "2.jpg")
    images(root, "b/3.jpg")
    (root / "a").symlink_to(other)
    (root / "b/more").symlink_to(other)
    (root / "b/circle").symlink_to(root)
    (root / "b/4.jpg").symlink_to(other / "1.jpg")


def records(root: Path) -> None:
    root.mkdir()
    examples = [encode_example({"image/encoded": JPEG, "image/class/label": i}) for i in range(4)]
    write(root / "a.tfrecord", examples[:3])
    write(root / "b.tfrecord-00000-of-00001", examples[3:])
    others(root, "README.md", "below/0.txt")
    images(root, "sheet.png")


def unnamed(root: Path) -> None:
    root.mkdir()
    write(root / "train-00000-of-00001", [encode_example({"image/encoded": JPEG})] * 4)
    others(root, "notes.txt")


def tars(root: Path) -> None:
    root.mkdir()
    for shard in range(2):
        samples = [(f"{shard}{i}", encoded(picture(20, 24), ("JPEG", "PNG")[i % 2])) for i in range(3)]
        members = [(f"{key}.{('jpg', 'png')[int(key) % 2]}", data) for key, data in samples]
        archive(root / f"{shard}.tar", *(x for m in members for x in (m, (m[0][:2] + ".cls", b"1"))))
    others(root, "README")


def parquet(root: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    root.mkdir()
    for shard, count in enumerate((3, 2)):
        rows = {"image": [{"bytes": JPEG, "path": f"{i}.jpg"} for i in range(count)], "label": [*range(count)]}
        pq.write_table(pa.table(rows | {"text": ["words"] * count}), root / f"{shard}.parquet")
    others(root, "dataset_info.json")


class Layout(NamedTuple):
    """Files on disk, and what every command has to find in them.

    Attributes:
        make: writes them to a folder.
        images: how many.
        left_out: what is, and how often.
        given: the path or wildcard below the folder; "" for the folder.
        folder: what `image_folder` gives: the count as well, or an error.
        pack: an error of `pack`; "" if it takes them.
    """

    make: Callable[[Path], None]
    images: int
    left_out: Mapping[str, int]
    given: str = ""
    folder: str = ""
    pack: str = ""


LAYOUTS = {
    "flat": Layout(flat, 3, {}, folder=rf"{NO_CLASSES}, .* with images in it \(3\)"),
    "nested": Layout(nested, 6, {}),
    "mixed": Layout(mixed, 6, {LOOSE: 2}),
    "formats": Layout(formats, 6, {"GIF images, which no decoder reads": 2}),
    "junk": Layout(
        junk, 6,
        {".json files": 1, ".txt files": 2, "other files": 1, HIDDEN: 3, "class folders without images": 1},
        folder="'z' in .* has none",
    ),
    "junk in a flat folder": Layout(
        junk_flat, 3,
        {".json files": 1, ".md files": 1, "other files": 1, HIDDEN: 1, "folders without images": 1},
        folder=r"image_folder needs images in every class, and 'docs'",
    ),
    "linked": Layout(linked, 4, {"links to folders": 2}),
    "one class": Layout(nested, 3, {}, "cat/deep/**", NO_FOLDER),
    "wildcard": Layout(junk, 4, {}, "*/**/[12].jpg", NO_FOLDER),
    "wildcard with others": Layout(
        junk_flat, 3, {HIDDEN: 1, ".json files": 1, "other files": 1, "folders": 1}, "*", NO_FOLDER
    ),
    "one image": Layout(flat, 1, {}, "2.JPEG", NO_FOLDER),
    "records": Layout(
        records, 4, {"folders": 1, ".md files": 1, ".png files": 1},
        folder="'below' in .* has none", pack=rf"{NO_RECORDS} \(2\).* left out were .*.png files \(1\)",
    ),
    "one file of records": Layout(records, 3, {}, "a.tfrecord", NO_FOLDER, NO_RECORDS),
    "records by content": Layout(unnamed, 4, {".txt files": 1}, folder=NO_CLASSES, pack=NO_RECORDS),
    "tar archives": Layout(tars, 6, {"other files": 1}, folder=NO_CLASSES),
    "one tar archive": Layout(tars, 3, {}, "1.tar", NO_FOLDER),
    "Parquet files": Layout(parquet, 5, {".json files": 1}, folder=NO_CLASSES),
    "some Parquet files": Layout(parquet, 5, {}, "*.parquet", NO_FOLDER),
}  # fmt: skip


@pytest.fixture(params=list(LAYOUTS.values()), ids=list(LAYOUTS))
def laid_out(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Layout, str]:
    """A layout, and the path that means it."""
    layout: Layout = request.param
    if layout.make is linked and sys.platform == "win32":
        pytest.skip("links need a privilege on Windows")
    root = tmp_path / "data"
    layout.make(root)
    return layout, str(root / layout.given) if layout.given else str(root)


def as_json(cli: Cli, *words: object) -> Any:
    """What a command prints with --json."""
    status, out, err = cli(*words, "--json")
    assert status == 0, err
    return json.loads(out)


def test_the_finder_says_what_is_left_out(laid_out: tuple[Layout, str]) -> None:
    layout, given = laid_out

    assert find(given, "test").left_out == layout.left_out


def test_inspect_and_verify(laid_out: tuple[Layout, str], cli: Cli) -> None:
    layout, given = laid_out

    inspected, verified = as_json(cli, "inspect", given), as_json(cli, "verify", given, "--decode")

    found = len(inspected["images"]) + (inspected["records"] or {"readable_records": 0})["readable_records"]
    assert (found, inspected["left_out"]) == (layout.images, layout.left_out)
    assert (verified.get("images", verified.get("records")), verified["left_out"]) == (layout.images, layout.left_out)
    for said in (cli("inspect", given)[1], cli("verify", given)[1]):
        assert ("left out: " in said) == bool(layout.left_out)


def test_pack(laid_out: tuple[Layout, str], tmp_path: Path, cli: Cli) -> None:
    layout, given = laid_out

    words = ("pack", given, tmp_path / "out", "--shards", 1)
    if layout.pack:
        status, _, err = cli(*words)
        assert status == 2 and re.search(layout.pack, err), err
        return
    packed = as_json(cli, *words)

    assert (packed["records"], packed["left_out"]) == (layout.images, layout.left_out)


def test_the_chain_of_demo_bench_and_compare(laid_out: tuple[Layout, str]) -> None:
    layout, given = laid_out

    source = find_source(given, 100)
    labels = [int(label) for _, label in training_chain(source, 100, 1, 8).unbatch()]

    assert (len(labels), source.at_least) == (layout.images, layout.images)
    assert (" (left out: " in source.title) == bool(layout.left_out)
    if layout.make in (nested, mixed, junk) and not layout.given:
        assert sorted(labels) == [0, 0, 0, 1, 1, 1]


def test_preview(laid_out: tuple[Layout, str], tmp_path: Path, cli: Cli) -> None:
    layout, given = laid_out
    words = ("--out", tmp_path / "sheet.png", "--rows", 20, "--draws", 1, "--size", 32)

    shown = as_json(cli, "preview", given, *words)

    assert shown["rows"] == layout.images
    assert any(line.startswith("left out: ") for line in shown["lines"]) == bool(layout.left_out)


def test_image_folder(laid_out: tuple[Layout, str]) -> None:
    layout, given = laid_out

    if layout.folder:
        with pytest.raises(gp.PlanError, match=layout.folder):
            gp.image_folder(given)
        return
    folder = gp.image_folder(given)

    assert (len(folder), folder.left_out) == (layout.images, layout.left_out)
    found = find(given, "test")
    assert (list(folder.file_paths), list(folder.class_names)) == (found.paths, list(found.classes))
    assert folder.labels.tolist() == list(found.labels)


@pytest.mark.parametrize("command", ["bench", "compare", "demo --data"])
def test_a_command_that_measures_counts_the_same_images(command: str, tmp_path: Path, cli: Cli) -> None:
    mixed(tmp_path / "data")
    words = ["--images", 100, "--size", 8, "--executor", "numpy"]
    words += ["--out", tmp_path / "sheet.png"] if command.startswith("demo") else []

    status, out, err = cli(*command.split(), tmp_path / "data", *words)

    assert status == 0, err
    assert f"data (left out: {LOOSE} (2)): 6 images a pass" in out


COMMANDS = ["inspect", "verify", "index", "preview", "bench", "compare", "demo --data", "pack"]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("empty", "the folder '.*empty' has no such files in it, and no images below it: it has nothing"),
        ("texts", r"no images below it: it has .txt files \(2\), .md files \(1\), folders \(1\)"),
        ("gifs", r"no images below it: it has GIF images, which no decoder reads \(2\)"),
        ("missing", "it does not exist; check the path"),
        ("missing*", "no file matches it"),
        ("texts/*.txt", r"what it matches is .txt files \(1\)"),
        ("a.zip", "which is a zip archive"),
    ],
)
def test_every_command_says_what_it_needs(command: str, given: str, words: str, tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "empty").mkdir()
    others(tmp_path / "texts", "0.txt", "below/1.txt", "below/2.md")
    images(tmp_path / "gifs", "0.gif", "1.gif")
    (tmp_path / "a.zip").write_bytes(b"PK\x03\x04" + bytes(40))
    more = [tmp_path / "out", "--shards", 1] if command == "pack" else []

    status, out, err = cli(*command.split(), tmp_path / given, *more)

    assert (status, out) == (2, "")
    who = command if command in ("inspect", "verify", "index", "pack") else "DATA"
    assert f"{who} needs TFRecord files, images, tar archives or Parquet files, " in err
    assert re.search(words, err)


def test_a_column_of_images_is_asked_for_where_it_is_not_clear(tmp_path: Path, cli: Cli) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"text": ["a"], "n": [1]}), tmp_path / "none.parquet")
    pq.write_table(pa.table({"left": [JPEG], "right": [JPEG]}), tmp_path / "two.parquet")

    for name, count in (("none", 0), ("two", 2)):
        _, _, err = cli("preview", tmp_path / f"{name}.parquet")
        assert f"got {count} such columns in " in err and "FILE.py:NAME" in err
        assert "verify needs a column of encoded images" in cli("verify", tmp_path / f"{name}.parquet")[2]
    found = as_json(cli, "verify", tmp_path / "two.parquet", "--feature", "right", "--decode")
    assert (found["images"], found["bad"]) == (1, 0)


def test_files_of_two_kinds_are_named_apart(tmp_path: Path, cli: Cli) -> None:
    tars(tmp_path / "both")
    images(tmp_path / "both", "0.jpg")

    for command in ("verify", "preview", "bench"):
        _, _, err = cli(command, os.path.join(tmp_path, "both/*"))
        assert "needs files of one kind" in err and "got images (1) and tar archives (2)" in err


def test_a_damaged_image_in_an_archive_is_named(tmp_path: Path, cli: Cli) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    archive(tmp_path / "a.tar", ("0.jpg", JPEG), ("1.jpg", JPEG[:200]))
    pq.write_table(pa.table({"image": [JPEG, JPEG[:200], None]}), tmp_path / "a.parquet")

    for name, count, bad in (("a.tar", 2, ["1.jpg"]), ("a.parquet", 3, ["row 1", "row 2"])):
        for command in ("inspect", "verify"):
            assert cli(command, tmp_path / name)[0] == 1
        status, out, _ = cli("verify", tmp_path / name, "--json")
        found = json.loads(out)
        assert (status, found["images"], found["bad"]) == (1, count, len(bad))
        assert [one["path"].removeprefix(str(tmp_path / name)).strip(": ") for one in found["bad_images"]] == bad


def test_labels_and_columns_do_not_matter_to_who_looks_at_images_alone(tmp_path: Path, cli: Cli) -> None:
    archive(tmp_path / "a.tar", ("0.jpg", JPEG), ("0.cls", b"1"), ("1.jpg", JPEG))

    assert as_json(cli, "verify", tmp_path / "a.tar")["images"] == len(as_json(cli, "inspect", tmp_path)["images"]) == 2
