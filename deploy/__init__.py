"""The composition of a process: settings, roles, and the command line.

Start with `plane.py`, which creates all parts of a process in the order of their start. `settings` defines the
operator's settings, `process` runs a plane until a signal, `storage` opens its log. `page` and `metrics` are served by
--http; `tls` controls access to them. `past`, `audit` and `export` read the whole log, for commands about the past or
about several processes. `cli` has the subcommands, `demo` the scenario of one of them, and `kafka` the security
settings for brokers and a local cluster.

May import everything; nothing imports it. Only this package reads the environment.
"""
