"""Around every call alike: who calls, what they may do, how much and how often, by when, and counts of all that."""
