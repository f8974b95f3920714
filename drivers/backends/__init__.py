"""Devices behind two small protocols: `device.py` (what forwards packets) and `bmc.py` (what installs it).

Simulated ones are `simulated` (one, for a real agent), `simulated_devices` with `_records` and `_tables` (a process
full, without a task each) and `simulated_bmc`, with the failures that a user injects
(`simulated_failures`); `http_bmc` reaches BMCs in other processes.
"""
