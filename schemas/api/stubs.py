"""Clients of the services, built from their descriptors, as the server's handlers are (commands/rpc/middleware.py).

The code of grpc's own generator would add two classes per service with every method written out: a client, and a server
whose methods are empty. Both would have to be kept in step with the contract.
"""

from __future__ import annotations

from typing import Any, ClassVar

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

from schemas.api import dpuplane_pb2 as pb

_SERVICES = pb.DESCRIPTOR.services_by_name


class ServiceStub:
    """A client with one callable per method of its service, on a channel of grpc or grpc.aio."""

    SERVICE: ClassVar[ServiceDescriptor]

    def __init__(self, channel: Any) -> None:
        for method in self.SERVICE.methods:
            asked = "stream" if method.client_streaming else "unary"
            answered = "stream" if method.server_streaming else "unary"
            call = getattr(channel, f"{asked}_{answered}")(
                f"/{self.SERVICE.full_name}/{method.name}",
                request_serializer=GetMessageClass(method.input_type).SerializeToString,
                response_deserializer=GetMessageClass(method.output_type).FromString,
            )
            setattr(self, method.name, call)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{self.SERVICE.full_name} has no method {name}")


class CommandsStub(ServiceStub):
    """A client of dpuplane.v1.Commands."""

    SERVICE = _SERVICES["Commands"]


class StreamsStub(ServiceStub):
    """A client of dpuplane.v1.Streams."""

    SERVICE = _SERVICES["Streams"]


class QueriesStub(ServiceStub):
    """A client of dpuplane.v1.Queries."""

    SERVICE = _SERVICES["Queries"]
