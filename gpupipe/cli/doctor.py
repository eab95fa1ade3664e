"""doctor: `gpupipe doctor`, what this machine can run, and what mends the rest."""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import textwrap
from collections.abc import Sequence
from dataclasses import asdict

import gpupipe
from gpupipe.progress import Progress
from gpupipe.tools.doctor.diagnose import Check, diagnose
from gpupipe.tools.doctor.facts import gather

__all__ = ["DESCRIPTION", "EXAMPLES", "add_arguments", "run"]

DESCRIPTION = """\
Look at the driver, the GPUs, DALI, nvImageCodec, CuPy and the limits of this machine or container, decode two
images on every executor, and print the command that mends each problem. The exit status is 1 if something is
broken; a machine without a GPU is not."""

EXAMPLES = ("gpupipe doctor", "gpupipe doctor --json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `gpupipe doctor`."""
    parser.add_argument("--json", action="store_true", help="print JSON: what was found, and what it means")


def run(parsed: argparse.Namespace) -> int:
    """Run `gpupipe doctor`."""
    with Progress() as progress:
        progress.start("looking at this machine")
        facts = gather(lambda done, total: progress.update(done, total, "probes"))
    checks = diagnose(facts)
    broken = any(check.status == "problem" for check in checks)
    versions = {"gpupipe": gpupipe.__version__, "python": platform.python_version(), "system": facts.system}
    if parsed.json:
        found = {"checks": [asdict(check) for check in checks], "facts": asdict(facts)}
        print(json.dumps(versions | {"broken": broken} | found, indent=2))
    else:
        print(f"gpupipe {versions['gpupipe']}, Python {versions['python']}, {facts.system}\n")
        print(_table(checks))
    return 1 if broken else 0


def _table(checks: Sequence[Check]) -> str:
    """Lay the checks out in lines as wide as the terminal; commands stay whole, to be copied."""
    width = max(60, min(120, shutil.get_terminal_size((100, 24)).columns))
    names = max(len(check.name) for check in checks)
    indent = " " * (9 + names + 2)
    lines = []
    for check in checks:
        head = f"{check.status:<9}{check.name:<{names}}  "
        lines.append(textwrap.fill(head + check.text, width, subsequent_indent=indent, break_on_hyphens=False,
                                   break_long_words=False))  # fmt: skip
        if check.command:
            lines.append(f"{indent}$ {check.command}")
    counts = {status: sum(check.status == status for check in checks) for status in ("problem", "warning")}
    said = ", ".join(f"{count} {status}{'s' * (count > 1)}" for status, count in counts.items() if count)
    return "\n".join([*lines, "", said or "all is well"])
