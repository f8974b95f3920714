"""A real broker with authentication and authorization.

It accepts TLS only, to its controller too: one listener for passwords (SCRAM, PLAIN) and one for certificates. Its own
certificate is for 127.0.0.1 alone, so `localhost` is a wrong host.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from deploy.composition.roles import ROLES
from deploy.kafka.broker_node import HOST, Node, NodeProcess, Program
from deploy.kafka.brokers import new_cluster_id, ports_for
from deploy.kafka.jars import cache_folder, java, kafka_jars
from deploy.kafka.security import KafkaSecurity, Mechanism
from deploy.tls.authority import Authority
from eventstore.errors import LogUnavailable
from eventstore.kafka.topics import count_brokers
from projections.fleet.withdrawals.principals import PLANE, Principal

PREFIX = "vault"
ADMIN = "admin"
USERS = (ADMIN, *ROLES, "reader", "stranger")
"""With SCRAM, and for PLAIN too; the name is the password's file, the role and the principal."""

_DAY = timedelta(days=1)
_START_S = 60.0
_LOGIN = "org.apache.kafka.common.security"


class SecureKafka:
    """One broker. `bootstrap` is the listener for passwords, `certificate_bootstrap` the listener for certificates."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.authority = Authority.make(folder / "ca", "kafka.test", now=datetime.now(UTC), valid=_DAY)
        self.broker_cert = self._issue("broker", (HOST,))
        self.client_cert = self._issue("client", ())
        self.passwords = {user: secrets.token_urlsafe(24) for user in USERS}
        for user, password in self.passwords.items():
            (folder / f"{user}.password").write_text(f"{password}\n")
        self._ports = ports_for(3, None)
        self._program = Program(java(), kafka_jars(cache_folder(os.environ)))
        self._process: NodeProcess | None = None

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self._ports[0]}"

    @property
    def certificate_bootstrap(self) -> str:
        return f"{HOST}:{self._ports[1]}"

    def password_file(self, user: str) -> Path:
        return self._folder / f"{user}.password"

    def access(self, user: str, mechanism: Mechanism = "SCRAM-SHA-512") -> KafkaSecurity:
        """Access with a password."""
        return KafkaSecurity("SASL_SSL", mechanism, user, self.password_file(user), self.authority.cert)

    def flags(self, user: str) -> list[str]:
        """The same as flags of the command line."""
        return [
            *("--kafka", self.bootstrap, "--topic-prefix", PREFIX, "--kafka-security-protocol", "SASL_SSL"),
            *("--kafka-sasl-mechanism", "SCRAM-SHA-512", "--kafka-sasl-username", user),
            *("--kafka-sasl-password-file", str(self.password_file(user))),
            *("--kafka-ca-file", str(self.authority.cert)),
        ]

    @property
    def certificate_access(self) -> KafkaSecurity:
        """Access with a certificate whose principal may do everything."""
        cert, key = self.client_cert
        return KafkaSecurity("SSL", ca_file=self.authority.cert, cert_file=cert, key_file=key)

    async def start(self) -> None:
        node = Node(1, self._ports[0], self._ports[2])
        folder = self._folder / "broker"
        self._process = NodeProcess(self._program, node, folder, [node])
        settings = folder / "server.properties"
        settings.write_text(settings.read_text() + self._properties())
        scram = [
            f"SCRAM-SHA-{bits}=[name={user},password={self.passwords[user]}]" for user in USERS for bits in (256, 512)
        ]
        added = [part for each in scram for part in ("--add-scram", each)]
        await self._java("kafka.tools.StorageTool", "format", "-t", new_cluster_id(), "-c", str(settings), *added)
        self._process.start()
        async with asyncio.timeout(_START_S):
            while True:
                self._process.raise_if_ended()
                try:
                    await count_brokers(self.certificate_bootstrap, random.Random(1), self.certificate_access.options)
                    return
                except LogUnavailable:
                    await asyncio.sleep(0.1)

    async def stop(self) -> None:
        if self._process is not None:
            self._process.kill()

    async def grant(self, commands: Sequence[Sequence[str]]) -> None:
        """Run Kafka's own tool with each of these lists of arguments."""
        config = self._folder / "admin.properties"
        config.write_text(f"security.protocol=SSL\n{self._stores(self.client_cert)}")
        where = ("--bootstrap-server", self.certificate_bootstrap, "--command-config", str(config))
        several = asyncio.Semaphore(4)

        async def grant(arguments: Sequence[str]) -> None:
            async with several:
                await self._java("org.apache.kafka.tools.AclCommand", *where, *arguments)

        await asyncio.gather(*map(grant, commands))

    async def _java(self, main: str, *arguments: str) -> None:
        command = self._program.command(main, *arguments)
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=asyncio.subprocess.STDOUT)
        said, _ = await child.communicate()
        assert child.returncode == 0, said.decode()

    def _issue(self, name: str, hosts: Sequence[str]) -> tuple[Path, Path]:
        return self.authority.issue(Principal(PLANE, name), hosts=hosts, now=datetime.now(UTC), valid=_DAY)

    def _stores(self, issued: tuple[Path, Path]) -> str:
        """The key store and the trust store in the formats of Kafka's Java code."""
        cert, key = issued
        both = cert.with_suffix(".both.pem")
        both.write_text(key.read_text() + cert.read_text())
        stores = {"keystore": both, "truststore": self.authority.cert}
        return "".join(f"ssl.{name}.type=PEM\nssl.{name}.location={path}\n" for name, path in stores.items())

    def _properties(self) -> str:
        sasl, certificates, controller = (f"{HOST}:{port}" for port in self._ports)
        users = " ".join(f'user_{user}="{password}"' for user, password in self.passwords.items())
        listener = "listener.name.sasl_ssl"
        settings = {
            "listeners": f"SASL_SSL://{sasl},SSL://{certificates},CONTROLLER://{controller}",
            "advertised.listeners": f"SASL_SSL://{sasl},SSL://{certificates}",
            "listener.security.protocol.map": "SASL_SSL:SASL_SSL,SSL:SSL,CONTROLLER:SSL",
            "inter.broker.listener.name": "SSL",
            "listener.name.ssl.ssl.client.auth": "required",
            "listener.name.controller.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN",
            f"{listener}.scram-sha-256.sasl.jaas.config": f"{_LOGIN}.scram.ScramLoginModule required;",
            f"{listener}.scram-sha-512.sasl.jaas.config": f"{_LOGIN}.scram.ScramLoginModule required;",
            f"{listener}.plain.sasl.jaas.config": f"{_LOGIN}.plain.PlainLoginModule required {users};",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{ADMIN};User:CN=plane/broker;User:CN=plane/client",
        }
        return "".join(f"{name}={value}\n" for name, value in settings.items()) + self._stores(self.broker_cert)


@pytest.fixture(scope="session")
def secure_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    broker = SecureKafka(tmp_path_factory.mktemp("secure"))
    with asyncio.Runner() as runner:
        try:
            runner.run(broker.start())
            yield broker
        finally:
            runner.run(broker.stop())
