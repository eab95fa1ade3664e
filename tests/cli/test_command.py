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
from tests.cli.commands import ROOT, Cli, ended, started

ESCAPES = "\x1b[31mred\x1b]0;title\x07\x9b1m"
ODD = ["\x1b[31mred\x1b]0;title\x07", "a\nb", "lat\udce9in", "é"]

pytestmark = pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="file names are text there")


def _photographs(folder: str, names: list[str]) -> str:
    for number, name in enumerate(names):
        path = Path(folder, name, f"{name}.jpg")
        path.parent.mkdir(parents=True)
        path.write_bytes(encode(take(number)[1]))
    return folder


COMMANDS: dict[str, tuple[int, Callable[[str, str], list[str]]]] = {
    "inspect": (0, lambda shard, out: ["inspect", shard, "--thumbnails", out]),
    "verify": (1, lambda shard, out: ["verify", shard, shard + "x", "--manifest", out]),
    "preview": (0, lambda shard, out: ["preview", shard, "--rows", "1", "--draws", "1", "--out", out]),
    "pack": (0, lambda shard, out: ["pack", _photographs(out + "in", [ESCAPES]), out, "--shards", "1"]),
    "explain": (1, lambda shard, out: ["explain", f"{shard}.py:ds"]),
    "wrong path": (2, lambda shard, out: ["verify", out]),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_no_name_of_a_file_can_control_a_terminal(name: str, tmp_path: Path, cli: Cli) -> None:
    shard = write_shards(tmp_path, 3, 1)[0].rename(tmp_path / f"{ESCAPES}.tfrecord")
    Path(f"{shard}x").write_bytes(shard.read_bytes()[:-5])
    Path(f"{shard}.py").write_text('raise ValueError("\\x1b[31mred")')
    wanted, arguments = COMMANDS[name]

    status, out, err = cli(*arguments(str(shard), str(tmp_path / f"{ESCAPES}.out")))

    assert status == wanted, out + err
    assert "\\x1b[31mred" in out + err
    assert (out + err).replace("\n", "").isprintable()


def test_every_name_can_be_printed_on_every_terminal(tmp_path: Path) -> None:
    write_shards(tmp_path, 1, 1)[0].rename(tmp_path / f"{''.join(ODD)}.tfrecord")

    status, out, err = ended(started("inspect", ".", cwd=tmp_path, PYTHONIOENCODING="ascii:strict"))

    assert (status, err) == (0, "")
    assert "\\x1b[31mred\\x1b]0;title\\x07a\\nblat\\xe9in\\xe9.tfrecord: 1 readable record" in out.splitlines()[0]


@pytest.mark.parametrize("words", ["demo --data", "compare", "bench", "preview", "explain", "pack --shards 1 out"])
def test_a_pattern_that_the_shell_expanded_is_named(words: str, tmp_path: Path, cli: Cli) -> None:
    paths = [str(path) for path in write_shards(tmp_path, 2, 2)]

    said = f"several paths, {paths[1]!r} is one too many; quote a pattern, or name the folder\n"
    assert cli(*words.split(), *paths) == (2, "", f"gpupipe {words.split()[0]}: {said}")


@pytest.mark.parametrize("words", ["doctor nothing-there", "bench x --siz 8 --colour here"])
def test_other_words_too_many_are_unrecognized(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words.split())
    unknown = words.removeprefix("doctor ").removeprefix("bench x --siz 8 ")
    assert f"error: unrecognized arguments: {unknown}" in capsys.readouterr().err


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

    assert (done.returncode, done.stderr) == (0, b"")
    assert bool(done.stdout) == (stream == "stderr")


def test_ctrl_c_while_a_subcommand_is_imported_is_one_line(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(gpupipe.cli, "command", interrupted)

    assert cli("inspect", "x") == (130, "", "gpupipe: interrupted\n")


def test_ctrl_c_while_a_dataclass_is_made_has_the_same_status(tmp_path: Path) -> None:
    (tmp_path / "PIL").mkdir()
    (tmp_path / "PIL/__init__.py").write_text("exec('raise KeyboardInterrupt')")  # as dataclasses and namedtuple do

    assert ended(started("demo", cwd=tmp_path, first=tmp_path)) == (130, "", "gpupipe: interrupted\n")


def test_images_of_every_name_are_taken(tmp_path: Path, cli: Cli) -> None:
    words = ["--images", 4, "--executor", "numpy", "--size", 32, "--out", tmp_path / f"{ESCAPES}.png"]

    status, out, err = cli("demo", "--data", _photographs(str(tmp_path / "photographs"), ODD), *words)

    assert status == 0, err
    assert "4 images a pass" in out
    assert (out + err).replace("\n", "").isprintable()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
@pytest.mark.parametrize("command", ["demo --data", "preview", "pack"])
def test_a_pipe_is_not_waited_for(tmp_path: Path, command: str, cli: Cli) -> None:
    os.mkfifo(tmp_path / "a.tfrecord")
    more = [tmp_path / "out", "--shards", 1] if command == "pack" else []

    status, _, err = cli(*command.split(), tmp_path / "a.tfrecord", *more)

    assert status == 2
    assert "which is no file" in err
