"""Budgets of withdrawals, the impact of a change on verdicts, and the holds of changes over their budget."""
