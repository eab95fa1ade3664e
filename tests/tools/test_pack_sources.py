"""Where `pack` finds images and labels: folders, tar archives, Parquet files, and what it says of others."""

from __future__ import annotations

import json
import os
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gpupipe.errors import PlanError
from gpupipe.tools.pack import pack, tar
from tests.tools.damage import write
from tests.tools.packing import archive, digests, jpeg, packed_records

Found = Mapping[str, tuple[int, str]]


def found(source: Path | str, out: Path, **options: Any) -> Found:
    """What `pack` finds in a source: name -> (label, class)."""
    pack(source, out, 1, **options)
    texts = [
        [bytes(record[f"image/{x}"]).decode() for x in ("filename", "class/text")] for record in packed_records(out)
    ]
    labels = [int(record["image/class/label"]) for record in packed_records(out)]
    return {name: (label, text) for (name, text), label in zip(texts, labels, strict=True)}


def written(root: Path, *names: str) -> Path:
    """Write an image, another for each name, to files of these names."""
    for number, name in enumerate(names):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg(8, 8, number))
    return root


def test_directories_are_classes_and_all_below_one_belongs_to_it(tmp_path: Path) -> None:
    source = written(
        tmp_path / "s", "b/1.JPEG", "a/deep/er/2.png", "c/3.webp", "b/.hidden.jpg", "b/.cache/5.jpg", ".git/4.jpg"
    )
    (source / "empty").mkdir()
    (source / "a/notes.txt").touch()

    assert found(source, tmp_path / "out") == {"a/deep/er/2.png": (0, "a"), "b/1.JPEG": (1, "b"), "c/3.webp": (2, "c")}
    assert found(written(tmp_path / "flat", "1.jpg"), tmp_path / "none") == {"1.jpg": (-1, "")}
    packed = pack(source, tmp_path / "out", 1)
    assert (packed.classes, packed.class_names) == (4, ("a", "b", "c", "empty"))
    assert packed.left_out == {".txt files": 1, "hidden files and folders": 3, "class folders without images": 1}


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("train/1.jpg", "Val/2.jpg"), "with Val, train, which are names of splits"),
        (("a/1.txt",), r"no images below it: it has .txt files \(1\), folders \(1\)"),
        ((), "it does not exist"),
    ],
    ids=["splits", "no images", "missing"],
)
def test_a_folder_that_is_probably_a_mistake_is_refused(tmp_path: Path, names: tuple[str, ...], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        found(written(tmp_path / "s", *names), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege on Windows")
def test_a_link_to_a_class_is_followed_and_one_inside_of_a_class_is_not(tmp_path: Path) -> None:
    written(tmp_path / "elsewhere", "1.jpg")
    source = written(tmp_path / "s", "b/2.jpg")
    os.symlink(tmp_path / "elsewhere", source / "a")
    os.symlink(source, source / "b/circle")

    assert found(source, tmp_path / "out") == {"a/1.jpg": (0, "a"), "b/2.jpg": (1, "b")}


IMAGE = jpeg(8, 8)


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ((("x/1.jpg", IMAGE), ("x/1.cls", b"7\n"), ("x/2.seg.jpg", IMAGE), ("x/2.cls", b"-1")),
         {"x/1.jpg": (7, ""), "x/2.seg.jpg": (-1, "")}),
        ((("1.cls", b"dog"), ("1.jpg", IMAGE), ("2.jpg", IMAGE), ("2.cls", b"cat")),
         {"1.jpg": (1, "dog"), "2.jpg": (0, "cat")}),
        ((("1.jpg", IMAGE), ("1.json", b'{"label": 3}'), ("2.jpg", IMAGE), ("2.json", b'{"cls": "4"}')),
         {"1.jpg": (3, ""), "2.jpg": (4, "")}),
        ((("1.jpg", IMAGE), ("1.json", b'{"label": 7.0}'), ("2.jpg", IMAGE), ("2.json", b'{"label": -0.0}')),
         {"1.jpg": (7, ""), "2.jpg": (0, "")}),
        ((("a/1.jpg", IMAGE), ("a/1.json", b'{"text": "x"}'), ("b/2.jpg", IMAGE), ("b/2.json", b"[1]")),
         {"a/1.jpg": (0, "a"), "b/2.jpg": (1, "b")}),
        ((("1.json", b'{"label": 3}'), ("1.cls", b"5"), ("1.jpg", IMAGE), ("1.json", b'{"label": 3}')),
         {"1.jpg": (5, "")}),
        ((("./top/b/1.jpg", IMAGE), ("./top/a/deep/2.jpg", IMAGE), ("./top/b/._1.jpg", b"")),
         {"./top/b/1.jpg": (1, "b"), "./top/a/deep/2.jpg": (0, "a")}),
        ((("top/1.jpg", IMAGE), ("top/2.jpg", IMAGE)), {"top/1.jpg": (-1, ""), "top/2.jpg": (-1, "")}),
        ((("../../x.jpg", IMAGE), ("/etc/y.jpg", IMAGE), ("../../x.cls", b"1"), ("/etc/y.cls", b"2")),
         {"../../x.jpg": (1, ""), "/etc/y.jpg": (2, "")}),
    ],
    ids=["cls", "cls with names", "json", "whole floats", "json without labels", "cls before json",
         "directories", "one directory", "paths that leave"],
)  # fmt: skip
def test_a_tar_archive_has_labels_beside_its_images_or_directories(
    tmp_path: Path, members: tuple[tuple[str, bytes], ...], expected: Found
) -> None:
    archive(tmp_path / "x.tar", *members)

    assert found(tmp_path / "x.tar", tmp_path / "out") == expected
    assert sorted(os.listdir(tmp_path)) == ["out", "x.tar"]
    assert sorted(os.listdir(tmp_path / "out")) == ["pack.jsonl", "train-00000-of-00001.tfrecord"]


def test_samples_are_those_of_webdataset(tmp_path: Path) -> None:
    """A key that comes again is another sample; a label that stands apart counts if it is the only one of its key."""
    members = [("1.jpg", IMAGE), ("1.cls", b"1"), ("2.jpg", IMAGE), ("2.cls", b"2"), ("1.jpg", IMAGE), ("1.cls", b"3")]
    archive(tmp_path / "x.tar", *members, ("3.jpg", IMAGE), ("4.jpg", IMAGE), ("3.cls", b"5"), ("4.cls", b"6"))

    pack(tmp_path / "x.tar", tmp_path / "out", 1)

    labels = sorted(int(record["image/class/label"]) for record in packed_records(tmp_path / "out"))
    assert labels == [1, 2, 3, 5, 6]


def test_a_mask_is_no_image_of_its_own(tmp_path: Path) -> None:
    members = [(f"{n}.{end}", IMAGE) for n in (1, 2) for end in ("jpg", "seg.png")]
    archive(tmp_path / "x.tar", *members, ("3.left.jpg", IMAGE), ("3.right.jpg", IMAGE))

    assert sorted(found(tmp_path / "x.tar", tmp_path / "out")) == ["1.jpg", "2.jpg", "3.left.jpg", "3.right.jpg"]
    assert pack(tmp_path / "x.tar", tmp_path / "out", 1).left_out == {"masks and other images of a sample": 2}


def test_a_large_json_that_is_no_label_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the whole archive, say, or beside a .cls."""
    monkeypatch.setattr(tar, "_MOST_JSON", 10)
    archive(tmp_path / "x.tar", ("all.json", b" " * 11), ("1.json", b" " * 11), ("1.jpg", IMAGE), ("1.cls", b"5"))

    assert found(tmp_path / "x.tar", tmp_path / "out") == {"1.jpg": (5, "")}
    assert pack(tmp_path / "x.tar", tmp_path / "out", 1).left_out == {".json files": 2}


@pytest.mark.parametrize("top", ["", "./", "/", "d/", "d/e/"])
def test_images_beside_the_directories_of_the_classes_are_left_out_as_those_of_a_folder(
    tmp_path: Path, top: str
) -> None:
    names = ("cover.jpg", "cat/1.jpg", "cat/deep/2.jpg", "dog/1.jpg")
    archive(tmp_path / "x.tar", *((f"{top}{name}", IMAGE) for name in names))

    for source in (tmp_path / "x.tar", written(tmp_path / "s", *names)):
        packed = pack(source, tmp_path / "out" / source.name, 1)

        assert (packed.class_names, packed.records) == (("cat", "dog"), 3)
        assert packed.left_out == {"images beside the class folders": 1}


def test_several_archives_are_one_source(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    archive(tmp_path / "s/1.tar", ("0.jpg", IMAGE), ("0.cls", b"0"))
    archive(tmp_path / "s/2.tar", ("1.jpg", IMAGE), ("1.cls", b"1"))

    for k, source in enumerate((tmp_path / "s", tmp_path / "s/*.tar")):
        assert found(source, tmp_path / f"out{k}") == {"0.jpg": (0, ""), "1.jpg": (1, "")}


def test_only_files_of_an_archive_are_images(tmp_path: Path) -> None:
    archive(tmp_path / "x.tar", ("1.jpg", IMAGE))
    link = tarfile.TarInfo("passwd.jpg")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    with tarfile.open(tmp_path / "x.tar", "a") as opened:
        opened.addfile(link)

    assert found(tmp_path / "x.tar", tmp_path / "out") == {"1.jpg": (-1, "")}
    assert pack(tmp_path / "x.tar", tmp_path / "out", 1).left_out == {"links and hidden members": 1}


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    path = archive(tmp_path / "x.tar", ("1.jpg", IMAGE), ("2.jpg", IMAGE), ("3.jpg", IMAGE))
    whole = path.read_bytes()
    third = whole.index(b"3.jpg")
    wrong = {
        "a header": (whole[:third] + b"\xff" * 512 + whole[third + 512 :], f"byte {third} is none"),
        "joined": (whole + whole, "joined with cat"),
        "cut in an image": (whole[: third + 600], "3.jpg ends after it"),
        "cut in a header": (whole[: third + 100], f"2 members can be read, and what follows at byte {third} is none"),
        "text": (b"no archive" * 200, "Parquet files, got .*x.tar', which is a text file$"),
        "empty": (b"", "which is an empty file$"),
        "JPEG": (IMAGE, "which is a JPEG image$"),
        "TFRecord": (write(tmp_path / "z.tfrecord", [b"a record"] * 99), "which is a TFRecord file$"),
        "anything": (bytes(range(1, 256)) * 9, "which is a file of another kind$"),
        "damaged": (b"\1" + whole[1:], "is a tar archive that is dam"),
        "gzip": (b"\x1f\x8b" + bytes(100), "uncompressed tar archive"),
        "no image": (archive(tmp_path / "y.tar", ("1.txt", b"")).read_bytes(), r"with none: it has .txt files \(1\)"),
    }
    for name, (data, words) in wrong.items():
        path.write_bytes(data)
        with pytest.raises(PlanError, match=words):
            found(path, tmp_path / "out")
        assert not (tmp_path / "out").exists(), name


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ((("1.cls", b"1"), ("2.jpg", IMAGE)), "1 of 2 without a .cls or"),
        ((("1.cls", b"\xff"),), "1.cls: a label needs cls text in UTF-8"),
        ((("1.json", b"{"),), "1.json: a label needs json text"),
        ((("1.json", b'{"label": "\\ud800"}'),), "1.json: a label needs an integer or a name"),
        ((("1.json", b"[" * 100_000),), "1.json: a label needs json text"),
        ((("1.cls", b"1" * 5000),), "a label may have 4096 bytes, this file has 5000"),
        ((("1.cls", b"1"), ("2.jpg", IMAGE), ("2.cls", b"cat")), "all integers or all names"),
        ((("1.json", b'{"label": 9223372036854775808}'),), "labels of 64 bits"),
        *(
            ((("1.json", b'{"label": %s}' % text),), rf"1\.json: a label needs an integer or a name, got {shown}")
            for text, shown in (
                (b"true", "True"), (b"[3]", r"\[3\]"), (b"null", "None"), (b"7.5", r"7\.5"), (b"NaN", "nan"),
                (b'{"name": 3}', r"\{'name': 3\}"), (b'""', "''"),
            )
        ),
        ((("1.cls", b" "),), "1.cls: a label needs an integer or a name, got ''"),
        ((("1.json", b'{"label": 3}' + b" " * 200),), "1.json: a .json beside an image may have 100 bytes, it has 212"),
    ],
    ids=["missing", "not text", "not json", "half a character", "deep json", "long", "mixed", "large",
         "boolean", "list", "null", "a fraction", "not a number", "object", "empty", "empty text", "large json"],
)  # fmt: skip
def test_a_label_that_is_none_is_refused(
    tmp_path: Path, members: tuple[tuple[str, bytes], ...], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if words.startswith("1.json: a .json"):
        monkeypatch.setattr(tar, "_MOST_JSON", 100)
    archive(tmp_path / "x.tar", ("1.jpg", IMAGE), *members)

    with pytest.raises(PlanError, match=words):
        found(tmp_path / "x.tar", tmp_path / "out")


def parquet(path: Path, metadata: Mapping[str, str] | None = None, **columns: Any) -> Path:
    """Write a Parquet file with row groups of two rows; skip the test where pyarrow is not installed."""
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    table = pa.table(columns).replace_schema_metadata(metadata)
    pq.write_table(table, path, row_group_size=2)
    return path


def structs(count: int, path: str | None = "{}.jpg") -> list[dict[str, Any]]:
    """The column `image` of Hugging Face's data sets."""
    return [{"bytes": jpeg(8, 8, k), "path": path and path.format(k)} for k in range(count)]


def test_a_data_set_of_hugging_face_has_images_in_structs_and_names_of_classes(tmp_path: Path) -> None:
    about = {"info": {"features": {"label": {"_type": "ClassLabel", "names": ["cat", "dog"]}}}}
    columns = {"image": structs(5), "label": [0, 1, 1, 0, 1], "n": [0] * 5}
    path = parquet(tmp_path / "x.parquet", {"huggingface": json.dumps(about)}, **columns)

    assert found(path, tmp_path / "out") == {f"{k}.jpg": ((0, "cat"), (1, "dog"))[k in (1, 2, 4)] for k in range(5)}
    images = {bytes(r["image/filename"]).decode(): bytes(r["image/encoded"]) for r in packed_records(tmp_path / "out")}
    assert images == {f"{k}.jpg": jpeg(8, 8, k) for k in range(5)}
    assert sorted(os.listdir(tmp_path / "out")) == ["pack.jsonl", "train-00000-of-00001.tfrecord"]  # no copy is left


def test_names_in_the_metadata_are_those_of_integers_alone(tmp_path: Path) -> None:
    """A column of numbers that was replaced by the names keeps the metadata of its table."""
    about = {"info": {"features": {"label": {"_type": "ClassLabel", "names": ["dog", "cat", "bird"]}}}}
    columns = {"image": structs(3), "label": ["dog", "cat", "dog"]}
    path = parquet(tmp_path / "x.parquet", {"huggingface": json.dumps(about)}, **columns)

    assert found(path, tmp_path / "out") == {"0.jpg": (1, "dog"), "1.jpg": (0, "cat"), "2.jpg": (1, "dog")}


def test_binary_columns_and_names_as_labels(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    first = parquet(tmp_path / "s/1.parquet", png=[IMAGE, IMAGE], kind=["b", "a"])
    parquet(tmp_path / "s/2.parquet", png=[IMAGE], kind=["c"])

    named = {"1.parquet/0": (1, "b"), "1.parquet/1": (0, "a"), "2.parquet/0": (2, "c")}
    assert found(tmp_path / "s", tmp_path / "out", label_column="kind") == named
    assert found(first, tmp_path / "none") == {"1.parquet/0": (-1, ""), "1.parquet/1": (-1, "")}


def test_a_row_without_an_image_is_bad(tmp_path: Path) -> None:
    path = parquet(tmp_path / "x.parquet", image=[*structs(2, None), {"bytes": None, "path": "y.jpg"}], label=[0, 1, 2])

    packed = pack(path, tmp_path / "out", 1, on_error="skip")

    (one,) = packed.skipped
    assert (one.image, one.reason) == (f"{path} row 2", "an image is needed, got no bytes")
    assert packed.records == 2


def test_columns_that_are_unclear_have_to_be_named(tmp_path: Path) -> None:
    images = [IMAGE, IMAGE]
    path = parquet(tmp_path / "x.parquet", left=images, right=images, fine=[0, 1], coarse=[2, 3], text=["a", "b"])
    wrong: dict[str, dict[str, str]] = {
        "pass --image-column NAME": {},
        "and --image-column 'fine'": {"image_column": "fine"},
        "pass --label-column NAME": {"image_column": "left"},
        "and --label-column 'right'": {"image_column": "left", "label_column": "right"},
    }

    for words, options in wrong.items():
        with pytest.raises(PlanError, match=words):
            found(path, tmp_path / "out", **options)
    fractions = parquet(tmp_path / "y.parquet", image=images, label=[0.5, 1.5], width=[8, 8])
    with pytest.raises(PlanError, match="label: double, width: int64; pass --label-column NAME"):
        found(fractions, tmp_path / "out")
    names = found(path, tmp_path / "out", image_column="left", label_column="coarse")
    assert names == {"x.parquet/0": (2, ""), "x.parquet/1": (3, "")}


def test_parquet_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    whole = parquet(tmp_path / "s/1.parquet", image=structs(2), label=[0, None]).read_bytes()
    with pytest.raises(PlanError, match="got null in 'label' of row 1"):
        found(tmp_path / "s/1.parquet", tmp_path / "out")
    (tmp_path / "s/1.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(PlanError, match="none or damaged"):
        found(tmp_path / "s", tmp_path / "out")
    parquet(tmp_path / "s/1.parquet", image=structs(2), label=[0, 1])
    parquet(tmp_path / "s/2.parquet", image=structs(2), other=[0, 1])
    with pytest.raises(PlanError, match="with equal columns"):
        found(tmp_path / "s", tmp_path / "out")
    archive(tmp_path / "s/2.tar", ("1.jpg", IMAGE))
    with pytest.raises(
        PlanError, match=r"files of one kind, got the folder .* tar archives \(1\) and Parquet files \(2\)"
    ):
        found(tmp_path / "s", tmp_path / "out")


def test_the_copy_of_a_parquet_file_is_removed_at_the_end_and_by_an_interrupt(tmp_path: Path) -> None:
    path = parquet(tmp_path / "x.parquet", image=structs(6), label=list(range(6)))

    def interrupted(stop: tuple[str, int]) -> list[str]:
        def interrupt(task: str, done: int, total: int) -> None:
            if (task, done) == stop:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            pack(path, tmp_path / "out", 2, progress=interrupt)
        return sorted(os.listdir(tmp_path / "out"))

    assert interrupted(("copying images out of Parquet", 3)) == ["pack.jsonl"]
    assert interrupted(("packing", 4)) == ["pack.jsonl", "train-00000-of-00002.tfrecord"]
    packed = pack(path, tmp_path / "out", 2)

    assert (packed.records, packed.found) == (6, 1)
    assert not (tmp_path / "out/.images").exists()
    assert sorted(int(record["image/class/label"]) for record in packed_records(tmp_path / "out")) == list(range(6))


@pytest.mark.parametrize("left", ["cut", "other images", "a link"])
def test_a_copy_that_a_killed_run_left_is_not_read(tmp_path: Path, left: str) -> None:
    images = [jpeg(8, 8, number) for number in range(4)]
    path = parquet(tmp_path / "x.parquet", image=images, label=list(range(4)))
    pack(path, tmp_path / "out", 2)
    whole = digests(tmp_path / "out")
    for name in whole:
        (tmp_path / "out" / name).unlink()
    scratch, ends = tmp_path / "out/.images", [sum(map(len, images[3 - i :])) for i in range(-1, 4)]
    data = b"".join(images[::-1]) + b"".join(end.to_bytes(8, "little") for end in ends)
    if left == "a link":
        (tmp_path / "mine").write_bytes(data)
        scratch.symlink_to(tmp_path / "mine")
    else:
        scratch.write_bytes(data[:3] if left == "cut" else data)

    pack(path, tmp_path / "out", 2)

    assert digests(tmp_path / "out") == whole
    assert left != "a link" or (tmp_path / "mine").read_bytes() == data
