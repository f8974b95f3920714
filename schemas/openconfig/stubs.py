"""Clients of gNMI, and of the services CertificateManagement, OS and System of gNOI."""

from __future__ import annotations

from schemas.api.stubs import ServiceStub
from schemas.openconfig import cert_pb2, gnmi_pb2, os_pb2, system_pb2


class CertificateStub(ServiceStub):
    """A client of gnoi.certificate.CertificateManagement."""

    SERVICE = cert_pb2.DESCRIPTOR.services_by_name["CertificateManagement"]


class GnmiStub(ServiceStub):
    """A client of gnmi.gNMI."""

    SERVICE = gnmi_pb2.DESCRIPTOR.services_by_name["gNMI"]


class OsStub(ServiceStub):
    """A client of gnoi.os.OS."""

    SERVICE = os_pb2.DESCRIPTOR.services_by_name["OS"]


class SystemStub(ServiceStub):
    """A client of gnoi.system.System."""

    SERVICE = system_pb2.DESCRIPTOR.services_by_name["System"]
