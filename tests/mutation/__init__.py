"""Whether the tests would notice: every pure module is changed in thousands of small ways, one at a time."""
