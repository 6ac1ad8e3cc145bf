"""Between the wire's messages and the values of rumbo.types, by field names."""
from __future__ import annotations

import dataclasses
import functools
import types as builtin_types
import typing
from typing import Any, Callable, TypeVar

from . import types

T = TypeVar("T")


def _is_value(kind: Any) -> bool:
    return dataclasses.is_dataclass(kind)


def _reader(name: str, hint: Any) -> Callable[[Any], Any]:
    """A function that reads one field of a message as the type that the value has."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is list:
        item = args[0]
        if _is_value(item):
            return lambda message: [from_wire(item, element) for element in getattr(message, name)]
        return lambda message: list(getattr(message, name))
    if origin is dict:
        return lambda message: dict(getattr(message, name))
    if origin in (typing.Union, builtin_types.UnionType):
        inner = _reader(name, next(a for a in args if a is not type(None)))
        return lambda message: inner(message) if message.HasField(name) else None
    if _is_value(hint):
        return lambda message: from_wire(hint, getattr(message, name))
    return lambda message: getattr(message, name)


@functools.lru_cache(maxsize=None)
def _readers(kind: Any) -> list[tuple[str, Callable[[Any], Any]]]:
    hints = typing.get_type_hints(kind)
    return [(f.name, _reader(f.name, hints[f.name])) for f in dataclasses.fields(kind)]


def from_wire(kind: type[T], message: Any) -> T:
    readers = _readers(typing.cast(typing.Hashable, kind))
    return kind(**{name: read(message) for name, read in readers})


def fill(message: Any, value: Any) -> None:
    """Sets the fields of `message` that `value` (a dataclass) has; None stays unset."""
    for f in dataclasses.fields(value):
        item = getattr(value, f.name)
        if item is None or item == "":  # "" is what absent texts are; an older wire may not know the field
            continue
        if dataclasses.is_dataclass(item):
            fill(getattr(message, f.name), item)
            getattr(message, f.name).SetInParent()
        elif isinstance(item, list):
            target = getattr(message, f.name)
            for element in item:
                if dataclasses.is_dataclass(element):
                    fill(target.add(), element)
                else:
                    target.append(element)
        else:
            setattr(message, f.name, item)


def fill_message(message: Any, turn: Any) -> None:
    """One turn of a conversation: a types.Message, or a mapping with "role" and "content"."""
    if not isinstance(turn, types.Message):
        turn = types.Message(role=turn["role"], text=turn["content"])
    message.role = turn.role
    if turn.text or not turn.tool_calls:
        message.content.add().text = turn.text
    for call in turn.tool_calls:
        fill(message.tool_calls.add(), call)
    message.tool_call_id, message.name, message.reasoning = turn.tool_call_id, turn.name, turn.reasoning
