"""The inputs that fuzzing has saved: each is survived, in little memory."""

from __future__ import annotations

from functools import partial

import pytest

from tests.fuzz.replay import CORPUS, TARGETS, inputs, peak_of, target


@pytest.mark.parametrize("name", TARGETS)
def test_every_saved_input_is_survived_in_little_memory(name: str) -> None:
    one = target(name)
    saved = list(inputs(CORPUS / name))
    assert saved
    one(saved[0][1])  # imports

    for file, data in saved:
        try:
            peak = peak_of(partial(one, data))
        except Exception as error:
            raise AssertionError(f"the input {name}/{file} is not survived") from error
        assert peak < 16 << 20, f"{name}/{file}"


def test_the_saved_inputs_are_few_and_small() -> None:
    sizes = [len(data) for name in TARGETS for _, data in inputs(CORPUS / name)]

    assert len(sizes) < 400
    assert sum(sizes) < 1_000_000
