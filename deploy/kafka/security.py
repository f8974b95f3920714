"""Authentication and encryption of connections to Kafka's brokers: TLS and SASL, from files.

There is no fallback to plain text: a client uses exactly these settings, or is not created. A broker must show a
certificate of the given authority for the dialed host. The password is read from a file, so it is in no argument list,
environment, settings or log; a replaced file is used from the next client on.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import SecretStr

from eventstore.errors import LogUnavailable

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


class InvalidKafkaSecurity(LogUnavailable):
    """A file is unusable; the sentence names the setting, the file and the reason.

    At a start this is fatal. Later, while a file is being replaced, the next attempt succeeds.
    """


class KafkaSecurity(NamedTuple):
    """The security settings of connections to brokers. The names of the settings are those of the fields, with the
    prefix `kafka_`."""

    security_protocol: SecurityProtocol = "PLAINTEXT"
    sasl_mechanism: Mechanism | None = None
    sasl_username: str = ""
    sasl_password_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None

    def options(self) -> Mapping[str, Any]:
        """The options for a new client. Raises InvalidKafkaSecurity for an unusable file."""
        if self.security_protocol == "PLAINTEXT":
            return {}
        security: dict[str, Any] = {"security_protocol": self.security_protocol, "ssl_context": self._context()}
        if self.security_protocol == "SASL_SSL":
            keep_from_logs()
            security["sasl_mechanism"] = self.sasl_mechanism
            security["sasl_plain_username"] = self.sasl_username
            security["sasl_plain_password"] = self.password().get_secret_value()
        return security

    def password(self) -> SecretStr:
        """The content of the file without its line end. Raises InvalidKafkaSecurity."""
        assert self.sasl_password_file is not None
        try:
            password = self.sasl_password_file.read_text(encoding="utf-8").rstrip("\r\n")
        except OSError as error:
            raise InvalidKafkaSecurity(
                f"kafka_sasl_password_file {self.sasl_password_file}: {error.strerror}"
            ) from error
        except UnicodeDecodeError:
            raise InvalidKafkaSecurity(
                f"kafka_sasl_password_file {self.sasl_password_file}: must be text in UTF-8"
            ) from None
        if not password:
            raise InvalidKafkaSecurity(f"kafka_sasl_password_file {self.sasl_password_file}: holds no password")
        return SecretStr(password)

    def fault(self) -> str:
        """A contradiction between the settings, as a sentence; empty if there is none. Reads no file."""
        protocol = self.security_protocol
        sasl: dict[str, object] = {"kafka_sasl_mechanism": self.sasl_mechanism}
        sasl |= {"kafka_sasl_username": self.sasl_username, "kafka_sasl_password_file": self.sasl_password_file}
        files = {"kafka_ca_file": self.ca_file, "kafka_cert_file": self.cert_file, "kafka_key_file": self.key_file}
        if protocol == "SASL_SSL" and (missing := [name for name, value in sasl.items() if not value]):
            return f"{' and '.join(missing)} must be given: kafka_security_protocol is SASL_SSL"
        if protocol != "SASL_SSL" and (given := [name for name, value in sasl.items() if value]):
            return f"{' and '.join(given)} is for kafka_security_protocol SASL_SSL, which is {protocol}"
        if protocol == "PLAINTEXT" and (idle := [name for name, value in files.items() if value]):
            return f"{' and '.join(idle)} is for kafka_security_protocol SSL or SASL_SSL, which is PLAINTEXT"
        if protocol == "SSL" and self.cert_file is None:
            return "kafka_cert_file must be given: kafka_security_protocol SSL identifies this process by it"
        if (self.cert_file is None) != (self.key_file is None):
            return "kafka_cert_file and kafka_key_file: give both, or none"
        return ""

    def _context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            if self.ca_file is None:
                context.load_default_certs()
            else:
                context.load_verify_locations(cafile=self.ca_file)
        except (OSError, ValueError) as error:
            raise InvalidKafkaSecurity(f"kafka_ca_file {self.ca_file}: has no usable certificate: {error}") from error
        if self.cert_file is not None and self.key_file is not None:
            try:
                context.load_cert_chain(self.cert_file, self.key_file, password=_no_password)
            except (OSError, ValueError) as error:
                files = f"kafka_cert_file {self.cert_file} and kafka_key_file {self.key_file}"
                raise InvalidKafkaSecurity(f"{files}: cannot be used together: {error}") from error
        return context


def keep_from_logs() -> None:
    """Keep the password out of the log: at level DEBUG aiokafka logs its requests, and one request of SASL
    contains the password."""
    logging.getLogger("aiokafka.conn").addFilter(_is_no_request)


def _is_no_request(record: logging.LogRecord) -> bool:
    return record.levelno > logging.DEBUG


def _no_password() -> str:
    raise ValueError("the key is encrypted: give one without a password")
