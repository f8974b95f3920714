"""The installer of DPUs through the agents of their hosts, in a process."""

from __future__ import annotations

from collections.abc import Callable

from deploy.process.image_store import ImageStore
from drivers.hosts.agent_host import AgentHost
from drivers.hosts.task_box import TaskBox
from drivers.provisioning.rshim import RshimInstaller, no_host_url


def rshim_installer(box: Callable[[str, str], TaskBox], images: ImageStore | None) -> RshimInstaller:
    """The installer of a process. `box` has the tasks of the agent of a host, by the namespace and name of the host."""

    def agent_of(namespace: str, host: str) -> AgentHost:
        return AgentHost(box(namespace, host), host)

    knows_hosts = images is not None and images.knows_hosts
    return RshimInstaller(agent_of, images.installations.host_url if images and knows_hosts else no_host_url)
