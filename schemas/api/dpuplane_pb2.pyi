import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTCOME_UNSPECIFIED: _ClassVar[Outcome]
    OUTCOME_UNKNOWN: _ClassVar[Outcome]
    OUTCOME_DONE: _ClassVar[Outcome]
    OUTCOME_WAITING: _ClassVar[Outcome]
    OUTCOME_HELD: _ClassVar[Outcome]
    OUTCOME_REFUSED: _ClassVar[Outcome]
    OUTCOME_UNCHANGED: _ClassVar[Outcome]
OUTCOME_UNSPECIFIED: Outcome
OUTCOME_UNKNOWN: Outcome
OUTCOME_DONE: Outcome
OUTCOME_WAITING: Outcome
OUTCOME_HELD: Outcome
OUTCOME_REFUSED: Outcome
OUTCOME_UNCHANGED: Outcome

class CommandResult(_message.Message):
    __slots__ = ("command_id", "outcome", "reason", "index", "queue_position", "hold", "items", "position", "dry_run", "partitions", "reason_code", "reason_fields", "generation")
    class ReasonFieldsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    QUEUE_POSITION_FIELD_NUMBER: _ClassVar[int]
    HOLD_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REASON_CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELDS_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    command_id: str
    outcome: Outcome
    reason: str
    index: int
    queue_position: int
    hold: int
    items: _containers.RepeatedCompositeFieldContainer[ItemResult]
    position: str
    dry_run: DryRun
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionResult]
    reason_code: str
    reason_fields: _containers.ScalarMap[str, str]
    generation: int
    def __init__(self, command_id: _Optional[str] = ..., outcome: _Optional[_Union[Outcome, str]] = ..., reason: _Optional[str] = ..., index: _Optional[int] = ..., queue_position: _Optional[int] = ..., hold: _Optional[int] = ..., items: _Optional[_Iterable[_Union[ItemResult, _Mapping]]] = ..., position: _Optional[str] = ..., dry_run: _Optional[_Union[DryRun, _Mapping]] = ..., partitions: _Optional[_Iterable[_Union[PartitionResult, _Mapping]]] = ..., reason_code: _Optional[str] = ..., reason_fields: _Optional[_Mapping[str, str]] = ..., generation: _Optional[int] = ...) -> None: ...

class PartitionResult(_message.Message):
    __slots__ = ("partition", "outcome", "reason", "position", "reason_code", "reason_fields")
    class ReasonFieldsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    REASON_CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELDS_FIELD_NUMBER: _ClassVar[int]
    partition: str
    outcome: Outcome
    reason: str
    position: str
    reason_code: str
    reason_fields: _containers.ScalarMap[str, str]
    def __init__(self, partition: _Optional[str] = ..., outcome: _Optional[_Union[Outcome, str]] = ..., reason: _Optional[str] = ..., position: _Optional[str] = ..., reason_code: _Optional[str] = ..., reason_fields: _Optional[_Mapping[str, str]] = ...) -> None: ...

class DryRun(_message.Message):
    __slots__ = ("budget", "addresses", "effects", "resources", "steps")
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    EFFECTS_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    budget: str
    addresses: int
    effects: _containers.RepeatedCompositeFieldContainer[TableEffect]
    resources: _containers.RepeatedCompositeFieldContainer[ResourceChange]
    steps: _containers.RepeatedCompositeFieldContainer[PlanStep]
    def __init__(self, budget: _Optional[str] = ..., addresses: _Optional[int] = ..., effects: _Optional[_Iterable[_Union[TableEffect, _Mapping]]] = ..., resources: _Optional[_Iterable[_Union[ResourceChange, _Mapping]]] = ..., steps: _Optional[_Iterable[_Union[PlanStep, _Mapping]]] = ...) -> None: ...

class ResourceChange(_message.Message):
    __slots__ = ("before", "after", "faults")
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    FAULTS_FIELD_NUMBER: _ClassVar[int]
    before: Resource
    after: Resource
    faults: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, before: _Optional[_Union[Resource, _Mapping]] = ..., after: _Optional[_Union[Resource, _Mapping]] = ..., faults: _Optional[_Iterable[str]] = ...) -> None: ...

class PlanStep(_message.Message):
    __slots__ = ("action", "name", "owner", "changes")
    ACTION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    action: str
    name: ResourceName
    owner: ResourceName
    changes: _containers.RepeatedCompositeFieldContainer[FieldChange]
    def __init__(self, action: _Optional[str] = ..., name: _Optional[_Union[ResourceName, _Mapping]] = ..., owner: _Optional[_Union[ResourceName, _Mapping]] = ..., changes: _Optional[_Iterable[_Union[FieldChange, _Mapping]]] = ...) -> None: ...

class FieldChange(_message.Message):
    __slots__ = ("field", "before", "after")
    FIELD_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    field: str
    before: str
    after: str
    def __init__(self, field: _Optional[str] = ..., before: _Optional[str] = ..., after: _Optional[str] = ...) -> None: ...

class TableEffect(_message.Message):
    __slots__ = ("zones", "zone_count", "rules", "addresses_allowed", "addresses_denied")
    ZONES_FIELD_NUMBER: _ClassVar[int]
    ZONE_COUNT_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_ALLOWED_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_DENIED_FIELD_NUMBER: _ClassVar[int]
    zones: _containers.RepeatedScalarFieldContainer[str]
    zone_count: int
    rules: _containers.RepeatedCompositeFieldContainer[RuleEffect]
    addresses_allowed: int
    addresses_denied: int
    def __init__(self, zones: _Optional[_Iterable[str]] = ..., zone_count: _Optional[int] = ..., rules: _Optional[_Iterable[_Union[RuleEffect, _Mapping]]] = ..., addresses_allowed: _Optional[int] = ..., addresses_denied: _Optional[int] = ...) -> None: ...

class RuleEffect(_message.Message):
    __slots__ = ("policy", "action", "priority", "protocol", "ports", "prefixes_added", "prefixes_removed", "added", "removed")
    POLICY_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    PORTS_FIELD_NUMBER: _ClassVar[int]
    PREFIXES_ADDED_FIELD_NUMBER: _ClassVar[int]
    PREFIXES_REMOVED_FIELD_NUMBER: _ClassVar[int]
    ADDED_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    policy: str
    action: str
    priority: int
    protocol: str
    ports: _containers.RepeatedCompositeFieldContainer[PortRange]
    prefixes_added: int
    prefixes_removed: int
    added: _containers.RepeatedScalarFieldContainer[str]
    removed: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, policy: _Optional[str] = ..., action: _Optional[str] = ..., priority: _Optional[int] = ..., protocol: _Optional[str] = ..., ports: _Optional[_Iterable[_Union[PortRange, _Mapping]]] = ..., prefixes_added: _Optional[int] = ..., prefixes_removed: _Optional[int] = ..., added: _Optional[_Iterable[str]] = ..., removed: _Optional[_Iterable[str]] = ...) -> None: ...

class ItemResult(_message.Message):
    __slots__ = ("name", "outcome", "reason", "note", "reason_code", "reason_fields", "index", "queue_position", "generation")
    class ReasonFieldsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    REASON_CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELDS_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    QUEUE_POSITION_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    name: str
    outcome: Outcome
    reason: str
    note: str
    reason_code: str
    reason_fields: _containers.ScalarMap[str, str]
    index: int
    queue_position: int
    generation: int
    def __init__(self, name: _Optional[str] = ..., outcome: _Optional[_Union[Outcome, str]] = ..., reason: _Optional[str] = ..., note: _Optional[str] = ..., reason_code: _Optional[str] = ..., reason_fields: _Optional[_Mapping[str, str]] = ..., index: _Optional[int] = ..., queue_position: _Optional[int] = ..., generation: _Optional[int] = ...) -> None: ...

class JoinSummary(_message.Message):
    __slots__ = ("requests", "nodes", "done", "refused", "unknown", "refusals", "position", "not_appended", "errors")
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    REFUSALS_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    NOT_APPENDED_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    requests: int
    nodes: int
    done: int
    refused: int
    unknown: int
    refusals: _containers.RepeatedCompositeFieldContainer[CommandResult]
    position: str
    not_appended: int
    errors: _containers.RepeatedCompositeFieldContainer[RequestError]
    def __init__(self, requests: _Optional[int] = ..., nodes: _Optional[int] = ..., done: _Optional[int] = ..., refused: _Optional[int] = ..., unknown: _Optional[int] = ..., refusals: _Optional[_Iterable[_Union[CommandResult, _Mapping]]] = ..., position: _Optional[str] = ..., not_appended: _Optional[int] = ..., errors: _Optional[_Iterable[_Union[RequestError, _Mapping]]] = ...) -> None: ...

class RequestError(_message.Message):
    __slots__ = ("request", "command_id", "status", "reason", "reason_code", "reason_fields")
    class ReasonFieldsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REASON_CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELDS_FIELD_NUMBER: _ClassVar[int]
    request: int
    command_id: str
    status: str
    reason: str
    reason_code: str
    reason_fields: _containers.ScalarMap[str, str]
    def __init__(self, request: _Optional[int] = ..., command_id: _Optional[str] = ..., status: _Optional[str] = ..., reason: _Optional[str] = ..., reason_code: _Optional[str] = ..., reason_fields: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ImportSummary(_message.Message):
    __slots__ = ("nodes", "zones", "cliques", "joined", "refused", "unknown", "claims", "claims_waiting", "claims_refused", "claims_unknown", "skipped_rows", "skipped", "refusals", "position", "new", "moved", "changed", "unchanged", "not_in_file", "addresses_added", "addresses_removed", "held", "holds", "dry_run", "command_id", "held_before")
    NODES_FIELD_NUMBER: _ClassVar[int]
    ZONES_FIELD_NUMBER: _ClassVar[int]
    CLIQUES_FIELD_NUMBER: _ClassVar[int]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    CLAIMS_FIELD_NUMBER: _ClassVar[int]
    CLAIMS_WAITING_FIELD_NUMBER: _ClassVar[int]
    CLAIMS_REFUSED_FIELD_NUMBER: _ClassVar[int]
    CLAIMS_UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_ROWS_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    REFUSALS_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    NEW_FIELD_NUMBER: _ClassVar[int]
    MOVED_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    UNCHANGED_FIELD_NUMBER: _ClassVar[int]
    NOT_IN_FILE_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_ADDED_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_REMOVED_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    HOLDS_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    HELD_BEFORE_FIELD_NUMBER: _ClassVar[int]
    nodes: int
    zones: int
    cliques: int
    joined: int
    refused: int
    unknown: int
    claims: int
    claims_waiting: int
    claims_refused: int
    claims_unknown: int
    skipped_rows: int
    skipped: _containers.RepeatedScalarFieldContainer[str]
    refusals: _containers.RepeatedCompositeFieldContainer[CommandResult]
    position: str
    new: int
    moved: int
    changed: int
    unchanged: int
    not_in_file: int
    addresses_added: int
    addresses_removed: int
    held: int
    holds: _containers.RepeatedScalarFieldContainer[int]
    dry_run: bool
    command_id: str
    held_before: int
    def __init__(self, nodes: _Optional[int] = ..., zones: _Optional[int] = ..., cliques: _Optional[int] = ..., joined: _Optional[int] = ..., refused: _Optional[int] = ..., unknown: _Optional[int] = ..., claims: _Optional[int] = ..., claims_waiting: _Optional[int] = ..., claims_refused: _Optional[int] = ..., claims_unknown: _Optional[int] = ..., skipped_rows: _Optional[int] = ..., skipped: _Optional[_Iterable[str]] = ..., refusals: _Optional[_Iterable[_Union[CommandResult, _Mapping]]] = ..., position: _Optional[str] = ..., new: _Optional[int] = ..., moved: _Optional[int] = ..., changed: _Optional[int] = ..., unchanged: _Optional[int] = ..., not_in_file: _Optional[int] = ..., addresses_added: _Optional[int] = ..., addresses_removed: _Optional[int] = ..., held: _Optional[int] = ..., holds: _Optional[_Iterable[int]] = ..., dry_run: _Optional[bool] = ..., command_id: _Optional[str] = ..., held_before: _Optional[int] = ...) -> None: ...

class JoinNodesRequest(_message.Message):
    __slots__ = ("command_id", "zone", "nodes", "columns")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    command_id: str
    zone: str
    nodes: _containers.RepeatedCompositeFieldContainer[NodeSpec]
    columns: NodeColumns
    def __init__(self, command_id: _Optional[str] = ..., zone: _Optional[str] = ..., nodes: _Optional[_Iterable[_Union[NodeSpec, _Mapping]]] = ..., columns: _Optional[_Union[NodeColumns, _Mapping]] = ...) -> None: ...

class NodeSpec(_message.Message):
    __slots__ = ("name", "addresses", "labels", "create_time", "uid")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    name: str
    addresses: _containers.RepeatedScalarFieldContainer[str]
    labels: _containers.ScalarMap[str, str]
    create_time: _timestamp_pb2.Timestamp
    uid: str
    def __init__(self, name: _Optional[str] = ..., addresses: _Optional[_Iterable[str]] = ..., labels: _Optional[_Mapping[str, str]] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., uid: _Optional[str] = ...) -> None: ...

class NodeColumns(_message.Message):
    __slots__ = ("names", "addresses4", "addresses6", "label_sets", "label_index", "created_ms", "uids")
    NAMES_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES4_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES6_FIELD_NUMBER: _ClassVar[int]
    LABEL_SETS_FIELD_NUMBER: _ClassVar[int]
    LABEL_INDEX_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    UIDS_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    addresses4: bytes
    addresses6: bytes
    label_sets: _containers.RepeatedCompositeFieldContainer[LabelSet]
    label_index: _containers.RepeatedScalarFieldContainer[int]
    created_ms: _containers.RepeatedScalarFieldContainer[int]
    uids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, names: _Optional[_Iterable[str]] = ..., addresses4: _Optional[bytes] = ..., addresses6: _Optional[bytes] = ..., label_sets: _Optional[_Iterable[_Union[LabelSet, _Mapping]]] = ..., label_index: _Optional[_Iterable[int]] = ..., created_ms: _Optional[_Iterable[int]] = ..., uids: _Optional[_Iterable[str]] = ...) -> None: ...

class LabelSet(_message.Message):
    __slots__ = ("labels",)
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    LABELS_FIELD_NUMBER: _ClassVar[int]
    labels: _containers.ScalarMap[str, str]
    def __init__(self, labels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ChangeNodesRequest(_message.Message):
    __slots__ = ("command_id", "zone", "nodes")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    command_id: str
    zone: str
    nodes: _containers.RepeatedCompositeFieldContainer[NodeSpec]
    def __init__(self, command_id: _Optional[str] = ..., zone: _Optional[str] = ..., nodes: _Optional[_Iterable[_Union[NodeSpec, _Mapping]]] = ...) -> None: ...

class LeaveNodesRequest(_message.Message):
    __slots__ = ("command_id", "zone", "names", "dry_run")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    command_id: str
    zone: str
    names: _containers.RepeatedScalarFieldContainer[str]
    dry_run: bool
    def __init__(self, command_id: _Optional[str] = ..., zone: _Optional[str] = ..., names: _Optional[_Iterable[str]] = ..., dry_run: _Optional[bool] = ...) -> None: ...

class UpdateZoneRequest(_message.Message):
    __slots__ = ("command_id", "zone", "set_labels", "labels", "parallel_installs", "unavailable_nodes", "set_agent_networks", "agent_networks", "set_agent_label_keys", "agent_label_keys", "transient_attempts", "device_attempts", "operator_attempts")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    SET_LABELS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    PARALLEL_INSTALLS_FIELD_NUMBER: _ClassVar[int]
    UNAVAILABLE_NODES_FIELD_NUMBER: _ClassVar[int]
    SET_AGENT_NETWORKS_FIELD_NUMBER: _ClassVar[int]
    AGENT_NETWORKS_FIELD_NUMBER: _ClassVar[int]
    SET_AGENT_LABEL_KEYS_FIELD_NUMBER: _ClassVar[int]
    AGENT_LABEL_KEYS_FIELD_NUMBER: _ClassVar[int]
    TRANSIENT_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    DEVICE_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    OPERATOR_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    command_id: str
    zone: str
    set_labels: bool
    labels: _containers.ScalarMap[str, str]
    parallel_installs: int
    unavailable_nodes: int
    set_agent_networks: bool
    agent_networks: _containers.RepeatedScalarFieldContainer[str]
    set_agent_label_keys: bool
    agent_label_keys: _containers.RepeatedScalarFieldContainer[str]
    transient_attempts: int
    device_attempts: int
    operator_attempts: int
    def __init__(self, command_id: _Optional[str] = ..., zone: _Optional[str] = ..., set_labels: _Optional[bool] = ..., labels: _Optional[_Mapping[str, str]] = ..., parallel_installs: _Optional[int] = ..., unavailable_nodes: _Optional[int] = ..., set_agent_networks: _Optional[bool] = ..., agent_networks: _Optional[_Iterable[str]] = ..., set_agent_label_keys: _Optional[bool] = ..., agent_label_keys: _Optional[_Iterable[str]] = ..., transient_attempts: _Optional[int] = ..., device_attempts: _Optional[int] = ..., operator_attempts: _Optional[int] = ...) -> None: ...

class DeleteZoneRequest(_message.Message):
    __slots__ = ("command_id", "zone")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    command_id: str
    zone: str
    def __init__(self, command_id: _Optional[str] = ..., zone: _Optional[str] = ...) -> None: ...

class RegisterDpuRequest(_message.Message):
    __slots__ = ("command_id", "zone", "dpu", "node", "serial", "bmc_address")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    DPU_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    BMC_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    command_id: str
    zone: str
    dpu: str
    node: str
    serial: str
    bmc_address: str
    def __init__(self, command_id: _Optional[str] = ..., zone: _Optional[str] = ..., dpu: _Optional[str] = ..., node: _Optional[str] = ..., serial: _Optional[str] = ..., bmc_address: _Optional[str] = ...) -> None: ...

class ReportHostRequest(_message.Message):
    __slots__ = ("command_id", "node", "namespace", "boot_id", "uptime", "devices", "tasks", "run_id")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    UPTIME_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    command_id: str
    node: str
    namespace: str
    boot_id: str
    uptime: _duration_pb2.Duration
    devices: _containers.RepeatedCompositeFieldContainer[HostDevice]
    tasks: _containers.RepeatedCompositeFieldContainer[HostTaskState]
    run_id: str
    def __init__(self, command_id: _Optional[str] = ..., node: _Optional[str] = ..., namespace: _Optional[str] = ..., boot_id: _Optional[str] = ..., uptime: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., devices: _Optional[_Iterable[_Union[HostDevice, _Mapping]]] = ..., tasks: _Optional[_Iterable[_Union[HostTaskState, _Mapping]]] = ..., run_id: _Optional[str] = ...) -> None: ...

class HostDevice(_message.Message):
    __slots__ = ("pci_address", "device_id", "serial", "psid", "pf0_name", "pf_count", "rshim")
    PCI_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    PSID_FIELD_NUMBER: _ClassVar[int]
    PF0_NAME_FIELD_NUMBER: _ClassVar[int]
    PF_COUNT_FIELD_NUMBER: _ClassVar[int]
    RSHIM_FIELD_NUMBER: _ClassVar[int]
    pci_address: str
    device_id: str
    serial: str
    psid: str
    pf0_name: str
    pf_count: int
    rshim: str
    def __init__(self, pci_address: _Optional[str] = ..., device_id: _Optional[str] = ..., serial: _Optional[str] = ..., psid: _Optional[str] = ..., pf0_name: _Optional[str] = ..., pf_count: _Optional[int] = ..., rshim: _Optional[str] = ...) -> None: ...

class HostTaskState(_message.Message):
    __slots__ = ("id", "state", "percent", "message")
    ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PERCENT_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    id: str
    state: str
    percent: int
    message: str
    def __init__(self, id: _Optional[str] = ..., state: _Optional[str] = ..., percent: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class GetHostTasksRequest(_message.Message):
    __slots__ = ("min_position", "node", "namespace")
    MIN_POSITION_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    min_position: str
    node: str
    namespace: str
    def __init__(self, min_position: _Optional[str] = ..., node: _Optional[str] = ..., namespace: _Optional[str] = ...) -> None: ...

class HostTasks(_message.Message):
    __slots__ = ("tasks", "position")
    TASKS_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    tasks: _containers.RepeatedCompositeFieldContainer[HostTask]
    position: str
    def __init__(self, tasks: _Optional[_Iterable[_Union[HostTask, _Mapping]]] = ..., position: _Optional[str] = ...) -> None: ...

class HostTask(_message.Message):
    __slots__ = ("id", "action", "pci_address", "boot_id", "method", "methods", "mtu", "frozen", "url", "percent", "message")
    class MethodsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    PCI_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    METHODS_FIELD_NUMBER: _ClassVar[int]
    MTU_FIELD_NUMBER: _ClassVar[int]
    FROZEN_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    PERCENT_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    id: str
    action: str
    pci_address: str
    boot_id: str
    method: str
    methods: _containers.ScalarMap[str, str]
    mtu: int
    frozen: bool
    url: str
    percent: int
    message: str
    def __init__(self, id: _Optional[str] = ..., action: _Optional[str] = ..., pci_address: _Optional[str] = ..., boot_id: _Optional[str] = ..., method: _Optional[str] = ..., methods: _Optional[_Mapping[str, str]] = ..., mtu: _Optional[int] = ..., frozen: _Optional[bool] = ..., url: _Optional[str] = ..., percent: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class RequestLifecycleRequest(_message.Message):
    __slots__ = ("command_id", "zone", "dpu", "verb", "image")
    class Verb(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        VERB_UNSPECIFIED: _ClassVar[RequestLifecycleRequest.Verb]
        VERB_PROVISION: _ClassVar[RequestLifecycleRequest.Verb]
        VERB_PAUSE: _ClassVar[RequestLifecycleRequest.Verb]
        VERB_RESUME: _ClassVar[RequestLifecycleRequest.Verb]
        VERB_RETRY: _ClassVar[RequestLifecycleRequest.Verb]
        VERB_SKIP: _ClassVar[RequestLifecycleRequest.Verb]
        VERB_ABORT: _ClassVar[RequestLifecycleRequest.Verb]
        VERB_DELETE: _ClassVar[RequestLifecycleRequest.Verb]
    VERB_UNSPECIFIED: RequestLifecycleRequest.Verb
    VERB_PROVISION: RequestLifecycleRequest.Verb
    VERB_PAUSE: RequestLifecycleRequest.Verb
    VERB_RESUME: RequestLifecycleRequest.Verb
    VERB_RETRY: RequestLifecycleRequest.Verb
    VERB_SKIP: RequestLifecycleRequest.Verb
    VERB_ABORT: RequestLifecycleRequest.Verb
    VERB_DELETE: RequestLifecycleRequest.Verb
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    DPU_FIELD_NUMBER: _ClassVar[int]
    VERB_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    command_id: str
    zone: str
    dpu: str
    verb: RequestLifecycleRequest.Verb
    image: str
    def __init__(self, command_id: _Optional[str] = ..., zone: _Optional[str] = ..., dpu: _Optional[str] = ..., verb: _Optional[_Union[RequestLifecycleRequest.Verb, str]] = ..., image: _Optional[str] = ...) -> None: ...

class ClaimIndicesRequest(_message.Message):
    __slots__ = ("command_id", "domain", "clique", "claims")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    CLIQUE_FIELD_NUMBER: _ClassVar[int]
    CLAIMS_FIELD_NUMBER: _ClassVar[int]
    command_id: str
    domain: str
    clique: str
    claims: _containers.RepeatedCompositeFieldContainer[ClaimSpec]
    def __init__(self, command_id: _Optional[str] = ..., domain: _Optional[str] = ..., clique: _Optional[str] = ..., claims: _Optional[_Iterable[_Union[ClaimSpec, _Mapping]]] = ...) -> None: ...

class ClaimSpec(_message.Message):
    __slots__ = ("node", "address", "create_time", "uid", "requested_index")
    NODE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    REQUESTED_INDEX_FIELD_NUMBER: _ClassVar[int]
    node: str
    address: str
    create_time: _timestamp_pb2.Timestamp
    uid: str
    requested_index: int
    def __init__(self, node: _Optional[str] = ..., address: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., uid: _Optional[str] = ..., requested_index: _Optional[int] = ...) -> None: ...

class ReleaseIndicesRequest(_message.Message):
    __slots__ = ("command_id", "domain", "clique", "releases")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    CLIQUE_FIELD_NUMBER: _ClassVar[int]
    RELEASES_FIELD_NUMBER: _ClassVar[int]
    command_id: str
    domain: str
    clique: str
    releases: _containers.RepeatedCompositeFieldContainer[ReleaseSpec]
    def __init__(self, command_id: _Optional[str] = ..., domain: _Optional[str] = ..., clique: _Optional[str] = ..., releases: _Optional[_Iterable[_Union[ReleaseSpec, _Mapping]]] = ...) -> None: ...

class ReleaseSpec(_message.Message):
    __slots__ = ("node", "uid")
    NODE_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    node: str
    uid: str
    def __init__(self, node: _Optional[str] = ..., uid: _Optional[str] = ...) -> None: ...

class SetCliqueCapacityRequest(_message.Message):
    __slots__ = ("command_id", "domain", "clique", "capacity")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    CLIQUE_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    command_id: str
    domain: str
    clique: str
    capacity: int
    def __init__(self, command_id: _Optional[str] = ..., domain: _Optional[str] = ..., clique: _Optional[str] = ..., capacity: _Optional[int] = ...) -> None: ...

class ReportDaemonReadinessRequest(_message.Message):
    __slots__ = ("command_id", "domain", "clique", "node", "uid", "ready")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    CLIQUE_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    command_id: str
    domain: str
    clique: str
    node: str
    uid: str
    ready: bool
    def __init__(self, command_id: _Optional[str] = ..., domain: _Optional[str] = ..., clique: _Optional[str] = ..., node: _Optional[str] = ..., uid: _Optional[str] = ..., ready: _Optional[bool] = ...) -> None: ...

class OpenSessionRequest(_message.Message):
    __slots__ = ("command_id", "domain", "clique", "node", "uid", "session")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    CLIQUE_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    command_id: str
    domain: str
    clique: str
    node: str
    uid: str
    session: str
    def __init__(self, command_id: _Optional[str] = ..., domain: _Optional[str] = ..., clique: _Optional[str] = ..., node: _Optional[str] = ..., uid: _Optional[str] = ..., session: _Optional[str] = ...) -> None: ...

class KeepSessionRequest(_message.Message):
    __slots__ = ("domain", "clique", "node", "uid", "session")
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    CLIQUE_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    domain: str
    clique: str
    node: str
    uid: str
    session: str
    def __init__(self, domain: _Optional[str] = ..., clique: _Optional[str] = ..., node: _Optional[str] = ..., uid: _Optional[str] = ..., session: _Optional[str] = ...) -> None: ...

class KeepSessionResponse(_message.Message):
    __slots__ = ("lease", "position", "revision")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    lease: _duration_pb2.Duration
    position: str
    revision: str
    def __init__(self, lease: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., position: _Optional[str] = ..., revision: _Optional[str] = ...) -> None: ...

class SetPolicyRequest(_message.Message):
    __slots__ = ("command_id", "policy", "staging", "dry_run")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    STAGING_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    command_id: str
    policy: PolicySpec
    staging: Staging
    dry_run: bool
    def __init__(self, command_id: _Optional[str] = ..., policy: _Optional[_Union[PolicySpec, _Mapping]] = ..., staging: _Optional[_Union[Staging, _Mapping]] = ..., dry_run: _Optional[bool] = ...) -> None: ...

class PolicySpec(_message.Message):
    __slots__ = ("name", "priority", "action", "protocol", "ports", "sources", "zones")
    class SourcesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class ZonesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    PORTS_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    ZONES_FIELD_NUMBER: _ClassVar[int]
    name: str
    priority: int
    action: str
    protocol: str
    ports: _containers.RepeatedCompositeFieldContainer[PortRange]
    sources: _containers.ScalarMap[str, str]
    zones: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[str] = ..., priority: _Optional[int] = ..., action: _Optional[str] = ..., protocol: _Optional[str] = ..., ports: _Optional[_Iterable[_Union[PortRange, _Mapping]]] = ..., sources: _Optional[_Mapping[str, str]] = ..., zones: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Staging(_message.Message):
    __slots__ = ("stages", "bake_time", "failure_budget")
    STAGES_FIELD_NUMBER: _ClassVar[int]
    BAKE_TIME_FIELD_NUMBER: _ClassVar[int]
    FAILURE_BUDGET_FIELD_NUMBER: _ClassVar[int]
    stages: _containers.RepeatedScalarFieldContainer[str]
    bake_time: _duration_pb2.Duration
    failure_budget: str
    def __init__(self, stages: _Optional[_Iterable[str]] = ..., bake_time: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., failure_budget: _Optional[str] = ...) -> None: ...

class PortRange(_message.Message):
    __slots__ = ("first", "last")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    first: int
    last: int
    def __init__(self, first: _Optional[int] = ..., last: _Optional[int] = ...) -> None: ...

class DeletePolicyRequest(_message.Message):
    __slots__ = ("command_id", "name", "staging", "dry_run")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    STAGING_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    command_id: str
    name: str
    staging: Staging
    dry_run: bool
    def __init__(self, command_id: _Optional[str] = ..., name: _Optional[str] = ..., staging: _Optional[_Union[Staging, _Mapping]] = ..., dry_run: _Optional[bool] = ...) -> None: ...

class RequestStagesRequest(_message.Message):
    __slots__ = ("command_id", "policy", "verb", "source")
    class Verb(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        VERB_UNSPECIFIED: _ClassVar[RequestStagesRequest.Verb]
        VERB_PAUSE: _ClassVar[RequestStagesRequest.Verb]
        VERB_RESUME: _ClassVar[RequestStagesRequest.Verb]
        VERB_UNDO: _ClassVar[RequestStagesRequest.Verb]
    VERB_UNSPECIFIED: RequestStagesRequest.Verb
    VERB_PAUSE: RequestStagesRequest.Verb
    VERB_RESUME: RequestStagesRequest.Verb
    VERB_UNDO: RequestStagesRequest.Verb
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    VERB_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    command_id: str
    policy: str
    verb: RequestStagesRequest.Verb
    source: str
    def __init__(self, command_id: _Optional[str] = ..., policy: _Optional[str] = ..., verb: _Optional[_Union[RequestStagesRequest.Verb, str]] = ..., source: _Optional[str] = ...) -> None: ...

class ApproveHoldRequest(_message.Message):
    __slots__ = ("command_id", "hold", "hash")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    HOLD_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    command_id: str
    hold: int
    hash: str
    def __init__(self, command_id: _Optional[str] = ..., hold: _Optional[int] = ..., hash: _Optional[str] = ...) -> None: ...

class RejectHoldRequest(_message.Message):
    __slots__ = ("command_id", "hold")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    HOLD_FIELD_NUMBER: _ClassVar[int]
    command_id: str
    hold: int
    def __init__(self, command_id: _Optional[str] = ..., hold: _Optional[int] = ...) -> None: ...

class SetBudgetRequest(_message.Message):
    __slots__ = ("command_id", "kind", "permille", "min_addresses")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    PERMILLE_FIELD_NUMBER: _ClassVar[int]
    MIN_ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    command_id: str
    kind: str
    permille: int
    min_addresses: int
    def __init__(self, command_id: _Optional[str] = ..., kind: _Optional[str] = ..., permille: _Optional[int] = ..., min_addresses: _Optional[int] = ...) -> None: ...

class FreezeWritesRequest(_message.Message):
    __slots__ = ("command_id", "zone", "all_zones")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    ALL_ZONES_FIELD_NUMBER: _ClassVar[int]
    command_id: str
    zone: str
    all_zones: bool
    def __init__(self, command_id: _Optional[str] = ..., zone: _Optional[str] = ..., all_zones: _Optional[bool] = ...) -> None: ...

class ThawWritesRequest(_message.Message):
    __slots__ = ("command_id", "zone", "all_zones")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    ALL_ZONES_FIELD_NUMBER: _ClassVar[int]
    command_id: str
    zone: str
    all_zones: bool
    def __init__(self, command_id: _Optional[str] = ..., zone: _Optional[str] = ..., all_zones: _Optional[bool] = ...) -> None: ...

class ListNodesRequest(_message.Message):
    __slots__ = ("min_position", "zone", "page_size", "page_token", "label_selector", "as_of")
    MIN_POSITION_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    LABEL_SELECTOR_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    min_position: str
    zone: str
    page_size: int
    page_token: str
    label_selector: str
    as_of: str
    def __init__(self, min_position: _Optional[str] = ..., zone: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., label_selector: _Optional[str] = ..., as_of: _Optional[str] = ...) -> None: ...

class ListNodesResponse(_message.Message):
    __slots__ = ("nodes", "next_page_token", "position")
    NODES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[Node]
    next_page_token: str
    position: str
    def __init__(self, nodes: _Optional[_Iterable[_Union[Node, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., position: _Optional[str] = ...) -> None: ...

class Node(_message.Message):
    __slots__ = ("name", "zone", "addresses", "labels", "create_time", "uid", "held", "conflicts", "position", "hold_state", "withheld")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    CONFLICTS_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    HOLD_STATE_FIELD_NUMBER: _ClassVar[int]
    WITHHELD_FIELD_NUMBER: _ClassVar[int]
    name: str
    zone: str
    addresses: _containers.RepeatedScalarFieldContainer[str]
    labels: _containers.ScalarMap[str, str]
    create_time: _timestamp_pb2.Timestamp
    uid: str
    held: bool
    conflicts: _containers.RepeatedScalarFieldContainer[str]
    position: str
    hold_state: str
    withheld: str
    def __init__(self, name: _Optional[str] = ..., zone: _Optional[str] = ..., addresses: _Optional[_Iterable[str]] = ..., labels: _Optional[_Mapping[str, str]] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., uid: _Optional[str] = ..., held: _Optional[bool] = ..., conflicts: _Optional[_Iterable[str]] = ..., position: _Optional[str] = ..., hold_state: _Optional[str] = ..., withheld: _Optional[str] = ...) -> None: ...

class GetNodeRequest(_message.Message):
    __slots__ = ("min_position", "name", "as_of")
    MIN_POSITION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    min_position: str
    name: str
    as_of: str
    def __init__(self, min_position: _Optional[str] = ..., name: _Optional[str] = ..., as_of: _Optional[str] = ...) -> None: ...

class LocateNodesRequest(_message.Message):
    __slots__ = ("min_position", "names", "as_of")
    MIN_POSITION_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    min_position: str
    names: _containers.RepeatedScalarFieldContainer[str]
    as_of: str
    def __init__(self, min_position: _Optional[str] = ..., names: _Optional[_Iterable[str]] = ..., as_of: _Optional[str] = ...) -> None: ...

class LocateNodesResponse(_message.Message):
    __slots__ = ("zones", "position")
    class ZonesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ZONES_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    zones: _containers.ScalarMap[str, str]
    position: str
    def __init__(self, zones: _Optional[_Mapping[str, str]] = ..., position: _Optional[str] = ...) -> None: ...

class ListZonesRequest(_message.Message):
    __slots__ = ("min_position", "page_size", "page_token", "label_selector", "as_of")
    MIN_POSITION_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    LABEL_SELECTOR_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    min_position: str
    page_size: int
    page_token: str
    label_selector: str
    as_of: str
    def __init__(self, min_position: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., label_selector: _Optional[str] = ..., as_of: _Optional[str] = ...) -> None: ...

class ListZonesResponse(_message.Message):
    __slots__ = ("zones", "next_page_token", "position")
    ZONES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    zones: _containers.RepeatedCompositeFieldContainer[Zone]
    next_page_token: str
    position: str
    def __init__(self, zones: _Optional[_Iterable[_Union[Zone, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., position: _Optional[str] = ...) -> None: ...

class Zone(_message.Message):
    __slots__ = ("zone", "labels", "nodes", "dpus", "rules", "version", "digest", "parallel_installs", "unavailable_nodes", "frozen", "installs", "lagging", "exceptions", "position", "agent_networks", "agent_label_keys", "freeze_time", "frozen_by", "waiting_dpus", "waiting_start_time", "waiting_steps", "transient_attempts", "device_attempts", "operator_attempts")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ZONE_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    DPUS_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    PARALLEL_INSTALLS_FIELD_NUMBER: _ClassVar[int]
    UNAVAILABLE_NODES_FIELD_NUMBER: _ClassVar[int]
    FROZEN_FIELD_NUMBER: _ClassVar[int]
    INSTALLS_FIELD_NUMBER: _ClassVar[int]
    LAGGING_FIELD_NUMBER: _ClassVar[int]
    EXCEPTIONS_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    AGENT_NETWORKS_FIELD_NUMBER: _ClassVar[int]
    AGENT_LABEL_KEYS_FIELD_NUMBER: _ClassVar[int]
    FREEZE_TIME_FIELD_NUMBER: _ClassVar[int]
    FROZEN_BY_FIELD_NUMBER: _ClassVar[int]
    WAITING_DPUS_FIELD_NUMBER: _ClassVar[int]
    WAITING_START_TIME_FIELD_NUMBER: _ClassVar[int]
    WAITING_STEPS_FIELD_NUMBER: _ClassVar[int]
    TRANSIENT_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    DEVICE_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    OPERATOR_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    zone: str
    labels: _containers.ScalarMap[str, str]
    nodes: int
    dpus: int
    rules: int
    version: int
    digest: str
    parallel_installs: int
    unavailable_nodes: int
    frozen: bool
    installs: _containers.RepeatedCompositeFieldContainer[Install]
    lagging: _containers.RepeatedScalarFieldContainer[str]
    exceptions: _containers.RepeatedCompositeFieldContainer[DpuException]
    position: str
    agent_networks: _containers.RepeatedScalarFieldContainer[str]
    agent_label_keys: _containers.RepeatedScalarFieldContainer[str]
    freeze_time: _timestamp_pb2.Timestamp
    frozen_by: str
    waiting_dpus: int
    waiting_start_time: _timestamp_pb2.Timestamp
    waiting_steps: int
    transient_attempts: int
    device_attempts: int
    operator_attempts: int
    def __init__(self, zone: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., nodes: _Optional[int] = ..., dpus: _Optional[int] = ..., rules: _Optional[int] = ..., version: _Optional[int] = ..., digest: _Optional[str] = ..., parallel_installs: _Optional[int] = ..., unavailable_nodes: _Optional[int] = ..., frozen: _Optional[bool] = ..., installs: _Optional[_Iterable[_Union[Install, _Mapping]]] = ..., lagging: _Optional[_Iterable[str]] = ..., exceptions: _Optional[_Iterable[_Union[DpuException, _Mapping]]] = ..., position: _Optional[str] = ..., agent_networks: _Optional[_Iterable[str]] = ..., agent_label_keys: _Optional[_Iterable[str]] = ..., freeze_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., frozen_by: _Optional[str] = ..., waiting_dpus: _Optional[int] = ..., waiting_start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., waiting_steps: _Optional[int] = ..., transient_attempts: _Optional[int] = ..., device_attempts: _Optional[int] = ..., operator_attempts: _Optional[int] = ...) -> None: ...

class DpuException(_message.Message):
    __slots__ = ("dpu", "version", "reason", "report_time")
    DPU_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REPORT_TIME_FIELD_NUMBER: _ClassVar[int]
    dpu: str
    version: int
    reason: str
    report_time: _timestamp_pb2.Timestamp
    def __init__(self, dpu: _Optional[str] = ..., version: _Optional[int] = ..., reason: _Optional[str] = ..., report_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class Install(_message.Message):
    __slots__ = ("version", "dpus", "received", "applied", "in_hardware", "append_time", "milestones")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DPUS_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    IN_HARDWARE_FIELD_NUMBER: _ClassVar[int]
    APPEND_TIME_FIELD_NUMBER: _ClassVar[int]
    MILESTONES_FIELD_NUMBER: _ClassVar[int]
    version: int
    dpus: int
    received: int
    applied: int
    in_hardware: int
    append_time: _timestamp_pb2.Timestamp
    milestones: _containers.RepeatedCompositeFieldContainer[Milestone]
    def __init__(self, version: _Optional[int] = ..., dpus: _Optional[int] = ..., received: _Optional[int] = ..., applied: _Optional[int] = ..., in_hardware: _Optional[int] = ..., append_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., milestones: _Optional[_Iterable[_Union[Milestone, _Mapping]]] = ...) -> None: ...

class Milestone(_message.Message):
    __slots__ = ("level", "permille", "latency")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    PERMILLE_FIELD_NUMBER: _ClassVar[int]
    LATENCY_FIELD_NUMBER: _ClassVar[int]
    level: str
    permille: int
    latency: _duration_pb2.Duration
    def __init__(self, level: _Optional[str] = ..., permille: _Optional[int] = ..., latency: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class GetZoneRequest(_message.Message):
    __slots__ = ("min_position", "zone", "as_of")
    MIN_POSITION_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    min_position: str
    zone: str
    as_of: str
    def __init__(self, min_position: _Optional[str] = ..., zone: _Optional[str] = ..., as_of: _Optional[str] = ...) -> None: ...

class GetRulesRequest(_message.Message):
    __slots__ = ("min_position", "zone", "as_of")
    MIN_POSITION_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    min_position: str
    zone: str
    as_of: str
    def __init__(self, min_position: _Optional[str] = ..., zone: _Optional[str] = ..., as_of: _Optional[str] = ...) -> None: ...

class Rules(_message.Message):
    __slots__ = ("zone", "version", "digest", "rules", "position")
    ZONE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    zone: str
    version: int
    digest: str
    rules: _containers.RepeatedCompositeFieldContainer[Rule]
    position: str
    def __init__(self, zone: _Optional[str] = ..., version: _Optional[int] = ..., digest: _Optional[str] = ..., rules: _Optional[_Iterable[_Union[Rule, _Mapping]]] = ..., position: _Optional[str] = ...) -> None: ...

class Rule(_message.Message):
    __slots__ = ("prefix", "action", "priority", "protocol", "ports", "policy")
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    PORTS_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    action: str
    priority: int
    protocol: str
    ports: _containers.RepeatedCompositeFieldContainer[PortRange]
    policy: str
    def __init__(self, prefix: _Optional[str] = ..., action: _Optional[str] = ..., priority: _Optional[int] = ..., protocol: _Optional[str] = ..., ports: _Optional[_Iterable[_Union[PortRange, _Mapping]]] = ..., policy: _Optional[str] = ...) -> None: ...

class ListCliquesRequest(_message.Message):
    __slots__ = ("min_position", "domain", "page_size", "page_token", "as_of")
    MIN_POSITION_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    min_position: str
    domain: str
    page_size: int
    page_token: str
    as_of: str
    def __init__(self, min_position: _Optional[str] = ..., domain: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., as_of: _Optional[str] = ...) -> None: ...

class ListCliquesResponse(_message.Message):
    __slots__ = ("cliques", "next_page_token", "position")
    CLIQUES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    cliques: _containers.RepeatedCompositeFieldContainer[Clique]
    next_page_token: str
    position: str
    def __init__(self, cliques: _Optional[_Iterable[_Union[Clique, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., position: _Optional[str] = ...) -> None: ...

class Clique(_message.Message):
    __slots__ = ("domain", "clique", "capacity", "members", "waiting", "position")
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    CLIQUE_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    domain: str
    clique: str
    capacity: int
    members: _containers.RepeatedCompositeFieldContainer[CliqueMember]
    waiting: _containers.RepeatedCompositeFieldContainer[WaitingClaim]
    position: str
    def __init__(self, domain: _Optional[str] = ..., clique: _Optional[str] = ..., capacity: _Optional[int] = ..., members: _Optional[_Iterable[_Union[CliqueMember, _Mapping]]] = ..., waiting: _Optional[_Iterable[_Union[WaitingClaim, _Mapping]]] = ..., position: _Optional[str] = ...) -> None: ...

class CliqueMember(_message.Message):
    __slots__ = ("index", "node", "ready", "address", "uid", "create_time", "session_alive")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    SESSION_ALIVE_FIELD_NUMBER: _ClassVar[int]
    index: int
    node: str
    ready: bool
    address: str
    uid: str
    create_time: _timestamp_pb2.Timestamp
    session_alive: bool
    def __init__(self, index: _Optional[int] = ..., node: _Optional[str] = ..., ready: _Optional[bool] = ..., address: _Optional[str] = ..., uid: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., session_alive: _Optional[bool] = ...) -> None: ...

class WaitingClaim(_message.Message):
    __slots__ = ("queue_position", "node", "uid", "create_time")
    QUEUE_POSITION_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    queue_position: int
    node: str
    uid: str
    create_time: _timestamp_pb2.Timestamp
    def __init__(self, queue_position: _Optional[int] = ..., node: _Optional[str] = ..., uid: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class GetCliqueRequest(_message.Message):
    __slots__ = ("min_position", "domain", "clique", "as_of")
    MIN_POSITION_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    CLIQUE_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    min_position: str
    domain: str
    clique: str
    as_of: str
    def __init__(self, min_position: _Optional[str] = ..., domain: _Optional[str] = ..., clique: _Optional[str] = ..., as_of: _Optional[str] = ...) -> None: ...

class GetCliqueConfigRequest(_message.Message):
    __slots__ = ("min_position", "domain", "clique", "as_of")
    MIN_POSITION_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    CLIQUE_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    min_position: str
    domain: str
    clique: str
    as_of: str
    def __init__(self, min_position: _Optional[str] = ..., domain: _Optional[str] = ..., clique: _Optional[str] = ..., as_of: _Optional[str] = ...) -> None: ...

class CliqueConfig(_message.Message):
    __slots__ = ("domain", "clique", "peers", "hosts", "position")
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    CLIQUE_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    domain: str
    clique: str
    peers: str
    hosts: str
    position: str
    def __init__(self, domain: _Optional[str] = ..., clique: _Optional[str] = ..., peers: _Optional[str] = ..., hosts: _Optional[str] = ..., position: _Optional[str] = ...) -> None: ...

class ListDpusRequest(_message.Message):
    __slots__ = ("min_position", "zone", "phase", "page_size", "page_token", "stuck", "label_selector", "as_of")
    MIN_POSITION_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    STUCK_FIELD_NUMBER: _ClassVar[int]
    LABEL_SELECTOR_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    min_position: str
    zone: str
    phase: str
    page_size: int
    page_token: str
    stuck: bool
    label_selector: str
    as_of: str
    def __init__(self, min_position: _Optional[str] = ..., zone: _Optional[str] = ..., phase: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., stuck: _Optional[bool] = ..., label_selector: _Optional[str] = ..., as_of: _Optional[str] = ...) -> None: ...

class ListDpusResponse(_message.Message):
    __slots__ = ("dpus", "next_page_token", "position")
    DPUS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    dpus: _containers.RepeatedCompositeFieldContainer[Dpu]
    next_page_token: str
    position: str
    def __init__(self, dpus: _Optional[_Iterable[_Union[Dpu, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., position: _Optional[str] = ...) -> None: ...

class Dpu(_message.Message):
    __slots__ = ("dpu", "zone", "ordinal", "node", "serial", "bmc_address", "image", "phase", "step_state", "phase_attempts", "attempt", "provisioner", "task", "percent", "paused", "swapped", "failures", "message", "phase_start_time", "attempt_deadline_time", "facts", "position")
    class FactsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    DPU_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    ORDINAL_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    BMC_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    STEP_STATE_FIELD_NUMBER: _ClassVar[int]
    PHASE_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    PROVISIONER_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    PERCENT_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    SWAPPED_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PHASE_START_TIME_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_DEADLINE_TIME_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    dpu: str
    zone: str
    ordinal: int
    node: str
    serial: str
    bmc_address: str
    image: str
    phase: str
    step_state: str
    phase_attempts: int
    attempt: int
    provisioner: str
    task: str
    percent: int
    paused: bool
    swapped: bool
    failures: int
    message: str
    phase_start_time: _timestamp_pb2.Timestamp
    attempt_deadline_time: _timestamp_pb2.Timestamp
    facts: _containers.ScalarMap[str, str]
    position: str
    def __init__(self, dpu: _Optional[str] = ..., zone: _Optional[str] = ..., ordinal: _Optional[int] = ..., node: _Optional[str] = ..., serial: _Optional[str] = ..., bmc_address: _Optional[str] = ..., image: _Optional[str] = ..., phase: _Optional[str] = ..., step_state: _Optional[str] = ..., phase_attempts: _Optional[int] = ..., attempt: _Optional[int] = ..., provisioner: _Optional[str] = ..., task: _Optional[str] = ..., percent: _Optional[int] = ..., paused: _Optional[bool] = ..., swapped: _Optional[bool] = ..., failures: _Optional[int] = ..., message: _Optional[str] = ..., phase_start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., attempt_deadline_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., facts: _Optional[_Mapping[str, str]] = ..., position: _Optional[str] = ...) -> None: ...

class GetDpuRequest(_message.Message):
    __slots__ = ("min_position", "dpu", "zone", "as_of")
    MIN_POSITION_FIELD_NUMBER: _ClassVar[int]
    DPU_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    min_position: str
    dpu: str
    zone: str
    as_of: str
    def __init__(self, min_position: _Optional[str] = ..., dpu: _Optional[str] = ..., zone: _Optional[str] = ..., as_of: _Optional[str] = ...) -> None: ...

class ListDevicesRequest(_message.Message):
    __slots__ = ("zones",)
    ZONES_FIELD_NUMBER: _ClassVar[int]
    zones: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, zones: _Optional[_Iterable[str]] = ...) -> None: ...

class ListDevicesResponse(_message.Message):
    __slots__ = ("devices",)
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    devices: _containers.RepeatedCompositeFieldContainer[Device]
    def __init__(self, devices: _Optional[_Iterable[_Union[Device, _Mapping]]] = ...) -> None: ...

class Device(_message.Message):
    __slots__ = ("zone", "dpu", "epoch", "version", "digest")
    ZONE_FIELD_NUMBER: _ClassVar[int]
    DPU_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    zone: str
    dpu: str
    epoch: int
    version: int
    digest: str
    def __init__(self, zone: _Optional[str] = ..., dpu: _Optional[str] = ..., epoch: _Optional[int] = ..., version: _Optional[int] = ..., digest: _Optional[str] = ...) -> None: ...

class ListPoliciesRequest(_message.Message):
    __slots__ = ("min_position", "page_size", "page_token", "as_of")
    MIN_POSITION_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    min_position: str
    page_size: int
    page_token: str
    as_of: str
    def __init__(self, min_position: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., as_of: _Optional[str] = ...) -> None: ...

class ListPoliciesResponse(_message.Message):
    __slots__ = ("policies", "position", "next_page_token")
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    policies: _containers.RepeatedCompositeFieldContainer[Policy]
    position: str
    next_page_token: str
    def __init__(self, policies: _Optional[_Iterable[_Union[Policy, _Mapping]]] = ..., position: _Optional[str] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class Policy(_message.Message):
    __slots__ = ("name", "priority", "action", "protocol", "ports", "sources", "zones", "version")
    class SourcesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class ZonesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    PORTS_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    ZONES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    name: str
    priority: int
    action: str
    protocol: str
    ports: _containers.RepeatedCompositeFieldContainer[PortRange]
    sources: _containers.ScalarMap[str, str]
    zones: _containers.ScalarMap[str, str]
    version: int
    def __init__(self, name: _Optional[str] = ..., priority: _Optional[int] = ..., action: _Optional[str] = ..., protocol: _Optional[str] = ..., ports: _Optional[_Iterable[_Union[PortRange, _Mapping]]] = ..., sources: _Optional[_Mapping[str, str]] = ..., zones: _Optional[_Mapping[str, str]] = ..., version: _Optional[int] = ...) -> None: ...

class ListHoldsRequest(_message.Message):
    __slots__ = ("min_position", "page_size", "page_token", "as_of")
    MIN_POSITION_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    min_position: str
    page_size: int
    page_token: str
    as_of: str
    def __init__(self, min_position: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., as_of: _Optional[str] = ...) -> None: ...

class ListHoldsResponse(_message.Message):
    __slots__ = ("holds", "position", "next_page_token")
    HOLDS_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    holds: _containers.RepeatedCompositeFieldContainer[Hold]
    position: str
    next_page_token: str
    def __init__(self, holds: _Optional[_Iterable[_Union[Hold, _Mapping]]] = ..., position: _Optional[str] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class GetHoldRequest(_message.Message):
    __slots__ = ("min_position", "hold", "as_of")
    MIN_POSITION_FIELD_NUMBER: _ClassVar[int]
    HOLD_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    min_position: str
    hold: int
    as_of: str
    def __init__(self, min_position: _Optional[str] = ..., hold: _Optional[int] = ..., as_of: _Optional[str] = ...) -> None: ...

class Hold(_message.Message):
    __slots__ = ("hold", "kind", "subject", "reason", "nodes", "node_count", "addresses", "zones", "policy", "requested_by", "approved_by", "hash", "create_time", "command_id", "rejected_by", "position")
    HOLD_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    NODE_COUNT_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    ZONES_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    REQUESTED_BY_FIELD_NUMBER: _ClassVar[int]
    APPROVED_BY_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    REJECTED_BY_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    hold: int
    kind: str
    subject: str
    reason: str
    nodes: _containers.RepeatedScalarFieldContainer[str]
    node_count: int
    addresses: int
    zones: _containers.RepeatedScalarFieldContainer[str]
    policy: str
    requested_by: str
    approved_by: _containers.RepeatedScalarFieldContainer[str]
    hash: str
    create_time: _timestamp_pb2.Timestamp
    command_id: str
    rejected_by: str
    position: str
    def __init__(self, hold: _Optional[int] = ..., kind: _Optional[str] = ..., subject: _Optional[str] = ..., reason: _Optional[str] = ..., nodes: _Optional[_Iterable[str]] = ..., node_count: _Optional[int] = ..., addresses: _Optional[int] = ..., zones: _Optional[_Iterable[str]] = ..., policy: _Optional[str] = ..., requested_by: _Optional[str] = ..., approved_by: _Optional[_Iterable[str]] = ..., hash: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., command_id: _Optional[str] = ..., rejected_by: _Optional[str] = ..., position: _Optional[str] = ...) -> None: ...

class ListHoldNodesRequest(_message.Message):
    __slots__ = ("min_position", "hold", "page_size", "page_token", "as_of")
    MIN_POSITION_FIELD_NUMBER: _ClassVar[int]
    HOLD_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    min_position: str
    hold: int
    page_size: int
    page_token: str
    as_of: str
    def __init__(self, min_position: _Optional[str] = ..., hold: _Optional[int] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., as_of: _Optional[str] = ...) -> None: ...

class ListHoldNodesResponse(_message.Message):
    __slots__ = ("nodes", "next_page_token", "position")
    NODES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[HoldNode]
    next_page_token: str
    position: str
    def __init__(self, nodes: _Optional[_Iterable[_Union[HoldNode, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., position: _Optional[str] = ...) -> None: ...

class HoldNode(_message.Message):
    __slots__ = ("name", "zone")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    name: str
    zone: str
    def __init__(self, name: _Optional[str] = ..., zone: _Optional[str] = ...) -> None: ...

class ListBudgetsRequest(_message.Message):
    __slots__ = ("min_position", "page_size", "page_token", "as_of")
    MIN_POSITION_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    min_position: str
    page_size: int
    page_token: str
    as_of: str
    def __init__(self, min_position: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., as_of: _Optional[str] = ...) -> None: ...

class ListBudgetsResponse(_message.Message):
    __slots__ = ("budgets", "position", "next_page_token")
    BUDGETS_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    budgets: _containers.RepeatedCompositeFieldContainer[Budget]
    position: str
    next_page_token: str
    def __init__(self, budgets: _Optional[_Iterable[_Union[Budget, _Mapping]]] = ..., position: _Optional[str] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class Budget(_message.Message):
    __slots__ = ("kind", "permille", "min_addresses")
    KIND_FIELD_NUMBER: _ClassVar[int]
    PERMILLE_FIELD_NUMBER: _ClassVar[int]
    MIN_ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    kind: str
    permille: int
    min_addresses: int
    def __init__(self, kind: _Optional[str] = ..., permille: _Optional[int] = ..., min_addresses: _Optional[int] = ...) -> None: ...

class GetCommandRequest(_message.Message):
    __slots__ = ("command_id", "min_position", "as_of")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    MIN_POSITION_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    command_id: str
    min_position: str
    as_of: str
    def __init__(self, command_id: _Optional[str] = ..., min_position: _Optional[str] = ..., as_of: _Optional[str] = ...) -> None: ...

class GetStatusRequest(_message.Message):
    __slots__ = ("min_position", "as_of")
    MIN_POSITION_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    min_position: str
    as_of: str
    def __init__(self, min_position: _Optional[str] = ..., as_of: _Optional[str] = ...) -> None: ...

class Status(_message.Message):
    __slots__ = ("log_id", "generation", "log", "replicas", "halted", "holds", "frozen", "position", "replica", "stalled", "clock_faults")
    LOG_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    HALTED_FIELD_NUMBER: _ClassVar[int]
    HOLDS_FIELD_NUMBER: _ClassVar[int]
    FROZEN_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    STALLED_FIELD_NUMBER: _ClassVar[int]
    CLOCK_FAULTS_FIELD_NUMBER: _ClassVar[int]
    log_id: str
    generation: int
    log: LogLocation
    replicas: _containers.RepeatedCompositeFieldContainer[Replica]
    halted: _containers.RepeatedCompositeFieldContainer[HaltedPartition]
    holds: int
    frozen: _containers.RepeatedScalarFieldContainer[str]
    position: str
    replica: str
    stalled: _containers.RepeatedCompositeFieldContainer[StalledPartition]
    clock_faults: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, log_id: _Optional[str] = ..., generation: _Optional[int] = ..., log: _Optional[_Union[LogLocation, _Mapping]] = ..., replicas: _Optional[_Iterable[_Union[Replica, _Mapping]]] = ..., halted: _Optional[_Iterable[_Union[HaltedPartition, _Mapping]]] = ..., holds: _Optional[int] = ..., frozen: _Optional[_Iterable[str]] = ..., position: _Optional[str] = ..., replica: _Optional[str] = ..., stalled: _Optional[_Iterable[_Union[StalledPartition, _Mapping]]] = ..., clock_faults: _Optional[_Iterable[str]] = ...) -> None: ...

class LogLocation(_message.Message):
    __slots__ = ("engine", "data", "bootstrap", "topic_prefix", "partition_count")
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    BOOTSTRAP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_PREFIX_FIELD_NUMBER: _ClassVar[int]
    PARTITION_COUNT_FIELD_NUMBER: _ClassVar[int]
    engine: str
    data: str
    bootstrap: _containers.RepeatedScalarFieldContainer[str]
    topic_prefix: str
    partition_count: int
    def __init__(self, engine: _Optional[str] = ..., data: _Optional[str] = ..., bootstrap: _Optional[_Iterable[str]] = ..., topic_prefix: _Optional[str] = ..., partition_count: _Optional[int] = ...) -> None: ...

class Replica(_message.Message):
    __slots__ = ("name", "roles", "addresses", "version", "partitions", "dpus_ahead_of_log", "supports", "revocations_fault", "sources")
    class AddressesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class SupportsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: FoldVersions
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[FoldVersions, _Mapping]] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROLES_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    DPUS_AHEAD_OF_LOG_FIELD_NUMBER: _ClassVar[int]
    SUPPORTS_FIELD_NUMBER: _ClassVar[int]
    REVOCATIONS_FAULT_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    name: str
    roles: _containers.RepeatedScalarFieldContainer[str]
    addresses: _containers.ScalarMap[str, str]
    version: str
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionStatus]
    dpus_ahead_of_log: int
    supports: _containers.MessageMap[str, FoldVersions]
    revocations_fault: str
    sources: _containers.RepeatedCompositeFieldContainer[SourceStatus]
    def __init__(self, name: _Optional[str] = ..., roles: _Optional[_Iterable[str]] = ..., addresses: _Optional[_Mapping[str, str]] = ..., version: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[PartitionStatus, _Mapping]]] = ..., dpus_ahead_of_log: _Optional[int] = ..., supports: _Optional[_Mapping[str, FoldVersions]] = ..., revocations_fault: _Optional[str] = ..., sources: _Optional[_Iterable[_Union[SourceStatus, _Mapping]]] = ...) -> None: ...

class SourceStatus(_message.Message):
    __slots__ = ("source", "watched", "nodes", "refused", "retained", "fault", "ahead")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    WATCHED_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    RETAINED_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    AHEAD_FIELD_NUMBER: _ClassVar[int]
    source: str
    watched: bool
    nodes: int
    refused: int
    retained: int
    fault: str
    ahead: int
    def __init__(self, source: _Optional[str] = ..., watched: _Optional[bool] = ..., nodes: _Optional[int] = ..., refused: _Optional[int] = ..., retained: _Optional[int] = ..., fault: _Optional[str] = ..., ahead: _Optional[int] = ...) -> None: ...

class PartitionStatus(_message.Message):
    __slots__ = ("partition", "position", "lag_records", "fold_version", "digest", "digest_position", "running_hash", "quarantined", "halted")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    LAG_RECORDS_FIELD_NUMBER: _ClassVar[int]
    FOLD_VERSION_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    DIGEST_POSITION_FIELD_NUMBER: _ClassVar[int]
    RUNNING_HASH_FIELD_NUMBER: _ClassVar[int]
    QUARANTINED_FIELD_NUMBER: _ClassVar[int]
    HALTED_FIELD_NUMBER: _ClassVar[int]
    partition: str
    position: int
    lag_records: int
    fold_version: int
    digest: str
    digest_position: int
    running_hash: str
    quarantined: int
    halted: str
    def __init__(self, partition: _Optional[str] = ..., position: _Optional[int] = ..., lag_records: _Optional[int] = ..., fold_version: _Optional[int] = ..., digest: _Optional[str] = ..., digest_position: _Optional[int] = ..., running_hash: _Optional[str] = ..., quarantined: _Optional[int] = ..., halted: _Optional[str] = ...) -> None: ...

class HaltedPartition(_message.Message):
    __slots__ = ("replica", "partition", "reason")
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    replica: str
    partition: str
    reason: str
    def __init__(self, replica: _Optional[str] = ..., partition: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class StalledPartition(_message.Message):
    __slots__ = ("partition", "reason")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    partition: str
    reason: str
    def __init__(self, partition: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("position", "nodes", "dpus", "cliques")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    DPUS_FIELD_NUMBER: _ClassVar[int]
    CLIQUES_FIELD_NUMBER: _ClassVar[int]
    position: str
    nodes: ListNodesRequest
    dpus: ListDpusRequest
    cliques: ListCliquesRequest
    def __init__(self, position: _Optional[str] = ..., nodes: _Optional[_Union[ListNodesRequest, _Mapping]] = ..., dpus: _Optional[_Union[ListDpusRequest, _Mapping]] = ..., cliques: _Optional[_Union[ListCliquesRequest, _Mapping]] = ...) -> None: ...

class WatchResponse(_message.Message):
    __slots__ = ("changes", "position")
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    changes: _containers.RepeatedCompositeFieldContainer[Change]
    position: str
    def __init__(self, changes: _Optional[_Iterable[_Union[Change, _Mapping]]] = ..., position: _Optional[str] = ...) -> None: ...

class Change(_message.Message):
    __slots__ = ("deleted", "node", "dpu", "clique")
    DELETED_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    DPU_FIELD_NUMBER: _ClassVar[int]
    CLIQUE_FIELD_NUMBER: _ClassVar[int]
    deleted: bool
    node: Node
    dpu: Dpu
    clique: Clique
    def __init__(self, deleted: _Optional[bool] = ..., node: _Optional[_Union[Node, _Mapping]] = ..., dpu: _Optional[_Union[Dpu, _Mapping]] = ..., clique: _Optional[_Union[Clique, _Mapping]] = ...) -> None: ...

class ReadEventsRequest(_message.Message):
    __slots__ = ("ranges", "follow", "filter")
    RANGES_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    ranges: _containers.RepeatedCompositeFieldContainer[EventRange]
    follow: bool
    filter: EventFilter
    def __init__(self, ranges: _Optional[_Iterable[_Union[EventRange, _Mapping]]] = ..., follow: _Optional[bool] = ..., filter: _Optional[_Union[EventFilter, _Mapping]] = ...) -> None: ...

class EventRange(_message.Message):
    __slots__ = ("topic", "partition", "offset", "start_time", "at_end", "end_offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    AT_END_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset: int
    start_time: _timestamp_pb2.Timestamp
    at_end: bool
    end_offset: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., at_end: _Optional[bool] = ..., end_offset: _Optional[int] = ...) -> None: ...

class EventFilter(_message.Message):
    __slots__ = ("types", "subject", "actor", "command_id")
    TYPES_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    types: _containers.RepeatedScalarFieldContainer[str]
    subject: str
    actor: str
    command_id: str
    def __init__(self, types: _Optional[_Iterable[str]] = ..., subject: _Optional[str] = ..., actor: _Optional[str] = ..., command_id: _Optional[str] = ...) -> None: ...

class ReadEventsResponse(_message.Message):
    __slots__ = ("topic", "partition", "records", "next_offset", "begin_offset", "end_offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    BEGIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    records: _containers.RepeatedCompositeFieldContainer[LogRecord]
    next_offset: int
    begin_offset: int
    end_offset: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., records: _Optional[_Iterable[_Union[LogRecord, _Mapping]]] = ..., next_offset: _Optional[int] = ..., begin_offset: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...

class LogRecord(_message.Message):
    __slots__ = ("offset", "append_time", "key", "value")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    APPEND_TIME_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    offset: int
    append_time: _timestamp_pb2.Timestamp
    key: bytes
    value: bytes
    def __init__(self, offset: _Optional[int] = ..., append_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., key: _Optional[bytes] = ..., value: _Optional[bytes] = ...) -> None: ...

class ListZoneProgressRequest(_message.Message):
    __slots__ = ("min_position", "as_of")
    MIN_POSITION_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    min_position: str
    as_of: str
    def __init__(self, min_position: _Optional[str] = ..., as_of: _Optional[str] = ...) -> None: ...

class ListZoneProgressResponse(_message.Message):
    __slots__ = ("zones", "position")
    ZONES_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    zones: _containers.RepeatedCompositeFieldContainer[ZoneProgress]
    position: str
    def __init__(self, zones: _Optional[_Iterable[_Union[ZoneProgress, _Mapping]]] = ..., position: _Optional[str] = ...) -> None: ...

class ZoneProgress(_message.Message):
    __slots__ = ("zone", "nodes", "dpus", "version", "pending_start_time", "reported", "received", "applied", "in_hardware", "frozen", "exceptions", "stuck", "phases", "unreported_start_time")
    class PhasesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    ZONE_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    DPUS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PENDING_START_TIME_FIELD_NUMBER: _ClassVar[int]
    REPORTED_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    IN_HARDWARE_FIELD_NUMBER: _ClassVar[int]
    FROZEN_FIELD_NUMBER: _ClassVar[int]
    EXCEPTIONS_FIELD_NUMBER: _ClassVar[int]
    STUCK_FIELD_NUMBER: _ClassVar[int]
    PHASES_FIELD_NUMBER: _ClassVar[int]
    UNREPORTED_START_TIME_FIELD_NUMBER: _ClassVar[int]
    zone: str
    nodes: int
    dpus: int
    version: int
    pending_start_time: _timestamp_pb2.Timestamp
    reported: int
    received: int
    applied: int
    in_hardware: int
    frozen: bool
    exceptions: int
    stuck: int
    phases: _containers.ScalarMap[str, int]
    unreported_start_time: _timestamp_pb2.Timestamp
    def __init__(self, zone: _Optional[str] = ..., nodes: _Optional[int] = ..., dpus: _Optional[int] = ..., version: _Optional[int] = ..., pending_start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., reported: _Optional[int] = ..., received: _Optional[int] = ..., applied: _Optional[int] = ..., in_hardware: _Optional[int] = ..., frozen: _Optional[bool] = ..., exceptions: _Optional[int] = ..., stuck: _Optional[int] = ..., phases: _Optional[_Mapping[str, int]] = ..., unreported_start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class GetLatencyRequest(_message.Message):
    __slots__ = ("min_position", "as_of")
    MIN_POSITION_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    min_position: str
    as_of: str
    def __init__(self, min_position: _Optional[str] = ..., as_of: _Optional[str] = ...) -> None: ...

class Latency(_message.Message):
    __slots__ = ("changes", "buckets", "position")
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    changes: _containers.RepeatedCompositeFieldContainer[ChangeLatency]
    buckets: _containers.RepeatedCompositeFieldContainer[LatencyBucket]
    position: str
    def __init__(self, changes: _Optional[_Iterable[_Union[ChangeLatency, _Mapping]]] = ..., buckets: _Optional[_Iterable[_Union[LatencyBucket, _Mapping]]] = ..., position: _Optional[str] = ...) -> None: ...

class ChangeLatency(_message.Message):
    __slots__ = ("version", "append_time", "dpus", "p50_latency", "p99_latency", "max_latency")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    APPEND_TIME_FIELD_NUMBER: _ClassVar[int]
    DPUS_FIELD_NUMBER: _ClassVar[int]
    P50_LATENCY_FIELD_NUMBER: _ClassVar[int]
    P99_LATENCY_FIELD_NUMBER: _ClassVar[int]
    MAX_LATENCY_FIELD_NUMBER: _ClassVar[int]
    version: int
    append_time: _timestamp_pb2.Timestamp
    dpus: int
    p50_latency: _duration_pb2.Duration
    p99_latency: _duration_pb2.Duration
    max_latency: _duration_pb2.Duration
    def __init__(self, version: _Optional[int] = ..., append_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., dpus: _Optional[int] = ..., p50_latency: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., p99_latency: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., max_latency: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class LatencyBucket(_message.Message):
    __slots__ = ("min_latency", "max_latency", "dpus")
    MIN_LATENCY_FIELD_NUMBER: _ClassVar[int]
    MAX_LATENCY_FIELD_NUMBER: _ClassVar[int]
    DPUS_FIELD_NUMBER: _ClassVar[int]
    min_latency: _duration_pb2.Duration
    max_latency: _duration_pb2.Duration
    dpus: int
    def __init__(self, min_latency: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., max_latency: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., dpus: _Optional[int] = ...) -> None: ...

class ExplainAccessRequest(_message.Message):
    __slots__ = ("min_position", "node", "dpu", "zone", "as_of")
    MIN_POSITION_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    DPU_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    min_position: str
    node: str
    dpu: str
    zone: str
    as_of: str
    def __init__(self, min_position: _Optional[str] = ..., node: _Optional[str] = ..., dpu: _Optional[str] = ..., zone: _Optional[str] = ..., as_of: _Optional[str] = ...) -> None: ...

class Explanation(_message.Message):
    __slots__ = ("node", "dpu", "zone", "addresses", "steps", "missing_step", "reason", "position", "verdicts", "verdict", "summary", "notes")
    NODE_FIELD_NUMBER: _ClassVar[int]
    DPU_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    MISSING_STEP_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    VERDICTS_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    node: str
    dpu: str
    zone: str
    addresses: _containers.RepeatedCompositeFieldContainer[ExplainedAddress]
    steps: _containers.RepeatedCompositeFieldContainer[ExplainedStep]
    missing_step: str
    reason: str
    position: str
    verdicts: _containers.RepeatedCompositeFieldContainer[ExplainedVerdict]
    verdict: str
    summary: str
    notes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, node: _Optional[str] = ..., dpu: _Optional[str] = ..., zone: _Optional[str] = ..., addresses: _Optional[_Iterable[_Union[ExplainedAddress, _Mapping]]] = ..., steps: _Optional[_Iterable[_Union[ExplainedStep, _Mapping]]] = ..., missing_step: _Optional[str] = ..., reason: _Optional[str] = ..., position: _Optional[str] = ..., verdicts: _Optional[_Iterable[_Union[ExplainedVerdict, _Mapping]]] = ..., verdict: _Optional[str] = ..., summary: _Optional[str] = ..., notes: _Optional[_Iterable[str]] = ...) -> None: ...

class ExplainedVerdict(_message.Message):
    __slots__ = ("address", "allowed", "policy", "protocols", "ports")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    PROTOCOLS_FIELD_NUMBER: _ClassVar[int]
    PORTS_FIELD_NUMBER: _ClassVar[int]
    address: str
    allowed: bool
    policy: str
    protocols: _containers.RepeatedScalarFieldContainer[str]
    ports: _containers.RepeatedCompositeFieldContainer[PortRange]
    def __init__(self, address: _Optional[str] = ..., allowed: _Optional[bool] = ..., policy: _Optional[str] = ..., protocols: _Optional[_Iterable[str]] = ..., ports: _Optional[_Iterable[_Union[PortRange, _Mapping]]] = ...) -> None: ...

class ExplainedAddress(_message.Message):
    __slots__ = ("address", "prefix", "policy", "action", "priority", "protocol", "ports", "version")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    PORTS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    address: str
    prefix: str
    policy: str
    action: str
    priority: int
    protocol: str
    ports: _containers.RepeatedCompositeFieldContainer[PortRange]
    version: int
    def __init__(self, address: _Optional[str] = ..., prefix: _Optional[str] = ..., policy: _Optional[str] = ..., action: _Optional[str] = ..., priority: _Optional[int] = ..., protocol: _Optional[str] = ..., ports: _Optional[_Iterable[_Union[PortRange, _Mapping]]] = ..., version: _Optional[int] = ...) -> None: ...

class ExplainedStep(_message.Message):
    __slots__ = ("name", "reached", "reach_time", "position", "version", "note")
    NAME_FIELD_NUMBER: _ClassVar[int]
    REACHED_FIELD_NUMBER: _ClassVar[int]
    REACH_TIME_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    name: str
    reached: bool
    reach_time: _timestamp_pb2.Timestamp
    position: str
    version: int
    note: str
    def __init__(self, name: _Optional[str] = ..., reached: _Optional[bool] = ..., reach_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., position: _Optional[str] = ..., version: _Optional[int] = ..., note: _Optional[str] = ...) -> None: ...

class FoldVersions(_message.Message):
    __slots__ = ("versions",)
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    versions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, versions: _Optional[_Iterable[int]] = ...) -> None: ...

class UpgradeFoldVersionRequest(_message.Message):
    __slots__ = ("topic", "version", "command_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    version: int
    command_id: str
    def __init__(self, topic: _Optional[str] = ..., version: _Optional[int] = ..., command_id: _Optional[str] = ...) -> None: ...

class ApplyResourcesRequest(_message.Message):
    __slots__ = ("command_id", "resources", "plan", "dry_run")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    command_id: str
    resources: _containers.RepeatedCompositeFieldContainer[ResourceSpec]
    plan: bool
    dry_run: bool
    def __init__(self, command_id: _Optional[str] = ..., resources: _Optional[_Iterable[_Union[ResourceSpec, _Mapping]]] = ..., plan: _Optional[bool] = ..., dry_run: _Optional[bool] = ...) -> None: ...

class ResourceSpec(_message.Message):
    __slots__ = ("kind", "api_version", "namespace", "name", "labels", "annotations", "spec", "revision")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class AnnotationsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    KIND_FIELD_NUMBER: _ClassVar[int]
    API_VERSION_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    ANNOTATIONS_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    kind: str
    api_version: str
    namespace: str
    name: str
    labels: _containers.ScalarMap[str, str]
    annotations: _containers.ScalarMap[str, str]
    spec: str
    revision: int
    def __init__(self, kind: _Optional[str] = ..., api_version: _Optional[str] = ..., namespace: _Optional[str] = ..., name: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., annotations: _Optional[_Mapping[str, str]] = ..., spec: _Optional[str] = ..., revision: _Optional[int] = ...) -> None: ...

class DeleteResourcesRequest(_message.Message):
    __slots__ = ("command_id", "resources")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    command_id: str
    resources: _containers.RepeatedCompositeFieldContainer[ResourceName]
    def __init__(self, command_id: _Optional[str] = ..., resources: _Optional[_Iterable[_Union[ResourceName, _Mapping]]] = ...) -> None: ...

class ResourceName(_message.Message):
    __slots__ = ("kind", "namespace", "name", "uid")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    kind: str
    namespace: str
    name: str
    uid: str
    def __init__(self, kind: _Optional[str] = ..., namespace: _Optional[str] = ..., name: _Optional[str] = ..., uid: _Optional[str] = ...) -> None: ...

class KeepSecretsRequest(_message.Message):
    __slots__ = ("secrets", "removed", "dry_run")
    SECRETS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    secrets: _containers.RepeatedCompositeFieldContainer[SecretValue]
    removed: _containers.RepeatedCompositeFieldContainer[SecretName]
    dry_run: bool
    def __init__(self, secrets: _Optional[_Iterable[_Union[SecretValue, _Mapping]]] = ..., removed: _Optional[_Iterable[_Union[SecretName, _Mapping]]] = ..., dry_run: _Optional[bool] = ...) -> None: ...

class SecretName(_message.Message):
    __slots__ = ("namespace", "name")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class SecretValue(_message.Message):
    __slots__ = ("namespace", "name", "type", "data")
    class DataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    type: str
    data: _containers.ScalarMap[str, bytes]
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ..., type: _Optional[str] = ..., data: _Optional[_Mapping[str, bytes]] = ...) -> None: ...

class KeepSecretsResponse(_message.Message):
    __slots__ = ("kept", "removed")
    KEPT_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    kept: _containers.RepeatedCompositeFieldContainer[SecretName]
    removed: _containers.RepeatedCompositeFieldContainer[SecretName]
    def __init__(self, kept: _Optional[_Iterable[_Union[SecretName, _Mapping]]] = ..., removed: _Optional[_Iterable[_Union[SecretName, _Mapping]]] = ...) -> None: ...

class RequestRolloutRequest(_message.Message):
    __slots__ = ("command_id", "name", "verb", "revision", "source")
    class Verb(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        VERB_UNSPECIFIED: _ClassVar[RequestRolloutRequest.Verb]
        VERB_PAUSE: _ClassVar[RequestRolloutRequest.Verb]
        VERB_RESUME: _ClassVar[RequestRolloutRequest.Verb]
        VERB_UNDO: _ClassVar[RequestRolloutRequest.Verb]
    VERB_UNSPECIFIED: RequestRolloutRequest.Verb
    VERB_PAUSE: RequestRolloutRequest.Verb
    VERB_RESUME: RequestRolloutRequest.Verb
    VERB_UNDO: RequestRolloutRequest.Verb
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERB_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    command_id: str
    name: ResourceName
    verb: RequestRolloutRequest.Verb
    revision: int
    source: str
    def __init__(self, command_id: _Optional[str] = ..., name: _Optional[_Union[ResourceName, _Mapping]] = ..., verb: _Optional[_Union[RequestRolloutRequest.Verb, str]] = ..., revision: _Optional[int] = ..., source: _Optional[str] = ...) -> None: ...

class GetRolloutRequest(_message.Message):
    __slots__ = ("min_position", "name", "source", "as_of")
    MIN_POSITION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    min_position: str
    name: ResourceName
    source: str
    as_of: str
    def __init__(self, min_position: _Optional[str] = ..., name: _Optional[_Union[ResourceName, _Mapping]] = ..., source: _Optional[str] = ..., as_of: _Optional[str] = ...) -> None: ...

class Rollout(_message.Message):
    __slots__ = ("sets", "position")
    SETS_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    sets: _containers.RepeatedCompositeFieldContainer[SetRollout]
    position: str
    def __init__(self, sets: _Optional[_Iterable[_Union[SetRollout, _Mapping]]] = ..., position: _Optional[str] = ...) -> None: ...

class SetRollout(_message.Message):
    __slots__ = ("namespace", "name", "deployment", "state", "message", "wave", "waves", "dpus", "updated", "updating", "failed", "outdated", "unavailable", "max_unavailable", "baked_time", "pinned", "revisions")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: _ClassVar[SetRollout.State]
        STATE_COMPLETE: _ClassVar[SetRollout.State]
        STATE_PROGRESSING: _ClassVar[SetRollout.State]
        STATE_BAKING: _ClassVar[SetRollout.State]
        STATE_PAUSED: _ClassVar[SetRollout.State]
        STATE_HELD: _ClassVar[SetRollout.State]
        STATE_WAITING: _ClassVar[SetRollout.State]
    STATE_UNSPECIFIED: SetRollout.State
    STATE_COMPLETE: SetRollout.State
    STATE_PROGRESSING: SetRollout.State
    STATE_BAKING: SetRollout.State
    STATE_PAUSED: SetRollout.State
    STATE_HELD: SetRollout.State
    STATE_WAITING: SetRollout.State
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DEPLOYMENT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    WAVE_FIELD_NUMBER: _ClassVar[int]
    WAVES_FIELD_NUMBER: _ClassVar[int]
    DPUS_FIELD_NUMBER: _ClassVar[int]
    UPDATED_FIELD_NUMBER: _ClassVar[int]
    UPDATING_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    OUTDATED_FIELD_NUMBER: _ClassVar[int]
    UNAVAILABLE_FIELD_NUMBER: _ClassVar[int]
    MAX_UNAVAILABLE_FIELD_NUMBER: _ClassVar[int]
    BAKED_TIME_FIELD_NUMBER: _ClassVar[int]
    PINNED_FIELD_NUMBER: _ClassVar[int]
    REVISIONS_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    deployment: str
    state: SetRollout.State
    message: str
    wave: int
    waves: _containers.RepeatedScalarFieldContainer[str]
    dpus: int
    updated: int
    updating: int
    failed: int
    outdated: int
    unavailable: int
    max_unavailable: int
    baked_time: _timestamp_pb2.Timestamp
    pinned: bool
    revisions: _containers.RepeatedCompositeFieldContainer[RolloutRevision]
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ..., deployment: _Optional[str] = ..., state: _Optional[_Union[SetRollout.State, str]] = ..., message: _Optional[str] = ..., wave: _Optional[int] = ..., waves: _Optional[_Iterable[str]] = ..., dpus: _Optional[int] = ..., updated: _Optional[int] = ..., updating: _Optional[int] = ..., failed: _Optional[int] = ..., outdated: _Optional[int] = ..., unavailable: _Optional[int] = ..., max_unavailable: _Optional[int] = ..., baked_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., pinned: _Optional[bool] = ..., revisions: _Optional[_Iterable[_Union[RolloutRevision, _Mapping]]] = ...) -> None: ...

class RolloutRevision(_message.Message):
    __slots__ = ("revision", "template", "begin_time", "end_time", "result", "actor")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    BEGIN_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    revision: int
    template: str
    begin_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    result: str
    actor: str
    def __init__(self, revision: _Optional[int] = ..., template: _Optional[str] = ..., begin_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., result: _Optional[str] = ..., actor: _Optional[str] = ...) -> None: ...

class GetStagedChangeRequest(_message.Message):
    __slots__ = ("min_position", "source", "as_of")
    MIN_POSITION_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    min_position: str
    source: str
    as_of: str
    def __init__(self, min_position: _Optional[str] = ..., source: _Optional[str] = ..., as_of: _Optional[str] = ...) -> None: ...

class StagedChange(_message.Message):
    __slots__ = ("policy", "version", "phase", "message", "stages", "stage", "released", "named", "dpus", "installed", "waiting", "failed", "begin_time", "stage_time", "bake_time", "failure_budget", "requested_by", "end_time", "position", "source")
    class Phase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        PHASE_UNSPECIFIED: _ClassVar[StagedChange.Phase]
        PHASE_STAGING: _ClassVar[StagedChange.Phase]
        PHASE_PAUSED: _ClassVar[StagedChange.Phase]
        PHASE_HELD: _ClassVar[StagedChange.Phase]
        PHASE_UNDOING: _ClassVar[StagedChange.Phase]
        PHASE_COMPLETE: _ClassVar[StagedChange.Phase]
        PHASE_UNDONE: _ClassVar[StagedChange.Phase]
    PHASE_UNSPECIFIED: StagedChange.Phase
    PHASE_STAGING: StagedChange.Phase
    PHASE_PAUSED: StagedChange.Phase
    PHASE_HELD: StagedChange.Phase
    PHASE_UNDOING: StagedChange.Phase
    PHASE_COMPLETE: StagedChange.Phase
    PHASE_UNDONE: StagedChange.Phase
    class FailedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    POLICY_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    NAMED_FIELD_NUMBER: _ClassVar[int]
    DPUS_FIELD_NUMBER: _ClassVar[int]
    INSTALLED_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    BEGIN_TIME_FIELD_NUMBER: _ClassVar[int]
    STAGE_TIME_FIELD_NUMBER: _ClassVar[int]
    BAKE_TIME_FIELD_NUMBER: _ClassVar[int]
    FAILURE_BUDGET_FIELD_NUMBER: _ClassVar[int]
    REQUESTED_BY_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    policy: str
    version: int
    phase: StagedChange.Phase
    message: str
    stages: _containers.RepeatedScalarFieldContainer[str]
    stage: int
    released: _containers.RepeatedScalarFieldContainer[int]
    named: _containers.RepeatedScalarFieldContainer[int]
    dpus: int
    installed: int
    waiting: int
    failed: _containers.ScalarMap[str, str]
    begin_time: _timestamp_pb2.Timestamp
    stage_time: _timestamp_pb2.Timestamp
    bake_time: _duration_pb2.Duration
    failure_budget: str
    requested_by: str
    end_time: _timestamp_pb2.Timestamp
    position: str
    source: str
    def __init__(self, policy: _Optional[str] = ..., version: _Optional[int] = ..., phase: _Optional[_Union[StagedChange.Phase, str]] = ..., message: _Optional[str] = ..., stages: _Optional[_Iterable[str]] = ..., stage: _Optional[int] = ..., released: _Optional[_Iterable[int]] = ..., named: _Optional[_Iterable[int]] = ..., dpus: _Optional[int] = ..., installed: _Optional[int] = ..., waiting: _Optional[int] = ..., failed: _Optional[_Mapping[str, str]] = ..., begin_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., stage_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., bake_time: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., failure_budget: _Optional[str] = ..., requested_by: _Optional[str] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., position: _Optional[str] = ..., source: _Optional[str] = ...) -> None: ...

class GetResourceRequest(_message.Message):
    __slots__ = ("min_position", "kind", "namespace", "name", "source", "as_of")
    MIN_POSITION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    min_position: str
    kind: str
    namespace: str
    name: str
    source: str
    as_of: str
    def __init__(self, min_position: _Optional[str] = ..., kind: _Optional[str] = ..., namespace: _Optional[str] = ..., name: _Optional[str] = ..., source: _Optional[str] = ..., as_of: _Optional[str] = ...) -> None: ...

class GetDpuConfigurationRequest(_message.Message):
    __slots__ = ("min_position", "dpu", "namespace", "source", "as_of")
    MIN_POSITION_FIELD_NUMBER: _ClassVar[int]
    DPU_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    min_position: str
    dpu: str
    namespace: str
    source: str
    as_of: str
    def __init__(self, min_position: _Optional[str] = ..., dpu: _Optional[str] = ..., namespace: _Optional[str] = ..., source: _Optional[str] = ..., as_of: _Optional[str] = ...) -> None: ...

class DpuConfiguration(_message.Message):
    __slots__ = ("dpu", "namespace", "source", "identity", "cluster", "bf_cfg", "user_data", "position")
    DPU_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    BF_CFG_FIELD_NUMBER: _ClassVar[int]
    USER_DATA_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    dpu: str
    namespace: str
    source: str
    identity: str
    cluster: str
    bf_cfg: str
    user_data: str
    position: str
    def __init__(self, dpu: _Optional[str] = ..., namespace: _Optional[str] = ..., source: _Optional[str] = ..., identity: _Optional[str] = ..., cluster: _Optional[str] = ..., bf_cfg: _Optional[str] = ..., user_data: _Optional[str] = ..., position: _Optional[str] = ...) -> None: ...

class GetDpuNetworkRequest(_message.Message):
    __slots__ = ("min_position", "dpu", "zone", "as_of")
    MIN_POSITION_FIELD_NUMBER: _ClassVar[int]
    DPU_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    min_position: str
    dpu: str
    zone: str
    as_of: str
    def __init__(self, min_position: _Optional[str] = ..., dpu: _Optional[str] = ..., zone: _Optional[str] = ..., as_of: _Optional[str] = ...) -> None: ...

class DpuNetwork(_message.Message):
    __slots__ = ("dpu", "zone", "wanted_version", "applied_version", "digest", "unresolved", "refusal", "document", "position")
    DPU_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    WANTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    APPLIED_VERSION_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    UNRESOLVED_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    dpu: str
    zone: str
    wanted_version: int
    applied_version: int
    digest: str
    unresolved: _containers.RepeatedScalarFieldContainer[str]
    refusal: str
    document: str
    position: str
    def __init__(self, dpu: _Optional[str] = ..., zone: _Optional[str] = ..., wanted_version: _Optional[int] = ..., applied_version: _Optional[int] = ..., digest: _Optional[str] = ..., unresolved: _Optional[_Iterable[str]] = ..., refusal: _Optional[str] = ..., document: _Optional[str] = ..., position: _Optional[str] = ...) -> None: ...

class ListResourcesRequest(_message.Message):
    __slots__ = ("min_position", "kind", "namespace", "label_selector", "page_size", "page_token", "source", "as_of")
    MIN_POSITION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    LABEL_SELECTOR_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    min_position: str
    kind: str
    namespace: str
    label_selector: str
    page_size: int
    page_token: str
    source: str
    as_of: str
    def __init__(self, min_position: _Optional[str] = ..., kind: _Optional[str] = ..., namespace: _Optional[str] = ..., label_selector: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., source: _Optional[str] = ..., as_of: _Optional[str] = ...) -> None: ...

class ListResourcesResponse(_message.Message):
    __slots__ = ("resources", "next_page_token", "position")
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    resources: _containers.RepeatedCompositeFieldContainer[Resource]
    next_page_token: str
    position: str
    def __init__(self, resources: _Optional[_Iterable[_Union[Resource, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., position: _Optional[str] = ...) -> None: ...

class Resource(_message.Message):
    __slots__ = ("kind", "api_version", "namespace", "name", "labels", "annotations", "spec", "source", "uid", "generation", "create_time", "update_time", "delete_time", "actor", "references", "referrers", "position", "derived", "owner", "conditions", "phase", "causes", "children", "observation", "revision", "status")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class AnnotationsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    KIND_FIELD_NUMBER: _ClassVar[int]
    API_VERSION_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    ANNOTATIONS_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    UPDATE_TIME_FIELD_NUMBER: _ClassVar[int]
    DELETE_TIME_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    REFERENCES_FIELD_NUMBER: _ClassVar[int]
    REFERRERS_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    DERIVED_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    CONDITIONS_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    CAUSES_FIELD_NUMBER: _ClassVar[int]
    CHILDREN_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    kind: str
    api_version: str
    namespace: str
    name: str
    labels: _containers.ScalarMap[str, str]
    annotations: _containers.ScalarMap[str, str]
    spec: str
    source: str
    uid: str
    generation: int
    create_time: _timestamp_pb2.Timestamp
    update_time: _timestamp_pb2.Timestamp
    delete_time: _timestamp_pb2.Timestamp
    actor: str
    references: _containers.RepeatedCompositeFieldContainer[ResourceReference]
    referrers: _containers.RepeatedCompositeFieldContainer[ResourceReference]
    position: str
    derived: bool
    owner: ResourceOwner
    conditions: _containers.RepeatedCompositeFieldContainer[ResourceCondition]
    phase: str
    causes: _containers.RepeatedCompositeFieldContainer[ResourceCause]
    children: _containers.RepeatedCompositeFieldContainer[ResourceChildren]
    observation: ResourceObservation
    revision: int
    status: str
    def __init__(self, kind: _Optional[str] = ..., api_version: _Optional[str] = ..., namespace: _Optional[str] = ..., name: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., annotations: _Optional[_Mapping[str, str]] = ..., spec: _Optional[str] = ..., source: _Optional[str] = ..., uid: _Optional[str] = ..., generation: _Optional[int] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., update_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., delete_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., actor: _Optional[str] = ..., references: _Optional[_Iterable[_Union[ResourceReference, _Mapping]]] = ..., referrers: _Optional[_Iterable[_Union[ResourceReference, _Mapping]]] = ..., position: _Optional[str] = ..., derived: _Optional[bool] = ..., owner: _Optional[_Union[ResourceOwner, _Mapping]] = ..., conditions: _Optional[_Iterable[_Union[ResourceCondition, _Mapping]]] = ..., phase: _Optional[str] = ..., causes: _Optional[_Iterable[_Union[ResourceCause, _Mapping]]] = ..., children: _Optional[_Iterable[_Union[ResourceChildren, _Mapping]]] = ..., observation: _Optional[_Union[ResourceObservation, _Mapping]] = ..., revision: _Optional[int] = ..., status: _Optional[str] = ...) -> None: ...

class ResourceObservation(_message.Message):
    __slots__ = ("fields", "observer", "time")
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    OBSERVER_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    fields: str
    observer: str
    time: _timestamp_pb2.Timestamp
    def __init__(self, fields: _Optional[str] = ..., observer: _Optional[str] = ..., time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ResourceOwner(_message.Message):
    __slots__ = ("kind", "api_version", "namespace", "name", "uid")
    KIND_FIELD_NUMBER: _ClassVar[int]
    API_VERSION_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    kind: str
    api_version: str
    namespace: str
    name: str
    uid: str
    def __init__(self, kind: _Optional[str] = ..., api_version: _Optional[str] = ..., namespace: _Optional[str] = ..., name: _Optional[str] = ..., uid: _Optional[str] = ...) -> None: ...

class ResourceCondition(_message.Message):
    __slots__ = ("type", "status", "reason", "message")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    type: str
    status: str
    reason: str
    message: str
    def __init__(self, type: _Optional[str] = ..., status: _Optional[str] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class ResourceCause(_message.Message):
    __slots__ = ("depth", "name", "message", "root")
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ROOT_FIELD_NUMBER: _ClassVar[int]
    depth: int
    name: ResourceName
    message: str
    root: bool
    def __init__(self, depth: _Optional[int] = ..., name: _Optional[_Union[ResourceName, _Mapping]] = ..., message: _Optional[str] = ..., root: _Optional[bool] = ...) -> None: ...

class ResourceChildren(_message.Message):
    __slots__ = ("kind", "status", "reason", "count", "names")
    KIND_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    kind: str
    status: str
    reason: str
    count: int
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, kind: _Optional[str] = ..., status: _Optional[str] = ..., reason: _Optional[str] = ..., count: _Optional[int] = ..., names: _Optional[_Iterable[str]] = ...) -> None: ...

class ResourceReference(_message.Message):
    __slots__ = ("path", "kind", "name", "missing")
    PATH_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    path: str
    kind: str
    name: str
    missing: bool
    def __init__(self, path: _Optional[str] = ..., kind: _Optional[str] = ..., name: _Optional[str] = ..., missing: _Optional[bool] = ...) -> None: ...
