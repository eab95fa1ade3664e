"""interrupted_writes: what a writer leaves that is ended before or after any call that changes a file. A program.

    python -m tests.reliability.interrupted_writes save SIGKILL

prints one line of JSON: how often it was ended, and what was wrong then. SIGINT and SIGTERM end one writer after the
other in this process, the latter by an exception of the handler that gpupipe does not know; SIGKILL ends a fork.
"""

from __future__ import annotations

import builtins
import io
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import gpupipe as gp
from gpupipe.comparison.page.write import write_page
from gpupipe.comparison.sheet import save_png
from gpupipe.extract.finder import DataFile
from gpupipe.extract.records.index import INDEXES
from gpupipe.extract.records.manifest_writer import write_manifest
from gpupipe.extract.records.writer import framed
from gpupipe.io import TFRecordWriter
from gpupipe.profile.picture import plot
from gpupipe.profile.trace import chrome_trace
from gpupipe.timing import Span
from gpupipe.tools.pack.run import pack
from gpupipe.tools.verify import verify
from tests.comparison.results import full
from tests.tools.packing import jpeg

CALLS = "open write replace rename remove unlink fsync mkdir rmdir truncate ftruncate link symlink".split()
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
SIGNALS = ("SIGINT", "SIGTERM", "SIGKILL")


class Preempted(BaseException):
    """What the program's own handler raises."""


class Writer(NamedTuple):
    """Something that is written.

    Attributes:
        write: into a folder; the second argument is 0 for what was there before, 1 for what is written then.
        read: what is there; None for nothing.
    """

    write: Callable[[Path, int], object]
    read: Callable[[Path], object]


def _numbers(folder: Path) -> object:
    with suppress(FileNotFoundError):
        return [int(x) for x in gp.Dataset.load(folder / "s")]
    return None


def _save(folder: Path, which: int, compression: str | None = None) -> None:
    dataset = gp.Dataset.range(3 + 2 * which)
    dataset.save(folder / "s", compression, shard_func=lambda x: x % (1 + which))


def _cached(folder: Path, which: int, method: str) -> None:
    chain = getattr(gp.Dataset.range(4 + which), method)(str(folder / "c"))
    assert list(map(int, chain)) == list(range(4 + which))


def _kept(folder: Path) -> object:
    """Whether the elements of the caches are right, whatever files there are."""
    for method in ("cache", "snapshot"):
        for which in (0, 1):
            path = folder / "c"
            if method == "snapshot" and not path.is_dir():
                continue
            chain = getattr(gp.Dataset.range(4 + which), method)(str(path))
            assert [int(x) for x in chain.take(2)] == [0, 1]
    return None


def _records(folder: Path) -> str:
    path = folder / "a.tfrecord"
    if not path.exists():
        # Not by a writer, which would look at what dead ones left: once in a process and folder.
        path.write_bytes(b"".join(framed(b"%d" % i * (i + 1)) for i in range(5)))
    return str(path)


def _rewritten(folder: Path, which: int) -> None:
    dataset = gp.TFRecordDataset(_records(folder))
    TFRecordWriter(folder / "a.tfrecord").write(dataset.filter(lambda record: not which or bytes(record) != b"0"))


def _index(folder: Path, which: int) -> None:
    path = _records(folder)
    INDEXES.clear()
    if which:
        assert len(gp.TFRecordDataset(path, index="beside")) == 5


def _indexed(folder: Path) -> object:
    INDEXES.clear()
    return sorted(map(bytes, gp.TFRecordDataset(_records(folder), index="beside").shuffle(gp.ALL, seed=1)))


def _manifest(folder: Path, which: int) -> None:
    paths = [_records(folder)] if which else [_records(folder), *_copied(folder)]
    write_manifest(paths, str(folder / "files.gpindex"), 1)


def _copied(folder: Path) -> list[str]:
    (folder / "b.tfrecord").write_bytes(Path(_records(folder)).read_bytes())
    return [str(folder / "b.tfrecord")]


def _listed(folder: Path) -> object:
    return len(list(gp.TFRecordDataset.from_manifest(str(folder / "files.gpindex"))))


def _pack(folder: Path, which: int) -> None:
    if which:
        pack(folder / "images", folder / "out", 2, workers=1)
        return
    for name in ("a/1.jpg", "a/2.jpg", "b/3.jpg"):
        path = folder / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg(8, 8))


def _packed(folder: Path) -> object:
    """The records of a shard are there as a whole, or it has no name."""
    shards = sorted((folder / "out").glob("*.tfrecord"))
    return [len(list(gp.TFRecordDataset(str(shard)))) for shard in shards] in ([], [2], [1], [2, 1])


def _errors(folder: Path, which: int) -> None:
    options = gp.Options(on_error="skip", error_manifest=str(folder / "bad.jsonl"))

    def fails(x: Any) -> Any:
        if x % 2 == which:
            raise ValueError("odd")
        return x

    assert len(list(gp.Dataset.range(6).map(fails, traced=False).with_options(options))) == 3


def _lines(folder: Path) -> object:
    """A manifest grows a line at a time: each is whole."""
    lines = (folder / "bad.jsonl").read_text().splitlines()
    return {json.loads(line)["unit"] for line in lines} <= {"index"} and len(lines) >= 3


def _text(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).read_bytes() if (folder / name).exists() else None


def _png(folder: Path, which: int) -> None:
    import numpy as np

    save_png(folder / "a.png", np.full((4, 4, 3), which, np.uint8))


def _trace(folder: Path, which: int) -> None:
    chrome_trace([Span("step", "host", "main", 0.0, 1.0)] * (1 + which), folder / "a.json")


def _plot(folder: Path, which: int) -> None:
    plot([Span("step", "host", "main", 0.0, 1.0)] * (1 + which), f"title {which}", folder / "a.svg", None)


def _page(folder: Path, which: int) -> None:
    write_page(replace(full(), data=f"data {which}", pairs=(), steps=()), folder / "a.html")


def _verify(folder: Path, which: int) -> None:
    """Of five records one more is bad."""
    path = Path(_records(folder))
    data = bytearray(path.read_bytes())
    data[12] = 0xFF
    data[-5] = 0xFF if which else data[-5]
    with open(path, "r+b", buffering=0) as file:  # in place: a test of `verify`, not of this
        os.pwrite(file.fileno(), data, 0)
    assert verify([DataFile(str(path), path.name)], manifest=str(folder / "bad.jsonl")).bad


def _offsets(folder: Path) -> object:
    path = folder / "bad.jsonl"
    return [json.loads(line)["offset"] for line in path.read_text().splitlines()] if path.exists() else None


def _parquet(folder: Path, which: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if which:
        pack(folder / "images.parquet", folder / "out", 2, workers=1)
    else:
        pq.write_table(pa.table({"image": [jpeg(8, 8, i) for i in range(3)]}), folder / "images.parquet")


WRITERS = {
    "save": Writer(_save, _numbers),
    "save-gzip": Writer(lambda folder, which: _save(folder, which, "GZIP"), _numbers),
    "cache": Writer(lambda folder, which: _cached(folder, which, "cache"), _kept),
    "snapshot": Writer(lambda folder, which: _cached(folder, which, "snapshot"), _kept),
    "records": Writer(_rewritten, _text("a.tfrecord")),
    "index": Writer(_index, _indexed),
    "manifest": Writer(_manifest, _listed),
    "pack": Writer(_pack, _packed),
    "pack-parquet": Writer(_parquet, _packed),
    "errors": Writer(_errors, _lines),
    "verify": Writer(_verify, _offsets),
    "page": Writer(_page, _text("a.html")),
    "plot": Writer(_plot, lambda folder: re.findall("title .", str(_text("a.svg")(folder)))),
    "png": Writer(_png, _text("a.png")),
    "trace": Writer(_trace, _text("a.json")),
}


@contextmanager
def watched(strike: Callable[[], None], at: int) -> Iterator[list[int]]:
    """Call `strike` at the `at`-th point, points being before and after each call; yield a list with how many came."""
    count = [0]

    def point() -> None:
        count[0] += 1
        if count[0] == at + 1:
            strike()

    def around(call: Callable[..., Any], changes: Callable[..., bool]) -> Callable[..., Any]:
        def wrapper(*args: Any, **named: Any) -> Any:
            if not changes(*args, **named):
                return call(*args, **named)
            point()
            result = call(*args, **named)
            point()
            return result

        return wrapper

    def opens_to_write(path: Any, flags: int = 0, *rest: Any, **named: Any) -> bool:
        return bool(flags & WRITES)

    def writes(path: Any, mode: str = "r", *rest: Any, **named: Any) -> bool:
        return not isinstance(path, int) and bool(set(mode) & set("wax+"))

    saved = {name: getattr(os, name) for name in CALLS if hasattr(os, name)}
    opened = builtins.open
    try:
        for name, call in saved.items():
            setattr(os, name, around(call, opens_to_write if name == "open" else lambda *args, **named: True))
        builtins.open = io.open = around(opened, writes)
        yield count
    finally:
        for name, call in saved.items():
            setattr(os, name, call)
        builtins.open = io.open = opened


def shapes(folder: Path) -> list[str]:
    """The names of all files, without what differs between two runs."""
    found = [str(path.relative_to(folder)) for path in folder.rglob("*")]
    return sorted(re.sub(r"[0-9a-f]{16}", "#", name) for name in found)


def strike_by(name: str) -> Callable[[], None]:
    number = getattr(signal, name)
    return lambda: signal.raise_signal(number)


def ended(writer: Writer, folder: Path, name: str, at: int) -> bool:
    """Write, and be ended at a point; whether it came to that."""
    if name == "SIGKILL":
        child = os.fork()
        if child == 0:
            with watched(strike_by(name), at):
                writer.write(folder, 1)
            os._exit(0)
        return os.WIFSIGNALED(os.waitpid(child, 0)[1])
    try:
        with watched(strike_by(name), at) as count:
            writer.write(folder, 1)
    except (KeyboardInterrupt, Preempted):
        return True
    return count[0] > at


def in_turn(writer: Writer, folder: Path, by: str) -> None:
    """Write once more; after a kill in another process, as a process looks once at what others have left."""
    if by != "SIGKILL":
        writer.write(folder, 1)
        return
    child = os.fork()
    if child == 0:
        writer.write(folder, 1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, "the next run failed"


def wrongs(name: str, by: str, step: int = 1) -> tuple[int, list[str]]:
    """End a writer at every `step`-th point; how many there were, and what was wrong."""
    writer = WRITERS[name]
    with TemporaryDirectory() as scratch:
        clean = Path(scratch)
        writer.write(clean, 0)
        old = writer.read(clean)
        writer.write(clean, 1)
        new, shape = writer.read(clean), shapes(clean)
    wrong: list[str] = []
    at = 0
    while True:
        with TemporaryDirectory() as scratch:
            folder = Path(scratch)
            writer.write(folder, 0)
            (folder / "stranger.txt").write_text("mine")
            if not ended(writer, folder, by, at):
                return at // step, wrong
            try:
                found = writer.read(folder)
                if found not in (old, new):
                    wrong.append(f"point {at}: {found!r} is neither {old!r} nor {new!r}")
                in_turn(writer, folder, by)
                if writer.read(folder) != new:
                    wrong.append(f"point {at}: {writer.read(folder)!r} after the next run, not {new!r}")
            except Exception as error:
                wrong.append(f"point {at}: {type(error).__name__}: {error}")
            left = sorted(set(shapes(folder)) - {*shape, "stranger.txt"})
            more = len(shapes(folder)) - len(shape) - 1
            if left or more:
                wrong.append(f"point {at}: {more} more files, {left}")
            if not (folder / "stranger.txt").exists():
                wrong.append(f"point {at}: a stranger's file was removed")
        at += step


def main(arguments: Sequence[str]) -> None:
    name, by, *step = arguments
    signal.signal(signal.SIGTERM, _preempt)
    points, wrong = wrongs(name, by, int(step[0]) if step else 1)
    print(json.dumps({"points": points, "wrong": wrong}))


def _preempt(number: int, frame: object) -> None:
    raise Preempted


if __name__ == "__main__":
    main(sys.argv[1:])
