"""build: the documentation as a folder of HTML: guides, the op gallery, and a reference made from the docstrings."""

from __future__ import annotations

import html
import importlib
import os
import re
import shutil
from pathlib import Path
from typing import Any

from tests.docs import gallery, recipes

__all__ = ["MODULES", "PAGES", "ROOT", "build", "rendered"]

ROOT = Path(__file__).resolve().parents[2]
MODULES = [f"gpupipe{name}" for name in ("", ".ops", ".io", ".errors", ".compat", ".load.iterator", ".tensors.loader")]
MODULES += ["gpupipe.profile.report", "gpupipe.comparison.comparison"]
"""The public ones, and those of what their functions return."""

_GUIDES = {
    name: f"gpupipe/guide/{name}.md"
    for name in "moving sources recipes samplers trainers performance scale errors stability".split()
}
PAGES = {
    "overview": "README.md", **_GUIDES, "examples": "gpupipe/guide/examples/README.md",
    "names": "gpupipe/dataset/README.md", "epochs": "gpupipe/dataset/EPOCHS.md", "dtypes": "ops/README.md",
    "docker": "docker/README.md", "benchmarks": "benchmarks/README.md", "notebooks": "notebooks/README.md",
    "security": "SECURITY.md", "changelog": "CHANGELOG.md",
}  # fmt: skip
"""The pages, by their names in the documentation."""

STYLE = """\
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
nav { border-bottom: 1px solid #ccc; padding-bottom: .5rem; } nav a { margin-right: .8rem; white-space: nowrap; }
pre { background: #f6f6f6; padding: .7rem; overflow-x: auto; } code { font-size: .9em; }
table { border-collapse: collapse; } td, th { border: 1px solid #ccc; padding: .25rem .5rem; vertical-align: top; }
img { max-width: 100%; margin-right: .4rem; vertical-align: bottom; }
"""


def build(out: Path) -> None:
    """Write the documentation into a folder, which is emptied first."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    shutil.copytree(ROOT / "gpupipe/guide/pictures", out / "shown")
    for name, source in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        if name == "recipes":
            text = recipes.with_pictures(text, out / "recipes")
        _write(out / f"{name}.html", name, rendered(ROOT / source, text))
    _write(out / "gallery.html", "gallery", gallery.document(out / "pictures"))
    _write(out / "index.html", "gpupipe", _index())
    _reference(out)


def rendered(source: Path, text: str) -> str:
    """A page of Markdown as HTML. Its links to other pages lead to their HTML; those to files of a clone are text."""
    import markdown2

    page: str = markdown2.markdown(text, extras=["fenced-code-blocks", "tables", "header-ids", "cuddled-lists"])
    page = re.sub(r'(<img [^>]*src=")(?:[^":]*/)?pictures/', r"\1shown/", page)
    return re.sub(r'<a href="([^"]*)">(.*?)</a>', lambda link: _link(source, link[1], link[2]), page, flags=re.DOTALL)


def _link(source: Path, target: str, text: str) -> str:
    if "://" in target or target.startswith("#"):
        return f'<a href="{target}">{text}</a>'
    path, _, part = target.partition("#")
    place = Path(os.path.normpath(source.parent / path)).relative_to(ROOT).as_posix()
    name = next((name for name, file in PAGES.items() if file == place), "")
    return f'<a href="{name}.html{"#" * bool(part)}{part}">{text}</a>' if name else text


def _write(path: Path, title: str, body: str) -> None:
    links = {"index": "gpupipe", **{name: name for name in PAGES}, "gallery": "ops in pictures"}
    navigation = " ".join(f'<a href="{name}.html">{shown}</a>' for name, shown in links.items())
    navigation += ' <a href="gpupipe.html">reference</a>'
    head = f'<meta charset="utf-8"><title>{html.escape(title)}</title><style>{STYLE}</style>'
    body = f"<body><nav>{navigation}</nav>\n{body}\n</body>"
    path.write_text(f'<!doctype html>\n<html lang="en"><head>{head}</head>\n{body}</html>\n', encoding="utf-8")


def _index() -> str:
    titles = {name: (ROOT / file).read_text("utf-8").partition("\n")[0].lstrip("# ") for name, file in PAGES.items()}
    lists = [{**titles, "gallery": "What the ops do"}, {name.replace(".", "/"): name for name in MODULES}]
    pages, modules = (
        "".join(f'<li><a href="{name}.html">{html.escape(title)}</a></li>' for name, title in links.items())
        for links in lists
    )
    return f"<h1>gpupipe</h1><ul>{pages}</ul><h2>Reference</h2><ul>{modules}</ul>"


def _reference(out: Path) -> None:
    """Write the reference of `MODULES`, and of no other: what they import from others is documented with them."""
    import pdoc.doc
    import pdoc.render

    pdoc.render.configure(docformat="google", include_undocumented=False, show_source=False, logo_link="index.html")
    found = {name: importlib.import_module(name) for name in MODULES}
    for module in (found["gpupipe"], found["gpupipe.ops"]):
        for name in module.__all__:  # imported when it is first used, and pdoc looks at what is there
            getattr(module, name)
    modules = {name: pdoc.doc.Module(module) for name, module in found.items()}
    dataset: Any = modules["gpupipe"].members["Dataset"]
    dataset.own_members = list(dataset.members.values())  # its parts are classes that nobody should know
    dataset.inherited_members = {}
    for name, module in modules.items():
        place = out / f"{name.replace('.', '/')}.html"
        place.parent.mkdir(exist_ok=True, parents=True)
        place.write_text(pdoc.render.html_module(module, modules), encoding="utf-8")
    (out / "search.js").write_text(pdoc.render.search_index(modules), encoding="utf-8")
