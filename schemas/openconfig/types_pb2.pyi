from google.protobuf import descriptor_pb2 as _descriptor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class L3Protocol(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UNSPECIFIED: _ClassVar[L3Protocol]
    IPV4: _ClassVar[L3Protocol]
    IPV6: _ClassVar[L3Protocol]
UNSPECIFIED: L3Protocol
IPV4: L3Protocol
IPV6: L3Protocol
GNOI_VERSION_FIELD_NUMBER: _ClassVar[int]
gnoi_version: _descriptor.FieldDescriptor

class HashType(_message.Message):
    __slots__ = ("method", "hash")
    class HashMethod(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNSPECIFIED: _ClassVar[HashType.HashMethod]
        SHA256: _ClassVar[HashType.HashMethod]
        SHA512: _ClassVar[HashType.HashMethod]
        MD5: _ClassVar[HashType.HashMethod]
    UNSPECIFIED: HashType.HashMethod
    SHA256: HashType.HashMethod
    SHA512: HashType.HashMethod
    MD5: HashType.HashMethod
    METHOD_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    method: HashType.HashMethod
    hash: bytes
    def __init__(self, method: _Optional[_Union[HashType.HashMethod, str]] = ..., hash: _Optional[bytes] = ...) -> None: ...

class Path(_message.Message):
    __slots__ = ("origin", "elem")
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    ELEM_FIELD_NUMBER: _ClassVar[int]
    origin: str
    elem: _containers.RepeatedCompositeFieldContainer[PathElem]
    def __init__(self, origin: _Optional[str] = ..., elem: _Optional[_Iterable[_Union[PathElem, _Mapping]]] = ...) -> None: ...

class PathElem(_message.Message):
    __slots__ = ("name", "key")
    class KeyEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    name: str
    key: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[str] = ..., key: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Credentials(_message.Message):
    __slots__ = ("username", "cleartext", "hashed")
    USERNAME_FIELD_NUMBER: _ClassVar[int]
    CLEARTEXT_FIELD_NUMBER: _ClassVar[int]
    HASHED_FIELD_NUMBER: _ClassVar[int]
    username: str
    cleartext: str
    hashed: HashType
    def __init__(self, username: _Optional[str] = ..., cleartext: _Optional[str] = ..., hashed: _Optional[_Union[HashType, _Mapping]] = ...) -> None: ...
