"""How the parts are put together: settings, roles, and the command line.

Start with `plane.py`, the one place where all parts of a process are made, in the order in which they come up.
`settings` says what an operator can set, `process` runs a plane until a signal, `opening` finds its log. `devices`,
`verification` and `log_events` serve commands that look across processes. `cli` has the subcommands, `demo` the story
that one of them tells. `brokers` and what it needs is a Kafka of one's own.

May import everything; nothing imports it. Only here the environment is read.
"""
