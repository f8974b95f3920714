"""All targets, by name."""

from __future__ import annotations

from tests.fuzz import of_api, of_files, of_inventory, of_links, of_log, of_texts
from tests.fuzz.target import Target

_MODULES = (of_log, of_links, of_api, of_inventory, of_texts, of_files)

TARGETS: dict[str, Target] = {target.name: target for module in _MODULES for target in module.TARGETS}
