"""The iterators of TensorFlow 1 have a state too."""

from __future__ import annotations

from typing import Any

import pytest

import gpupipe as gp
from gpupipe.compat import NotInitializedError, make_initializable_iterator, make_one_shot_iterator
from tests.reliability.resume import through_json


def numbers() -> gp.Dataset:
    return gp.Dataset.range(9).shuffle(9)


def rest(items: Any) -> list[int]:
    return [int(x) for x in items]


def test_a_one_shot_iterator_goes_on() -> None:
    whole = rest(make_one_shot_iterator(numbers()))
    with make_one_shot_iterator(numbers()) as items:
        before = [int(items.get_next()) for _ in range(4)]
        state = through_json(items.state_dict())
    with make_one_shot_iterator(numbers()) as items:
        items.load_state_dict(state)
        assert before + rest(items) == whole
        assert items.state_dict()["stand"] == "end"


@pytest.mark.parametrize("begun", [False, True])
def test_an_initializable_iterator_goes_on_in_its_pass(begun: bool) -> None:
    def epochs(items: Any) -> list[list[int]]:
        out = []
        for _ in range(2):
            items.initializer()
            out.append(rest(items))
        return out

    whole = make_initializable_iterator(numbers())
    passes = epochs(whole)
    with make_initializable_iterator(numbers()) as items:
        items.initializer()
        list(items)
        items.initializer()
        before = [int(items.get_next()) for _ in range(4)]
        state = through_json(items.state_dict())
    dataset = numbers()
    with make_initializable_iterator(dataset) as items:
        if begun:
            items.initializer()
        items.load_state_dict(state)
        assert before + rest(items) == passes[1]
        items.initializer()  # the next pass
        assert rest(items) == rest(numbers().iterator(epoch=2))


def test_what_cannot_be_is_refused() -> None:
    with make_initializable_iterator(numbers()) as items:
        with pytest.raises(NotInitializedError, match=r"state_dict needs .* call initializer\(\) first"):
            items.state_dict()
        with pytest.raises(gp.StateError):
            items.load_state_dict({})
        with pytest.raises(NotInitializedError):  # a state that was refused has begun nothing
            items.get_next()
    with make_one_shot_iterator(numbers()) as items:
        items.get_next()
        state = items.state_dict()
        with pytest.raises(gp.PlanError, match="has not started"):
            items.load_state_dict(state)
