"""Between a relay and the agents of DPUs: what they say to each other, and over what."""
