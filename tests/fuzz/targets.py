"""All targets, by name."""

from __future__ import annotations

from tests.fuzz import api_targets, files_targets, inventory_targets, links_targets, log_targets, texts_targets
from tests.fuzz.target import Target

_MODULES = (log_targets, links_targets, api_targets, inventory_targets, texts_targets, files_targets)

TARGETS: dict[str, Target] = {target.name: target for module in _MODULES for target in module.TARGETS}
