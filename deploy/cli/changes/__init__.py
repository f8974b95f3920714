"""Commands for changes under way: policies, staged networks, rollouts; held changes, budgets, freezes, outcomes."""
