"""The agent of a DPU: it holds a table, writes it to the device, and says what it has."""
