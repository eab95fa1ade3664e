"""write: a comparison as one HTML file.

All that comes from data, names of files and classes and texts of errors, reaches the template as text, which escapes
it; beyond that the page's policy lets the browser run no script and load nothing, whatever a text contains.
"""

from __future__ import annotations

import base64
import hashlib
import os
from importlib import resources
from typing import Any

from ...errors import MissingDependencyError
from ...extract.storage.output import check_output
from ...extract.storage.replacing import replacing
from ...missing import LIBRARIES
from ..result import Cost, Pair, Result
from .charts import charts_of_costs, charts_of_steps
from .numbers import ABSENT, filters
from .pictures import Pixels, address_of, shrunk

__all__ = ["MOST", "check_page", "page_of", "write_page"]

MOST = 1_700_000
"""Characters of all pictures on a page, which keeps it below 2 MB."""
COARSE = 240
"""Pixels below which a picture is shown with its single pixels."""

KINDS = {
    "bottleneck": "Bottleneck",
    "cores": "CPU cores",
    "pays": "Price",
    "waiting": "Waiting",
    "pixels": "Pixels",
    "delivered": "Delivered",
    "classes": "Kinds",
    "accuracy": "Model",
    "failed": "Failed",
}
"""Words for the kinds of findings."""

METHODS = {
    "rounds": "Rounds",
    "cpu_ms": "CPU-ms per image",
    "rate": "Images/s",
    "first_batch_s": "Time to first batch",
    "host_bytes": "Peak memory, host",
    "gpu_bytes": "Peak memory, GPU",
    "gpu_load": "GPU utilisation",
    "jpeg_load": "JPEG engines",
    "waiting": "Waiting",
    "bottleneck": "What limits it",
    "steps": "Pixels step by step",
    "pays": "When a GPU pays",
}
"""Words for the names of figures."""


def check_page() -> Any:
    """Return the template engine's module, to find out whether a page can be written before measuring anything.

    Raises:
        MissingDependencyError: jinja2 is not installed.
    """
    try:
        import jinja2
    except ImportError as error:
        raise MissingDependencyError(
            "the page of a comparison needs jinja2, which is not installed; install it with: "
            f"pip install {LIBRARIES['page']}"
        ) from error
    return jinja2


def write_page(result: Result, path: str | os.PathLike[str]) -> None:
    """Write the page of a comparison; see `Comparison.save`."""
    check_output("Comparison.save", path, "HTML")
    page = page_of(result)
    with replacing(path) as file:
        file.write(page.encode(errors="backslashreplace"))  # names of files may hold bytes that are no text


def page_of(result: Result) -> str:
    """The page of a comparison, as text.

    Raises:
        MissingDependencyError: jinja2 is not installed.
    """
    jinja2 = check_page()
    folder = resources.files(__package__ or __name__)
    style = (folder / "page.css").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {**filters, "tone": _tone}
    page: str = environment.from_string((folder / "page.html").read_text(encoding="utf-8")).render(
        result=result,
        style=style,
        style_hash=base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
        titles={cost.key: cost.title for cost in result.costs},
        columns=_columns(result),
        cost_charts=charts_of_costs(result),
        step_charts=charts_of_steps(result),
        pairs=(pairs := _pairs(result)),
        shown={one["number"] for one in pairs},
        class_keys=list(dict.fromkeys(name for one in result.classes for name in one.gaps)),
        missing=[cost for cost in result.costs if not cost.measured],
        kinds=KINDS,
        methods=METHODS,
        absent=ABSENT,
    )
    return page


def _columns(result: Result) -> dict[str, bool]:
    """Which columns of the table of costs have a figure."""
    measured = [cost for cost in result.costs if cost.measured]
    names = ("gpu_bytes", "gpu_load", "jpeg_load", "waiting", "bottleneck", "accuracy")
    return {name: any(getattr(cost, name) not in (None, "") for cost in measured) for name in names}


def _pairs(result: Result) -> list[dict[str, Any]]:
    """The pairs that are shown, those beyond a tolerance first, with their pictures as addresses."""
    beyond = {gap.pair for step in result.steps for gap in step.gaps if gap.beyond}
    found: list[dict[str, Any]] = []
    left = MOST
    for number in sorted(range(len(result.pairs)), key=lambda number: number not in beyond):
        one = {"number": number, "beyond": number in beyond, **_pictures(result.pairs[number])}
        left -= sum(len(one[name]["address"]) for name in ("reference", "other", "difference"))
        if left < 0:
            break
        found.append(one)
    return found


def _pictures(pair: Pair) -> dict[str, Any]:
    shown = {
        "reference": shrunk(pair.reference),
        "other": shrunk(pair.other),
        "difference": shrunk(pair.difference, brightest=True),
    }
    return {"pair": pair, **{name: _picture(image) for name, image in shown.items()}}


def _picture(image: Pixels) -> dict[str, Any]:
    height, width, _ = image.shape
    return {"address": address_of(image), "height": height, "width": width, "coarse": width < COARSE}


def _tone(key: str, costs: tuple[Cost, ...]) -> int:
    """The number of an executor's colour."""
    return next((number for number, cost in enumerate(costs) if cost.key == key), 0)
