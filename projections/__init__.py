"""The folds: pure. They decide, and derive everything that is shown or driven. Four topics, four folds.

    zones         nodes and DPUs of a zone: `nodes`; `dpus`, `lifecycle`, `phases`, `rollout`
    fleet         what all zones agree on: `membership`, `joins`, `impact`, `effects`; `withdrawals`, `holds`,
                  `edits`; and what follows: `rulesets`, `tables`
    cliques       who has which index: `claims`, `files`
    installs      how far each zone's DPUs are with its rules
    between       `zones/forwarding` (zone to fleet), `fleet/zone_outbox` (fleet to zone)

Start with a fold (`zones/fold.py`, `fleet/fold.py`, ...): it names who decides each event. `state` and `rows` hold what
a fold knows, `views` what is shown of it, `fold_states` finds it in a replica. `rules` is the device's half as well.

Imports schemas and eventstore's types; no I/O, no clock, no randomness.
"""
