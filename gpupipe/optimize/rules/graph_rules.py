"""graph_rules: rewrites of the values inside one stage into equal ones with fewer or larger operators.

A rule is a function of one value, whose inputs are already rewritten, that returns the value to use instead; a rule
that has to know the users of a value is a function of a graph. No rule renumbers a draw: sites were assigned when the
function was traced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial

from ...graph.values import Apply, Draw, Item, Value, rewrite_values, topological
from ...io import ParseSingleExample
from ...ops._shared.composite import Composite
from ...ops._shared.crop import Crop
from ...ops._shared.crop_mirror_normalize import CropMirrorNormalize
from ...ops._shared.decode_crop import DecodeCrop
from ...ops._shared.decode_resize_crop import DecodeResizeCrop
from ...ops._shared.decode_smaller import DecodeSmaller, ResizeWindow
from ...ops._shared.decoding import Decoding
from ...ops._shared.flip import Flip
from ...ops._shared.resize_flip import ResizeFlip
from ...ops.cast import Cast
from ...ops.center_crop import CenterCrop
from ...ops.convert_image_dtype import ConvertImageDtype
from ...ops.normalize import Normalize
from ...ops.resize import Resize
from ...ops.resize_shorter import ResizeShorter
from ...ops.transpose import Transpose

__all__ = ["GRAPH_RULES", "optimize_values"]


def decompose(value: Value) -> Value:
    """random_resized_crop(x) => resize(crop(x, window)): a composite op as its parts."""
    made, result = (value.value, value.index) if isinstance(value, Item) else (value, 0)
    if not isinstance(made, Apply) or isinstance(made.op, CropMirrorNormalize | DecodeResizeCrop | ResizeFlip):
        return value
    # An op on several images at once (image and mask) has a row of parts and a result for each image.
    several = isinstance(made.op, Composite) and made.op.images > 1
    if several and not isinstance(value, Item):
        return value
    parts = made.op.row(result) if several and isinstance(made.op, Composite) else made.op.decompose()
    if not parts or (not several and isinstance(value, Item)):
        return value
    x: Value = made.x[result]
    for op, taken in parts:
        x = Apply(op, (x,), tuple(made.params[i] for i in taken), made.line)
    return x


def drop_identities(value: Value) -> Value:
    """f(x) => x, where f changes nothing for values of this spec."""
    if isinstance(value, Apply) and len(value.x) == 1 and not value.params and value.op.is_identity(value.x[0].spec):
        return value.x[0]
    return value


def merge_adjacent(value: Value) -> Value:
    """g(f(x)) => h(x), where one op gives exactly the same."""
    if not isinstance(value, Apply) or value.params or len(value.x) != 1:
        return value
    below = value.x[0]
    if not isinstance(below, Apply) or below.params or len(below.x) != 1:
        return value
    merged = below.op.merge(value.op)
    return value if merged is None else Apply(merged, below.x, (), value.line)


def crop_before_cast(value: Value) -> Value:
    """crop(cast(x), window) => cast(crop(x, window)): fewer pixels to convert, and the window alone to decode.

    What lies outside of an image is 0 in every dtype. A cast image that is also used elsewhere stays beside this.
    """
    if not isinstance(value, Apply) or not isinstance(value.op, Crop):
        return value
    whole = value.x[0]
    if not isinstance(whole, Apply) or not isinstance(whole.op, Cast | ConvertImageDtype):
        return value
    return Apply(whole.op, (Apply(value.op, whole.x, value.params, value.line),), (), whole.line)


def fuse_crop_mirror_normalize(value: Value) -> Value:
    """transpose(normalize(flip(crop(x)))) => crop_mirror_normalize(x): one pass over the pixels.

    A cropped, flipped or normalised image that is also used elsewhere is then computed twice, which costs less than
    another pass over the whole image.
    """
    if not isinstance(value, Apply):
        return value
    match value.op:
        case Normalize(mean=mean, std=std) if value.x[0].spec.layout == "HWC":
            x, flip, crop = value.x[0], None, None
            if isinstance(x, Apply) and isinstance(x.op, Flip) and x.op.direction == "left_right":
                flip, x = x, x.x[0]
            if isinstance(x, Apply) and isinstance(x.op, Crop) and (not x.op.pad or _inside(x)):
                crop, x = x, x.x[0]
            window = replace(crop.op, pad=False) if crop is not None and isinstance(crop.op, Crop) else None
            params = (*(crop.params if crop else ()), *(flip.params if flip else ()))
            fused = CropMirrorNormalize(mean, std, "HWC", flip is not None, window)
            return Apply(fused, (x,), params, value.line)
        case Transpose(layout="CHW"):
            done = value.x[0]
            if isinstance(done, Apply) and isinstance(done.op, CropMirrorNormalize) and done.op.layout == "HWC":
                return Apply(replace(done.op, layout="CHW"), done.x, done.params, value.line)
    return value


def _inside(crop: Apply) -> bool:
    """Whether the window of a crop that pads lies inside every image: `center_crop` after `resize_shorter`, mostly.

    It does if no side of the image is shorter, as the windows that pad are those around a centre.
    """
    image, op = crop.x[0], crop.op
    maker = crop.params[0].value if isinstance(crop.params[0], Item) else None
    if not isinstance(op, Crop) or op.height is None or op.width is None:
        return False
    if not isinstance(maker, Draw) or not isinstance(maker.op, CenterCrop):
        return False
    height, width = (image.spec.shape or (None, None))[:2]
    if height is not None and width is not None:
        return height >= op.height and width >= op.width
    drawn = image.params[0] if isinstance(image, Apply) and image.params else None
    resized = drawn.value.op if isinstance(drawn, Item) and isinstance(drawn.value, Draw) else None
    length = resized.length if isinstance(resized, ResizeShorter) and resized.max_size is None else None
    return isinstance(length, int) and length >= max(op.height, op.width)


def approximate_decode(values: Sequence[Value]) -> tuple[Value, ...]:
    """resize(crop(decode(data), window), size) => resize_window(decode_smaller(data, window, size), size): less work.

    The crop may be missing, and nothing else may use the decoded image. Unlike any other rule it changes pixels, so
    `Options.approximate_decode` enables it.
    """
    consumers = _consumers(values)

    def rule(value: Value) -> Value:
        if not isinstance(value, Apply) or not isinstance(value.op, Resize) or value.op.method == "nearest":
            return value
        image, window = value.x[0], tuple[Value, ...]()
        if isinstance(image, Apply) and isinstance(image.op, Crop) and not image.op.pad and consumers[image] == 1:
            window, image = image.params, image.x[0]
        if not isinstance(image, Apply) or not isinstance(image.op, Decoding) or consumers[image] != 1:
            return value
        if not image.op.decodes:
            return value
        smaller = Apply(DecodeSmaller(image.op, bool(window)), image.x, (*window, *value.params), image.line)
        return Apply(ResizeWindow(value.op), (Item(smaller, 0), Item(smaller, 1)), value.params, value.line)

    return rewrite_values(values, rule)


def fuse_resize_flip(values: Sequence[Value]) -> tuple[Value, ...]:
    """flip(resize(x)) => resize_flip(x), if nothing else uses the resized image: one pass over the pixels.

    On the host the pixels stay the same; DALI's differ by what its resize is off anyway. Its flips write beyond their
    memory if there are no channels, so their number has to be known. On a GPU, where `crop_mirror_normalize` mirrors at
    no cost, the placer does not apply the rule.
    """
    consumers = _consumers(values)

    def rule(value: Value) -> Value:
        if not isinstance(value, Apply) or not isinstance(value.op, Flip) or value.op.direction != "left_right":
            return value
        image = value.x[0]
        if not isinstance(image, Apply) or not isinstance(image.op, Resize) or image.op.method != "bilinear":
            return value
        if consumers[image] != 1 or image.spec.shape is None or not image.spec.shape[2]:
            return value
        return Apply(ResizeFlip(image.op), image.x, (*image.params, *value.params), value.line)

    return rewrite_values(values, rule)


def fuse_decode_crop(values: Sequence[Value]) -> tuple[Value, ...]:
    """crop(decode(data), window) => decode_crop(data, window), if nothing else uses the decoded image."""
    consumers = _consumers(values)

    def rule(value: Value) -> Value:
        if not isinstance(value, Apply) or not isinstance(value.op, Crop) or value.op.pad:
            return value
        decode = value.x[0]
        if not isinstance(decode, Apply) or not decode.op.decodes or decode.params or consumers[decode] != 1:
            return value
        fused = DecodeCrop.of(decode.op, value.op)
        return value if fused is None else Apply(fused, decode.x, value.params, value.line)

    return rewrite_values(values, rule)


def fuse_decode_resize_crop(values: Sequence[Value]) -> tuple[Value, ...]:
    """crop(resize(decode(data), size), window) => decode_resize_crop(data, size, window), of what nothing else uses.

    The resize has antialias. Only "fast" gains by it, so for other executors the placer does not apply the rule.
    """
    consumers = _consumers(values)

    def rule(value: Value) -> Value:
        if not isinstance(value, Apply) or not isinstance(value.op, Crop) or (value.op.pad and not _inside(value)):
            return value
        resized = value.x[0]
        if not isinstance(resized, Apply) or not isinstance(resized.op, Resize) or consumers[resized] != 1:
            return value
        if not resized.op.antialias or resized.op.method == "nearest":
            return value
        decode = resized.x[0]
        if not isinstance(decode, Apply) or not isinstance(decode.op, Decoding) or not decode.op.decodes:
            return value
        if consumers[decode] != 1:
            return value
        fused = DecodeResizeCrop(decode.op, resized.op, replace(value.op, pad=False))
        return Apply(fused, decode.x, (*resized.params, *value.params), value.line)

    return rewrite_values(values, rule)


def prune_features(values: Sequence[Value]) -> tuple[Value, ...]:
    """parse(record, features)[k] => parse(record, the features that are used)[k]: the rest is skipped, not parsed."""
    used: dict[Value, set[int]] = {}
    for value in topological(values):
        if (
            isinstance(value, Item)
            and isinstance(value.value, Apply)
            and isinstance(value.value.op, ParseSingleExample)
        ):
            used.setdefault(value.value, set()).add(value.index)

    def rule(value: Value) -> Value:
        if not isinstance(value, Item) or value.value not in used:
            return value
        parse = value.value
        assert isinstance(parse, Apply) and isinstance(parse.op, ParseSingleExample)
        names = [parse.op.features[i][0] for i in sorted(used[parse])]
        if len(names) == len(parse.op.features):
            return value
        pruned = Apply(parse.op.select(names), parse.x, (), parse.line)
        if len(names) == 1:  # an op with one result is its value
            return pruned
        return Item(pruned, names.index(parse.op.features[value.index][0]))

    return rewrite_values(values, rule)


_PASSES: dict[str, Callable[[Sequence[Value]], tuple[Value, ...]]] = {
    "prune_features": prune_features,
    "decompose": partial(rewrite_values, rule=decompose),
    "drop_identities": partial(rewrite_values, rule=drop_identities),
    "merge_adjacent": partial(rewrite_values, rule=merge_adjacent),
    "crop_before_cast": partial(rewrite_values, rule=crop_before_cast),
    "approximate_decode": approximate_decode,
    "fuse_decode_crop": fuse_decode_crop,
    "fuse_decode_resize_crop": fuse_decode_resize_crop,
    "fuse_resize_flip": fuse_resize_flip,
    "fuse_crop_mirror_normalize": partial(rewrite_values, rule=fuse_crop_mirror_normalize),
}
"""The rules, each over a whole graph, in the order in which they run."""

GRAPH_RULES = tuple(_PASSES)
"""The names of the rules, which `Options.disabled_rules` can list."""


def optimize_values(
    values: Sequence[Value], disabled: Collection[str] = (), approximate: bool = False
) -> tuple[tuple[Value, ...], dict[str, int]]:
    """Rewrite a graph until nothing changes.

    Args:
        values: the graph.
        disabled: rules that are not applied.
        approximate: whether the rule that changes pixels may be.

    Returns:
        The new values, and how often each rule changed them.
    """
    fired: Counter[str] = Counter()
    now = tuple(values)
    for name, rewritten in _PASSES.items():
        if name in disabled or (name == "approximate_decode" and not approximate):
            continue
        for _ in range(len(topological(now)) + 1):
            new = rewritten(now)
            if new == now:
                break
            fired[name] += 1
            now = new
    return now, dict(fired)


def _consumers(values: Sequence[Value]) -> Counter[Value]:
    """Count the values (or outputs) that use each value as an input; sizes that a draw reads do not count."""
    users: Counter[Value] = Counter(values)
    for value in topological(values, through_draws=False):
        if isinstance(value, Apply):
            users.update(value.x)
    return users
