"""The coverage-guided run: `make fuzz`, or `python -m tests.fuzz.run [TARGET ...] [--runs N] [--seconds N] [--keep]`.

Each target runs in a process of its own: an input that raises anything but gpupipe's errors, takes more than a second
of processor time or brings the process above 256 MB ends it, and is left in build/fuzz/<target>/. `--keep` then takes
what was found into the saved corpus, as few and as small inputs as reach the same code.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import shlex
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha1
from pathlib import Path
from time import thread_time
from types import FunctionType
from zlib import crc32

from tests.fuzz.replay import CORPUS, TARGETS, arcs, inputs

WORK = Path("build/fuzz")
SLOW = 1.0  # seconds of this thread; libFuzzer's own limit is of the clock, which a busy machine exceeds
LIMITS = ("-timeout=20", "-rss_limit_mb=256", "-max_len=1024", "-print_final_stats=1")
OF_ARRAYS = ("_candidates", "varints", "_decoded", "_numbers", "check_scans", "find_header", "_as_signed")


def main() -> int:
    """Run the targets that are named, or all of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run")
    parser.add_argument("targets", nargs="*", help=f"of {', '.join(TARGETS)}; all of them unless given")
    parser.add_argument("--runs", type=int, default=10_000_000, help="executions of each target")
    parser.add_argument("--seconds", type=int, default=0, help="end each target after this time; 0: never")
    parser.add_argument("--keep", action="store_true", help="take what was found into the saved corpus")
    given = parser.parse_args()
    failed = []
    for target in given.targets or TARGETS:
        found = WORK / target / "corpus"
        found.mkdir(parents=True, exist_ok=True)
        print(f"== {target}: {given.runs} executions", flush=True)
        options = [f"-runs={given.runs}", f"-max_total_time={given.seconds}", f"-artifact_prefix={WORK / target}/"]
        if child(target, [str(found), str(CORPUS / target), *LIMITS, *options]):
            failed.append(target)
        elif given.keep:
            keep(target, found)
    if failed:
        print(f"failed: {', '.join(failed)}; the inputs are in {WORK}", file=sys.stderr)
    return bool(failed)


def child(target: str, arguments: list[str]) -> int:
    """Run libFuzzer on one target."""
    (CORPUS / target).mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.fuzz.run", "--child", target, *arguments]
    return subprocess.run(command, check=False).returncode


def fuzz(target: str, arguments: list[str]) -> None:
    """Instrument the parser alone, and hand the process over to libFuzzer; it does not come back."""
    import atheris

    patch_code = importlib.import_module("atheris.instrument_bytecode").patch_code
    # Not with `instrument_imports`: it takes in the packages above, and so all of gpupipe.
    for function in functions(TARGETS[target]):
        # Comparisons of arrays are not traced: atheris never lets go of the arrays.
        function.__code__ = patch_code(function.__code__, function.__name__ not in OF_ARRAYS)
    one = importlib.import_module(f"tests.fuzz.{target}").one  # afterwards: it keeps functions made by these

    def run(data: bytes) -> None:
        begin = thread_time()
        one(data, crc32(data) & 3 == 0)  # a quarter of them thoroughly: that is twice as many inputs
        took = thread_time() - begin
        assert took < SLOW, f"{took:.1f} s for {len(data)} bytes"

    gc.freeze()  # what is imported stays; no collection looks at it again
    # libFuzzer hands its first argument to a shell where it merges, once for each input that ends the process.
    atheris.Setup([shlex.join([sys.executable, "-m", "tests.fuzz.run", "--child", target]), *arguments], run)
    atheris.Fuzz()


def functions(modules: tuple[str, ...]) -> Iterator[FunctionType]:
    """The functions and methods that are written in some modules."""
    for name in modules:
        module = importlib.import_module(name)
        for thing in vars(module).values():
            for found in vars(thing).values() if isinstance(thing, type) else (thing,):
                function = getattr(found, "fget", found)
                if isinstance(function, FunctionType) and function.__code__.co_filename == module.__file__:
                    yield function


def keep(target: str, found: Path) -> None:
    """Merge what was found, then save the inputs that reach a branch none before does, small ones first.

    Those saved before are looked at too: libFuzzer is not told of the end of a loop, and merges away what reaches it.
    """
    merged = WORK / target / "merged"
    merged.mkdir(exist_ok=True)
    for old in merged.iterdir():
        old.unlink()
    child(target, ["-merge=1", *LIMITS, str(merged), str(CORPUS / target), str(found)])
    saved = CORPUS / target
    known: set[object] = set()
    chosen = {}
    for data in sorted([data for folder in (merged, saved) for _, data in inputs(folder)], key=len):
        new = arcs(target, data) - known
        if new:
            known |= new
            chosen[sha1(data).hexdigest()] = data
    for old in saved.iterdir():
        old.unlink()
    for name, data in chosen.items():
        (saved / name).write_bytes(data)
    print(f"== {target}: {len(chosen)} inputs are kept, {sum(map(len, chosen.values()))} bytes")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        fuzz(sys.argv[2], sys.argv[3:])
    sys.exit(main())
