"""The installers of real devices in a process, by the scheme of the addresses of their DPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from deploy.process.gnoi import gnoi_installer
from deploy.process.image_store import ImageStore
from deploy.process.rshim import rshim_installer
from deploy.settings.settings import Settings
from drivers.gnoi.client import SCHEME as GNOI
from drivers.hosts.task_box import TaskBox
from drivers.provisioning.attempts import Executor
from drivers.redfish.client import SCHEME as REDFISH
from projections.zones.dpus.host_installs import RSHIM


def installers_of(
    settings: Settings,
    redfish: Executor,
    images: ImageStore | None,
    box: Callable[[str, str], TaskBox],
    now_ms: Callable[[], int],
) -> Mapping[str, Executor]:
    """The installers. `box` has the tasks of the agent of a host, by the namespace and the name of the host."""
    return {
        REDFISH: redfish,
        GNOI: gnoi_installer(settings, images, now_ms),
        RSHIM: rshim_installer(box, images),
    }
