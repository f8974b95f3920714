"""How the parts are put together: settings, roles, and the command line.

Start with `plane.py`, the one place where all parts of a process are made, in the order in which they come up.
`settings` says what an operator can set, `process` runs a plane until a signal, `opening` finds its log. `page`
and `metrics` are what --http shows; `tls` is who may see it. `past`, `audit` and `export` read the whole log, for
commands that look back or across processes. `cli` has the subcommands, `demo` the scenario that one of them runs, and
`kafka` the brokers, also those of one's own.

May import everything; nothing imports it. Only here the environment is read.
"""
