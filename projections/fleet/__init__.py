"""The fleet fold: members, policies and budgets, and the rule tables that follow from them."""
