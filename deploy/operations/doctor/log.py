"""The checks of `doctor` in and around the log: brokers, topics and their settings, clocks, and other replicas."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing, suppress

import msgspec

from deploy.clock import now_ms
from deploy.composition.roles import ROLES, folds_of
from deploy.composition.topics import TOPICS
from deploy.host.storage import LOG_FOLDER, log_source_of, open_log_to_read
from deploy.operations.doctor.host import Finding
from deploy.settings.addresses import parse_addresses
from deploy.settings.settings import Settings
from eventstore.errors import PlaneError
from eventstore.folding.origin import find_origin, read_first
from eventstore.kafka.admin import Admin, Topic
from eventstore.kafka.clients import Clients
from eventstore.kafka.topics import MIN_IN_SYNC_REPLICAS, REPLICATION_FACTOR, settings_of
from eventstore.log import REPLICAS, ZONES, EventLog, Partition
from eventstore.replicas.beacons import Beacon
from eventstore.replicas.clock_skew import OFF_MS

REACH_S = 3.0
HEAR_S = 2.5
"""Time for which beacons are collected: every process of a plane sends two per second."""
CLOSE_S = 2.0
MADE_BY = "start a process with role all or api, which creates missing topics"


async def check_log(settings: Settings, rng: random.Random) -> list[Finding]:
    """Check the log in the settings, as far as it can be reached."""
    found: list[Finding] = []
    if settings.data is None:
        found += [finding async for finding in check_brokers(settings)]
        if not any(finding.ok for finding in found):
            return found
        clusters, whole = await _check_cluster(settings, rng)
        found += clusters
        if not whole:
            return found
    else:
        try:
            is_there = (settings.data / LOG_FOLDER / "CURRENT").exists()
        except OSError as error:
            return [Finding("log", False, f"{settings.data}: {error.strerror}", "give the folder to the plane's user")]
        if not is_there:
            return [Finding("log", True, "does not exist yet: the first `dpuplane serve` creates it")]
    try:
        async with open_log_to_read(log_source_of(settings), rng=rng) as log:
            found += [finding async for finding in _check_contents(log, settings)]
    except PlaneError as error:
        found.append(Finding("log", False, str(error), "see the message; restore a backup if the log is damaged"))
    return found


async def check_brokers(settings: Settings) -> AsyncIterator[Finding]:
    """Check whether every listed broker accepts a connection."""
    for address in parse_addresses(settings.kafka):
        try:
            async with asyncio.timeout(REACH_S):
                _, writer = await asyncio.open_connection(address.host, address.port)
            writer.close()
            yield Finding(f"broker {address}", True, "reachable")
        except (OSError, TimeoutError) as error:
            why = getattr(error, "strerror", None) or f"no response within {REACH_S:g} s"
            yield Finding(f"broker {address}", False, why, "start it, repair the network, or name another broker")


async def _check_cluster(settings: Settings, rng: random.Random) -> tuple[list[Finding], bool]:
    """Check the topics. Returns the findings, and whether every topic has the required settings."""
    clients = Clients(settings.kafka, rng, settings.kafka_security.options)
    admin = Admin(clients)
    names = {topic: f"{settings.topic_prefix}.{topic}" for topic in TOPICS.names}
    try:
        brokers = await admin.count_brokers()
        topics = await admin.topics(list(names.values()))
        effective = await admin.settings(list(topics)) if topics else {}
    except PlaneError as error:
        advice = "see the message; `dpuplane topics acls` prints the permissions of each role"
        return [Finding("cluster", False, str(error), advice)], False
    finally:
        admin.close()
        await clients.close(CLOSE_S)
    found = [Finding("cluster", True, f"{brokers} brokers")]
    count = len(topics[names[ZONES]].leaders) if names[ZONES] in topics else 0
    for topic, name in names.items():
        if name in topics:
            found += check_topic(topic, topics[name], effective[name], count, min(REPLICATION_FACTOR, brokers))
        elif topics:
            found.append(Finding(f"topic {name}", False, "missing, while other topics exist", MADE_BY))
    if not topics:
        found.append(
            Finding(
                "topics",
                True,
                f"none under {settings.topic_prefix} yet: the first process with role api or all creates them",
            )
        )
    return found, bool(topics) and all(finding.ok for finding in found)


def check_topic(
    topic: str, found: Topic, effective: Mapping[str, str], partition_count: int, copies: int
) -> Iterator[Finding]:
    """Check each topic setting that the plane's guarantees depend on."""
    name = f"topic {found.name}"
    wanted = len(TOPICS.partitions(topic, partition_count))
    fits = len(found.leaders) == wanted
    advice = "" if fits else f"it must have {wanted}: restore a backup under another prefix"
    yield Finding(name, fits, f"{len(found.leaders)} partitions", advice)
    if not found.has_all_leaders:
        yield Finding(name, False, "a partition has no leader", "start the brokers with its replicas")
    least = min(MIN_IN_SYNC_REPLICAS, copies)
    advice = "" if found.replicas >= least else f"reassign it to {copies} brokers (kafka-reassign-partitions.sh)"
    yield Finding(name, found.replicas >= least, f"{found.replicas} copies", advice)
    for setting in settings_of(TOPICS[topic], found.replicas):
        value = effective.get(setting.name, "")
        fits = setting.allows(value)
        change = f"kafka-configs.sh --alter --topic {found.name} --add-config {setting.name}={setting.value}"
        yield Finding(name, fits, f"{setting.name}={value}", "" if fits else change)


async def _check_contents(log: EventLog, settings: Settings) -> AsyncIterator[Finding]:
    origin = await find_origin(log)
    if origin is None:
        yield Finding("log", True, "empty: the first process with role api or all writes its first record")
        return
    yield Finding("log", True, f"{origin.log_id}, generation {origin.generation}, {origin.partition_count} partitions")
    yield check_clock("clock against the log", await _newest_ms(log) - now_ms())
    if settings.data is None:
        async for finding in _check_replicas(log):
            yield finding


async def _newest_ms(log: EventLog) -> int:
    """The latest append time among the last records of the partitions."""
    partitions = [partition for topic in log.topics.deciding for partition in log.partitions(topic)]
    ends = {partition: await log.end(partition) for partition in partitions}
    last = await read_first(log, {partition: end - 1 for partition, end in ends.items() if end})
    return max(record.timestamp_ms for record in last.values())


def check_clock(check: str, ahead_ms: int) -> Finding:
    """Check the clock: no append time can be later than now."""
    if ahead_ms > OFF_MS:
        advice = "set this machine's clock, or the brokers', by NTP: commands are refused 1 minute ahead or 2 late"
        found = f"{ahead_ms / 1_000:.1f} s behind the last record, unless the log's clock was ahead then"
        return Finding(check, False, found, advice)
    return Finding(check, True, "not behind its last record")


async def _check_replicas(log: EventLog) -> AsyncIterator[Finding]:
    """Check the replicas with a beacon: their versions, and the brokers' clock against this host's."""
    heard, skews = await _collect_beacons(log)
    if not heard:
        yield Finding("clock against brokers", True, "unknown: no process of the plane is alive")
        return
    skew_ms = min(skews, key=abs)
    fits = abs(skew_ms) <= OFF_MS
    advice = "" if fits else "set this machine's clock, or the brokers', by NTP"
    yield Finding("clock against brokers", fits, f"{skew_ms / 1_000:+.2f} s at most", advice)
    ours: dict[str, set[int]] = {}
    for fold in folds_of(log.partition_count, ROLES):
        ours.setdefault(fold.topic, set()).add(fold.version)
    for name, beacon in sorted(heard.items()):
        yield check_replica(name, beacon, ours)


def check_replica(name: str, beacon: Beacon, ours: Mapping[str, set[int]]) -> Finding:
    """Check that a replica has no halted partition, and that it supports the same fold versions as this program."""
    check = f"replica {name}"
    halted = [f"{part.partition}: {part.halted}" for part in beacon.partitions if part.halted]
    if halted:
        return Finding(check, False, f"halted {'; '.join(halted)}", "upgrade it, or see its log")
    for topic, versions in sorted(beacon.supports.items()):
        if topic in ours and set(versions) != ours[topic]:
            other = (
                f"version {beacon.version} folds {topic} by {sorted(versions)}, this program by {sorted(ours[topic])}"
            )
            return Finding(check, False, other, "upgrade the older one before the fold version")
    folds = ", ".join(f"{topic} {'/'.join(map(str, versions))}" for topic, versions in sorted(beacon.supports.items()))
    return Finding(check, True, f"version {beacon.version}, folds {folds}")


async def _collect_beacons(log: EventLog) -> tuple[dict[str, Beacon], list[int]]:
    """Collect beacons for HEAR_S. Returns one beacon per replica, and for each batch of beacons the time in ms by which
    the brokers' clock is behind this host's clock."""
    place = Partition(REPLICAS, 0)
    heard: dict[str, Beacon] = {}
    skews: list[int] = []
    try:
        async with asyncio.timeout(HEAR_S), aclosing(log.read({place: await log.end(place)})) as batches:
            async for _, records in batches:
                for record in records:
                    with suppress(msgspec.DecodeError, UnicodeDecodeError):  # not a beacon of a known version
                        beacon = msgspec.json.decode(record.value, type=Beacon)
                        if beacon.partitions or beacon.replica not in heard:
                            heard[beacon.replica] = beacon
                skews.append(now_ms() - records[-1].timestamp_ms)
    except TimeoutError:
        pass
    return heard, skews
