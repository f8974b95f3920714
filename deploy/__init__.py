"""Composes the parts of the plane and runs them as processes.

    composition   the tables of topics and roles
    settings      the operator's settings, from flags, environment and file
    host          the resources of a process on its host: storage, file descriptors, addresses, child processes
    process       one process: `plane` creates its parts in the order of their start, `run` runs them until a signal
    web           what --http serves: metrics, health, the page
    telemetry     logs and traces
    tls           TLS of the listeners, and the roles that each listener admits
    kafka         security settings and ACLs for brokers, and a local cluster
    operations    work on a whole log or on several processes: audit, backup, export, doctor, queries of the past
    cli, demo     the subcommands, and the scenario of `dpuplane demo`

Start with `process/plane.py`. May import everything; nothing imports it. Only this package reads the environment.
"""
