"""What goes out. A driver looks at the folds, does what they say is to be done, and states how it went.

    forwarder, timers      what folds cannot say themselves: zone to fleet and back, and that a deadline has passed
    provisioner, steps     DPU lifecycles, on the BMCs of `backends`
    relay, relay_*         rule tables to the agents of a zone, and what they hold back to the log (`reports`)
    agent, agent_*         the other end, on a DPU; `simulator` stands for thousands of them
    between the two        `protocol` (`_up`, `_down`) over `links`: WebSocket or within a process

Start with `forwarder.py`, the smallest whole one; `following` (wait for a fold) and `statements` (whose turn it is) are
what it shares with the others. For rules start with `relay.py` and `standing.py`.

Imports projections, eventstore and schemas; never commands.
"""
