from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FromAgent(_message.Message):
    __slots__ = ("hello", "ack", "heartbeat", "network_ack")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    NETWORK_ACK_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    ack: Ack
    heartbeat: Heartbeat
    network_ack: NetworkAck
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., ack: _Optional[_Union[Ack, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., network_ack: _Optional[_Union[NetworkAck, _Mapping]] = ...) -> None: ...

class ToAgent(_message.Message):
    __slots__ = ("welcome", "go_away", "frame", "heartbeat_reply", "network", "group")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    GO_AWAY_FIELD_NUMBER: _ClassVar[int]
    FRAME_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_REPLY_FIELD_NUMBER: _ClassVar[int]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    go_away: GoAway
    frame: Frame
    heartbeat_reply: HeartbeatReply
    network: Network
    group: bytes
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., go_away: _Optional[_Union[GoAway, _Mapping]] = ..., frame: _Optional[_Union[Frame, _Mapping]] = ..., heartbeat_reply: _Optional[_Union[HeartbeatReply, _Mapping]] = ..., network: _Optional[_Union[Network, _Mapping]] = ..., group: _Optional[bytes] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol", "zone", "dpus", "boot_ids", "statuses", "takes_networks", "networks")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    DPUS_FIELD_NUMBER: _ClassVar[int]
    BOOT_IDS_FIELD_NUMBER: _ClassVar[int]
    STATUSES_FIELD_NUMBER: _ClassVar[int]
    TAKES_NETWORKS_FIELD_NUMBER: _ClassVar[int]
    NETWORKS_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    zone: str
    dpus: _containers.RepeatedScalarFieldContainer[str]
    boot_ids: _containers.RepeatedScalarFieldContainer[str]
    statuses: _containers.RepeatedCompositeFieldContainer[TableStatus]
    takes_networks: bool
    networks: _containers.RepeatedCompositeFieldContainer[NetworkStatus]
    def __init__(self, protocol: _Optional[int] = ..., zone: _Optional[str] = ..., dpus: _Optional[_Iterable[str]] = ..., boot_ids: _Optional[_Iterable[str]] = ..., statuses: _Optional[_Iterable[_Union[TableStatus, _Mapping]]] = ..., takes_networks: _Optional[bool] = ..., networks: _Optional[_Iterable[_Union[NetworkStatus, _Mapping]]] = ...) -> None: ...

class TableStatus(_message.Message):
    __slots__ = ("dpus", "epoch", "received", "applied", "in_hardware", "digest")
    DPUS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    IN_HARDWARE_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    dpus: bytes
    epoch: int
    received: int
    applied: int
    in_hardware: int
    digest: bytes
    def __init__(self, dpus: _Optional[bytes] = ..., epoch: _Optional[int] = ..., received: _Optional[int] = ..., applied: _Optional[int] = ..., in_hardware: _Optional[int] = ..., digest: _Optional[bytes] = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("statuses", "refusals")
    STATUSES_FIELD_NUMBER: _ClassVar[int]
    REFUSALS_FIELD_NUMBER: _ClassVar[int]
    statuses: _containers.RepeatedCompositeFieldContainer[TableStatus]
    refusals: _containers.RepeatedCompositeFieldContainer[Refusal]
    def __init__(self, statuses: _Optional[_Iterable[_Union[TableStatus, _Mapping]]] = ..., refusals: _Optional[_Iterable[_Union[Refusal, _Mapping]]] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("status", "version", "code", "reason")
    class Code(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        CODE_UNSPECIFIED: _ClassVar[Refusal.Code]
        CODE_OLDER_VERSION: _ClassVar[Refusal.Code]
        CODE_UNKNOWN_BASE: _ClassVar[Refusal.Code]
        CODE_DIGEST_MISMATCH: _ClassVar[Refusal.Code]
        CODE_TABLE_FULL: _ClassVar[Refusal.Code]
        CODE_MALFORMED: _ClassVar[Refusal.Code]
        CODE_DEVICE_FAILED: _ClassVar[Refusal.Code]
    CODE_UNSPECIFIED: Refusal.Code
    CODE_OLDER_VERSION: Refusal.Code
    CODE_UNKNOWN_BASE: Refusal.Code
    CODE_DIGEST_MISMATCH: Refusal.Code
    CODE_TABLE_FULL: Refusal.Code
    CODE_MALFORMED: Refusal.Code
    CODE_DEVICE_FAILED: Refusal.Code
    STATUS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    status: TableStatus
    version: int
    code: Refusal.Code
    reason: str
    def __init__(self, status: _Optional[_Union[TableStatus, _Mapping]] = ..., version: _Optional[int] = ..., code: _Optional[_Union[Refusal.Code, str]] = ..., reason: _Optional[str] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("statuses", "networks")
    STATUSES_FIELD_NUMBER: _ClassVar[int]
    NETWORKS_FIELD_NUMBER: _ClassVar[int]
    statuses: _containers.RepeatedCompositeFieldContainer[TableStatus]
    networks: _containers.RepeatedCompositeFieldContainer[NetworkStatus]
    def __init__(self, statuses: _Optional[_Iterable[_Union[TableStatus, _Mapping]]] = ..., networks: _Optional[_Iterable[_Union[NetworkStatus, _Mapping]]] = ...) -> None: ...

class NetworkStatus(_message.Message):
    __slots__ = ("dpus", "epoch", "received", "applied", "digest", "unresolved")
    DPUS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    UNRESOLVED_FIELD_NUMBER: _ClassVar[int]
    dpus: bytes
    epoch: int
    received: int
    applied: int
    digest: bytes
    unresolved: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, dpus: _Optional[bytes] = ..., epoch: _Optional[int] = ..., received: _Optional[int] = ..., applied: _Optional[int] = ..., digest: _Optional[bytes] = ..., unresolved: _Optional[_Iterable[str]] = ...) -> None: ...

class NetworkAck(_message.Message):
    __slots__ = ("statuses", "refusals")
    STATUSES_FIELD_NUMBER: _ClassVar[int]
    REFUSALS_FIELD_NUMBER: _ClassVar[int]
    statuses: _containers.RepeatedCompositeFieldContainer[NetworkStatus]
    refusals: _containers.RepeatedCompositeFieldContainer[NetworkRefusal]
    def __init__(self, statuses: _Optional[_Iterable[_Union[NetworkStatus, _Mapping]]] = ..., refusals: _Optional[_Iterable[_Union[NetworkRefusal, _Mapping]]] = ...) -> None: ...

class NetworkRefusal(_message.Message):
    __slots__ = ("status", "version", "code", "reason")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    status: NetworkStatus
    version: int
    code: Refusal.Code
    reason: str
    def __init__(self, status: _Optional[_Union[NetworkStatus, _Mapping]] = ..., version: _Optional[int] = ..., code: _Optional[_Union[Refusal.Code, str]] = ..., reason: _Optional[str] = ...) -> None: ...

class HeartbeatReply(_message.Message):
    __slots__ = ("epoch", "version", "frozen")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    FROZEN_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    version: int
    frozen: bool
    def __init__(self, epoch: _Optional[int] = ..., version: _Optional[int] = ..., frozen: _Optional[bool] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("epoch", "version", "frozen", "heartbeat_ms", "unserved")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    FROZEN_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_MS_FIELD_NUMBER: _ClassVar[int]
    UNSERVED_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    version: int
    frozen: bool
    heartbeat_ms: int
    unserved: _containers.RepeatedCompositeFieldContainer[Unserved]
    def __init__(self, epoch: _Optional[int] = ..., version: _Optional[int] = ..., frozen: _Optional[bool] = ..., heartbeat_ms: _Optional[int] = ..., unserved: _Optional[_Iterable[_Union[Unserved, _Mapping]]] = ...) -> None: ...

class Unserved(_message.Message):
    __slots__ = ("dpus", "reason", "retry_after_ms")
    DPUS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    dpus: bytes
    reason: str
    retry_after_ms: int
    def __init__(self, dpus: _Optional[bytes] = ..., reason: _Optional[str] = ..., retry_after_ms: _Optional[int] = ...) -> None: ...

class GoAway(_message.Message):
    __slots__ = ("reason", "retry_after_ms")
    REASON_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    reason: str
    retry_after_ms: int
    def __init__(self, reason: _Optional[str] = ..., retry_after_ms: _Optional[int] = ...) -> None: ...

class Frame(_message.Message):
    __slots__ = ("epoch", "from_version", "to_version", "digest", "steps")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FROM_VERSION_FIELD_NUMBER: _ClassVar[int]
    TO_VERSION_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    from_version: int
    to_version: int
    digest: bytes
    steps: _containers.RepeatedCompositeFieldContainer[Step]
    def __init__(self, epoch: _Optional[int] = ..., from_version: _Optional[int] = ..., to_version: _Optional[int] = ..., digest: _Optional[bytes] = ..., steps: _Optional[_Iterable[_Union[Step, _Mapping]]] = ...) -> None: ...

class Step(_message.Message):
    __slots__ = ("priority", "action", "protocol", "ports", "add4", "add6", "remove4", "remove6")
    class Action(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ACTION_UNSPECIFIED: _ClassVar[Step.Action]
        ACTION_ALLOW: _ClassVar[Step.Action]
        ACTION_DROP: _ClassVar[Step.Action]
    ACTION_UNSPECIFIED: Step.Action
    ACTION_ALLOW: Step.Action
    ACTION_DROP: Step.Action
    class Protocol(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        PROTOCOL_UNSPECIFIED: _ClassVar[Step.Protocol]
        PROTOCOL_ANY: _ClassVar[Step.Protocol]
        PROTOCOL_TCP: _ClassVar[Step.Protocol]
        PROTOCOL_UDP: _ClassVar[Step.Protocol]
        PROTOCOL_ICMP: _ClassVar[Step.Protocol]
    PROTOCOL_UNSPECIFIED: Step.Protocol
    PROTOCOL_ANY: Step.Protocol
    PROTOCOL_TCP: Step.Protocol
    PROTOCOL_UDP: Step.Protocol
    PROTOCOL_ICMP: Step.Protocol
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    PORTS_FIELD_NUMBER: _ClassVar[int]
    ADD4_FIELD_NUMBER: _ClassVar[int]
    ADD6_FIELD_NUMBER: _ClassVar[int]
    REMOVE4_FIELD_NUMBER: _ClassVar[int]
    REMOVE6_FIELD_NUMBER: _ClassVar[int]
    priority: int
    action: Step.Action
    protocol: Step.Protocol
    ports: _containers.RepeatedScalarFieldContainer[int]
    add4: bytes
    add6: bytes
    remove4: bytes
    remove6: bytes
    def __init__(self, priority: _Optional[int] = ..., action: _Optional[_Union[Step.Action, str]] = ..., protocol: _Optional[_Union[Step.Protocol, str]] = ..., ports: _Optional[_Iterable[int]] = ..., add4: _Optional[bytes] = ..., add6: _Optional[bytes] = ..., remove4: _Optional[bytes] = ..., remove6: _Optional[bytes] = ...) -> None: ...

class Network(_message.Message):
    __slots__ = ("epoch", "version", "digest", "document")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    version: int
    digest: bytes
    document: bytes
    def __init__(self, epoch: _Optional[int] = ..., version: _Optional[int] = ..., digest: _Optional[bytes] = ..., document: _Optional[bytes] = ...) -> None: ...
