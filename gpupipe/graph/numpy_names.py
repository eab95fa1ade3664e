"""numpy_names: functions and methods of NumPy, and the ops that do the same with traced values."""

from __future__ import annotations

__all__ = ["METHODS", "UFUNCS", "instead"]

UFUNCS = {
    "add": "add", "subtract": "sub", "multiply": "mul", "divide": "truediv", "true_divide": "truediv",
    "floor_divide": "floordiv", "remainder": "mod", "power": "pow", "bitwise_and": "and", "bitwise_or": "or",
    "bitwise_xor": "xor", "less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge", "equal": "eq",
    "not_equal": "ne", "negative": "neg", "invert": "invert", "absolute": "abs", "minimum": "minimum",
    "maximum": "maximum",
}  # fmt: skip
"""NumPy's functions that are operators."""

_FUNCTIONS = {
    "where": "ops.where(condition, a, b)",
    "clip": "ops.clip(x, low, high)",
    "minimum": "ops.minimum(a, b)",
    "maximum": "ops.maximum(a, b)",
    "fmin": "ops.minimum(a, b)",
    "fmax": "ops.maximum(a, b)",
    "reshape": "ops.reshape(x, shape)",
    "ravel": "ops.reshape(x, (-1,))",
    "expand_dims": "ops.expand_dims(x, axis)",
    "atleast_1d": "ops.reshape(x, (-1,))",
    "squeeze": "ops.squeeze(x, axis)",
    "stack": "ops.stack(values, axis)",
    "dstack": "ops.concat(values, -1)",
    "hstack": "ops.concat(values, axis)",
    "vstack": "ops.concat(values, axis)",
    "concatenate": "ops.concat(values, axis)",
    "take": "ops.gather(x, indices, axis)",
    "transpose": "ops.transpose(image, layout)",
    "moveaxis": "ops.transpose(image, layout)",
    "rot90": "ops.rot90(image, k)",
    "fliplr": "ops.flip_left_right(image)",
    "flipud": "ops.flip_up_down(image)",
    "flip": "ops.flip_left_right(image) or ops.flip_up_down(image)",
    "pad": "ops.pad(image, padding)",
    "astype": "ops.cast(x, dtype)",
    "bitwise_not": "~x",
    "logical_not": "~x",
    "logical_and": "a & b",
    "logical_or": "a | b",
    "logical_xor": "a ^ b",
    "square": "x * x",
}
"""What to write in place of a function."""


METHODS = {
    name: _FUNCTIONS[name] for name in ("astype", "clip", "ravel", "reshape", "squeeze", "take", "transpose")
} | {"flatten": _FUNCTIONS["ravel"]}
"""What to write in place of a method."""


def instead(name: str) -> str:
    """What to write in place of a function of NumPy; "" if no op does it."""
    return _FUNCTIONS.get(name, "")
