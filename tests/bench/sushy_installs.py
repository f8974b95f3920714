"""Installations by sushy, the Redfish library of OpenStack: a thread for each BMC, and polls at the plane's pace.

A thread logs in, asks for the update, follows its task and reads the firmware inventory: the fewest requests by which
an installation is done and verified. It sets nothing else, and keeps no record. Each trusts the one certificate of its
BMC.
"""

from __future__ import annotations

import resource
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import NamedTuple

import sushy
import sushy.auth

from deploy.host.file_limits import raise_file_limit
from drivers.provisioning.attempts import CallTiming
from tests.bench.memory import open_sockets, peak_bytes
from tests.bench.redfish_bmcs import IMAGE, OS_VERSION, addresses

OS = "/redfish/v1/UpdateService/FirmwareInventory/DPU_OS"
TIMING = CallTiming()
SAMPLES_S = 0.5


class Installed(NamedTuple):
    """The results of all installations."""

    took_s: float
    cpu_s: float
    peak_bytes: int
    sockets: int

    @property
    def cpu_percent(self) -> float:
        """The share of a core while it lasted."""
        return 100 * self.cpu_s / self.took_s


def install_all(folder: Path, password: str) -> Installed:
    """Install the image on all BMCs at once."""
    raise_file_limit()
    urls, image = addresses(folder), (folder / IMAGE).read_text()
    sockets, has_ended = [0], Event()

    def sample() -> None:
        while not has_ended.wait(SAMPLES_S):
            sockets.append(open_sockets("self"))

    sampler = Thread(target=sample)
    sampler.start()
    began = time.perf_counter()
    with ThreadPoolExecutor(len(urls)) as pool:
        certificates = [str(folder / f"{number}.pem") for number in range(len(urls))]
        versions = list(pool.map(partial(_install, image, password), urls, certificates))
    took_s, used = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
    has_ended.set()
    sampler.join()
    assert versions == [OS_VERSION] * len(urls), versions
    return Installed(took_s, used.ru_utime + used.ru_stime, peak_bytes("self"), max(sockets))


def _install(image: str, password: str, url: str, certificate: str) -> str:
    """Install the image on one BMC. Returns the version that it has then."""
    with sushy.auth.SessionAuth(username="root", password=password) as auth:
        root = sushy.Sushy(url, auth=auth, verify=certificate)
        update = root.get_update_service()
        monitor = update.simple_update(image, targets=[OS], transfer_protocol="HTTP")
        pause_s = TIMING.poll_s
        while monitor.get_task().task_state == sushy.TASK_STATE_RUNNING:
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, TIMING.poll_max_s)
        found = {each.identity: each.version for each in update.firmware_inventory.get_members()}
        return str(found["DPU_OS"])
