"""The house rules about imports, read from the source text: one direction, and optional libraries in their places."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "gpupipe"

# A module may import what stands before it, and its own folder. gpupipe itself (the public names) counts as dataset.
# Where the folders and files inside of a folder have an order of their own, it stands under the name of that folder.
ORDERS = {
    "": (
        "urls < brief < classes < cpus < errors < integers < log < missing < progress < timing < threads < ranks"
        " < structure < random < tuned < options < spec < ragged < extract < serial < graph < ops < io < plan"
        " < transform < flow < optimize < load < profile < tensors < on_ray < arguments < dataset < ray < serving"
        " < compat < comparison < tools < cli"
    ),
    "extract": "storage < images < examples < records < shards < tables < kinds < finder",
    "flow": (
        "element < own_bytes < step < buffer_sizes < check < bad < idle_workers < counters < remote_reads"
        " < tuning < run < rekey < state < access < measured < words < stall < sources < prefetch < maps < workers"
        " < combine < order < batching < cache < stage"
    ),
    "optimize": "pending < rules < place < lower < report",
}
RANKS = {folder: {name: rank for rank, name in enumerate(order.split(" < "))} for folder, order in ORDERS.items()}
RANKS[""]["__main__"] = RANKS[""]["cli"]

# Who may import an optional library at all, always inside a function.
HOMES = {
    "nvidia": ("transform/dali/library.py", "extract/images/region.py"),
    "cupy": ("transform/array.py",),
    "fsspec": ("extract/storage/remote.py", "extract/storage/http_answers.py"),
    "h5py": ("extract/tables/hdf5.py",),
    "pyarrow": ("extract/tables/arrow.py", "tools/pack/parquet.py"),
    "lmdb": ("extract/shards/lmdb.py",),
    "tifffile": ("extract/images/tiff.py",),
    "imagecodecs": ("extract/images/tiff.py",),
    "cv2": ("ops/_shared/libraries.py",),
    "cykooz_resizer": ("ops/_shared/libraries.py",),
    "matplotlib": ("profile/picture.py",),
    "jinja2": ("comparison/page/write.py",),
    "torch": ("tensors/torch.py", "tensors/keras.py", "tensors/accelerate.py"),
    "jax": ("tensors/jax.py", "tensors/keras.py"),
    "keras": ("tensors/keras.py",),
    "tensorflow": ("tensors/tf.py",),
    "accelerate": ("tensors/accelerate.py",),
    "ray": ("on_ray/team.py", "ray/from_dataset.py", "ray/to_dataset.py"),
}

# Files that subclass or serve one library import it at once; a method of Dataset imports the file.
OF_ONE_LIBRARY = {
    "tensors/torch.py": "torch",
    "tensors/jax.py": "jax",
    "tensors/keras.py": "keras",
    "tensors/tf.py": "tensorflow",
}


class Import(NamedTuple):
    """One imported module, or a name from it, as written in one place."""

    module: str
    name: str
    line: int
    runs_at_import: bool


def _sources() -> list[Path]:
    """Every source file of the package; those of ops through the symlink, as Python imports them; no programs."""
    every = {*PACKAGE.rglob("*.py"), *(PACKAGE / "ops").rglob("*.py")}  # some Pythons follow the symlink
    return sorted(path for path in every if "guide" not in path.relative_to(PACKAGE).parts)


def imports(source: str, package: tuple[str, ...]) -> Iterator[Import]:
    """Yield every import of a module that lies in `package`."""
    tree = ast.parse(source)
    at_import = {id(node) for node in _run_at_import(tree.body)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        place = node.lineno, id(node) in at_import
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, "", *place) for alias in node.names)
        else:
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*above, node.module] if node.module else above)
            yield from (Import(base, alias.name, *place) for alias in node.names)


def _run_at_import(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that importing a module executes: not those in functions, nor for type checkers only."""
    for node in body:
        yield node
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from _run_at_import(node.orelse)
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for field in ("body", "orelse", "finalbody"):
                yield from _run_at_import(getattr(node, field, []))
            for handler in getattr(node, "handlers", []):
                yield from _run_at_import(handler.body)


def _upwards(parts: tuple[str, ...], module: str) -> Iterator[str]:
    """Yield what is wrong with an import of a module of the package, at the first folder in which both part."""
    folder = ""
    for mine, other in zip(parts, module.split("."), strict=False):
        ranks = RANKS.get(folder)
        if ranks is None or mine == "__init__":
            return
        if other not in ranks or mine not in ranks:
            yield f": {other if other not in ranks else mine} has no rank"
        elif ranks[other] > ranks[mine]:
            yield f", which stands after {mine}"
        if other != mine:
            return
        folder = f"{folder}/{mine}" if folder else mine


def _violations(path: str, source: str) -> list[str]:
    """What a file of the package, at `path` below it, imports against the rules."""
    parts = Path(path).with_suffix("").parts
    found: list[str] = []
    for module, name, line, runs_at_import in imports(source, ("gpupipe", *parts[:-1])):
        if module == "gpupipe" and name in RANKS[""]:  # `from gpupipe import ops`
            module = f"gpupipe.{name}"
        top, _, below = module.partition(".")
        where = f"gpupipe/{path}:{line}"
        if top == "gpupipe" and parts != ("__init__",):
            found.extend(f"{where} imports {module}{complaint}" for complaint in _upwards(parts, below or "dataset"))
        if top in HOMES:
            if path not in HOMES[top]:
                found.append(f"{where} imports {module}; allowed in: {', '.join(HOMES[top])}")
            if runs_at_import and OF_ONE_LIBRARY.get(path) != top:
                found.append(f"{where} imports {module} when the module is imported; move it into the function")
    return found


def test_files_import_only_downwards_and_optional_libraries_only_at_home() -> None:
    files = {path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8") for path in _sources()}

    assert len(files) > 500
    assert [complaint for name, source in files.items() for complaint in _violations(name, source)] == []


def test_a_library_with_the_name_of_a_file_has_a_stub() -> None:
    """Where it is not installed, pyright would take the file for it."""
    names = {part for path in _sources() for part in path.relative_to(PACKAGE).with_suffix("").parts}
    stubs = {path.stem for path in (ROOT / "tests" / "stubs").glob("*.pyi")}

    assert stubs == names & set(HOMES)


def _graph() -> dict[str, set[str]]:
    """Which file imports which, as paths below the package: for type checkers and in functions, too."""
    graph = {_name(path): set[str]() for path in _sources()}
    for path in _sources():
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        for module, name, _, _ in imports(path.read_text(encoding="utf-8"), ("gpupipe", *parts[:-1])):
            top, _, base = module.replace(".", "/").partition("/")
            inside = f"{base}/{name}".strip("/")
            if top == "gpupipe":
                graph[_name(path)].update({inside if inside in graph else base} & (graph.keys() - {""}))
    return graph


def _name(path: Path) -> str:
    found = path.relative_to(PACKAGE).with_suffix("").as_posix()
    return "" if found == "__init__" else found.removesuffix("/__init__")


def test_no_files_import_one_another_in_a_circle() -> None:
    """Neither by way of functions nor for type checkers.

    The public face is not counted: the parts of `Dataset` name it in annotations, by way of `from .. import Dataset`.
    """
    graph = _graph()

    assert sum(map(len, graph.values())) > 1000
    TopologicalSorter(graph).prepare()  # a circle is a CycleError that names its files


@pytest.mark.parametrize(
    ("path", "source", "complaint"),
    [
        ("spec.py", "from gpupipe.plan.node import Node", "stands after spec"),
        ("flow/run.py", "from .maps.scan import ScanFlow", "stands after run"),
        ("flow/maps/scan.py", "from gpupipe.flow.other.join import x", "other has no rank"),
        ("spec.py", "def f():\n    import gpupipe.plan", "stands after spec"),
        ("io.py", "from gpupipe import Dataset", "stands after io"),
        ("spec.py", "import gpupipe.utils", "utils has no rank"),
        ("flow/x.py", "def f():\n    import nvidia.dali", "allowed in: transform/dali/library.py, extract/images/"),
        ("transform/dali/library.py", "try:\n    from nvidia import dali\nexcept ImportError:\n    raise", "when"),
        ("transform/array.py", "class A:\n    import cupy", "when the module is imported"),
        ("comparison/parity.py", "def f():\n    import tensorflow as tf", "allowed in: tensors/tf.py"),
    ],
)
def test_the_rules_find(path: str, source: str, complaint: str) -> None:
    found = _violations(path, source)

    assert len(found) == 1
    assert complaint in found[0]


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("plan/node.py", "from gpupipe.plan.other import x\nfrom .another import y\nfrom gpupipe import io, ops, spec"),
        ("transform/dali/library.py", "def f():\n    import nvidia.dali.fn as fn"),
        ("transform/array.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import cupy"),
        ("__init__.py", "from gpupipe.dataset import Dataset\nfrom gpupipe import comparison"),
        ("comparison/demo.py", "import gpupipe as gp"),
    ],
)
def test_the_rules_allow(path: str, source: str) -> None:
    assert not _violations(path, source)


def in_a_new_process(code: str, folder: Path = ROOT) -> str:
    """What Python code prints, which writes no error."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == ""
    return done.stdout.strip()


@pytest.mark.installed
def test_import_gpupipe_loads_no_heavy_library() -> None:
    heavy = (*HOMES, "scipy")
    code = f"import sys, gpupipe, gpupipe.ops; print(*sorted(set({heavy!r}) & set(sys.modules)))"

    assert in_a_new_process(code) == ""


def test_writing_a_chain_leaves_what_runs_it_for_later() -> None:
    later = ["gpupipe.optimize", "gpupipe.flow", "gpupipe.transform", "gpupipe.load", "gpupipe.extract.tables"]
    later += ["crc32c", "PIL", "simplejpeg"]
    code = f"""
import sys, gpupipe as gp
gp.Dataset.range(9).shuffle(4).map(lambda x: x + 1).batch(2)
print(*sorted(set({later!r}) & set(sys.modules)))
"""

    assert in_a_new_process(code) == ""


def test_a_chain_loads_the_steps_that_it_has_and_no_library_for_what_few_chains_do(tmp_path: Path) -> None:
    """A first batch waits for all of them: crc32c's package alone takes 40 ms, `email` and `argparse` among it."""
    rare = ["crc32c", "email", "argparse", "tempfile", "numpy.random", "gpupipe.flow.cache.fill",
            "gpupipe.flow.combine.join",
            "gpupipe.flow.batching.windows", "gpupipe.flow.sources.rows", "gpupipe.flow.workers.pool",
            "gpupipe.extract.tables.table", "gpupipe.on_ray.team", "gpupipe.transform.dali"]  # fmt: skip
    code = f"""
import os, sys, numpy
of_numpy = set(sys.modules)  # numpy.random before NumPy 2
import gpupipe as gp
with gp.io.TFRecordWriter("many.tfrecord") as out:
    for n in range(9):
        out.write(b"%d" % n)
files = gp.Dataset.list_files(os.path.abspath("many.tfrecord"))
ds = files.interleave(gp.TFRecordDataset, num_parallel_calls=gp.AUTOTUNE)
assert len(list(ds.shuffle(4).map(lambda x: x).batch(2).prefetch(1))) == 5
print(*sorted(set({rare!r}) & set(sys.modules) - of_numpy))
"""

    assert in_a_new_process(code, tmp_path) == ""


def test_the_folder_ops_is_not_a_package_of_its_own() -> None:
    with pytest.raises(subprocess.CalledProcessError) as failed:
        in_a_new_process("import ops")
    assert "write 'from gpupipe import ops'" in failed.value.stderr
