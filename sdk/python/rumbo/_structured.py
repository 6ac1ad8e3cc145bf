"""Answers of a given shape: the JSON Schema that a Python type stands for, and values of it out of answers."""
from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Union

from .errors import RumboError
from .types import Answer


class WrongShape(RumboError):
    """The answer does not have the shape that was asked for; `text` is what came."""

    def __init__(self, message: str, text: str) -> None:
        super().__init__(message, code="DATA_LOSS", reason="WRONG_SHAPE",
                         next_step="Allow more tokens, or simplify the shape.")
        self.text = text


def schema_of(shape: Any) -> tuple[str, Callable[[Answer], Any]]:
    """The schema as text, and what makes a value of an answer.

    shape: a JSON Schema as a dict, or whatever pydantic understands: a model class, a dataclass, `list[int]` ...
    Raises TypeError where pydantic is needed and not there.
    """
    if isinstance(shape, Mapping):
        return json.dumps(shape, ensure_ascii=False), _read(lambda text: json.loads(text))
    try:
        from pydantic import TypeAdapter
    except ImportError:
        raise TypeError("shapes other than a JSON Schema in a dict need pydantic 2: pip install pydantic") from None
    adapter = TypeAdapter(shape)
    return json.dumps(adapter.json_schema(), ensure_ascii=False), _read(adapter.validate_json)


def _read(parse: Callable[[Union[str, bytes]], Any]) -> Callable[[Answer], Any]:
    def read(answer: Answer) -> Any:
        try:
            return parse(answer.text)
        except ValueError as error:
            raise WrongShape(f"the answer does not fit the shape (it ended by {answer.finished.reason}): {error}",
                             answer.text) from None

    return read
