"""What the documents show and name: their chains run, their examples give what they say, their files are there."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import itertools
import json
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.ops._shared.samples import encoded, picture

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(path for path in ROOT.glob("**/*.md") if not path.relative_to(ROOT).parts[0].startswith("."))
DOCUMENTS.remove(ROOT / "tests" / "conformance" / "tfdata_names.md")  # the text of a page in another folder
README = (ROOT / "README.md").read_text(encoding="utf-8")
IMAGES = 300


def blocks(text: str) -> list[str]:
    """The Python of a document."""
    return re.findall(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


@pytest.fixture
def shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files as the README's chain expects them, in the current folder: more than a batch, less than two."""
    monkeypatch.chdir(tmp_path)
    for shard in range(2):
        with gp.io.TFRecordWriter(f"train-{shard}.tfrecord") as out:
            for i in range(shard, IMAGES, 2):
                image = encoded(picture(32, 32 + i % 8))
                out.write(gp.io.encode_example({"image/encoded": [image], "image/class/label": [i]}))


def test_the_chain_of_the_readme_runs_and_both_of_its_loops_give_the_same_batches(shards: None) -> None:
    """Its loops keep what they are given here, where it says `...`."""
    code = blocks(README)[0].replace("    ...\n", "    kept.append((images, labels))\n")
    kept: list[Any] = []

    exec(code, {"kept": kept})

    assert len(kept) == 2
    (a, x), (b, y) = ([x.get() if hasattr(x, "get") else x for x in batch] for batch in kept)  # of a GPU
    assert a.shape == (256, 224, 224, 3)
    np.testing.assert_array_equal(x, y)
    assert np.abs(a - b).mean() < 0.05  # executors interpolate in their own ways, within a level or so


def test_what_the_readme_says_of_going_on_runs(shards: None) -> None:
    (block,) = (block for block in blocks(README) if "load_state_dict(json" in block)
    first, _, second = block.partition("\n\n")
    saved: list[str] = []
    chain = blocks(README)[0].partition("for images, labels in ds:")[0].replace("256", "50")
    names: dict[str, Any] = {"json": json, "model": None, "save": lambda model, text: saved.append(text)}

    exec(chain, names)
    exec(first.replace("    ...\n", ""), names)
    names["text"] = saved[2]
    exec(second, names)

    assert len(saved) == 6
    assert len(list(names["items"])) == 3


@pytest.mark.parametrize("package", ["torch", "jax", "keras", "tensorflow"])
def test_a_loader_is_made_as_the_readme_says(package: str) -> None:
    pytest.importorskip(package)
    (code,) = (block for block in blocks(README) if "ds.as_torch" in block)
    method = {"tensorflow": "as_tf"}.get(package, f"as_{package}")
    (line,) = (line for line in code.splitlines() if f" = ds.{method}(" in line)
    images, labels = np.ones((8, 2, 2, 3), np.float32), np.arange(8)
    names: dict[str, Any] = {"ds": gp.Dataset.from_tensor_slices((images, labels)).batch(4)}

    exec(line, names)

    loader = names["theirs" if method == "as_tf" else "loader"]
    batches = [loader[0], loader[1]] if method == "as_keras" else list(loader)
    assert [tuple(batch[0].shape) for batch in batches] == [(4, 2, 2, 3)] * 2


def shows_something(name: str) -> bool:
    """Whether a module has an example: the others are not imported, as some import a framework, which takes seconds."""
    spec = importlib.util.find_spec(name)
    return spec is not None and spec.origin is not None and ">>> " in Path(spec.origin).read_text(encoding="utf-8")


def examples() -> Iterator[Any]:
    """The examples of all docstrings, as pytest's parameters."""
    finder, seen = doctest.DocTestFinder(), set()
    for name in sorted(module.name for module in pkgutil.walk_packages(gp.__path__, "gpupipe.")):
        if not shows_something(name):
            continue
        try:
            where = importlib.import_module(name)
        except ModuleNotFoundError as error:
            yield pytest.param(None, id=name, marks=pytest.mark.skip(reason=f"{error.name} is not installed"))
            continue
        for test in finder.find(where, globs=vars(where) | {"gp": gp, "np": np, "ops": ops}):
            if test.examples and test.name not in seen:
                seen.add(test.name)
                yield pytest.param(test, id=test.name.removeprefix("gpupipe."))


@pytest.mark.parametrize("test", list(examples()))
def test_the_example_of_a_docstring_gives_what_it_says(
    test: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said: list[str] = []

    doctest.DocTestRunner(verbose=False).run(test, out=said.append)

    assert not said, "".join(said)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_and_names_of_files_lead_somewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    links = [link for link in re.findall(r'(?:\]\(|<img[^>]* src=")([^)#"]+)', text) if "://" not in link]
    folders = "gpupipe|ops|tests|benchmarks|docker|notebooks|optimize|flow|plan|load|transform"
    named = re.findall(rf"`((?:{folders})/[\w/.]*)`", text)
    places = (path.parent, ROOT, ROOT / "gpupipe")

    missing = [link for link in links if not (path.parent / link).exists()]
    missing += [name for name in named if "my_op" not in name and not any((place / name).exists() for place in places)]
    assert not missing


@pytest.mark.parametrize("document", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_names_of_the_code_that_a_document_uses_exist(document: str) -> None:
    files = [path for folder in ("gpupipe", "ops", "tests", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
    words = {word for path in files for word in (path.stem, *re.findall(r"\w+", path.read_text(encoding="utf-8")))}
    named = re.findall(r"`([A-Za-z_][\w.()]*)`", (ROOT / document).read_text(encoding="utf-8"))

    assert len(named) > 50
    assert {word for name in named for word in re.findall(r"[A-Za-z_]\w+", name)} - {*words, "py"} == set()


def test_every_target_and_command_that_a_document_names_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE))
    text = "\n".join(path.read_text(encoding="utf-8") for path in DOCUMENTS)

    assert set(re.findall(r"(?:^|`|='.*' )make ([a-z-]+)", text, flags=re.MULTILINE)) <= targets
    extras = (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("[project.optional-dependencies]")[2]
    known = set(re.findall(r"^([a-z0-9]+) = \[", extras.partition("[project.scripts]")[0], flags=re.MULTILINE))
    named = re.findall(r"'\.\[([a-z0-9,]+)\]'", text)
    assert set(itertools.chain.from_iterable(extra.split(",") for extra in named)) <= known


def test_the_folders_of_the_architecture_are_those_there_are() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    listed = text.partition("## The folders")[2].split("```")[1]
    inside, _, outside = listed.partition("\nops/")
    names = re.findall(r"([\w]+(?:/|\.py)|ops(?= ->))", inside)

    here = {path.name for path in (ROOT / "gpupipe").glob("*.py")}
    here |= {f"{path.parent.name}/" for path in (ROOT / "gpupipe").glob("*/__init__.py") if path.parent.name != "ops"}
    assert here <= set(names)
    for name in re.findall(r"^(\w+)/", "ops/" + outside, flags=re.MULTILINE):
        assert (ROOT / name).is_dir()
