"""What holds for every subcommand: what is printed, and how it ends."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import gpupipe.cli
from gpupipe.cli import main
from gpupipe.comparison.photographs import encode, take, write_shards
from tests.cli.commands import ROOT, ended, started

ESCAPES = "\x1b[31mred\x1b]0;title\x07\x9b1m"

ODD = ["\x1b[31mred\x1b]0;title\x07", "a\nb", "lat\udce9in", "é"]

pytestmark = pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="file names are text there")


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    """A shard with a name that could control a terminal."""
    (path,) = write_shards(tmp_path, 3, 1)
    return path.rename(tmp_path / f"{ESCAPES}.tfrecord")


def _photographs(folder: Path, names: list[str]) -> Path:
    for number, name in enumerate(names):
        (folder / name).mkdir(parents=True)
        shot, pixels = take(number)
        (folder / name / f"{name}.jpg").write_bytes(encode(pixels, shot.quality))
    return folder


COMMANDS: dict[str, tuple[int, Callable[[str, str], list[str]]]] = {
    "inspect": (0, lambda shard, out: ["inspect", shard, "--thumbnails", out]),
    "verify": (1, lambda shard, out: ["verify", shard, shard + "x", "--manifest", out]),
    "preview": (0, lambda shard, out: ["preview", shard, "--rows", "1", "--draws", "1", "--out", out]),
    "pack": (0, lambda shard, out: ["pack", str(_photographs(Path(out + "in"), [ESCAPES])), out, "--shards", "1"]),
    "explain": (1, lambda shard, out: ["explain", f"{shard}.py:ds"]),
    "wrong path": (2, lambda shard, out: ["verify", out]),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_no_name_of_a_file_can_control_a_terminal(
    name: str, tmp_path: Path, shard: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(f"{shard}x").write_bytes(shard.read_bytes()[:-5])
    Path(f"{shard}.py").write_text('raise ValueError("\\x1b[31mred")')
    wanted, arguments = COMMANDS[name]

    status = main(arguments(str(shard), str(tmp_path / f"{ESCAPES}.out")))

    said = capsys.readouterr()
    text = said.out + said.err
    assert status == wanted, text
    assert "\\x1b[31mred" in text
    assert text.replace("\n", "").isprintable()


def test_every_name_can_be_printed_on_every_terminal(tmp_path: Path) -> None:
    write_shards(tmp_path, 1, 1)[0].rename(tmp_path / f"{''.join(ODD)}.tfrecord")

    status, out, err = ended(started("inspect", ".", cwd=tmp_path, PYTHONIOENCODING="ascii:strict"))

    assert (status, err) == (0, "")
    assert "\\x1b[31mred\\x1b]0;title\\x07a\\nblat\\xe9in\\xe9.tfrecord: 1 readable record" in out.splitlines()[0]


@pytest.mark.parametrize("words", ["demo --data", "compare", "bench", "preview", "explain", "pack --shards 1 out"])
def test_a_pattern_that_the_shell_expanded_is_named(
    words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [str(path) for path in write_shards(tmp_path, 2, 2)]

    assert main([*words.split(), *paths]) == 2

    name = words.partition(" ")[0]
    expected = f"gpupipe {name}: several paths, {paths[1]!r} is one too many; quote a pattern, or name the folder\n"
    assert capsys.readouterr() == ("", expected)


def test_other_words_too_many_are_unrecognized(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["doctor", "nothing-there"], ["bench", "x", "--siz", "8", "--colour", os.getcwd()]):
        with pytest.raises(SystemExit, match="2"):
            main(words)
        assert f"error: unrecognized arguments: {' '.join(words[-2 if '--colour' in words else -1 :])}" in (
            capsys.readouterr().err
        )


@pytest.mark.parametrize(
    ("stream", "arguments"),
    [("stdout", ["inspect"]), ("stderr", ["bench", "--executor", "numpy", "--size", "32"])],
    ids=["stdout", "stderr"],
)
def test_a_closed_stream_is_a_silent_one(stream: str, arguments: list[str], tmp_path: Path) -> None:
    (shard,) = write_shards(tmp_path, 4, 1)
    words = [sys.executable, "-m", "gpupipe.cli", *arguments, str(shard)]
    command = f"exec {shlex.join(words)} {'>&-' if stream == 'stdout' else '2>&-'}"

    done = subprocess.run(["sh", "-c", command], env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True)

    assert done.returncode == 0, done.stderr
    assert done.stderr == b""
    assert bool(done.stdout) == (stream == "stderr")


def test_ctrl_c_while_a_subcommand_is_imported_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(gpupipe.cli, "command", interrupted)

    assert main(["inspect", "x"]) == 130
    assert capsys.readouterr() == ("", "gpupipe: interrupted\n")


def test_ctrl_c_while_a_dataclass_is_made_has_the_same_status(tmp_path: Path) -> None:
    (tmp_path / "PIL").mkdir()
    (tmp_path / "PIL/__init__.py").write_text("exec('raise KeyboardInterrupt')")  # as dataclasses and namedtuple do

    assert ended(started("demo", cwd=tmp_path, first=tmp_path)) == (130, "", "gpupipe: interrupted\n")


def test_images_of_every_name_are_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, out = str(_photographs(tmp_path / "photographs", ODD)), str(tmp_path / f"{ESCAPES}.png")

    status = main(["demo", "--data", folder, "--images", "4", "--executor", "numpy", "--size", "32", "--out", out])

    said = capsys.readouterr()
    assert status == 0, said.err
    assert "4 images a pass" in said.out
    assert (said.out + said.err).replace("\n", "").isprintable()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
@pytest.mark.parametrize("command", ["demo --data", "preview", "pack"])
def test_a_pipe_is_not_waited_for(tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "a.tfrecord")
    more = [str(tmp_path / "out"), "--shards", "1"] if command == "pack" else []

    assert main([*command.split(), str(tmp_path / "a.tfrecord"), *more]) == 2
    assert ("which is no file" if more else "a regular file is needed, got a FIFO") in capsys.readouterr().err
