"""Authentication with Kafka: every mechanism works, none can be bypassed, and no password appears in any output."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from deploy.composition.topics import TOPICS
from deploy.kafka.security import KafkaSecurity, Mechanism
from deploy.settings.settings import Settings
from deploy.tls.authority import Authority
from eventstore.errors import LogUnavailable
from eventstore.kafka.log import KafkaLog
from eventstore.log import FLEET_0
from projections.fleet.withdrawals.principals import PLANE, Principal
from tests.support.secure_kafka import ADMIN, SecureKafka

pytestmark = pytest.mark.kafka

_prefixes = itertools.count()


async def round_trip(bootstrap: str, access: KafkaSecurity) -> None:
    """Create a log, append to it and read it back, with the admin client, the producer and both consumers."""
    opening = KafkaLog.open(
        TOPICS,
        bootstrap,
        topic_prefix=f"access-{next(_prefixes)}",
        partition_count=1,
        rng=random.Random(1),
        access=access.options,
    )
    async with asyncio.timeout(60), opening as log:
        await log.append(FLEET_0, b"k", b"value")
        assert await log.end(FLEET_0) == 1
        async with aclosing(log.read({FLEET_0: 0})) as batches:
            _, records = await anext(batches)
    assert [record.value for record in records] == [b"value"]


async def refused(bootstrap: str, access: KafkaSecurity) -> str:
    """The error with which a log is not opened."""
    with pytest.raises(LogUnavailable) as caught:
        await round_trip(bootstrap, access)
    return str(caught.value)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"])
async def test_a_log_works_over_tls_with_a_password_that_no_log_line_shows(
    secure_kafka: SecureKafka, mechanism: Mechanism, caplog: pytest.LogCaptureFixture
) -> None:
    access = secure_kafka.access(ADMIN, mechanism)
    with caplog.at_level(logging.DEBUG):
        await round_trip(secure_kafka.bootstrap, access)
        wrong = access._replace(sasl_password_file=secure_kafka.password_file("relay"))
        await refused(secure_kafka.bootstrap, wrong)
    said = "\n".join(map(repr, [*caplog.messages, access, wrong, access.password()]))
    assert "aiokafka" in " ".join(record.name for record in caplog.records)
    for user in (ADMIN, "relay"):
        assert secure_kafka.passwords[user] not in said


async def test_a_log_works_over_mutual_tls(secure_kafka: SecureKafka) -> None:
    await round_trip(secure_kafka.certificate_bootstrap, secure_kafka.certificate_access)


async def test_a_wrong_password_is_one_error_sentence(secure_kafka: SecureKafka) -> None:
    wrong = secure_kafka.access(ADMIN)._replace(sasl_password_file=secure_kafka.password_file("relay"))
    assert "invalid credentials" in await refused(secure_kafka.bootstrap, wrong)


async def test_a_broker_whose_certificate_is_for_another_host_is_refused(secure_kafka: SecureKafka) -> None:
    elsewhere = secure_kafka.bootstrap.replace("127.0.0.1", "localhost")
    assert "Hostname mismatch" in await refused(elsewhere, secure_kafka.access(ADMIN))


async def test_a_broker_of_an_untrusted_authority_is_refused(secure_kafka: SecureKafka, tmp_path: Path) -> None:
    other = Authority.make(tmp_path, "kafka.test", now=datetime.now(UTC), valid=timedelta(days=1))
    access = secure_kafka.access(ADMIN)._replace(ca_file=other.cert)
    assert "CERTIFICATE_VERIFY_FAILED" in await refused(secure_kafka.bootstrap, access)


async def test_a_certificate_of_another_authority_is_refused_by_the_broker(
    secure_kafka: SecureKafka, tmp_path: Path
) -> None:
    other = Authority.make(tmp_path, "kafka.test", now=datetime.now(UTC), valid=timedelta(days=1))
    issued = other.issue(Principal(PLANE, "client"), hosts=(), now=datetime.now(UTC), valid=timedelta(days=1))
    access = secure_kafka.certificate_access._replace(cert_file=issued.cert, key_file=issued.key)
    await refused(secure_kafka.certificate_bootstrap, access)


async def test_no_client_falls_back_to_plain_text(secure_kafka: SecureKafka, kafka_cluster: str) -> None:
    await refused(kafka_cluster, secure_kafka.access(ADMIN))
    await refused(secure_kafka.bootstrap, KafkaSecurity())


async def test_a_replaced_password_is_used_by_the_next_client(secure_kafka: SecureKafka, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("not it")
    access = secure_kafka.access(ADMIN)._replace(sasl_password_file=file)
    assert access.options()["sasl_plain_password"] == "not it"
    file.write_text(secure_kafka.passwords[ADMIN])
    await round_trip(secure_kafka.bootstrap, access)


def test_settings_show_the_path_of_the_password_file_and_not_the_password(secure_kafka: SecureKafka) -> None:
    named = secure_kafka.access(ADMIN)._asdict()
    settings = Settings(kafka="h:1", **{f"kafka_{name}": value for name, value in named.items() if value is not None})
    assert settings.kafka_security.options()["sasl_plain_password"] == secure_kafka.passwords[ADMIN]
    assert secure_kafka.passwords[ADMIN] not in f"{settings!r} {settings.model_dump_json()}"
