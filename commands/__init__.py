"""What comes in. The edge checks shapes and states; it never decides.

Start with `handlers/service.py`, one line per command, and follow one: `nodes`, `dpus`, `cliques` or `fleet` in
`requests` makes the request a record (`validation`), `command_handler` appends it and turns what the fold decided into
the answer. `queries/service.py` is the other service: it waits for the caller's position (`waiting`) and reads folds
(`reader`). `server` puts both behind gRPC, and `rpc` does around every method what all need alike. `inventory` reads
fleets out of files, for those who send commands.

Imports projections, eventstore and schemas; never drivers.
"""
