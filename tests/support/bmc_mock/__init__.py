"""A BMC that others wrote, with updates and tasks: the mock of ironcore's metal-operator, behind a front."""
