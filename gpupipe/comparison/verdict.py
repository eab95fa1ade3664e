"""verdict: what the figures of a comparison mean, in sentences, and from which price or rate on a GPU pays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from .result import Accuracy, BreakEven, Cost, Finding, JpegClass, PixelGap, Step

__all__ = ["break_even", "findings_of"]


def break_even(costs: Sequence[Cost], rate: float | None, prices: Mapping[str, float]) -> BreakEven | None:
    """From when on the GPU costs less than the CPU executor with the fewest CPU-ms; None without one of each.

    Args:
        costs: of all executors.
        rate: images/s of the training.
        prices: "core_hour" and "gpu_hour", in any one currency.
    """
    gpu = next((cost for cost in costs if cost.measured and cost.key == "dali-gpu"), None)
    cpus = [cost for cost in costs if cost.measured and cost.key != "dali-gpu" and cost.cpu_ms is not None]
    if gpu is None or gpu.cpu_ms is None or gpu.rate is None or not cpus:
        return None
    cpu = min(cpus, key=_cpu_ms)
    saved = _cpu_ms(cpu) - _cpu_ms(gpu)
    cores = {name: None if rate is None else _cpu_ms(one) * rate / 1000 for name, one in (("cpu", cpu), ("gpu", gpu))}
    share = None if rate is None else rate / gpu.rate.median
    core, card = prices.get("core_hour"), prices.get("gpu_hour")
    core_price = None if card is None or saved <= 0 else card / gpu.rate.median / (saved / 1000)
    from_rate = card / (core * saved / 1000) if core and card is not None and saved > 0 else None
    return BreakEven(
        cpu=cpu.key,
        gpu=gpu.key,
        cpu_ms_saved=saved,
        cores_per_1000=saved,
        rate=rate,
        cores_cpu=cores["cpu"],
        cores_gpu=cores["gpu"],
        cores_saved=None if rate is None else saved * rate / 1000,
        gpu_share=share,
        saved_per_hour=saved * rate / 1000 * core - share * card
        if core is not None and card is not None and rate is not None and share is not None
        else None,
        from_core_price=core_price,
        from_rate=None if from_rate is None or from_rate > gpu.rate.median else from_rate,  # one GPU gives no more
    )


def _cpu_ms(cost: Cost) -> float:
    assert cost.cpu_ms is not None
    return cost.cpu_ms.median


def findings_of(
    costs: Sequence[Cost],
    reference: Cost,
    delivered: Mapping[str, PixelGap],
    unequal: Mapping[str, str],
    restless: str,
    steps: Sequence[Step],
    classes: Sequence[JpegClass],
    rate: float | None,
    prices: Mapping[str, float],
    even: BreakEven | None,
) -> tuple[Finding, ...]:
    """All sentences of the verdict: pixels first, since figures of unequal work are not to be compared.

    Args:
        costs: of all executors.
        reference: that with whose pixels the others are compared.
        delivered: the differences of the delivered images, by executor.
        unequal: why an executor's work is not that of the reference, by executor.
        restless: what is other in each pass of the reference itself; "" if nothing: else executors are not to blame.
        steps: the differences step by step.
        classes: the kinds of images.
        rate: images/s of the consumer.
        prices: see `break_even`.
        even: see `break_even`.
    """
    found = [Finding("failed", True, f"{cost.title} failed: {cost.reason}", cost.key) for cost in costs if cost.failed]
    found += _pixels(costs, reference, delivered, unequal, steps)
    if restless:
        text = (
            f"what is delivered cannot be compared: two passes of {reference.title} differ as well ({restless}); the "
            "chain has deterministic=False, or Python code that draws or counts"
        )
        found.append(Finding("delivered", False, text))
    found += _classes(classes)
    measured = [cost for cost in costs if cost.measured]
    for cost in measured:
        if cost.bottleneck:
            text = f"{cost.title}: {cost.bottleneck}" + (f"; {cost.remedy}" if cost.remedy else "")
            found.append(Finding("bottleneck", False, text, cost.key))
    found += _waiting(measured, rate)
    if unequal:
        names = ", ".join(cost.title for cost in costs if cost.key in unequal)
        text = f"costs are not compared: {names} did other work than {reference.title}"
        return (*found, Finding("cores", True, text))
    return (*found, *_cores(measured, rate, prices, even), *_accuracy(measured, reference))


def _pixels(
    costs: Sequence[Cost],
    reference: Cost,
    delivered: Mapping[str, PixelGap],
    unequal: Mapping[str, str],
    steps: Sequence[Step],
) -> Iterator[Finding]:
    titles = {cost.key: cost.title for cost in costs}
    wrong = [(step, gap) for step in steps for gap in step.gaps if gap.beyond]
    for step, gap in wrong:
        assert gap.own is not None
        size = f"max {max(gap.own.maximum, gap.own.ring):.3g}, mean {gap.own.mean:.3g} {gap.own.unit}"
        allowed = f"{gap.allowed:.3g} is allowed"
        if gap.ring_allowed > gap.allowed:
            allowed += f", {gap.ring_allowed:.3g} at the edge"
        looks = f"; looks {gap.looks_like}" if gap.looks_like else ""
        where = f" ({step.line})" if step.line else ""
        text = f"{titles[gap.executor]} differs from {reference.title} at {step.name}{where}: {size}; {allowed}{looks}"
        yield Finding("pixels", True, text, gap.executor, step.name)
    for key, reason in unequal.items():
        yield Finding("delivered", True, f"{titles[key]} delivers other images than {reference.title}: {reason}", key)
    for key, whole in delivered.items():
        if key in unequal or any(gap.executor == key for _, gap in wrong):
            continue
        if not whole.images:
            text = (
                f"{titles[key]} against {reference.title}: as many elements, with the same labels; no images to compare"
            )
            yield Finding("delivered", False, text, key)
            continue
        missing = [step.name for step in steps for gap in step.gaps if gap.executor == key and gap.own is None]
        within = "no step differs beyond its stated tolerance" if steps else "the same crops and flips"
        within += f", but {', '.join(missing)} could not be compared" if missing else ""
        size = f"max {whole.maximum:.3g}, {whole.ring:.3g} at the edge, mean {whole.mean:.3g} {whole.unit}"
        yield Finding("delivered", False, f"{titles[key]} against {reference.title}: {within}; delivered: {size}", key)


def _classes(classes: Sequence[JpegClass]) -> Iterator[Finding]:
    host = [one for one in classes if one.decoder == "host"]
    if host:
        share = sum(one.images for one in host) / sum(one.images for one in classes)
        kinds = ", ".join(f"{one.kind} ({one.images})" for one in host)
        yield Finding("classes", False, f"{share:.0%} of the images are decoded on the host by every executor: {kinds}")


def _waiting(measured: Sequence[Cost], rate: float | None) -> Iterator[Finding]:
    for cost in measured:
        if cost.waiting is not None and rate is not None:
            text = f"a consumer of {rate:,.0f} images/s waits {cost.waiting:.0%} of its time for {cost.title}"
            yield Finding("waiting", False, text, cost.key)


def _cores(
    measured: Sequence[Cost], rate: float | None, prices: Mapping[str, float], even: BreakEven | None
) -> Iterator[Finding]:
    if even is None:
        for cost in measured:
            if cost.cpu_ms is not None:
                of = rate or 1000.0
                cores = cost.cpu_ms.median * of / 1000
                text = f"{cost.title} keeps {cores:.1f} cores busy at {of:,.0f} images/s"
                if "core_hour" in prices:
                    text += f", which costs {cores * prices['core_hour']:.3g} an hour"
                yield Finding("cores", False, text, cost.key)
        if measured and not any(cost.key == "dali-gpu" for cost in measured):
            yield Finding("cores", False, "how many cores a GPU saves needs a GPU: none was measured here")
        return
    cpu, gpu = (next(cost for cost in measured if cost.key == key) for key in (even.cpu, even.gpu))
    saves = f"the GPU saves {even.cpu_ms_saved:.2f} CPU-ms an image against {cpu.title}"
    if even.cpu_ms_saved <= 0:
        yield Finding("cores", False, f"the GPU saves no CPU time: {even.cpu_ms_saved:+.2f} CPU-ms an image", gpu.key)
        return
    if even.cores_saved is not None:
        saves += f": {even.cores_saved:.1f} cores at {even.rate:,.0f} images/s"
    else:
        saves += f": {even.cores_per_1000:.1f} cores for every 1,000 images/s"
    yield Finding("cores", False, saves, gpu.key)
    yield from _pays(even)


def _pays(even: BreakEven) -> Iterator[Finding]:
    if even.from_core_price is None:
        return
    text = f"counting the share of the GPU that it takes, it pays from {even.from_core_price:.3g} a core-hour on"
    if even.saved_per_hour is not None:
        word = "saves" if even.saved_per_hour >= 0 else "costs"
        text += f"; at these prices and this rate it {word} {abs(even.saved_per_hour):.3g} an hour"
    if even.from_rate is not None:
        text += f"; a GPU for this alone pays from {even.from_rate:,.0f} images/s on"
    yield Finding("pays", False, text, even.gpu)


def _accuracy(measured: Sequence[Cost], reference: Cost) -> Iterator[Finding]:
    base = reference.accuracy
    for cost in measured:
        found: Accuracy | None = cost.accuracy
        if found is None or base is None or cost.key == reference.key:
            continue
        text = f"the model gives the same class for {found.agreement:.1%} of {found.images:,} images on {cost.title}"
        if found.top1 is not None and base.top1 is not None:
            text += f"; top-1 {found.top1:.1%}, {base.top1:.1%} on {reference.title}"
        yield Finding("accuracy", False, text, cost.key)
