"""Drivers: the code that acts outside the log. A driver reads the folds, performs the actions that they require, and
appends the outcomes as events.

    forwarder, timers      events that folds cannot append: forwards between zones and fleet, and expired deadlines
    provisioning           DPU lifecycles, through the BMCs of `backends`
    decisions              every decision of a fold, as a record of the decisions topic
    relays                 rule tables to the agents of a zone, and reports about the DPUs' tables to the log
    agents                 the agent on a DPU; `simulators` replace thousands of agents
    wire                   the agent link: messages, over WebSocket or within a process
    kubernetes             statuses and objects that follow from the folds, written to clusters

Start with `forwarder.py`, the smallest complete driver. Drivers wait for folded events with the replica's
`fold_waits`, and append in order of rank (`internal_events`). For rules, start with `relays/relay.py` and
`relays/delivery_state.py`.

Imports projections, eventstore and schemas; never commands.
"""
