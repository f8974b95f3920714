"""Devices behind two small protocols: `device.py` (a forwarding device) and `bmc.py` (its management controller).

Simulated devices: `simulated` (one device for a real agent); `simulated_devices`, `simulated_records` and
`simulated_tables` (thousands of devices without a task each); `simulated_bmc`, with the failures that a user injects
(`simulated_failures`).
"""
