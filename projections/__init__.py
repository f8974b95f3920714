"""The folds: pure functions that decide events and derive all state that queries and drivers read. Four topics, four
folds.

    zones         nodes and DPUs of a zone: `zones/nodes`, `zones/dpus`
    fleet         state that all zones share: `fleet/membership`, `fleet/withdrawals`, `fleet/policies`; and the derived
                  rule tables: `fleet/tables`
    cliques       assignment of indices: `claims`, `files`
    installs      install progress of each zone's DPUs
    forwarding    the protocol between zones and fleet

Start with a fold (`zones/fold.py`, `fleet/fold.py`, ...): it names the module that decides each event. `state` and
`rows` hold the state of a fold, `views` the API views of that state. `fold_states` finds the state in a replica.
Devices also use `rules`.

Imports schemas and eventstore's types; no I/O, no clock, no randomness.
"""
