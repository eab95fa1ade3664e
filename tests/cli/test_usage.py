"""Wrong usage of any subcommand is one line that says what it needs, and status 2, before any work."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpupipe.comparison.photographs import write_shards
from tests.cli.commands import Cli
from tests.extract.archives import archive
from tests.tools.damage import write
from tests.tools.packing import jpeg

USAGE = [
    ("demo --data none", "it does not exist"),
    ("demo --data link.tfrecord", "needs TFRecord files, got one that cannot be read"),
    ("demo --data text.tfrecord", "needs TFRecord files, got one that cannot be read"),
    ("demo --data void.tfrecord", "empty files"),
    ("demo --data plain.tfrecord", "image/encoded"),
    ("demo --data empty", "no images below it: it has nothing"),
    (
        "demo --data a.zip",
        "DATA needs TFRecord files, images, tar archives or Parquet files, got 'a.zip', which is a zip",
    ),
    ("demo --data a.tar", "DATA needs tar archives, got one that cannot be read"),
    ("demo --data noimage.tar", "DATA needs tar archives, got one that cannot be read: noimage.tar"),
    ("compare memory://void.tfrecord", "TFRecord files with images, got 'memory://void.tfrecord', with nothing in it"),
    ("bench memory://void.tar", "DATA needs tar archives with images, got 'memory://void.tar', with nothing in it"),
    ("preview memory://void.tfrecord", "TFRecord files with images, got 'memory://void.tfrecord', with nothing in it"),
    (
        "demo --data mixed",
        "DATA needs files of one kind, got the folder 'mixed' with tar archives (1) and Parquet files",
    ),
    ("demo --images 1", "--images needs 2"),
    ("demo --size 4", "--size needs 8"),
    ("demo --out missing/sheet.png", "--out needs an existing folder"),
    ("demo --out .", "--out needs the name of a PNG file"),
    ("compare nowhere-*.tfrecord", "no file matches it"),
    ("compare nowhere.py:ds", "it does not exist"),
    ("compare . --html .", "--html needs the name of a file"),
    ("compare . --compared 0", "--compared needs 1"),
    ("preview missing-*.tfrecord", "DATA needs TFRecord files, images, tar archives or Parquet files, got 'missing-*"),
    ("preview missing.py:ds", "got 'missing.py': it does not exist"),
    ("preview empty", "the folder 'empty' has no such files in it"),
    ("preview good.tfrecord --draws 0", "--draws needs 1 or more, got 0"),
    ("preview good.tfrecord --rows 100 --draws 9", "at most 400 images, got 100 x 9"),
    ("preview good.tfrecord --size 8", "--size needs 32 to 1024 pixels, got 8"),
    ("inspect empty", "the folder"),
    ("inspect a.zip", "which is a zip archive"),
    ("inspect good.tfrecord --sample 0", "--sample needs 1 or more"),
    ("verify none", "it does not exist"),
    ("verify none*.tfrecord", "quote wildcards"),
    ("verify notes", "and the folder 'notes' has no such files in it, and no images below it: it has .txt files (1)"),
    (
        "verify photo.jpg good.tfrecord",
        "needs files of one kind, TFRecord files, images, tar archives or Parquet files",
    ),
    ("verify photo.jpg --manifest bad.jsonl", "--manifest needs TFRecord files"),
    ("verify photo.jpg --feature x --decode", "--feature needs TFRecord files"),
    ("verify good.tfrecord --workers 0", "--workers needs 1 or more"),
    ("verify good.tfrecord --feature x", "--feature needs --decode"),
    ("verify plain.tfrecord --decode", "--decode needs records with an image"),
    ("index plain.tfrecord --out notes/notes.txt", "which is something else"),
    ("index photos", "index needs TFRecord files, got images (1), such as 'photos/0.jpg'"),
    ("index plain.tfrecord --workers 0", "--workers needs 1 or more"),
    ("pack none out --shards 2", "it does not exist"),
    (
        "pack good.tfrecord out --shards 2",
        "needs images, tar archives or Parquet files, got TFRecord files (1), such as",
    ),
    ("pack photos photos --shards 1", "outside of its source"),
    ("pack photos out --shards 0", "--shards to be an integer of 1"),
    ("pack photos out --shards 13", "pack needs 1 shard for 1 image, got 13"),
    ("pack photos out --shards 1 --resize-shorter 0", "--resize-shorter to be"),
    ("pack photos out --shards 1 --quality 0", "--quality to be an integer of 1..100"),
    ("pack photos out --shards 1 --seed -1", "--seed to be"),
    ("pack photos out --shards 1 --workers 0", "--workers to be"),
    ("pack photos out --shards 1 --name a/b", "--name to be"),
    ("pack photos out --shards 1 --quality 90 --decoded", "--quality or --decoded, got both"),
    ("pack photos out --shards 1 --budget 1000 --resize-shorter 8", "--decoded for --budget, which limits how many"),
    ("pack photos out --shards 1 --budget 1000 --decoded", "--resize-shorter for --budget"),
    ("explain no_such_file.py:ds", "it does not exist"),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files of all kinds."""
    folder = tmp_path_factory.mktemp("place")
    (shard,) = write_shards(folder, 2, 1)
    shard.rename(folder / "good.tfrecord")
    write(folder / "plain.tfrecord", [b"no example"])
    for name in ("empty", "notes", "photos"):
        (folder / name).mkdir()
    (folder / "notes/notes.txt").write_text("nothing but words in here")
    (folder / "text.tfrecord").write_text("this is no record file, only some text\n" * 9)
    (folder / "void.tfrecord").touch()
    (folder / "link.tfrecord").symlink_to(folder / "gone")
    (folder / "mixed").mkdir()
    for name in ("a.tar", "mixed/a.tar", "mixed/a.parquet"):
        (folder / name).write_bytes(b"no archive at all, only a few words" * 40)
    archive(folder / "noimage.tar", [("a.txt", b"words")])
    for name in ("void.tfrecord", "void.tar"):
        pytest.importorskip("fsspec").filesystem("memory").pipe_file(f"/{name}", b"")
    (folder / "a.zip").write_bytes(b"PK\x03\x04" + bytes(40))
    for name in ("photo.jpg", "photos/0.jpg"):
        (folder / name).write_bytes(jpeg(20, 30))
    return folder


@pytest.mark.parametrize(("words", "said"), USAGE)
def test_wrong_usage_is_one_line_and_status_2_before_any_work(
    words: str, said: str, place: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.chdir(place)
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}

    status, out, err = cli(*words.split())

    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"gpupipe {words.split()[0]}: ") and said in err
    assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == before
