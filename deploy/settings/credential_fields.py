"""The settings about credentials of this process and of BMCs."""

from __future__ import annotations

from pydantic import Field

BMC_FILES = ("bmc_password_file", "bmc_ca", "bmc_ca_key", "bmc_client_cert", "bmc_client_key")

BMC_USER = Field(
    "",
    title="USER",
    pattern=r"^[A-Za-z0-9._-]{0,64}$",
    description="User of the plane on BMCs, unless a Secret names one. Default: that of the factory, root or admin.",
)
BMC_PASSWORD_FILE = Field(
    None,
    description="File with the password of BMCs for which no Secret has one, and nothing else. It replaces the factory "
    "password.",
)
BMC_CA = Field(
    None,
    description="PEM file: certificate of the authority of BMCs. Without it, the certificate of the first contact with "
    "each BMC is the only one that is accepted from it.",
)
BMC_CA_KEY = Field(
    None,
    description="PEM file: the unencrypted key of `bmc_ca`. With it, BMCs get certificates, renewed in time; "
    "for management services (gNOI) the plane issues itself one for 24 hours.",
)
BMC_CLIENT_CERT = Field(
    None,
    description="PEM file: certificate of the plane for management services (gNOI), where `bmc_ca_key` is not given. A "
    "renewed file is used by the next attempt at a step.",
)
BMC_CLIENT_KEY = Field(None, description="PEM file: the unencrypted key of `bmc_client_cert`.")
BMC_CONNECTIONS = Field(
    1_000, ge=1, le=60_000, description="Maximum of open connections to BMCs. Each installation keeps one."
)
TLS_CERT = Field(
    None,
    description="PEM file: this process's certificate, with the URI name spiffe://TRUST_DOMAIN/plane/NAME. "
    "With it, every listener uses mutual TLS.",
)
TLS_CLIENT_CA = Field(
    None,
    description="PEM file: certificate authorities trusted for clients and for other processes.",
)
TLS_REVOKED = Field(
    None,
    description="File with the serial numbers of revoked certificates: hexadecimal, one per line, # begins a "
    "comment. A change takes effect within two seconds.",
)
