"""The agent of a DPU: it stores a rule table, writes it to the device, and reports the device's actual table."""
