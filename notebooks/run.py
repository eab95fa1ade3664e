"""run: execute the notebooks from top to bottom, each in a kernel of its own, within a time limit.

python notebooks/run.py                    run all of them; the files stay as they are
python notebooks/run.py 01 04              run some
python notebooks/run.py --write            run, and keep the outputs: without paths, times and metadata, pictures small
"""

from __future__ import annotations

import argparse
import base64
import importlib.metadata
import io
import os
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
LIMIT = 90
"""Seconds for a notebook, on two cores."""

METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"file_extension": ".py", "mimetype": "text/x-python", "name": "python"},
}


def main(arguments: Sequence[str]) -> int:
    """Run notebooks; answer 1 if one of them failed."""
    parser = argparse.ArgumentParser(description="Execute the notebooks.")
    parser.add_argument("names", nargs="*", help="beginnings of file names, such as 01; by default all")
    parser.add_argument("--write", action="store_true", help="keep the outputs in the files")
    parser.add_argument("--limit", type=float, default=LIMIT, help=f"seconds for a notebook, {LIMIT} by default")
    options = parser.parse_args(arguments)
    if options.write and os.environ.get("DATA"):
        parser.error("--write keeps outputs for everybody, and DATA is yours; run one without the other")
    books = [path for path in sorted(HERE.glob("*.ipynb")) if path.name.startswith(tuple(options.names) or "")]
    if not books:
        parser.error(f"no notebook is called {' or '.join(options.names) or '*.ipynb'}")
    if data := os.environ.get("DATA"):  # kernels start in the folder of the notebooks
        os.environ["DATA"] = os.path.abspath(os.path.expanduser(data))
    print(f"{len(books)} notebooks; {installed()}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["IPYTHONDIR"] = folder  # neither the history nor the start-up files of whoever runs this
        failed = [path.name for path in books if not run(path, options.limit, options.write)]
    if failed:
        print(f"failed: {' '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def installed() -> str:
    """The optional packages of this environment, with their versions."""
    found = {
        dist.metadata["Name"].lower().replace("_", "-"): dist.version for dist in importlib.metadata.distributions()
    }
    names = [name for name in found if name.startswith("nvidia-dali")] or ["DALI"]
    names += ["tensorflow-cpu" if "tensorflow-cpu" in found else "tensorflow", "torch"]
    return ", ".join(f"{name} {found[name]}" if name in found else f"no {name}" for name in names)


def run(path: Path, limit: float, write: bool) -> bool:
    """Execute one notebook; answer whether all of its cells ran in time."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    book = nbformat.read(path, nbformat.NO_CONVERT)
    started = time.perf_counter()

    def left(_cell: Any) -> float:
        return max(1.0, started + limit - time.perf_counter())

    client = NotebookClient(
        book,
        timeout_func=left,
        kernel_name="python3",
        resources={"metadata": {"path": str(HERE)}},
        coalesce_streams=True,
        extra_arguments=["--log-level=ERROR"],
    )
    try:
        client.execute()
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        text = re.sub(r"\x1b\[[\d;]*m", "", str(error))  # without colours
        print(f"{path.name} FAILED after {time.perf_counter() - started:.0f} s\n{text}", flush=True)
        return False
    cells = sum(cell.cell_type == "code" for cell in book.cells)
    print(f"{path.name:<32} {cells:3} cells {time.perf_counter() - started:6.1f} s of {limit:g}", flush=True)
    if write:
        clean(book)
        nbformat.validate(book)
        nbformat.write(book, path)
        print(f"{'':<32} {path.stat().st_size / 1e3:.0f} kB written", flush=True)
    return True


def clean(book: Any) -> None:
    """Leave nothing in a notebook but cells, outputs and their counts; make its pictures small."""
    book.metadata.clear()
    book.metadata.update(METADATA)
    for cell in book.cells:
        cell.metadata.clear()
        for output in cell.get("outputs", ()):
            if "metadata" in output:
                output.metadata.clear()
            if "image/png" in output.get("data", ()):
                output.data["image/png"] = smaller(output.data["image/png"])
                output.data.pop("text/plain", None)  # <Figure size 900x300 with 1 Axes>
            elif "image/jpeg" in output.get("data", ()):
                output.data.pop("text/plain", None)  # <IPython.core.display.Image object>
            if "text" in output:
                output.text = re.sub(r" at 0x[0-9a-f]+", "", output.text)


def smaller(png: str) -> str:
    """A PNG of 64 colours, which a plot does not exceed by much; the picture itself if that is no smaller."""
    from PIL import Image

    stream = io.BytesIO()
    picture = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    picture.quantize(64, dither=Image.Dither.NONE).save(stream, "PNG", optimize=True)
    made = base64.b64encode(stream.getvalue()).decode()
    return min(png, made, key=len)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
