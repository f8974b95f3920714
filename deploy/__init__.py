"""How the parts are put together, and how they are run.

    composition   the tables of topics and roles
    settings      the operator's settings, from flags, environment and file
    host          what a process uses of its host: storage, file descriptors, addresses, child processes
    process       one process: `plane` creates its parts in the order of their start, `run` runs them until a signal
    web           what --http serves: metrics, health, the page
    telemetry     logs and traces
    tls, kafka    access to listeners; security settings for brokers, and a local cluster
    operations    work on a whole log or on several processes: audit, backup, export, doctor, queries of the past
    cli, demo     the subcommands, and the scenario of one of them

Start with `process/plane.py`. May import everything; nothing imports it. Only this package reads the environment.
"""
