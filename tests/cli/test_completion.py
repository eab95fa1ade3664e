"""`gpupipe completion`: the scripts, run by the shells that they are for, in a terminal."""

from __future__ import annotations

import argparse
import os
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpupipe.cli import COMMANDS
from gpupipe.tools.completion import SHELLS, completion
from tests.cli.commands import Cli

STARTED = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], "bind 'set enable-bracketed-paste off'; source ./script"),
    "zsh": (["zsh", "-f", "-i"], "autoload -U compinit; compinit -u -D; source ./script"),
    "fish": (["fish", "--no-config", "-i"], "source ./script"),
}
TERMINAL_ANSWER = b"\x1b[?64c"  # fish asks the terminal what it is, and waits for the answer


def completed(shell: str, folder: Path, keys: str, wanted: str) -> str:
    """Type into a shell in a terminal, press Tab, and return what the terminal shows once `wanted` is there."""
    import pty

    command, setup = STARTED[shell]
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(folder)
        os.execvpe(command[0], command, {**os.environ, "TERM": "xterm", "PS1": "$ ", "HOME": str(folder)})
    try:
        os.write(terminal, f"{setup}; echo re''ady\n".encode())
        _read(terminal, "ready")
        os.write(terminal, keys.encode())
        return _read(terminal, wanted)
    finally:
        os.kill(process, 9)
        os.waitpid(process, 0)
        os.close(terminal)


def _read(terminal: int, wanted: str, seconds: float = 20.0) -> str:
    seen, end = b"", time.monotonic() + seconds
    while time.monotonic() < end:
        if select.select([terminal], [], [], 0.1)[0]:
            got = os.read(terminal, 4096)
            if b"\x1b[c" in got or b"\x1b[0c" in got:
                os.write(terminal, TERMINAL_ANSWER)
            seen += got
        text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", seen.decode(errors="replace"))
        if wanted in text:
            return text
    return seen.decode(errors="replace")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo-terminals")
@pytest.mark.parametrize("shell", sorted(SHELLS))
@pytest.mark.parametrize(
    ("keys", "wanted"),
    [
        ("gpupipe doc\t", "gpupipe doctor "),
        ("gpupipe d\t\t", "doctor"),
        ("gpupipe demo --ima\t", "demo --images "),
        ("gpupipe demo --executor num\t", "--executor numpy "),
        ("gpupipe completion fi\t", "completion fish "),
        ("gpupipe preview my-\t", "preview my-data.tfrecord"),
    ],
    ids=["command", "commands", "option", "choice", "argument", "file"],
)
def test_a_tab_completes(tmp_path: Path, cli: Cli, shell: str, keys: str, wanted: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "script").write_text(cli("completion", shell)[1])
    (tmp_path / "my-data.tfrecord").touch()

    shown = completed(shell, tmp_path, keys, wanted)

    assert wanted in shown and ("demo" in shown or not keys.endswith("\t\t"))


def _readable(shell: str, script: str, folder: Path) -> None:
    if shutil.which(shell) is not None:
        (folder / "script").write_text(script)
        subprocess.run([shell, "-n", str(folder / "script")], check=True, timeout=30)


@pytest.mark.parametrize("shell", sorted(SHELLS))
def test_a_script_has_every_subcommand_and_its_shell_can_read_it(tmp_path: Path, cli: Cli, shell: str) -> None:
    status, script, _ = cli("completion", shell)

    assert status == 0 and all(re.search(rf"\b{name}\b", script) for name in COMMANDS)
    _readable(shell, script, tmp_path)


@pytest.mark.parametrize("shell", sorted(SHELLS))
def test_help_texts_of_any_kind_are_quoted(tmp_path: Path, shell: str) -> None:
    parser = argparse.ArgumentParser(prog="it")
    one = parser.add_subparsers().add_parser("one", help='it\'s [one]: a $HOME `b` \\ "c"')
    one.add_argument("--two", type=int, default=3, help="100%% of it's [two]: $HOME (default: %(default)s)")
    one.add_argument("files", nargs="*", help="it's files")
    script = completion(shell, parser)

    assert "--two" in script or "-l two" in script
    if shell != "bash":  # which shows no help texts
        assert "(default: 3)" in script.replace("\\", "")
        assert {"zsh": "it'\\''s [one]: a $HOME `b` ", "fish": "-d 'it\\'s [one]: a $HOME `b` "}[shell] in script
    _readable(shell, script, tmp_path)
