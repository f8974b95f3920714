"""The API: it validates requests, appends events and returns what the folds decided; it never decides.

Start with `handlers/service.py`, one line per command, and follow one: `nodes`, `dpus`, `cliques` or `fleet` in
`requests` validates the request and makes the event (`validation`); `command_handler` appends the event and turns what
the fold decided into the result. `queries/service.py` answers queries: it waits for the caller's position
(`position_waiter`) and reads folds (`fold_reader`). `server` serves both with gRPC; `rpc` authenticates, authorizes,
limits and counts every call. `inventory` reads fleets from files, for clients that send commands.

Imports projections, eventstore and schemas; never drivers.
"""
