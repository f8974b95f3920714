from schemas.openconfig import types_pb2 as _types_pb2
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RemoteDownload(_message.Message):
    __slots__ = ("path", "protocol", "credentials", "source_address", "source_vrf")
    class Protocol(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNKNOWN: _ClassVar[RemoteDownload.Protocol]
        SFTP: _ClassVar[RemoteDownload.Protocol]
        HTTP: _ClassVar[RemoteDownload.Protocol]
        HTTPS: _ClassVar[RemoteDownload.Protocol]
        SCP: _ClassVar[RemoteDownload.Protocol]
    UNKNOWN: RemoteDownload.Protocol
    SFTP: RemoteDownload.Protocol
    HTTP: RemoteDownload.Protocol
    HTTPS: RemoteDownload.Protocol
    SCP: RemoteDownload.Protocol
    PATH_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    CREDENTIALS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_VRF_FIELD_NUMBER: _ClassVar[int]
    path: str
    protocol: RemoteDownload.Protocol
    credentials: _types_pb2.Credentials
    source_address: str
    source_vrf: str
    def __init__(self, path: _Optional[str] = ..., protocol: _Optional[_Union[RemoteDownload.Protocol, str]] = ..., credentials: _Optional[_Union[_types_pb2.Credentials, _Mapping]] = ..., source_address: _Optional[str] = ..., source_vrf: _Optional[str] = ...) -> None: ...
