"""The whole plane on a virtual clock, one seed at a time: production components, a faulty log, crashes at any await.

`run` runs one seed; `world` assembles its parts; `nemesis` and `api_faults` inject faults; `judge` and
`checkers` check the invariants.
"""
