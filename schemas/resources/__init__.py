"""The custom resources of the plane: pydantic models, from which their definitions are generated."""

from __future__ import annotations

from schemas.resources.dpu_rack import DPU_RACK
from schemas.resources.hold import HOLD
from schemas.resources.kinds import Kind
from schemas.resources.rule_policy import RULE_POLICY

KINDS: tuple[Kind, ...] = (DPU_RACK, RULE_POLICY, HOLD)
"""The kinds of dpuplane.io."""
