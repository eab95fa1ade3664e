"""python -m tests.release: build a wheel and a source archive of HEAD, and try both in empty environments.

They are built twice and must have the same bytes, hold what they should and nothing else, have metadata that an index
accepts, and run the README's chain on every Python from 3.10 on that is found on this machine, with NumPy as executor.
What passes is written to dist/, and nothing is uploaded.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests import readme_chain
from tests.release.build import ROOT, build_twice, changed
from tests.release.contents import names_in, wrong
from tests.release.pythons import MINORS, find, try_in


def main() -> int:
    """Build, check and try; answer 1 if anything is wrong."""
    for line in changed():
        print(f"not released, as it is not in the commit: {line}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        archives = build_twice(folder)
        print("two builds in different places: the same bytes")
        for archive in archives:
            print(f"  {archive.name}: {archive.stat().st_size // 1024} KB, {len(names_in(archive))} files")
        problems = [problem for archive in archives for problem in wrong(archive, folder / "a" / "gpupipe")]
        checked = subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *map(str, archives)], check=False)
        if problems or checked.returncode:
            print("\n".join(problems), file=sys.stderr)
            return 1
        if _try_all(archives, folder):
            return 1
        dist = ROOT / "dist"
        shutil.rmtree(dist, ignore_errors=True)
        dist.mkdir()
        for archive in archives:
            shutil.copy(archive, dist)
    print(f"in dist/: {', '.join(archive.name for archive in archives)}")
    return 0


def _try_all(archives: tuple[Path, Path], folder: Path) -> bool:
    """Try each archive on each Python; print a line for each, and answer whether one failed."""
    found, shards = find(), readme_chain.draw(folder / "drawn")
    with ThreadPoolExecutor(2) as pool:
        running = {
            (minor, archive.name): pool.submit(try_in, python, archive, shards, folder / f"{minor}{archive.suffix}")
            for minor, python in found.items()
            for archive in archives
        }
        for (minor, name), answer in running.items():
            error = answer.result()
            said = error or "installed alone, and runs the chain of the README"
            print(f"Python 3.{minor}, {name}: {said}", flush=True)
    for minor in MINORS:
        if minor not in found:
            print(f"Python 3.{minor}: not found on this machine, so not tried")
    return not found or any(answer.result() for answer in running.values())


if __name__ == "__main__":
    sys.exit(main())
