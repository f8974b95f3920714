"""What goes out. A driver looks at the folds, does what they say is to be done, and states how it went.

    forwarder, timers      what folds cannot say themselves: zone to fleet and back, and that a deadline has passed
    provisioning           DPU lifecycles, on the BMCs of `backends`
    relays                 rule tables to the agents of a zone, and what they hold back to the log
    agents                 the other end, on a DPU; `simulators` stand for thousands of them
    wire                   between the two: messages, over WebSocket or within a process

Start with `forwarder.py`, the smallest whole one; `fold_watcher` (wait for a fold) and `internal_events` (whose turn it
is) are what it shares with the others. For rules start with `relays/relay.py` and `relays/delivery_state.py`.

Imports projections, eventstore and schemas; never commands.
"""
