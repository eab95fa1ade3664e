"""explain: `gpupipe explain`, how a chain of the user's will run."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from gpupipe.tools.users_file import find_dataset

__all__ = ["DESCRIPTION", "EXAMPLES", "add_arguments", "run"]

DESCRIPTION = """\
Print a dataset's chain as written and as it will run on this machine, and what in it is probably a mistake. The
file is imported, so that blocks below `if __name__ == "__main__":` do not run; the dataset is not iterated over."""

EXAMPLES = (
    "gpupipe explain train.py:ds",
    "gpupipe explain train.py:make_dataset",
    "gpupipe explain my_package.input:train --json",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `gpupipe explain`."""
    parser.add_argument(
        "dataset",
        metavar="FILE.py:NAME",
        help="a dataset, or a function that returns one without arguments; MODULE:NAME works, too",
    )
    parser.add_argument("--json", action="store_true", help="print JSON: the text, and the findings one by one")


def run(parsed: argparse.Namespace) -> int:
    """Run `gpupipe explain`."""
    dataset = find_dataset(parsed.dataset)
    text = str(dataset.explain())  # its last part is what `check` finds
    if parsed.json:
        findings = [asdict(finding) for finding in dataset.check()]
        print(json.dumps({"dataset": parsed.dataset, "explanation": text, "findings": findings}, indent=2))
    else:
        print(text)
    return 0
