"""Days of parts made for a test, whose questions end in many ways."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import __main__ as command
from benchmarks.gpu_day import run

__all__ = ["PART", "Write", "call", "ended", "lines", "started"]

PART = """
import os, signal, subprocess, sys, time
from pathlib import Path
from benchmarks.gpu_day.plan import Part

PART = Part({name!r}, "a part of a test", {seconds}, {each}, least=0, needs=(), gpu="no")
HERE = Path(__file__).parent


def note(name):
    with open(HERE / "asked", "a") as file:
        print(name, file=file)


def questions(day):
    def ask(name, do):
        def asked():
            note(name)
            return do()
        return asked

    def raises():
        raise ValueError("no such kernel")

    def hangs():
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
        (HERE / "child").write_text(str(child.pid))
        time.sleep(100)

    def slow():
        if not (HERE / "quick").exists():
            time.sleep(100)
        return "slow"

    kinds = {{
        "fine": lambda: 1,
        "raises": raises,
        "crashes": lambda: os.kill(os.getpid(), signal.SIGSEGV),
        "exits": lambda: os._exit(3),
        "leaves": lambda: os._exit(0),
        "hangs": hangs,
        "slow": slow,
        "no JSON": lambda: [object, {{"a": 1}}],
        "last": lambda: 2,
        "places": lambda: [sys.prefix + "/lib", str(Path.home() / "x")],
    }}
    {prelude}
    return {{name: ask(name, kinds[name]) for name in {asks!r}}}


def summary(answers):
    return [f"{{name}}: {{value}}" for name, value in answers.items()]
"""

Write = Callable[..., Path]


def call(tmp_path: Path, *words: str) -> int:
    return command.main(["gpu-day", "--out", str(tmp_path / "out"), *words])


def lines(tmp_path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tmp_path / "out" / "gpu-day.jsonl").read_text().splitlines()]


def ended(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


def started(
    folder: Path,
    tmp_path: Path,
    *words: str,
    at: str = "slow",
    stdout: int = subprocess.DEVNULL,
    stderr: int = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    """The command with one part, `first`, in a process of its own that is at the question `at`, if any."""
    script = (
        f"import sys; from benchmarks.gpu_day import parts, plan, run; parts.__path__ = [{str(folder)!r}]; "
        f"plan.ORDER = ('first',); run.CHILD = {run.CHILD!r}; from benchmarks.__main__ import main; "
        f"sys.exit(main(['gpu-day', '--out', {str(tmp_path / 'out')!r}, *sys.argv[1:]]))"
    )
    process = subprocess.Popen([sys.executable, "-c", script, *words], stdout=stdout, stderr=stderr)
    while at and (not (folder / "asked").exists() or at not in (folder / "asked").read_text()):
        time.sleep(0.05)
    return process
