"""The password and the signature of a URL appear in nothing that gpupipe shows or writes, whatever way they take.

The ways are listed, not chosen: the readers by the public names, the commands by the table of the command line, what
writes files by the source. A new one fails here until it is in a table.
"""

from __future__ import annotations

import ast
import base64
import copy
import gc
import inspect
import json
import logging
import os
import traceback
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.cli import COMMANDS, main
from gpupipe.errors import GpupipeError
from gpupipe.extract.examples.encode import encode_example
from gpupipe.extract.storage import retry
from gpupipe.load.packed import unpacked
from gpupipe.ops._shared.samples import encoded
from tests.extract.archives import archive
from tests.reliability.faulty import Faulty
from tests.test_packaging import ROOT

USER, PASSWORD, SIGNATURE, OTHER = "reader", "hunter2pass", "s1gnature", "another7value"
SECRETS = (PASSWORD, SIGNATURE, OTHER, base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode())
QUERY = f"X-Amz-Credential=AKIA/{OTHER}&X-Amz-Signature={SIGNATURE}&id={OTHER}"
MANIFEST = "bad.jsonl"

IMAGES = [encoded(np.full((40, 48, 3), 9 * i, np.uint8), "JPEG") for i in range(6)]


def _table() -> Any:
    return pytest.importorskip("pyarrow").table({"x": [1, 2, 3], "image": IMAGES[:3]})


def _parquet(path: Path) -> None:
    pytest.importorskip("pyarrow.parquet").write_table(_table(), path)


def _arrow(path: Path) -> None:
    table, ipc = _table(), pytest.importorskip("pyarrow.ipc")
    with ipc.new_file(str(path), table.schema) as out:
        out.write_table(table)


def _hdf5(path: Path) -> None:
    with pytest.importorskip("h5py").File(path, "w") as out:
        out["x"] = np.arange(9)


def _lmdb(path: Path) -> None:
    lmdb = pytest.importorskip("lmdb")
    with lmdb.open(str(path), map_size=1 << 20, subdir=False) as database, database.begin(write=True) as out:
        out.put(b"a", b"1")


def _tfrecord(path: Path) -> None:
    with gp.io.TFRecordWriter(path) as out:
        for label, image in enumerate(IMAGES):
            out.write(encode_example({"image/encoded": image, "image/class/label": label}))


def _index(path: Path) -> None:
    _tfrecord(path.with_name("of-manifest.tfrecord"))
    assert main(["index", str(path.with_name("of-manifest.tfrecord")), "--out", str(path)]) == 0


def _npy(path: Path) -> None:
    stream = BytesIO()
    np.save(stream, np.arange(9))
    path.write_bytes(stream.getvalue())


def _zip(path: Path) -> None:
    with ZipFile(path, "w") as out:
        out.writestr("a.txt", "a\nb\n")


def _gray(data: Any) -> Any:
    return ops.decode_jpeg(data)


READERS: dict[str, tuple[Callable[[Path], object], Callable[[str], Any]]] = {
    "ArrowDataset": (_arrow, gp.ArrowDataset),
    "CsvDataset": (lambda path: path.write_text("x,y\n1,2\n3,4\n"), lambda url: gp.CsvDataset(url, ["int32", "int32"])),
    "FixedLengthRecordDataset": (lambda path: path.write_bytes(bytes(40)), lambda u: gp.FixedLengthRecordDataset(u, 4)),
    "HDF5Dataset": (_hdf5, lambda url: gp.HDF5Dataset(url, "x")),
    "LMDBDataset": (_lmdb, gp.LMDBDataset),
    "NumpyDataset": (_npy, lambda url: gp.NumpyDataset(url, spec=gp.TensorSpec((), "int64"))),
    "ParquetDataset": (_parquet, gp.ParquetDataset),
    "TFRecordDataset": (_tfrecord, gp.TFRecordDataset),
    "TextLineDataset": (lambda path: path.write_text("a\nb\n"), gp.TextLineDataset),
    "WebDataset": (lambda path: archive(path, [("a.cls", b"1"), ("b.cls", b"2")]), lambda u: gp.WebDataset(u, "cls")),
    "image_folder": (lambda path: path.mkdir(), gp.image_folder),
    "image_folder of a file": (lambda path: path.write_bytes(b"x"), gp.image_folder),
    "a pattern": (
        lambda path: path.write_bytes(b"x"),
        lambda url: gp.Dataset.list_files(url.partition("?")[0].replace("/file", "/f*")),
    ),
    "preprocessor": (
        lambda path: path.write_bytes(IMAGES[0]),
        lambda url: _served(url, gp.Dataset.from_tensors(IMAGES[0]).map(_gray).batch(1)),
    ),
    "from_manifest": (_index, gp.TFRecordDataset.from_manifest),
    "list_files": (
        lambda path: path.write_text("a\nb\n"),
        lambda url: gp.Dataset.list_files([url, f"{url}&x=1"]).interleave(gp.TextLineDataset),
    ),
    "load": (_tfrecord, gp.Dataset.load),
    "read_file": (
        lambda path: path.write_bytes(IMAGES[0]),
        lambda url: gp.Dataset.from_tensor_slices([url]).map(lambda x: _gray(gp.io.read_file(x))).batch(1),
    ),
    "from_tensors": (
        lambda path: path.write_bytes(b"x"),
        lambda url: gp.Dataset.from_tensors(url).map(gp.io.read_file),
    ),
    "from_list": (_tfrecord, lambda url: gp.Dataset.from_list([(url, 1)]).interleave(_records)),
    "an archive": (_zip, lambda url: gp.TextLineDataset(f"zip://a.txt::{url}")),
    "an archive in interleave": (
        _zip,
        lambda url: gp.Dataset.from_tensor_slices([f"zip://a.txt::{url}"]).interleave(gp.TextLineDataset),
    ),
    "files in an archive": (
        _zip,
        lambda url: gp.Dataset.list_files(f"zip://*.txt::{url}").interleave(gp.TextLineDataset),
    ),
    "a function": (_tfrecord, lambda url: gp.Dataset.range(2).map(lambda x: _raises(url), traced=False)),
}
"""Public name, or another way for a URL to come into a chain -> what writes a file, and what reads it by its URL."""

NO_URL = {"HuggingFaceDataset": "takes a dataset", "Dataset": "is what all are"}


def _records(path: Any, label: Any) -> Any:
    return gp.TFRecordDataset(path)


def _raises(url: str) -> Any:
    raise ValueError(f"cannot read {url}\nGET /{url.rpartition('/file')[2]}")


def _served(url: str, ds: Any) -> Any:
    return gp.preprocessor(ds)(url)


class Said:
    """All that was said, by where: results of methods, tracebacks, logs."""

    def __init__(self) -> None:
        self.texts: list[tuple[str, str]] = []

    def add(self, where: str, text: object) -> None:
        self.texts.append((where, text if isinstance(text, str) else repr(text)))

    def of(self, where: str, call: Callable[[], Any]) -> Any:
        """What a call returns; its error is added as a traceback shows it, and in all other forms."""
        try:
            return call()
        except (GpupipeError, OSError, TypeError, ValueError) as error:
            copied = copy.copy(error) if isinstance(error, GpupipeError) else error
            kept = [error] if "a function" not in where else []  # whose own exception is the cause, as it was raised
            self.add(where, f"{error} {error!r} {copied!r} {error.args!r} {vars(error)!r}")
            self.add(where, "".join(line for one in kept for line in traceback.format_exception(one)))
            self._reached(where, kept[0].__cause__ if kept else None)
            self._reached(where, kept[0].__context__ if kept else None)
            return None

    def _reached(self, where: str, error: BaseException | None) -> None:
        """Add a cause and its own causes, also those that a traceback leaves out."""
        while error is not None:
            self.add(f"{where}: cause", f"{error} {error!r} {error.args!r} {vars(error)!r}")
            self._reached(where, error.__context__ if error.__context__ is not error.__cause__ else None)
            error = error.__cause__

    def check(self) -> None:
        found = {
            f"{where}: {text[max(at - 300, 0) : at + 100]!r}"
            for where, text in self.texts
            for secret in SECRETS
            if (at := text.find(secret)) >= 0
        }
        assert not found, "\n".join(sorted(found))


def written(folder: Path) -> Iterator[tuple[str, str]]:
    """The names of files, and their bytes."""
    for path in sorted(folder.rglob("*")):
        yield f"the name of {path}", str(path)
        if path.is_file():
            yield f"the file {path}", path.read_bytes().decode("latin-1")


@pytest.fixture
def said(tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Iterator[Said]:
    """Collects what is said, logged and written into the folder "out"; the test fails if a secret is in it."""
    (tmp_path / "data").mkdir()
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path / "out")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "out"))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(retry, "PAUSE", 0.001)
    retry.GIVEN_UP.clear()
    collected = Said()
    with caplog.at_level(logging.DEBUG, "gpupipe"):
        yield collected
    for record in caplog.records:
        if record.name == "gpupipe":
            collected.add("log", record.getMessage())
            collected.add("log", f"{record.msg!r} {record.args!r}")
    for where, text in written(tmp_path / "out"):
        collected.add(where, text)
    collected.check()


def url_of(server: Faulty, name: str) -> str:
    return server.url(f"{name}?{QUERY}").replace("http://", f"http://{USER}:{PASSWORD}@")


FAULTS: dict[str, str | None] = {
    "good": None,
    "missing": "404",
    "forbidden": "403",
    "busy": "503",
    "short": "short",
    "no http": "no status",
}


def test_every_reader_is_in_the_table() -> None:
    public = {name for name in gp.__all__ if name.endswith("Dataset")} | {"image_folder", "preprocessor"}
    public |= {name for name in gp.io.__all__ if name.startswith("read")}
    makers = {"from_manifest", "list_files", "load", *(x for x in dir(gp.Dataset) if x.startswith("from_"))}

    assert public <= {*READERS, *NO_URL}
    assert makers <= {*READERS, "from_generator", "from_indexable", "from_tensor_slices"}  # the last: with read_file


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", READERS)
def test_no_reader_shows_or_writes_them(
    name: str, fault: str, tmp_path: Path, said: Said, request: pytest.FixtureRequest
) -> None:
    if name == "HDF5Dataset":  # h5py's objects take its lock when they are collected, also in the thread of fsspec
        gc.collect()
        request.addfinalizer(gc.enable)
        gc.disable()
    write, make = READERS[name]
    write(tmp_path / "data" / "file")
    options = gp.Options(
        error_manifest=MANIFEST, bad_records=MANIFEST, on_error="skip", lost_files="skip", backend="numpy", device="cpu"
    )
    faults = FAULTS[fault]
    with Faulty(tmp_path / "data", fault=lambda n: faults, looking=lambda n: faults).serving() as server:
        for url in (url_of(server, "file"), f"simplecache::{url_of(server, 'file')}"):
            ds = said.of(name, lambda url=url: make(url))  # type: ignore[misc]
            if isinstance(ds, gp.Dataset):
                Path(MANIFEST).touch()
                _use(ds, f"{name}, {fault}", said)
                _use(ds.with_options(options), f"{name}, {fault}, skip", said)


def _use(ds: Any, where: str, said: Said) -> None:
    """Everything that a dataset shows of itself, and what an iterator over it shows and writes."""
    for method in dir(gp.Dataset):
        if method.startswith("_") or method in ("iterator", "first", "element_spec"):
            continue
        value = said.of(f"{where}: {method}", lambda method=method: getattr(ds, method))  # type: ignore[misc]
        if callable(value) and _without_arguments(value) and not method.startswith("as_"):
            result = said.of(f"{where}: {method}()", value)
            said.add(f"{where}: {method}()", f"{result} {result!r}")
    said.add(where, f"{ds!r} {ds} {ds.plan!r}")
    for what, call in {"len": lambda: len(ds), "[0]": lambda: ds[0], "all": lambda: list(ds)}.items():
        said.of(f"{where}: {what}", call)
    said.of(f"{where}: shuffle", lambda: next(iter(ds.shuffle(gp.ALL)), None))
    for shuffled in (ds, ds.shuffle(3)):
        said.of(f"{where}: state", lambda ds=shuffled: _state(ds, where, said))  # type: ignore[misc]
    said.of(f"{where}: cache", lambda: list(ds.cache("cached")))
    said.of(f"{where}: cache again", lambda: list(ds.cache("cached")))
    said.of(f"{where}: snapshot", lambda: list(ds.snapshot("snapshots")))
    said.of(f"{where}: save", lambda: ds.save("saved"))
    said.of(f"{where}: load", lambda: list(gp.Dataset.load("saved")))
    said.of(f"{where}: trace", lambda: ds.profile(steps=2).chrome_trace("trace.json"))


def _without_arguments(method: Callable[..., Any]) -> bool:
    try:
        inspect.signature(method).bind()
    except TypeError:
        return False
    return True


def _state(ds: Any, where: str, said: Said) -> None:
    with iter(ds) as items:
        said.of(f"{where}: next", lambda: next(items, None))
        said.of(f"{where}: next", lambda: next(items, None))
        for name in ("errors", "stats", "memory_report"):
            value = getattr(items, name)
            said.add(f"{where}: {name}", f"{value() if callable(value) else value} {value!r}")
        state = items.state_dict()
        said.add(f"{where}: state", json.dumps(state, ensure_ascii=False))
        said.add(f"{where}: state", json.dumps(unpacked(copy.deepcopy(state).get("flow"))))
    other = iter(ds.take(1))
    said.of(f"{where}: load_state_dict", lambda: other.load_state_dict(state))
    other.close()


HERE: dict[str, Callable[[str], Any]] = {
    "bad_records": lambda url: list(gp.Dataset.range(3).with_options(gp.Options(bad_records=url))),
    "error_manifest": lambda url: list(gp.Dataset.range(3).with_options(gp.Options(error_manifest=url))),
    "TFRecordWriter": lambda url: gp.io.TFRecordWriter(url).write(b"x"),
    "index": lambda url: len(gp.TFRecordDataset("none", index=url)),
    "WebDataset's index": lambda url: len(gp.WebDataset("none", "cls", index=url)),
    "cache": lambda url: list(gp.Dataset.range(3).cache(url)),
    "snapshot": lambda url: list(gp.Dataset.range(3).snapshot(url)),
    "save": lambda url: gp.Dataset.range(3).save(url),
    "load": lambda url: list(gp.Dataset.load(url)),
    "a path": lambda url: list(gp.TFRecordDataset(Path("folder") / url)),
    "an absolute path": lambda url: list(gp.TextLineDataset(os.path.abspath(url))),
    "image_folder of a path": lambda url: gp.image_folder(Path("folder") / url),
}
"""What takes a path of this machine, given a URL."""


@pytest.mark.parametrize("name", HERE)
def test_a_url_in_the_place_of_a_path_is_an_error_that_hides_its_secrets(name: str, said: Said) -> None:
    url = f"http://{USER}:{PASSWORD}@127.0.0.1:9/folder/x?{QUERY}"
    before = len(said.texts)
    said.of(name, lambda: HERE[name](url))

    assert len(said.texts) > before, "no error"
    assert not list(Path().rglob("*http*"))


COMMAND_LINES: dict[str, Callable[[str], list[list[str]]] | str] = {
    "demo": "takes no data",
    "compare": lambda url: [
        ["compare", url, "--executor", "numpy", "--images", "4", "--size", "32", "--html", "x.html"],
        ["compare", url, "--executor", "numpy", "--images", "4", "--size", "32", "--no-steps", "--json"],
    ],
    "bench": lambda url: [["bench", url, "--executor", "numpy", "--images", "4", "--size", "32"]],
    "inspect": lambda url: [["inspect", url, "--thumbnails", "sheet.png"], ["inspect", url, "--json"]],
    "verify": lambda url: [
        ["verify", url, "--manifest", "verified.jsonl", "--workers", "1"],
        ["verify", url, url + "&x=1", "--decode", "--json", "--workers", "2"],
    ],
    "index": lambda url: [["index", url, "--out", "files.gpindex"], ["index", url, "--json"]],
    "pack": lambda url: [["pack", url, "shards", "--shards", "1"]],
    "explain": lambda url: [["explain", "chain.py:ds"], ["explain", "chain.py:ds", "--json"], ["explain", "bad.py:ds"]],
    "preview": lambda url: [["preview", url, "--rows", "1"], ["preview", url, "--json", "--out", "preview.png"]],
    "doctor": lambda url: [["doctor", "--json"]],
    "completion": "takes no data",
}


SECONDS = {
    "doctor": {"missing", "forbidden", "busy", "short", "no http", "damaged"},
    "compare": {"forbidden", "busy", "short", "no http"},
    "bench": {"forbidden", "busy", "short", "no http"},
}
"""Failures that are left out, as they take as long as the others."""


def test_every_command_is_in_the_table() -> None:
    assert list(COMMAND_LINES) == list(COMMANDS)


@pytest.mark.parametrize("fault", [*FAULTS, "damaged"])
@pytest.mark.parametrize("name", [name for name, lines in COMMAND_LINES.items() if callable(lines)])
def test_no_command_shows_or_writes_them(
    name: str,
    fault: str,
    tmp_path: Path,
    said: Said,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if fault in SECONDS.get(name, ()):
        pytest.skip("takes seconds")
    monkeypatch.setenv("HTTPS_PROXY", f"http://{USER}:{PASSWORD}@127.0.0.1:1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SIGNATURE)
    lines, path = COMMAND_LINES[name], tmp_path / "data" / "a.tfrecord"
    assert callable(lines)
    _tfrecord(path)
    if fault == "damaged":
        path.write_bytes(path.read_bytes()[:-1000])
    kind = FAULTS.get(fault)
    with Faulty(tmp_path / "data", fault=lambda n: kind, looking=lambda n: kind).serving() as server:
        url = url_of(server, "a.tfrecord")
        for file, text in {"chain.py": f"ds = gp.TFRecordDataset({url!r})", "bad.py": f"gp.load({url!r}\n"}.items():
            folder = tmp_path / "data"
            (folder / file).write_text(f"import gpupipe as gp\n{text}\n")
        for line in [*lines(url), [name, url, url, f"--nothing={url}"]]:
            status = _run([str(tmp_path / "data" / word) if ".py:" in word else word for word in line])
            if fault == "good" and name not in ("index", "pack", "doctor") and not line[-1].startswith(("--n", "bad")):
                assert status == 0
            printed = capfd.readouterr()
            said.add(f"{line[0]}: stdout", printed.out)
            said.add(f"{line[0]}: stderr", printed.err)


def _run(line: list[str]) -> int:
    try:
        return main(line)
    except SystemExit as error:  # of argparse, which has said why
        assert error.code == 2
        return 2


WRITERS = {
    "gpupipe/cli/__init__.py": "to /dev/null",
    "gpupipe/comparison/contestants.py": "the log of a process: compare",
    "gpupipe/comparison/measure.py": "pixels: compare",
    "gpupipe/comparison/page/write.py": "compare --html",
    "gpupipe/comparison/sheet.py": "preview, inspect --thumbnails",
    "gpupipe/comparison/usage/process.py": "a number, to the system",
    "gpupipe/extract/records/index.py": "offsets of a local file",
    "gpupipe/extract/records/manifest_writer.py": "index",
    "gpupipe/extract/records/writer.py": "what the user writes",
    "gpupipe/extract/storage/replacing.py": "what others write",
    "gpupipe/extract/storage/temporary.py": "what others write",
    "gpupipe/flow/bad/records.py": "Options.error_manifest",
    "gpupipe/load/save.py": "save",
    "gpupipe/profile/picture.py": "the names of steps, as chrome_trace",
    "gpupipe/profile/trace.py": "chrome_trace",
    "gpupipe/serial/elements_writer.py": "cache, snapshot, save",
    "gpupipe/tools/manifest.py": "verify --manifest",
    "gpupipe/tools/pack/journal.py": "pack, of local files",
    "gpupipe/tools/pack/parquet.py": "pack, of local files",
    "gpupipe/tools/pack/shard.py": "pack, of local files",
    "gpupipe/tools/spread.py": "to /dev/null",
}
"""Files of the source that write files -> by what they are tested here, or why they hold no name of a remote file."""

_CALLS = {"write_text", "write_bytes", "replacing", "savez", "FileIO", "fdopen", "mkstemp", "NamedTemporaryFile"}
_MODES = {"w", "wb", "ab", "a", "rb+", "r+b", "r+", "x", "xb", "x+b", "w+b"}


def test_everything_that_writes_files_is_in_the_table() -> None:
    found = set()
    for path in sorted((ROOT / "gpupipe").rglob("*.py")):
        if "guide" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func).split(".")[-1]
            constants = {one.value for one in ast.walk(node) if isinstance(one, ast.Constant)}
            flags = {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)}
            opens = called == "open" and (constants & _MODES or flags & {"O_WRONLY", "O_RDWR"})
            if called in _CALLS or opens:
                found.add(path.relative_to(ROOT).as_posix())

    assert found == set(WRITERS)
