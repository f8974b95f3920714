"""Node agents among the actors of the log. Folds restrict what a node agent may set."""

from __future__ import annotations

NODE_AGENT = "node-agent"
NODE_AGENT_PREFIX = f"{NODE_AGENT}/"


def is_node_agent(actor: str) -> bool:
    """Whether an actor of the log is a node agent, as its certificate proves."""
    return actor.startswith(NODE_AGENT_PREFIX)
