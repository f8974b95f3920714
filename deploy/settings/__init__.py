"""The operator's settings of a process: the model, its sources (flags, environment, file), and the syntax of values."""
