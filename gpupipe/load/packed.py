"""packed: long parts of a state as compressed text."""

from __future__ import annotations

import base64
import json
import zlib

from ..flow.state.snapshot import MOST, State, as_int, corrupt_state

__all__ = ["packed", "unpacked"]

_PLAIN = 2000
"""Characters up to which a part of a state is not compressed, so that people can read it."""


def packed(flow: State) -> State:
    """Compress a part of a state if it is long: many steps, files or leaves repeat the same text."""
    text = json.dumps(flow, separators=(",", ":"))
    if len(text) <= _PLAIN:
        return flow
    return {"zlib": base64.b64encode(zlib.compress(text.encode(), 3)).decode(), "letters": len(text)}


def unpacked(flow: State) -> State:
    """Decompress a part of a state; its length is bounded, as the state is not trusted.

    Raises:
        StateError: the part is damaged.
    """
    if not isinstance(flow, dict) or "zlib" not in flow:
        return flow
    letters = as_int(flow["letters"], "letters")
    if max(letters, len(flow["zlib"])) > MOST:
        raise corrupt_state()
    inflater = zlib.decompressobj()
    data = inflater.decompress(base64.b64decode(flow["zlib"], validate=True), letters + 1)
    if len(data) != letters or not inflater.eof:
        raise corrupt_state()
    return json.loads(data)
