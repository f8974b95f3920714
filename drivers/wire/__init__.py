"""The agent link between a relay and the agents of DPUs: its messages and transports."""
