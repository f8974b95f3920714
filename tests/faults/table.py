"""Every fault on real processes, with its numbers in the catalog.

The faults of a pair come from different areas, so that they have different victims. Faults that query their victim come
first in the table: in a pair they start while every process can be reached.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence

from tests.faults import strikes_brokers as brokers
from tests.faults import strikes_machines as machines
from tests.faults import strikes_network as network
from tests.faults import strikes_processes as processes
from tests.faults.fault import BOTH, KAFKA, Fault
from tests.faults.world import Engine

AREAS: Mapping[str, Sequence[Fault]] = {
    "processes": (
        Fault("role killed", (1, 2, 3, 4, 9), BOTH, processes.role_killed, 3),
        Fault("api killed", (1, 2, 3), BOTH, processes.api_killed, 3),
        Fault("all roles killed", (2, 4, 9), BOTH, processes.all_roles_killed, 3),
        Fault("roles churned", (5, 6, 9), BOTH, processes.roles_churned, 3),
        Fault("killed while starting", (8, 13, 14), BOTH, processes.killed_while_starting, 3),
        Fault("state lost", (4, 41), BOTH, processes.state_lost, 3),
        Fault("role frozen", (10, 12, 63), BOTH, processes.role_frozen, 7),
        Fault("all roles frozen", (12, 63), BOTH, processes.all_roles_frozen, 5),
        Fault("out of files", (53,), BOTH, processes.out_of_files, 4),
        Fault("clock ahead", (62,), BOTH, machines.clock_ahead, 4),
        Fault("clock behind", (62,), BOTH, machines.clock_behind, 4),
        Fault("clock strobes", (62,), BOTH, machines.clock_strobes, 2),
    ),
    "disks": (Fault("disk full", (43,), BOTH, machines.disk_full, 5),),
    "brokers": (
        Fault("leader killed", (21, 26), KAFKA, brokers.leader_killed, 4),
        Fault("brokers restarted", (19, 20), KAFKA, brokers.brokers_restarted, 1),
        Fault("all brokers killed", (20,), KAFKA, brokers.all_brokers_killed, 3),
        Fault("broker frozen", (21, 26), KAFKA, brokers.broker_frozen, 6),
        Fault("two brokers frozen", (22, 23), KAFKA, brokers.two_brokers_frozen, 6),
        Fault("brokers frozen briefly", (23, 24), KAFKA, brokers.brokers_frozen_briefly, 1),
        Fault("broker isolated", (22, 54, 56), KAFKA, network.broker_isolated, 6),
        Fault("brokers bridged", (56,), KAFKA, network.brokers_bridged, 6),
        Fault("controller answers lost", (55, 56), KAFKA, network.controller_answers_lost, 5),
    ),
    "network": (
        Fault("cut from log", (54,), KAFKA, network.cut_from_log, 6),
        Fault("log answers lost", (25, 55), KAFKA, network.log_answers_lost, 6),
        Fault("cut from devices", (57,), BOTH, network.cut_from_devices, 5),
        Fault("api answers lost", (55,), BOTH, network.api_answers_lost, 5),
        Fault("link down", (54, 57, 64), BOTH, network.link_down, 5),
        Fault("link flaps", (54, 59), BOTH, network.link_flaps, 1),
        Fault("packets lost", (58,), BOTH, network.packets_lost, 5),
        Fault("large packets lost", (61,), KAFKA, network.large_packets_lost, 5),
        Fault("low bandwidth", (59,), BOTH, network.low_bandwidth, 5),
        Fault("connections reset", (59,), BOTH, network.connections_reset, 1),
    ),
    "connections": (
        Fault("produce answers lost", (2, 25), KAFKA, network.produce_answers_lost, 5),
        Fault("log delayed", (24,), KAFKA, network.log_delayed, 6),
        Fault("log byte by byte", (59,), KAFKA, network.log_byte_by_byte, 4),
        Fault("log half-open", (59,), KAFKA, network.log_half_open, 6),
        Fault("call answers lost", (2, 3, 55), BOTH, network.api_call_answers_lost, 4),
        Fault("api byte by byte", (59,), BOTH, network.api_byte_by_byte, 4),
        Fault("frames byte by byte", (59,), BOTH, network.frames_byte_by_byte, 4),
        Fault("frames delayed", (58,), BOTH, network.frames_delayed, 5),
        Fault("device links half-open", (57, 59), BOTH, network.device_links_half_open, 5),
        Fault("device answers lost", (84,), BOTH, network.device_answers_lost, 5),
    ),
}
FAULTS: Mapping[str, Fault] = {fault.name: fault for found in AREAS.values() for fault in found}


def pairs(engine: Engine, rng: random.Random) -> Iterator[tuple[Fault, Fault]]:
    """An endless series of random pairs, in which every fault is about equally frequent."""
    found = [(area, fault) for area, faults in AREAS.items() for fault in faults if engine in fault.engines]
    while True:
        (area, fault), (other_area, other) = (found[number] for number in sorted(rng.sample(range(len(found)), 2)))
        if area != other_area:
            yield fault, other
