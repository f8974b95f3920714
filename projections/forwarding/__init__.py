"""The protocol between the zones partitions and fleet, one module for each direction.

    zones to fleet   the outbox of a zones partition -> `zones_to_fleet.forward` -> MembershipChanged in fleet
                     fleet's mark for the partition moves on -> OutboxAcknowledged prunes the outbox
    fleet to zones   the outbox of fleet -> `fleet_to_zones.next_record` -> NodesSuperseded, ZoneLimitsSet in the zone
                     the zone's mark for fleet moves on; entries need no acknowledgement

Each record names its cause: a range [from, to) of offsets of the partition that it comes from. For each sender, the
receiver stores a mark: the end of the last range that it accepted. It accepts a record only if `from` equals the mark,
and the mark then moves to `to`. So a duplicate, or a record of a driver that lags, changes nothing. The functions here
are pure and read the sender's state; a forwarder (drivers/forwarder) appends their results.
"""
