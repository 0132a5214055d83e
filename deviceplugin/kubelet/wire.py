"""gRPC without generated services: handlers and callers made from the .proto descriptors."""

from collections.abc import Callable, Mapping
from typing import Any

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor import FileDescriptor, MethodDescriptor

__all__ = ["SOCKET_OPTIONS", "address", "caller", "handlers"]

SOCKET_OPTIONS = (
    # A list of pods with all their ids can pass gRPC's 4 MiB; the kubelet sends 16 MiB at most.
    ("grpc.max_receive_message_length", 64 << 20),
    # A proxy from the environment is not for sockets of this node.
    ("grpc.enable_http_proxy", 0),
    # Each socket is dialled for itself: a channel to a restarted kubelet must not share the dead
    # connection, nor the growing pauses between attempts, of the one before.
    ("grpc.use_local_subchannel_pool", 1),
)


def address(path: object) -> str:
    return f"unix:{path}"


def handlers(
    file: FileDescriptor, service: str, methods: Mapping[str, Callable[[Any, Any], Any]]
) -> grpc.GenericRpcHandler:
    """Answers the calls of a service by these functions of request and context."""
    made = {}
    for name, function in methods.items():
        method = _method(file, service, name)
        make = (
            grpc.unary_stream_rpc_method_handler
            if method.server_streaming
            else grpc.unary_unary_rpc_method_handler
        )
        made[name] = make(
            function,
            request_deserializer=message_factory.GetMessageClass(method.input_type).FromString,
            response_serializer=_serialize,
        )
    return grpc.method_handlers_generic_handler(f"{file.package}.{service}", made)


def caller(
    channel: grpc.Channel,
    file: FileDescriptor,
    service: str,
    name: str,
    answer: type[Any] | None = None,
) -> Any:
    """What calls a method: takes a request, and a timeout by name. `answer` reads the same bytes
    into other messages than the method's own."""
    method = _method(file, service, name)
    make = channel.unary_stream if method.server_streaming else channel.unary_unary
    return make(
        f"/{file.package}.{service}/{name}",
        request_serializer=_serialize,
        response_deserializer=(
            answer or message_factory.GetMessageClass(method.output_type)
        ).FromString,
    )


def _method(file: FileDescriptor, service: str, name: str) -> MethodDescriptor:
    method: MethodDescriptor = file.services_by_name[service].methods_by_name[name]
    return method


def _serialize(message: Any) -> bytes:
    """Whoever sends the same again may have done it already."""
    serialized: bytes = message if isinstance(message, bytes) else message.SerializeToString()
    return serialized
