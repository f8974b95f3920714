"""The pinned seeds of every test run."""

from __future__ import annotations

FAULTY_S = 40.0
KNOWN = (2, 4, 6, 12, 204, 233)
ROLLOUTS_S = 150.0
ROLLOUTS = (7, 8, 10, 11)
"""Seeds of small runs with rollouts: some seconds each."""
STAGES = (4, 5)
"""Seeds of small runs with staged changes."""
NETWORK_STAGES = (11, 13)
"""Seeds of small runs with staged changes of networks."""
MODELS_S = 60.0
MODELS = (15, 31, 40)
"""Seeds of small runs with models of switches and of BMCs."""
