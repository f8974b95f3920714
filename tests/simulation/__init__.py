"""The whole plane on a virtual clock, one seed at a time: production parts, a faulty log, crashes at any await.

`run` is one seed; `world` is what there is in it, `nemesis` what goes wrong, `judge` and `checkers` what must hold.
"""
