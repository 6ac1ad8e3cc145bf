"""The wire's messages, from their descriptors, in a pool of their own.

A private pool cannot clash with other protos of the app, and needs no generated code that fits one version of
protobuf only.
"""
from __future__ import annotations

import functools
import pathlib
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_POOL = descriptor_pool.DescriptorPool()


@functools.lru_cache(maxsize=None)
def _load() -> None:
    data = pathlib.Path(__file__).with_name("wire.binpb").read_bytes()
    for file in descriptor_pb2.FileDescriptorSet.FromString(data).file:
        _POOL.AddSerializedFile(file.SerializeToString())


@functools.lru_cache(maxsize=None)
def message(name: str) -> Any:
    """The class of a message: "ChatRequest" of rumbo.v1, or a full name such as "google.rpc.Status"."""
    _load()
    full = name if "." in name else f"rumbo.v1.{name}"
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(full))


@functools.lru_cache(maxsize=None)
def method(service: str, name: str) -> tuple[str, Any, Any]:
    """Path, request class and response class of an RPC."""
    _load()
    found = _POOL.FindServiceByName(f"rumbo.v1.{service}").FindMethodByName(name)
    request, response = (message_factory.GetMessageClass(t) for t in (found.input_type, found.output_type))
    return f"/rumbo.v1.{service}/{name}", request, response
