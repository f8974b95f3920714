"""The folds: pure. They decide, and derive everything that is shown or driven. Four topics, four folds.

    zone          nodes and DPUs of a zone: `nodes`, `columns`; `dpus`, `lifecycle`, `phases`, `rollout`
    fleet         what all zones agree on: `membership`, `joins`, `moves`, `effects`; `policies`, `lists`, `traffic`;
                  `withdrawals`, `holds`, `replanning`; and what follows: `rulesets`, `prefixes`, `tables`
    cliques       who has which index: `clique_claims`, `clique_files`
    installs      how far each zone's DPUs are with its rules
    between       `forwarding` (zone to fleet), `handed_down` (fleet to zone)

Start with a fold (`zone.py`, `fleet.py`, ...): it names who decides each event. `..._state` and `..._rows` hold what a
fold knows, `..._views` what is shown of it, `states` finds it in a replica. `rules`, `digests` and `device_table` are
the device's half as well.

Imports schemas and eventstore's types; no I/O, no clock, no randomness.
"""
