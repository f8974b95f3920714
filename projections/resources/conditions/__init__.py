"""Conditions of objects by DPF's convention, and the chain of causes down to the object that is to blame."""
