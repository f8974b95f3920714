"""The peer without the plane: librdkafka alone, timed until its record is acknowledged after its partition leader was
killed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

_PARTITIONS = 12
_COPIES = 3
_WITHIN_S = 60.0
_SETTINGS = {
    "acks": "all",
    "linger.ms": 0,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 50,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 50,
    "topic.metadata.refresh.fast.interval.ms": 20,
    "log_level": 0,
}
"""Settings with which the producer looks for the new leader as often as possible."""


class BareProducer:
    """Produces to a topic of its own, whose partitions are spread over every broker."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for each in admin.create_topics([NewTopic(topic, _PARTITIONS, _COPIES)]).values():
            each.result(_WITHIN_S)
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": bootstrap, **_SETTINGS})
        self._lost: list[Any] = []

    def led_by(self, broker: int) -> int:
        """A partition that this broker leads, after a record was just produced to it."""
        partitions = self._producer.list_topics(self._topic, _WITHIN_S).topics[self._topic].partitions
        number = _first(partition.id for partition in partitions.values() if partition.leader == broker)
        self.acknowledged_s(number)
        return number

    def acknowledged_s(self, partition: int) -> float:
        """Produce a record; the seconds until as many brokers have it as the plane requires."""
        began_s = time.perf_counter()
        self._producer.produce(self._topic, b"join", partition=partition, on_delivery=self._told)
        left = self._producer.flush(_WITHIN_S)
        assert not left, f"{left} records are still on their way after {_WITHIN_S} s"
        assert not self._lost, self._lost
        return time.perf_counter() - began_s

    def _told(self, error: Any, _message: Any) -> None:
        if error is not None:
            self._lost.append(error)


def _first(numbers: Any) -> int:
    found: Sequence[int] = sorted(numbers)
    assert found, "every broker leads some of its partitions"
    return found[0]
