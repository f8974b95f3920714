"""The certificates of a BMC: its own, with requests for new ones, and the authorities whose clients it trusts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from drivers.simulators.redfish.messages import Json, Refused, parameters, text
from drivers.simulators.redfish.tasks import timestamp

FACTORY_VALID = timedelta(days=365)
AUTHORITIES_MAX = 10
_NAMES = {
    "CommonName": NameOID.COMMON_NAME,
    "Organization": NameOID.ORGANIZATION_NAME,
    "OrganizationalUnit": NameOID.ORGANIZATIONAL_UNIT_NAME,
    "City": NameOID.LOCALITY_NAME,
    "State": NameOID.STATE_OR_PROVINCE_NAME,
    "Country": NameOID.COUNTRY_NAME,
}
_PEM = serialization.Encoding.PEM


@dataclass
class BmcCertificates:
    """A key with its certificate, a key that waits for one, and authorities by id. `changes` counts changes of what the
    listener of the BMC uses."""

    now: Callable[[], datetime]
    hosts: tuple[str, ...]
    authorities: dict[str, x509.Certificate] = field(default_factory=dict)
    changes: int = 0
    _requested: ec.EllipticCurvePrivateKey | None = None
    _numbered: int = 0

    def __post_init__(self) -> None:
        self.sign_self(FACTORY_VALID)

    def sign_self(self, valid: timedelta) -> None:
        """Sign the certificate anew, as the factory does. A negative time gives one that has expired."""
        now = self.now()
        ends = now + valid
        self.key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bluefield-bmc")])
        self.certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(self.key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(min(now, ends) - timedelta(days=1))
            .not_valid_after(ends)
            .add_extension(x509.SubjectAlternativeName([_host(host) for host in self.hosts]), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self.key, hashes.SHA256())
        )
        self.changes += 1

    def request(self, body: Json, collection: str) -> str:
        """A certificate signing request for a new key (GenerateCSR) of the only collection that has one. Raises
        Refused."""
        needed = dict.fromkeys(_NAMES, text) | {"CertificateCollection": _reference}
        more = {"AlternativeNames": _texts, "KeyPairAlgorithm": text, "KeyCurveId": text, "KeyUsage": _texts}
        given = parameters(body, needed, more | {"Email": text, "GivenName": text, "Surname": text})
        if given["CertificateCollection"]["@odata.id"] != collection:
            raise Refused(400, "ActionParameterValueNotInList", f"The only collection with a key is {collection}.")
        key = ec.generate_private_key(ec.SECP256R1())
        try:
            subject = x509.Name([x509.NameAttribute(oid, given[name]) for name, oid in _NAMES.items()])
            names = [_host(name) for name in given.get("AlternativeNames", [])]
        except ValueError as error:
            raise Refused(400, "ActionParameterValueFormatError", f"The subject is not valid: {error}.") from error
        builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        self._requested = key
        return builder.sign(key, hashes.SHA256()).public_bytes(_PEM).decode()

    def replace(self, pem: str) -> None:
        """Use a certificate for the requested key, or for the present one (ReplaceCertificate). Raises Refused."""
        certificate = _parsed(pem)
        for key in filter(None, (self._requested, self.key)):
            if key.public_key() == certificate.public_key():
                self.key, self.certificate, self._requested = key, certificate, None
                self.changes += 1
                return
        raise Refused(400, "PropertyValueFormatError", "The certificate is for another key than that of the request.")

    def trust(self, pem: str, number: str = "") -> str:
        """Install an authority for client certificates, or replace one by its id. Returns the id. Raises Refused."""
        certificate = _parsed(pem)
        if number not in self.authorities:
            if len(self.authorities) >= AUTHORITIES_MAX:
                raise Refused(
                    400, "CreateLimitReachedForResource", "The create operation failed: the limit is reached."
                )
            self._numbered += 1
            number = str(self._numbered)
        self.authorities[number] = certificate
        self.changes += 1
        return number

    def distrust(self, number: str) -> None:
        del self.authorities[number]

    def client(self, der: bytes | None) -> str:
        """The name in a client certificate that one of the authorities issued and that is valid now; empty if not."""
        if der is None:
            return ""
        certificate, now = x509.load_der_x509_certificate(der), self.now()
        if not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
            return ""
        names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        for authority in self.authorities.values():
            try:
                certificate.verify_directly_issued_by(authority)
            except (InvalidSignature, ValueError, TypeError):
                continue
            return str(names[0].value) if names else ""
        return ""

    def pem(self) -> tuple[bytes, bytes]:
        """The certificate and its key."""
        encoding = serialization.PrivateFormat.PKCS8
        return (
            self.certificate.public_bytes(_PEM),
            self.key.private_bytes(_PEM, encoding, serialization.NoEncryption()),
        )

    def authorities_pem(self) -> str:
        return "".join(each.public_bytes(_PEM).decode() for each in self.authorities.values())


def resource(path: str, certificate: x509.Certificate) -> Json:
    """A Certificate resource."""
    return {
        "@odata.type": "#Certificate.v1_11_0.Certificate",
        "@odata.id": path,
        "Id": path.rpartition("/")[2],
        "Name": "Certificate",
        "CertificateString": certificate.public_bytes(_PEM).decode(),
        "CertificateType": "PEM",
        "Subject": _named(certificate.subject),
        "Issuer": _named(certificate.issuer),
        "ValidNotBefore": timestamp(certificate.not_valid_before_utc),
        "ValidNotAfter": timestamp(certificate.not_valid_after_utc),
        "KeyUsage": ["KeyEncipherment", "ServerAuthentication"],
        "SerialNumber": certificate.serial_number.to_bytes(20, "big").hex(":"),
    }


def _named(name: x509.Name) -> Json:
    found = {key: name.get_attributes_for_oid(oid) for key, oid in _NAMES.items()}
    return {key: str(values[0].value) for key, values in found.items() if values}


def _parsed(pem: str) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(pem.encode())
    except ValueError as error:
        raise Refused(400, "PropertyValueFormatError", "The certificate is not a valid PEM.") from error


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _texts(value: Any) -> str:
    return "" if isinstance(value, list) and all(isinstance(each, str) for each in value) else "must be a list of texts"


def _reference(value: Any) -> str:
    return "" if isinstance(value, dict) and isinstance(value.get("@odata.id"), str) else "must be a reference"
