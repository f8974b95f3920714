"""The installer of DPUs whose management service speaks gNMI and gNOI, in a process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from deploy.process.image_store import ImageStore
from deploy.process.redfish import authority_of
from deploy.settings.settings import Settings
from drivers.gnoi.credentials import ClientFiles, CredentialsOf, FileCredentials, IssuedCredentials, no_credentials
from drivers.gnoi.installer import GnoiInstaller, no_delivery
from drivers.gnoi.renewal import CertificateRenewal
from eventstore.errors import FatalError


def gnoi_installer(settings: Settings, images: ImageStore | None, now_ms: Callable[[], int]) -> GnoiInstaller:
    """The installer of a process. Without an image store, it executes the steps that send no image."""
    delivery_of = no_delivery if images is None else images.installations.delivery
    credentials = _credentials(settings, now_ms)
    renewal = CertificateRenewal(authority_of(settings), credentials, now_ms)
    return GnoiInstaller(credentials, delivery_of, asyncio.Semaphore(settings.image_streams), renewal=renewal)


def _credentials(settings: Settings, now_ms: Callable[[], int]) -> CredentialsOf:
    cert, key, authority = settings.bmc_client_cert, settings.bmc_client_key, authority_of(settings)
    if (cert is None) != (key is None):
        raise FatalError("bmc_client_cert: it and bmc_client_key must be given together")
    if authority is None and cert is not None:
        raise FatalError("bmc_client_cert: it needs bmc_ca, the authority of management services")
    if authority is not None and authority.signs:
        return IssuedCredentials(authority, now_ms)
    if authority is not None and cert is not None and key is not None:
        return FileCredentials(authority, ClientFiles(cert, key))
    return no_credentials
