"""Rollouts of DPUSets: which DPUs may get the image that is wanted for them, in waves and within limits.

A driver states the plan that follows from the objects: the image identity of each DPU, and its wave. The fold decides
when each DPU is released to it, from its own rows and from what is observed of the DPUs. It also decides which DPU
cluster each DPU is allocated to.
"""
