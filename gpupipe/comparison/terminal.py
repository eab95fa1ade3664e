"""terminal: a comparison as plain text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .page.numbers import allowed, decibels
from .ratios import Spread
from .result import Cost, Result

__all__ = ["cost_rows", "laid_out", "speed_of", "text_of"]

MIB = 2**20


def text_of(result: Result) -> str:
    """The tables and the verdict."""
    parts = _speed_parts(result)
    if result.steps:
        parts.append(laid_out(list(_step_rows(result)), left=2))
    elif result.steps_missing:
        parts.append(f"not compared step by step: {result.steps_missing}")
    if result.classes:
        parts.append(laid_out(list(_class_rows(result)), left=1))
    parts.append("\n".join(["verdict", *(f"  {'! ' if one.bad else ''}{one.text}" for one in result.findings)]))
    return "\n\n".join(parts)


def speed_of(result: Result) -> str:
    """The costs and what they mean, without pixels."""
    findings = [f"  {one.text}" for one in result.findings if one.bad or one.kind not in ("delivered", "pixels")]
    return "\n\n".join([*_speed_parts(result), "\n".join(["verdict", *findings])])


def _speed_parts(result: Result) -> list[str]:
    parts = [_heading(result), laid_out(cost_rows(result), left=1)]
    if result.noise is not None:
        one = next(cost.title for cost in result.costs if cost.key == result.noise_of)
        low, high = result.noise.least, result.noise.most
        parts.append(f"noise: one round of {one} against another has {low:.2f} to {high:.2f} times the images/s")
    return parts


def laid_out(rows: Sequence[Sequence[str]], left: int) -> str:
    """Rows of cells as lines; a row of two cells is a title and a remark. The first `left` columns are to the left."""
    full = [row for row in rows if len(row) == len(rows[0])]
    widths = [max(len(row[i]) for row in full) for i in range(len(rows[0]))]
    widths[0] = max(len(row[0]) for row in rows)
    lines = []
    for row in rows:
        if len(row) == len(rows[0]):
            cells = (c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
            lines.append("  ".join(cells).rstrip())
        else:
            lines.append(f"{row[0].ljust(widths[0])}  {row[1]}")
    lines.insert(1, "-" * (sum(widths) + 2 * (len(widths) - 1)))
    return "\n".join(lines)


def _heading(result: Result) -> str:
    machine = ", ".join(result.machine.values())
    return (
        f"{result.data}: {result.images:,} images a pass, batches of {result.batch}, {result.rounds} rounds "
        f"in alternating order\n{machine}"
    )


def cost_rows(result: Result) -> list[Sequence[str]]:
    """The costs of the executors, for `laid_out`; one that was not measured has its reason."""
    head = ["executor", "CPU-ms/image", "images/s", "least-most", "first batch", "peak memory"]
    gpu = any(cost.gpu_bytes is not None for cost in result.costs)
    waits = any(cost.waiting is not None for cost in result.costs)
    top1 = any(cost.accuracy is not None and cost.accuracy.top1 is not None for cost in result.costs)
    head += ["GPU memory", "GPU load", "JPEG engines"] * gpu + ["waiting"] * waits + ["top-1"] * top1
    rows: list[Sequence[str]] = [head]
    for cost in result.costs:
        if not cost.measured:
            rows.append((cost.title, f"not measured: {cost.reason.splitlines()[0]}"))
            continue
        cells = [cost.title, *_speed(cost), _bytes(cost.host_bytes)]
        cells += [_bytes(cost.gpu_bytes), _share(cost.gpu_load), _share(cost.jpeg_load)] * gpu
        cells += [_share(cost.waiting)] * waits
        cells += [_share(cost.accuracy.top1 if cost.accuracy else None)] * top1
        rows.append(cells)
    return rows


def _speed(cost: Cost) -> tuple[str, str, str, str]:
    cpu, rate = (one or Spread.of([0.0]) for one in (cost.cpu_ms, cost.rate))
    first = "-" if cost.first_batch_s is None else f"{cost.first_batch_s:.2f} s"
    return f"{cpu.median:.2f}", f"{rate.median:,.0f}", f"{rate.least:,.0f}-{rate.most:,.0f}", first


def _bytes(count: int | None) -> str:
    return "-" if count is None else f"{count / MIB:,.0f} MiB"


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def _step_rows(result: Result) -> Iterator[Sequence[str]]:
    reference = result.cost(result.reference).title
    titles = {cost.key: cost.title for cost in result.costs}
    yield (
        f"step, against {reference}",
        "executor",
        "max",
        "at edge",
        "allowed",
        "mean",
        "PSNR",
        "with all before",
        "worst",
    )
    for step in result.steps:
        for gap in step.gaps:
            name = step.name + " !" * gap.beyond
            if gap.own is None:
                yield name, f"{titles[gap.executor]}: {gap.reason}"
                continue
            own, through = gap.own, "-" if gap.through is None else f"{gap.through.maximum:.3g}"
            yield (
                name,
                titles[gap.executor],
                f"{own.maximum:.3g}",
                f"{own.ring:.3g}",
                allowed(gap),
                f"{own.mean:.3g}",
                decibels(own, "-"),
                through,
                f"#{own.worst}",
            )


def _class_rows(result: Result) -> Iterator[Sequence[str]]:
    titles = {cost.key: cost.title for cost in result.costs}
    keys = [key for key in titles if any(key in one.gaps for one in result.classes)]
    yield "images", "number", "mean size", "decoded by", *(f"{titles[key]}: max" for key in keys)
    for one in result.classes:
        gaps = (f"{one.gaps[key].maximum:.3g}" if key in one.gaps else "-" for key in keys)
        yield one.kind, str(one.images), f"{one.bytes_mean / 1e3:,.0f} kB", one.decoder, *gaps
