"""The settings of a process of the plane, in one documented model.

A value comes from the first of these sources that has it: a flag of `dpuplane serve`; the environment (`DPUPLANE_` and
the name of the field, such as `DPUPLANE_TOPIC_PREFIX`); the YAML file of `--config`; the default below. Only this
package reads the environment.

The options of `serve` are generated from the model (deploy/cli/shared/setting_options.py). pydantic-settings would
replace the few lines of `load_settings`, but its messages would not name the file, and it would not limit the size of
the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from deploy.kafka.security import KafkaSecurity, Mechanism, SecurityProtocol
from deploy.settings import credential_fields
from deploy.settings.addresses import Address, parse_address, parse_addresses
from deploy.settings.source_clusters import SourceCluster, parse_source_clusters
from deploy.settings.validation_errors import error_sentence, kind_of
from deploy.settings.yaml_text import CHARACTERS_MAX, NotYaml, documents_of
from deploy.settings.zone_names import parse_zones
from drivers.backends.simulated_failures import FORM, Failure, parse_failures
from drivers.images.sources import checked_hosts
from drivers.simulators.bmc_network import SIZES_FORM, NetworkSizes, parse_sizes
from eventstore.errors import PermanentError
from eventstore.replicas.role_names import DECISION_WRITER, KUBERNETES
from projections.field_checks import check_label_key, is_utf8
from projections.fleet.withdrawals.principals import check_trust_domain
from schemas.kubernetes.objects import RACK_LABEL
from schemas.resources.model import ZONE_NAME

if TYPE_CHECKING:
    from deploy.composition.kubernetes_edge import EdgeSettings

__all__ = ["Address", "BadSettings", "Settings", "load_settings", "parse_address"]

ENVIRONMENT_PREFIX = "DPUPLANE_"

_KAFKA_FILES = tuple(f"kafka_{name}" for name in KafkaSecurity._fields if "file" in name)
_LOG_FIELDS = ("data", "kafka", "topic_prefix", *(f"kafka_{name}" for name in KafkaSecurity._fields))
_FILES = ("tls_cert", "tls_key", "tls_client_ca", "tls_revoked", *credential_fields.BMC_FILES, *_KAFKA_FILES)


class BadSettings(PermanentError):
    """An invalid setting. The message names the setting, its value and the rule."""


class Settings(BaseModel):
    """The settings of one process."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    data: Path | None = Field(
        None, title="DIR", description="Folder of the embedded log, owned by one process with every role."
    )
    kafka: str = Field(
        "",
        title="HOST:PORT,...",
        description="HOST:PORT,... of the Kafka cluster that holds the log, instead of `data`.",
    )
    kafka_security_protocol: SecurityProtocol = Field(
        "PLAINTEXT",
        description="Protocol of the connections to brokers: PLAINTEXT, SSL (mutual TLS) or SASL_SSL (password).",
    )
    kafka_sasl_mechanism: Mechanism | None = Field(
        None, description="Mechanism of SASL_SSL: SCRAM-SHA-512, SCRAM-SHA-256 or PLAIN."
    )
    kafka_sasl_username: str = Field("", description="User name for SASL_SSL.")
    kafka_sasl_password_file: Path | None = Field(
        None, description="File with the password for SASL_SSL, and nothing else."
    )
    kafka_ca_file: Path | None = Field(
        None, description="PEM file: certificate authorities of the brokers. Default: those of the operating system."
    )
    kafka_cert_file: Path | None = Field(
        None, description="PEM file: this process's certificate for brokers. SSL requires it."
    )
    kafka_key_file: Path | None = Field(None, description="PEM file: the unencrypted key of `kafka_cert_file`.")
    topic_prefix: str = Field(
        "dpuplane", pattern=r"^[A-Za-z0-9_-]{1,100}$", description="Prefix of the names of this plane's topics."
    )
    partitions: int | None = Field(
        None, ge=1, le=1_000, description="Partitions of a new log; default 12. An existing log keeps its number."
    )
    role: str = Field(
        "all",
        title="ROLE",
        description="all, api, relay, provisioner, decisions or kubernetes. With `data` it is always all.",
    )
    zones: str = Field("", title="Z,...", description="Zones (Z,...) that the relay serves; empty for every zone.")
    kubeconfig: str = Field(
        "",
        title="[NAME=]FILE,...",
        description="Source clusters whose Nodes join: for each a kubeconfig FILE, or in-cluster for the cluster that "
        "this process runs in. NAME is the name of the source; one cluster may omit it and is named by `source`. "
        "Repeatable. Role all without it has no Kubernetes edge.",
    )
    source: str = Field(
        "cluster",
        pattern=ZONE_NAME,
        description="Name of the source cluster that has no name in `kubeconfig`. The nodes of a source are named "
        "SOURCE/NAME.",
    )
    zone_label: str = Field(RACK_LABEL, title="KEY", description="Label of a Node with the name of its zone.")
    fallback_zone: str = Field(
        "unassigned", pattern=ZONE_NAME, title="ZONE", description="Zone of Nodes without a valid zone label."
    )
    node_address_type: str = Field(
        "InternalIP", title="TYPE", description="Type of the addresses of a Node that join: the first of each family."
    )
    node_labels: str = Field(
        "",
        title="KEY,...",
        description="Labels of a Node that policies select by: keys, or patterns such as example.com/*. Others are "
        "ignored.",
    )
    listen: Address = Field(
        Address("127.0.0.1", 7080), description="gRPC: commands and queries; port 0 takes a free one."
    )
    http: Address = Field(Address("127.0.0.1", 7081), description="HTTP: the page, /metrics, /healthz, /readyz.")
    agents: Address = Field(Address("127.0.0.1", 7082), description="WebSocket: the agents of DPUs.")
    images: Address = Field(
        Address("127.0.0.1", 0),
        description="HTTPS: images and configurations for the installers of DPUs; port 0 takes a free one. Downloads "
        "need a token, so this may be an address that BMCs reach.",
    )
    images_url: str = Field(
        "",
        title="URL",
        pattern=r"^(https://[^/?#]+)?/*$",
        description="https://HOST:PORT at which BMCs reach `images`. Default: its own address.",
    )
    images_dir: Path | None = Field(
        None,
        title="DIR",
        description="Folder of downloaded images, of this process or shared by several. Default: none on Kafka, where "
        "provisioners install from it; a folder inside `data`.",
    )
    image_hosts: Annotated[str, AfterValidator(checked_hosts)] = Field(
        "",
        title="HOST,...",
        description="Hosts, *.DOMAIN patterns and networks that images may come from although their addresses are "
        "local to this machine. With only: before them, images come from nowhere else.",
    )
    image_streams: int = Field(64, ge=1, le=10_000, description="Images that are served at the same time.")
    simulate: int = Field(
        0,
        ge=0,
        le=10_000,
        description="Number of simulated DPUs per zone, in a process of role all; no hardware is written to.",
    )
    simulate_hosts: str = Field(
        "",
        description=f"{SIZES_FORM}: simulated hosts with BMCs, and clusters, for the DPUs of manifests, in a process "
        "of role all. The setting simulate includes 4x25.",
    )
    simulate_pace: float = Field(
        1.0, gt=0.0, le=1_000.0, description="Factor on the time that simulated hosts and DPUs take for their steps."
    )
    simulate_fail: str = Field(
        "",
        description=f"{FORM},...: failures injected into simulated DPUs only. The first TIMES attempts at the "
        "step fail, of one DPU or of each.",
    )
    insecure: bool = Field(False, description="Allow listeners off the loopback without TLS.")
    bmc_user: str = credential_fields.BMC_USER
    bmc_password_file: Path | None = credential_fields.BMC_PASSWORD_FILE
    bmc_ca: Path | None = credential_fields.BMC_CA
    bmc_ca_key: Path | None = credential_fields.BMC_CA_KEY
    bmc_client_cert: Path | None = credential_fields.BMC_CLIENT_CERT
    bmc_client_key: Path | None = credential_fields.BMC_CLIENT_KEY
    bmc_connections: int = credential_fields.BMC_CONNECTIONS
    tls_cert: Path | None = credential_fields.TLS_CERT
    tls_key: Path | None = Field(None, description="PEM file: the unencrypted key of `tls_cert`.")
    tls_client_ca: Path | None = credential_fields.TLS_CLIENT_CA
    tls_revoked: Path | None = credential_fields.TLS_REVOKED
    trust_domain: str = Field(
        "", description="Trust domain in the URI names of all certificates; empty for that of `tls_cert`."
    )
    reflection: bool | None = Field(None, description="Whether gRPC reflection is on. Default: only without TLS.")
    calls_per_second: float = Field(50_000.0, gt=0, description="API calls per second of one principal, on average.")
    calls_burst: float = Field(50_000.0, ge=1, description="Burst of API calls of one principal after a pause.")
    calls_at_once: int = Field(5_000, ge=1, description="Concurrent API calls of one principal.")
    streams_per_connection: int = Field(
        1_000, ge=1, description="Concurrent API calls on one connection, of all principals."
    )
    http_connections: int = Field(
        500,
        ge=1,
        le=60_000,
        description="Maximum of open connections to `http`; lower if the process may open few files.",
    )
    api_connections: int = Field(2_000, ge=1, le=60_000, description="Maximum of open connections to `listen`.")
    agent_connections: int = Field(10_000, ge=1, le=60_000, description="Maximum of open connections to `agents`.")
    address_share: float = Field(
        0.25,
        title="SHARE",
        gt=0,
        le=1,
        description="Share of the connections of `http` and of `agents` that one address (for IPv6 one /64 network) "
        "may have. Set 1 behind a proxy or address translation.",
    )
    state: Path | None = Field(
        None,
        title="DIR",
        description="Folder of this process's saved state, so that a restart does not fold the whole log. "
        "Default: none on Kafka; a folder inside `data`.",
    )
    state_checkpoints: int = Field(
        24,
        ge=1,
        le=1_000,
        description="Checkpoints of the saved state that are kept, so that a query of the past folds few records.",
    )
    state_checkpoints_mb: int = Field(
        4_096,
        ge=0,
        description="Disk (MB) that state checkpoints may take beyond the present state; the newest is always kept.",
    )
    decisions: bool = Field(
        True,
        description="Write every decision to a topic of its own, for analysts: on Kafka, in a process of its own.",
    )
    as_of_servers: int = Field(
        2, ge=0, le=16, description="Processes that answer queries of the past (--as-of), one per point; 0 for none."
    )
    name: str = Field(
        "",
        pattern=r"^[A-Za-z0-9._-]{0,63}$",
        description="Name of this replica; empty for the host name and a random part.",
    )
    traces: str = Field(
        "",
        title="URL",
        pattern=r"^(https?://.+)?$",
        description="URL of an OpenTelemetry collector (OTLP over HTTP: http://HOST:4318/v1/traces) for traces "
        "of single commands from the API to the devices; empty for none. Needs dpuplane[otel].",
    )
    traces_share: float = Field(
        0.01,
        title="SHARE",
        ge=0,
        le=1,
        description="Share of the calls that are traced. A call with a sampled traceparent is always traced.",
    )
    seed: int | None = Field(None, description="Seed of every random choice. Default: a new seed at each start.")

    kubernetes_cliques: Literal["off", "assign", "beside"] = Field(
        "off",
        description="Objects of cliques (ComputeDomainClique): off; assign, the plane alone writes their rows; beside, "
        "upstream's daemons write rows too, and each of their rows requests its index.",
    )
    driver_namespace: str = Field(
        "dra-driver-nvidia-gpu",
        pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
        title="NAMESPACE",
        description="Namespace of upstream's driver, with the daemon pods and cliques.",
    )
    kubernetes_status: bool = Field(
        False,
        description="Read and write objects of the kinds DPURack, RulePolicy and Hold: kubectl get rack shows the "
        "state of each zone. Needs their definitions, in deploy/kubernetes/crds, and the policies in "
        "deploy/kubernetes/admission.",
    )
    kubernetes_resources: bool = Field(
        False,
        description="Read objects of DPF's kinds in the source clusters, and what Argo CD, Kamaji and others make of "
        "them there and in the DPU clusters. Kinds that a cluster does not serve are looked for again.",
    )
    kubernetes_events: bool = Field(
        True,
        description="Write Kubernetes Events about objects: kubectl describe shows what a person must know about them.",
    )
    kubernetes_users: str = Field(
        "",
        title="USER=NAME,...",
        description="Kubernetes users as principals, such as '*@example.org=*,root=ops': the name in a certificate of "
        "the same person; * is any text. Specs and verdicts of other users do not count.",
    )
    kubernetes_requests_per_second: float = Field(
        50.0, gt=0, description="Writes to each API server per second, on average."
    )

    @field_validator("listen", "http", "agents", "images", mode="before")
    @classmethod
    def _parse_address(cls, value: object) -> object:
        return parse_address(value) if isinstance(value, str) else value

    @field_validator("data", "state", "images_dir", mode="before")
    @classmethod
    def _check_folder(cls, value: object) -> object:
        if value == "":  # Path("") is the working folder
            raise ValueError("must name a folder; leave it out for none")
        return value

    @field_validator(*_FILES)
    @classmethod
    def _check_file(cls, value: Path | None) -> Path | None:
        if value is not None and "\n" in str(value):  # the key itself was given; errors about the file would print it
            raise ValueError("must be the path of a file")
        return value

    @field_validator("role")
    @classmethod
    def _check_role(cls, value: str) -> str:
        from deploy.composition.roles import ALL_ROLES, ROLES  # the table imports every part of a process

        if value not in (ALL_ROLES, *ROLES):
            raise ValueError(f"must be one of {ALL_ROLES}, {', '.join(ROLES)}")
        return value

    @field_validator("zone_label")
    @classmethod
    def _check_zone_label(cls, value: str) -> str:
        if fault := check_label_key("zone_label", value):
            raise ValueError(fault.partition(": ")[2])
        return value

    @field_validator("kubernetes_users")
    @classmethod
    def _check_kubernetes_users(cls, value: str) -> str:
        from commands.kubernetes.users import parse_users  # it imports the models of resources

        if isinstance(fault := parse_users("", value), str):
            raise ValueError(fault.partition(": ")[2])
        return value

    @field_validator("kafka")
    @classmethod
    def _check_kafka(cls, value: str) -> str:
        if value:
            parse_addresses(value)
        return value

    @model_validator(mode="after")
    def _check_engine(self) -> Self:
        if (self.data is None) == (not self.kafka):
            raise ValueError("give either data (a folder) or kafka (HOST:PORT,...)")
        if self.data is not None and self.role != "all":
            raise ValueError(f"role '{self.role}' needs kafka: the embedded log has one process with every role")
        if self.role == KUBERNETES and not self.kubeconfig:
            raise ValueError("role: 'kubernetes' needs the setting kubeconfig: files, or in-cluster")
        if self.role == DECISION_WRITER and not self.decisions:
            raise ValueError("role: 'decisions' needs the setting decisions to be true")
        if self.is_simulated and self.role != "all":
            raise ValueError(f"simulate needs role 'all', not '{self.role}': use `dpuplane simulator` beside it")
        if self.simulated_failures and not self.is_simulated:
            raise ValueError("simulate_fail needs simulate: failures are injected into simulated DPUs only")
        return self

    @field_validator("trust_domain")
    @classmethod
    def _check_trust_domain(cls, value: str) -> str:
        if value and (fault := check_trust_domain("trust_domain", value)):
            raise ValueError(fault)
        return value

    @model_validator(mode="after")
    def _check_tls(self) -> Self:
        files = {name: getattr(self, name) for name in ("tls_cert", "tls_key", "tls_client_ca")}
        missing = [name for name, path in files.items() if path is None]
        if 0 < len(missing) < len(files):
            raise ValueError(
                f"{' and '.join(missing)} must be given too: TLS requires tls_cert, tls_key and tls_client_ca"
            )
        for name in ("trust_domain", "tls_revoked"):
            if getattr(self, name) and missing:
                raise ValueError(f"{name} needs tls_cert, tls_key and tls_client_ca")
        return self

    @model_validator(mode="after")
    def _check_kafka_security(self) -> Self:
        if fault := self.kafka_security.fault():
            raise ValueError(fault)
        if self.data is not None and self.kafka_security != KafkaSecurity():
            raise ValueError("kafka_security_protocol is for a log on Kafka, and data is given")
        return self

    @model_validator(mode="after")
    def _check_simulated_hosts(self) -> Self:
        parse_sizes("simulate_hosts", self.simulate_hosts)
        return self

    @model_validator(mode="after")
    def _check_zones(self) -> Self:
        parse_zones(self.zones)
        return self

    @model_validator(mode="after")
    def _check_source_clusters(self) -> Self:
        parse_source_clusters(self.kubeconfig, self.source)
        return self

    @model_validator(mode="after")
    def _check_listeners(self) -> Self:
        for name in ("listen", "http", "agents"):
            address: Address = getattr(self, name)
            if not address.is_loopback and not self.insecure and self.tls_cert is None:
                raise ValueError(
                    f"{name} {address} is not on the loopback interface: configure TLS, or give --insecure"
                )
        return self

    @property
    def kafka_security(self) -> KafkaSecurity:
        """The connection settings for brokers."""
        return KafkaSecurity(**{name: getattr(self, f"kafka_{name}") for name in KafkaSecurity._fields})

    @property
    def images_folder(self) -> Path | None:
        """The folder of images; None for a process without an image store."""
        return self.images_dir or (self.data / "images" if self.data is not None else None)

    @property
    def is_simulated(self) -> bool:
        """Whether the process has simulated hosts, BMCs and clusters."""
        return bool(self.simulate or self.simulate_hosts)

    @property
    def network_sizes(self) -> NetworkSizes:
        """The simulated hosts."""
        return parse_sizes("simulate_hosts", self.simulate_hosts)

    @property
    def simulated_failures(self) -> tuple[Failure, ...]:
        return parse_failures("simulate_fail", self.simulate_fail)

    @property
    def source_clusters(self) -> tuple[SourceCluster, ...]:
        return parse_source_clusters(self.kubeconfig, self.source)

    def edge(self, source: str) -> EdgeSettings:
        """The settings of the Kubernetes edge of a source cluster: the objects that it watches and writes."""
        from deploy.settings.edges import edge_of  # it imports every part of the edge

        return edge_of(self, source)

    @property
    def zone_names(self) -> frozenset[str]:
        return parse_zones(self.zones)


def load_settings(flags: Mapping[str, object], config: Path | None, environment: Mapping[str, str]) -> Settings:
    """The settings from flags (None if not given), environment and file. Raises BadSettings, one sentence per error."""
    given = {name: value for name, value in flags.items() if value is not None}
    from_environment = {
        name: environment[f"{ENVIRONMENT_PREFIX}{name.upper()}"]
        for name in Settings.model_fields
        if f"{ENVIRONMENT_PREFIX}{name.upper()}" in environment
    }
    for name, value in {**from_environment, **given}.items():
        if isinstance(value, str) and not is_utf8(value):
            raise BadSettings(f"{name}: must be text in UTF-8")
    from_file = _read_config(config) if config else {}
    try:
        return Settings(**{**from_file, **from_environment, **given})
    except ValidationError as error:
        raise BadSettings("; ".join(error_sentence(mistake) for mistake in error.errors())) from error


def log_settings(config: Path) -> dict[str, Any]:
    """The settings in a file that locate the log and configure its connection; none if the file names no log.

    Raises BadSettings, like `load_settings`; the file's other settings are not checked.
    """
    content = _read_config(config)
    if not content.keys() & {"data", "kafka"}:
        return {}
    found = {name: content[name] for name in _LOG_FIELDS if name in content}
    try:
        settings = Settings(**found)
    except ValidationError as error:
        raise BadSettings("; ".join(error_sentence(mistake) for mistake in error.errors())) from error
    return {name: getattr(settings, name) for name in found}


def _read_config(path: Path) -> dict[str, Any]:
    try:
        with path.open(encoding="utf-8") as stream:
            text = stream.read(CHARACTERS_MAX + 1)  # a device file has no end
        documents = documents_of(text)
    except OSError as error:
        raise BadSettings(f"config {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadSettings(f"config {path}: byte {error.start + 1} is not UTF-8") from error
    except NotYaml as error:
        raise BadSettings(f"config {path}: must be YAML: {error}") from error
    if len(documents) > 1:
        raise BadSettings(f"config {path}: must be one YAML document, not {len(documents)}")
    content = documents[0] if documents else None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise BadSettings(f"config {path}: must be a mapping of setting to value, and is {kind_of(content)}")
    return {str(key): value for key, value in content.items()}
