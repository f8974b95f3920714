"""Runs the contract of logs on three real Kafka brokers."""

import pytest

from tests.contract.event_log import EventLogContract
from tests.contract.read_events import ReadEventsContract
from tests.support.kafka import KafkaUnderTest

pytestmark = pytest.mark.kafka


class TestKafkaLog(EventLogContract, ReadEventsContract):
    @pytest.fixture
    async def engine(self, kafka_log: KafkaUnderTest) -> KafkaUnderTest:
        return kafka_log
