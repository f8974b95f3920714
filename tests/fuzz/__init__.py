"""Fuzzing of every decoder of untrusted input: records of the log, frames, requests, files, settings.

    target       the definition of a fuzz target, and the check of its refusals
    of_*         the targets, each with its properties
    mutators     mutations of inputs that keep most of them valid
    corpus       the inputs in the tree, one text file per target; `seeds` makes the first of them, with real encoders
    runner       atheris (libFuzzer), a process per target

`make test` runs every input of the corpus through its target, with or without atheris.
"""
