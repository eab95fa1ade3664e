"""python -m tests.breaks: plant mistakes in a copy of HEAD, one at a time, and see whether the tests find each of them.

`breaks.json` lists the mistakes: in a file some lines, which are there once, become others. The tests of a mistake's
folders run first, all others only where those find nothing. What was found is written after each mistake, and is not
run again for the same commit. Answers 0 if enough were found, 1 if not, 2 if the tests fail without any mistake.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

Break = Mapping[str, Any]
"""One entry of `breaks.json`."""

BASELINE: Break = {"name": "baseline", "folders": []}
ONE_IN = 20  # mistakes may stay unfound in the quick tier; in the other, none
NO_TESTS = 5  # pytest's exit status where it selects none, as may be of one folder

_RED = re.compile(r"^(?:FAILED|ERROR) (tests/[^\[\s]+(?:\[.*?\])?)(?: - .*)?$", re.MULTILINE)


@contextlib.contextmanager
def cloned(checkout: Path) -> Iterator[tuple[Path, str]]:
    """A clone of a checkout's HEAD in a temporary folder, and its commit; nothing is written to the checkout."""
    with tempfile.TemporaryDirectory(prefix="gpupipe-breaks-", ignore_cleanup_errors=True) as folder:
        copy = Path(folder) / "copy"
        git = ["git", "-c", "safe.directory=*"]
        subprocess.run([*git, "clone", "-q", "--shared", "--no-tags", str(checkout.resolve()), str(copy)], check=True)
        commit = subprocess.run([*git, "rev-parse", "HEAD"], cwd=copy, check=True, capture_output=True, text=True)
        yield copy, commit.stdout.strip()


@contextlib.contextmanager
def planted(copy: Path, one: Break) -> Iterator[None]:
    """One mistake in the copy, as long as the context lasts; its lines must be there once."""
    if one is BASELINE:
        yield
        return
    path, old, new = copy / one["file"], "\n".join(one["old"]), "\n".join(one["new"])
    text = path.read_text(encoding="utf-8")
    if text.count(old) != 1:
        raise SystemExit(f"{one['name']}: its lines are {text.count(old)} times in {one['file']}, needed once")
    path.write_text(text.replace(old, new), encoding="utf-8")
    try:
        yield
    finally:
        path.write_text(text, encoding="utf-8")


def tested(copy: Path, arguments: Sequence[str], limit: float) -> tuple[int | None, str]:
    """Run the tests of the copy on its own gpupipe; answer the exit status, None without an end, and the output."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as out:
        command, env = [sys.executable, "-m", "tests", *arguments], {**os.environ, "PYTHONPATH": str(copy)}
        process = subprocess.Popen(command, cwd=copy, env=env, stdout=out, stderr=out, start_new_session=True)
        status = None
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = process.wait(limit)
        finally:
            if status is None:
                _end(process)
        out.seek(0)
        return status, out.read()


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and the group that it leads: as Ctrl-C does, then at once."""
    os.killpg(process.pid, signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(30)
    with contextlib.suppress(ProcessLookupError):  # all of the group have ended
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def look_for(copy: Path, one: Break, tier: str, limit: float) -> dict[str, Any]:
    """Whether the tests find a mistake, by which test first, and after how many seconds."""
    rounds = [[*one["folders"]]] if one["folders"] else []
    rounds.append([f"--ignore={folder}" for folder in one["folders"]])
    started, found = time.monotonic(), ""
    with planted(copy, one):
        for arguments in rounds:
            status, output = tested(copy, ["-x", "-q", *["--all"] * (tier == "all"), *arguments], limit)
            red = None if status in (0, NO_TESTS) else _RED.search(output)
            if status not in (0, NO_TESTS, None) and red is None:
                raise SystemExit(f"{one['name']}: the tests ended with {status} and no failure:\n{output[-3000:]}")
            found = red[1] if red else f"no end within {limit:.0f} s" * (status is None)
            if found:
                break
    took = round(time.monotonic() - started, 1)
    return {"name": one["name"], "tier": tier, "red": red is not None, "test": found, "seconds": took}


def write(path: Path, results: Sequence[Mapping[str, Any]]) -> None:
    """Write the results, as a whole or not at all."""
    part = path.with_name(f".{path.name}.part")
    part.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    os.replace(part, path)


def main() -> int:
    """Plant what was asked for; print a table."""
    parser = argparse.ArgumentParser(prog="python -m tests.breaks", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[], help="these mistakes alone")
    parser.add_argument("--group", choices=("general", "removed"), help="the mistakes of one group alone")
    parser.add_argument("--tier", choices=("quick", "all"), default="quick", help="which tests (default: %(default)s)")
    parser.add_argument("--results", type=Path, default=Path(tempfile.gettempdir(), "gpupipe-breaks.json"))
    parser.add_argument("--checkout", type=Path, default=Path(__file__).resolve().parents[2], metavar="DIR")
    parser.add_argument("--timeout", type=float, default=5400, metavar="S", help="of one run of tests (%(default)s)")
    parser.add_argument("--baseline", action="store_true", help="first run the tests without any mistake")
    asked = parser.parse_args()
    with cloned(asked.checkout) as (copy, commit):
        breaks: list[Break] = json.loads((copy / "tests" / "breaks" / "breaks.json").read_text(encoding="utf-8"))
        names = asked.only or [one["name"] for one in breaks if asked.group in (None, one["group"])]
        if unknown := sorted({*names} - {one["name"] for one in breaks}):
            parser.error(f"there are no mistakes {', '.join(unknown)}")
        results = json.loads(asked.results.read_text(encoding="utf-8")) if asked.results.exists() else []
        rows: list[tuple[Break, dict[str, Any]]] = []
        for one in [BASELINE] * asked.baseline + [one for one in breaks if one["name"] in names]:
            before = [row for row in results if (row["name"], row["tier"]) == (one["name"], asked.tier)]
            found = before[0] if before and before[0]["commit"] == commit else None
            if found is None:
                found = {**look_for(copy, one, asked.tier, asked.timeout), "commit": commit}
                write(asked.results, results := [*(row for row in results if row not in before), found])
            print(f"{'red  ' if found['red'] else 'green'} {found['seconds']:>7} s  {one['name']}", flush=True)
            if one is not BASELINE:
                rows.append((one, found))
            elif found["test"]:
                print(f"the tests fail without any mistake: {found['test']}", file=sys.stderr)
                return 2
    print("\n" + "\n".join(f"{one['name']:<50} {one['kind']:<28} {row['test'] or '-'}" for one, row in rows))
    red, needed = sum(row["red"] for _, row in rows), len(rows) - len(rows) // ONE_IN * (asked.tier == "quick")
    print(f"{red} of {len(rows)} red in the tier {asked.tier!r}, needed {needed}")
    return int(red < needed)


if __name__ == "__main__":
    sys.exit(main())
