"""check_functions: checks for mistakes in functions that run as ordinary Python; see `checks`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ...graph.classify import name_of
from ...graph.values import Apply, topological
from ...ops.py_function import PyFunction
from ...plan.index import Select, asked_of
from ...plan.maps import Filter, Map, Scan
from ...plan.node import Node
from .check_images import image_like
from .function_facts import image_library, random_source, reached

__all__ = ["random_in_python", "serial_python_map"]


def serial_python_map(node: Node, above: tuple[Node, ...]) -> str | None:
    """Find a Python function of images that runs on one thread, or calls ops without being traced."""
    if not isinstance(node, Map) or node.traced is not None or node.pending or node.workers == "process":
        return None
    name = name_of(node.fn)
    parallel = "give it num_parallel_calls=gp.AUTOTUNE, or workers='process' if it holds the GIL"
    op = None if node.rng else _op_called(node.fn)
    if op is not None:
        why = "drop its spec=, which only Python functions have" if node.result else "map(fn, traced=True) says why"
        alone = "" if node.calls else f", or {parallel}"
        return (
            f"map calls {op} in {name} and yet runs as ordinary Python, image by image and never on a GPU: {why}; "
            f"let ops.py_function do what no op does{alone}"
        )
    if node.calls:
        return None
    library = image_library(node.fn)
    images = not node.source.element.batched and any(map(image_like, node.source.element.specs))
    if library is None and not images:
        return None
    what = f"with {library} " if library is not None else "on images "
    return f"map runs {name} {what}as ordinary Python on one thread, one element after the other; {parallel}"


def _op_called(fn: Callable[..., Any]) -> str | None:
    """The name of a gpupipe op in a function's code, if there is one."""
    for one in reached(fn):
        module = getattr(one.value, "__module__", None)
        if callable(one.value) and isinstance(module, str) and module.startswith("gpupipe.ops."):
            return one.name
    return None


def random_in_python(node: Node, above: tuple[Node, ...]) -> str | None:
    """Find a Python function whose random numbers no seed of the chain determines."""
    for fn, who in _python_functions(node):
        source = random_source(fn)
        if source is not None:
            instead = "draw them in a map(fn, rng=True) before it, which passes fn a generator, and pass them on"
            if who == "map":
                instead = "write map(fn, rng=True), which passes fn a generator as its last argument"
            elif who == "pick":
                instead = "give pick a function of the epoch, such as lambda epoch: default_rng(epoch).permutation(n)"
            return (
                f"{who} draws from {source} in {name_of(fn)}: no seed of the chain reaches it, so runs differ, and so "
                f"do elements after load_state_dict; {instead}"
            )
    return None


def _python_functions(node: Node) -> Iterator[tuple[Callable[..., Any], str]]:
    """The functions that a step runs as ordinary Python, each with the name of what calls it."""
    if isinstance(node, Scan) or (isinstance(node, (Map, Filter)) and node.traced is None):
        if not (isinstance(node, Map) and node.pending):
            yield node.fn, node.name
    elif isinstance(node, (Map, Filter)) and node.traced is not None:
        for value in topological(node.traced.outputs):
            if isinstance(value, Apply) and isinstance(value.op, PyFunction):
                yield value.op.fn, "py_function"
    elif isinstance(node, Select) and (asked := asked_of(node.order)) is not None and not asked.once:
        function = getattr(asked.places, "__iter__", asked.places)
        if callable(function):
            yield function, "pick"
