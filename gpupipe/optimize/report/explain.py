"""explain: a chain as written and as it will run, as text. Reads no data."""

from __future__ import annotations

from collections.abc import Mapping

from ...cpus import cpu_share
from ...errors import shown_line
from ...flow.tuning import most_threads
from ...ops._shared.decode_smaller import MARGIN
from ...options import Settings
from ...plan.maps import Interleave, Map
from ...plan.node import INFINITE, UNKNOWN_CARDINALITY, Node, walk
from ...plan.order import Prefetch, never_ends
from ...spec import describe
from ..lower.compile import Lowered, lower_dry
from ..pending import AHEAD
from ..place.stage_report import StageNote
from .checks import check

__all__ = ["Explanation", "explain"]


class Explanation(str):
    """Text that a REPL or a notebook shows without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _share(settings: Settings) -> str:
    """Why there are fewer threads than CPUs, where the options do not say how many; "" if there are not."""
    why = cpu_share()[1] if settings.tuned_threads is None else ""
    return f"; the share of this process: {why}" if why else ""


def explain(root: Node, settings: Settings) -> Explanation:
    """Describe a plan as written and as it will run."""
    lowered = lower_dry(root, settings)
    lines = ["plan as written (last step first)"]
    lines += [f"  {'  ' * depth}{text}" for depth, text in _tree(root)]
    lines += ["", "as it will run", "  flow (host thread)"]
    lines += [f"    {step}" for step in lowered.steps]
    for number, note in enumerate(lowered.placer.notes, 1):
        lines += _stage(number, note)
    if not lowered.placer.notes:
        lines.append("  no transform stage: everything runs on the host")
    fired = {**lowered.fired, **lowered.placer.fired}
    lines += [
        "",
        "  rules: " + (", ".join(f"{name} x{count}" for name, count in sorted(fired.items())) or "none fired"),
    ]
    if settings.disabled_rules:
        lines.append(f"  disabled: {', '.join(settings.disabled_rules)}")
    if settings.decoding.approximate_decode:
        lines.append(f"  {_approximate(fired)}")
    lines.append(
        f"  seed {settings.seed}, on_error={settings.on_error!r}, threads {settings.threads} "
        f"(DALI on CPU: {settings.dali_threads}{_share(settings)}), "
        f"host_memory {settings.host_memory:,} bytes, device_memory {settings.device_memory:,} bytes"
    )
    lines.append(
        f"  lost_files={settings.lost_files!r}: a file that cannot be read to its end, unless an index says what it "
        f"holds, is {'raised, whatever on_error says' if settings.lost_files == 'raise' else 'left out from there on'}"
    )
    if lowered.tuned or any(map(_is_autotuned, walk(root))):
        lines.append(f"  {_tuned(lowered, settings)}")
    if settings.bad_records is not None:
        lines.append(f"  bad from the start: the records that {settings.bad_records} lists")
    if settings.verify:
        lines.append(f"  {_verified(settings, lowered, _open_ended(root))}")
    if settings.error_manifest is not None:
        lines.append(f"  bad records are appended to {settings.error_manifest}")
    if settings.max_bad is not None:
        lines.append(f"  max_bad={settings.max_bad}: more of them end the iterator")
    again = _resume_costs(root, settings)
    if again:
        lines += ["", "after load_state_dict", *(f"  {text}" for text in again)]
    findings = check(root, settings)
    if findings:
        lines += ["", "worth a look", *(f"  {finding}" for finding in findings)]
    return Explanation("\n".join(map(shown_line, lines)))


def _is_autotuned(node: Node) -> bool:
    """Whether a step was given AUTOTUNE as its number."""
    return (node.size if isinstance(node, Prefetch) else node.calls if isinstance(node, Map | Interleave) else 0) < 0


def _tuned(lowered: Lowered, settings: Settings) -> str:
    """Which numbers AUTOTUNE chooses, and within what; why, if it chooses none."""
    if not lowered.tuned:
        stage = f"; a stage has threads of its own, and {AHEAD} batches ready where prefetch does not say how many"
        return (
            "AUTOTUNE: no number of this chain changes while it runs, as no threads of its steps call Python functions"
            f"{stage if lowered.placer.notes else ''}"
        )
    which = ", ".join(dict.fromkeys(lowered.tuned))
    if not settings.autotune:
        return f"autotune=False: {which}: the numbers stay as they are at the start"
    return (
        f"AUTOTUNE: the numbers of {which} change while it runs, at most {most_threads(settings)} threads "
        f"{'together' if settings.tuned_threads else 'each'}, within host_memory; stats() says why"
    )


def _resume_costs(root: Node, settings: Settings) -> list[str]:
    """One line for each step of a chain that repeats work after `load_state_dict`."""
    found: dict[str, None] = {}
    for node in walk(root):
        for part in (node, *walk(node.made)) if node.made is not None else (node,):
            text = part.resume_cost(settings)
            if text:
                found[f"{part.describe()} {text}"] = None
    return list(found)


def _approximate(fired: Mapping[str, int]) -> str:
    if "approximate_decode" not in fired:
        return "approximate_decode=True: changes nothing, no decoded image is only resized, or only cropped and resized"
    return (
        "approximate_decode=True: decode_smaller decodes a JPEG at 1/2, 1/4 or 1/8 of its size where its window still "
        f"has {MARGIN:g} pixels a side for each one of the result, which changes pixels; the host decodes"
    )


def _open_ended(root: Node) -> bool:
    """Whether functions make datasets at run time or wait for a first element, so that their ops are not known yet."""
    return any(node.makes_datasets or getattr(node, "pending", False) for node in walk(root))


def _verified(settings: Settings, lowered: Lowered, open_ended: bool) -> str:
    decodes, notes = any(note.decodes for note in lowered.placer.notes), lowered.placer.notes
    if not decodes and not open_ended:
        host = bool(notes) and all(note.where.startswith("NumPy") for note in notes)
        why = "the host decodes every image itself" if host else "DALI decodes no image of this chain"
        return f"verify={settings.verify}: nothing is verified, {why}"
    what = "a PixelError" if settings.wrong_pixels == "raise" else "a warning in the log"
    return (
        f"verify={settings.verify}: one image in {settings.verify} {'' if decodes else 'that DALI decodes '}is decoded "
        f"again on the host and compared, before any crop; one that differs is {what}"
    )


def _tree(root: Node) -> list[tuple[int, str]]:
    lines: list[tuple[int, str]] = []
    stack = [(root, 0)]
    while stack:
        node, depth = stack.pop()
        unknown = "endless or none" if never_ends(node) else "?"
        count = {INFINITE: "endless", UNKNOWN_CARDINALITY: unknown}.get(node.cardinality, str(node.cardinality))
        lines.append((depth, f"{node.describe()}  ->  {count} x {describe(node.element.nested)}"))
        below = depth + (len(node.sources) > 1)
        stack.extend((source, below) for source in reversed(node.sources))
    return lines


def _stage(number: int, note: StageNote) -> list[str]:
    return [
        f"  stage {number} (transform): {note.where}, because {note.why}; {note.size}",
        *(f"    reads  {text}" for text in note.reads),
        *(f"    runs   {text}" for text in note.ops),
        *(f"    gives  {text}" for text in note.gives),
        f"    holds  {note.buffers}",
        *([f"    copies {note.to_host}"] if note.to_host is not None else []),
        *(
            [f"    stays  on GPU {note.gpu}, and is delivered there"]
            if note.to_host is None and note.gpu is not None
            else []
        ),
    ]
