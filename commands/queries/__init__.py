"""The Queries service: what it waits for, where it looks, and what it shows, now and at a moment of the past."""
