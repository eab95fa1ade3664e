"""every: all suites one after another, each with its documented number of pairs; what is done is not run again.

A suite is done when the folder `--out` has a result of it that names this commit, without changes: after an
interruption the same command goes on with what is left. Another commit, or changed files, start anew.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import tied
from benchmarks.machine import commit, gpus

__all__ = ["PLAN", "Suite", "add_options", "done", "left", "run_suite"]

_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Suite:
    """One command of `python -m benchmarks`, and how it is tried.

    Attributes:
        name: of the suite in the plan, kept in its result as "suite".
        words: the command and its options.
        minutes: about how long it takes on 2 cores; a guess.
        tiny: the options of a trial.
        gpu: whether it needs one.
    """

    name: str
    words: tuple[str, ...]
    minutes: int
    tiny: tuple[str, ...] = ()
    gpu: bool = False


_ONE = ("--pairs", "1")
_SHORT = (*_ONE, "--batch", "16", "--batches", "2", "--warmup", "1", "--shuffle", "16", "--probes", "1", "--dry")
_NUMPY = ("--contestants", "gpupipe-numpy")
_LARGE = ("--batch", "32", "--batches", "8", "--warmup", "3", "--shuffle", "64")
_TINY = (*_SHORT, "--contestants", "gpupipe-numpy")
_TINY_PLAIN = (*_SHORT, "--contestants", "plain-gpupipe-numpy")

_TAKE_DATA = (
    "chain",
    "extract",
    "on-error",
    "first-batch",
    "cores",
    "gil",
    "training",
    "decode",
    "overhead",
    "prepared",
    "on-ray",
)

PLAN = (
    Suite("first-batch", ("first-batch",), 10, (*_ONE, "--shuffle", "16", *_NUMPY)),
    Suite("decode", ("decode",), 4, (*_ONE, "--images", "1", "--sizes", "0.2 MP", "--contestants", "gpupipe-numpy")),
    Suite("augment", ("augment",), 6, (*_ONE, "--seconds", "0.1", "--only", "blur")),
    Suite("extract", ("extract",), 10, (*_SHORT, "--contestants", "gpupipe-extract")),
    Suite("cold", ("cold",), 10, (*_ONE, "--records", "64", "--shuffle", "16", "--contestants", "gpupipe")),
    Suite("chain", ("chain", "--contestants", "all"), 60, _TINY),
    Suite("chain at 1 MP", ("chain", "--megapixels", "1", *_LARGE), 30, _TINY),
    Suite("chain at 3 MP", ("chain", "--megapixels", "3", *_LARGE), 45, (*_TINY, "--batch", "8")),
    Suite("chain, no antialias", ("chain", "--plain"), 20, _TINY_PLAIN),
    Suite("chain, no antialias, 1 MP", ("chain", "--plain", "--megapixels", "1", *_LARGE), 25, _TINY_PLAIN),
    Suite("chain, no antialias, 3 MP", ("chain", "--plain", "--megapixels", "3", *_LARGE), 40,
          (*_TINY_PLAIN, "--batch", "8")),
    Suite("whole images", ("chain", "--uncropped", "resize"), 20,
          (*_SHORT, "--contestants", "resize-numpy")),
    Suite("whole images, no antialias", ("chain", "--uncropped", "linear"), 15,
          (*_SHORT, "--contestants", "linear-numpy")),
    Suite("whole images, the middle", ("chain", "--uncropped", "center"), 20,
          (*_SHORT, "--contestants", "center-numpy")),
    Suite("cores", ("cores",), 25, (*_ONE, "--batches", "2", "--shuffle", "16", "--probes", "1", "--dry", "--cores",
                                    "1", *_NUMPY)),
    Suite("gil", ("gil",), 4, (*_ONE, "--numbers", "1,2", "--contestants", "numpy")),
    Suite("training", ("training",), 40, (*_SHORT, "--steps", "20", *_NUMPY)),
    Suite("cifar", ("cifar",), 20, (*_ONE, "--images", "512", "--contestants", "cifar-gpupipe")),
    Suite("flowers", ("flowers",), 30, (*_ONE, "--images", "20", "--contestants", "flowers-gpupipe-numpy")),
    Suite("shuffle-memory", ("shuffle-memory",), 3, ("--records", "1200", "--shuffle", "100",
                                                     "--contestants", "gpupipe-after")),
    Suite("host", ("host",), 15, (*_ONE, "--elements", "20000", "--chains", "batch", "--contestants", "gpupipe-host")),
    Suite("on-error, DALI", ("on-error",), 8, _SHORT),
    Suite("on-error, NumPy", ("on-error", "--backend", "numpy"), 8, _SHORT),
    Suite("approximate", ("approximate",), 30, (*_SHORT, "--batch", "8", "--contestants", "gpupipe-fast-smaller")),
    Suite("overhead", ("overhead",), 6, (*_SHORT, "--contestants", "fast-chain,fast-memory")),
    Suite("prepared", ("prepared",), 20, (*_SHORT, "--contestants", "prepared-decoded")),
    Suite("profile", ("profile",), 20, (*_ONE, "--plants", "slow decode")),
    Suite("commands", ("commands",), 15, (*_ONE, "--images", "8", "--records", "400")),
    Suite("requests", ("requests",), 3, (*_ONE, "--images", "12")),
    Suite("autotune", ("autotune",), 20, (*_ONE, "--chains", "slow files", "--starts", "one reader", "--seconds", "1")),
    Suite("remote", ("remote",), 3, (*_ONE, "--latencies", "0", "--each", "2")),
    Suite("places", ("places",), 3, (*_ONE, "--files", "64", "--images", "64")),
    Suite("far", ("far",), 4, (*_ONE, "--records", "2000", "--windows", "2")),
    Suite("ranks", ("ranks",), 4, (*_ONE, "--kinds", "seed", "--ranks", "2")),
    Suite("on-ray", ("on-ray",), 10, (*_ONE, "--batches", "4", "--epochs", "1", "--kills", "0")),
    Suite("chain on a GPU", ("bench-gpu",), 9, (*_SHORT, "--contestants", "gpupipe-gpu"), gpu=True),
)  # fmt: skip


def add_options(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser("all", help="every suite, one after another; goes on with what is left")
    parser.set_defaults(run=_run)
    parser.add_argument(
        "--data", default="", help="TFRecord shards for the suites that take --data, but for large ones"
    )
    parser.add_argument("--only", default="", help="names of suites, separated by semicolons; default: all")
    parser.add_argument("--list", action="store_true", help="print what is done and what is left, and run nothing")
    parser.add_argument("--dry-run", action="store_true", help="try each suite with one tiny pair; keep no results")


def _run(options: argparse.Namespace, folder: Path) -> int:
    names = [name.strip() for name in options.only.split(";")] if options.only else [suite.name for suite in PLAN]
    if wrong := [name for name in names if name not in [suite.name for suite in PLAN]]:
        print(
            f"all: --only needs suites out of {'; '.join(s.name for s in PLAN)}, got {'; '.join(wrong)}",
            file=sys.stderr,
        )
        return 2
    plan = [suite for suite in PLAN if suite.name in names and (gpus() or not suite.gpu)]
    for suite in PLAN:
        if suite.gpu and suite.name in names and suite not in plan:
            print(f"{suite.name}: not measured, no NVIDIA GPU here")
    todo = plan if options.dry_run else left(plan, options.out, options.data)
    if not options.dry_run:
        say(plan, todo)
    if options.list:
        return 0
    failed = []
    for number, suite in enumerate(todo):
        start = time.monotonic()
        ok = run_suite(suite, options, folder)
        print(f"{suite.name}: {'done' if ok else 'FAILED'} after {time.monotonic() - start:.0f} s, "
              f"{len(todo) - number - 1} left", flush=True)  # fmt: skip
        if not ok:
            failed.append(suite.name)
    if failed:
        print(f"failed: {'; '.join(failed)}; the same command runs them again")
    return 2 if failed else 0


def say(plan: Sequence[Suite], todo: Sequence[Suite]) -> None:
    """Print what is done and what is left."""
    if commit().endswith("+changes"):
        print("files differ from the commit: nothing counts as done, and a later call starts anew")
    print(f"done: {'; '.join(suite.name for suite in plan if suite not in todo) or 'nothing'}")
    about = f", about {sum(suite.minutes for suite in todo)} minutes" if todo else ""
    print(f"left: {'; '.join(suite.name for suite in todo) or 'nothing'}{about}", flush=True)


def left(plan: Sequence[Suite], out: Path, data: str = "") -> list[Suite]:
    """The suites without a result of this commit; drawn photographs and `data` are two results."""
    found = done(out)
    return [suite for suite in plan if label(suite, data) not in found]


def label(suite: Suite, data: str) -> str:
    """What a result of a suite is kept as."""
    return f"{suite.name}, --data" if data and takes_data(suite) else suite.name


def takes_data(suite: Suite) -> bool:
    """Whether a suite is run on the shards that are given, which are not those of larger photographs."""
    return suite.words[0] in _TAKE_DATA and "--megapixels" not in suite.words


def done(out: Path) -> set[str]:
    """The suites with a result of this commit; none where files differ from it, or there is no git."""
    now = commit()
    if now == "unknown" or now.endswith("+changes"):
        return set()
    found = set()
    for path in out.glob("*.json"):
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:  # interrupted while it was written
            continue
        if isinstance(document, dict) and document.get("commit") == now and "suite" in document:
            found.add(document["suite"])
    return found


def run_suite(suite: Suite, options: argparse.Namespace, folder: Path) -> bool:
    """Run one suite in a process of its own; keep its result, which gets the suite's name, unless it is a trial.

    Returns:
        Whether it ended well with a result.
    """
    words = [*suite.words]
    words += ("--data", options.data) if options.data and takes_data(suite) else ()
    if "--contestants" in suite.tiny and options.dry_run and "--contestants" in words:
        words = words[: words.index("--contestants")]
    words += suite.tiny if options.dry_run else ()
    print(f"== {suite.name}: python -m benchmarks {' '.join(words)}", flush=True)
    with tempfile.TemporaryDirectory(dir=folder) as made, tempfile.TemporaryDirectory(dir=folder) as scratch:
        command = tied.command("benchmarks", *words, "--out", made, "--scratch", scratch)
        status = subprocess.run([*command, "--threads", str(options.threads)], cwd=_ROOT).returncode
        paths = list(Path(made).glob("*.json"))
        if status or not paths:
            return False
        if not options.dry_run:
            options.out.mkdir(parents=True, exist_ok=True)
            for path in paths:
                keep(path, label(suite, options.data), options.out)
    return True


def keep(path: Path, name: str, out: Path) -> Path:
    """Copy a result into a folder under a name that is free, with the suite's name in it."""
    text = path.read_text(encoding="utf-8")
    assert text.startswith("{\n")
    target, number = out / path.name, 1
    while target.exists():
        number += 1
        target = out / f"{path.stem}-{number}.json"
    part = target.with_suffix(".part")  # so that a result is whole or not there
    part.write_text(f'{{\n "suite": {json.dumps(name)},\n{text[2:]}', encoding="utf-8")
    part.rename(target)
    return target
