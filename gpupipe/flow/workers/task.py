"""task: an element that a worker process works on."""

from __future__ import annotations

from typing import Any

from ...classes import dataclass
from ...errors import DataError
from ...spec import Structure
from ..bad.found import bad_element
from ..check import same_structure
from ..element import Element, Hole
from ..maps.python_function import PythonFunction

__all__ = ["Task"]


@dataclass(eq=False, slots=True)
class Task:
    """An element on its way through a worker.

    Attributes:
        element: the input.
        function: the function of the step.
        epoch: the epoch of the pass.
        step: the flow of the pass.
        value: the columns of the result, or a hole.
        structure: structure of the result, if it has to be that of the first one.
        raised: an exception that ends the run.
    """

    element: Element
    function: PythonFunction
    epoch: int
    step: Any
    value: Any = None
    structure: Structure | None = None
    raised: BaseException | None = None

    def done(self) -> bool:
        return self.value is not None or self.raised is not None

    def result(self) -> Element:
        """Return the result as an element, its structure checked against that of the first one.

        Raises:
            BaseException: the function ended the run, see `errors.ends_run`.
        """
        if self.raised is not None:
            raise self.raised
        _, stream, position = self.element
        who = self.function.who
        if type(self.value) is Hole:
            return bad_element(
                self.value.error.at(stream.name, position, who, stream.unit), stream, position, self.step
            )
        elif self.structure is not None:
            try:
                same_structure(who, self.structure, self.function.seen)
            except DataError as error:
                return bad_element(error.at(stream.name, position, who, stream.unit), stream, position, self.step)
        return self.value, stream, position
