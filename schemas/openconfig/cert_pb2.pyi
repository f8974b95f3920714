from schemas.openconfig import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CertificateType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CT_UNKNOWN: _ClassVar[CertificateType]
    CT_X509: _ClassVar[CertificateType]

class KeyType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    KT_UNKNOWN: _ClassVar[KeyType]
    KT_RSA: _ClassVar[KeyType]
CT_UNKNOWN: CertificateType
CT_X509: CertificateType
KT_UNKNOWN: KeyType
KT_RSA: KeyType

class RotateCertificateRequest(_message.Message):
    __slots__ = ("generate_csr", "load_certificate", "finalize_rotation")
    GENERATE_CSR_FIELD_NUMBER: _ClassVar[int]
    LOAD_CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    FINALIZE_ROTATION_FIELD_NUMBER: _ClassVar[int]
    generate_csr: GenerateCSRRequest
    load_certificate: LoadCertificateRequest
    finalize_rotation: FinalizeRequest
    def __init__(self, generate_csr: _Optional[_Union[GenerateCSRRequest, _Mapping]] = ..., load_certificate: _Optional[_Union[LoadCertificateRequest, _Mapping]] = ..., finalize_rotation: _Optional[_Union[FinalizeRequest, _Mapping]] = ...) -> None: ...

class RotateCertificateResponse(_message.Message):
    __slots__ = ("generated_csr", "load_certificate")
    GENERATED_CSR_FIELD_NUMBER: _ClassVar[int]
    LOAD_CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    generated_csr: GenerateCSRResponse
    load_certificate: LoadCertificateResponse
    def __init__(self, generated_csr: _Optional[_Union[GenerateCSRResponse, _Mapping]] = ..., load_certificate: _Optional[_Union[LoadCertificateResponse, _Mapping]] = ...) -> None: ...

class InstallCertificateRequest(_message.Message):
    __slots__ = ("generate_csr", "load_certificate")
    GENERATE_CSR_FIELD_NUMBER: _ClassVar[int]
    LOAD_CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    generate_csr: GenerateCSRRequest
    load_certificate: LoadCertificateRequest
    def __init__(self, generate_csr: _Optional[_Union[GenerateCSRRequest, _Mapping]] = ..., load_certificate: _Optional[_Union[LoadCertificateRequest, _Mapping]] = ...) -> None: ...

class InstallCertificateResponse(_message.Message):
    __slots__ = ("generated_csr", "load_certificate")
    GENERATED_CSR_FIELD_NUMBER: _ClassVar[int]
    LOAD_CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    generated_csr: GenerateCSRResponse
    load_certificate: LoadCertificateResponse
    def __init__(self, generated_csr: _Optional[_Union[GenerateCSRResponse, _Mapping]] = ..., load_certificate: _Optional[_Union[LoadCertificateResponse, _Mapping]] = ...) -> None: ...

class GenerateCSRRequest(_message.Message):
    __slots__ = ("csr_params", "certificate_id")
    CSR_PARAMS_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_ID_FIELD_NUMBER: _ClassVar[int]
    csr_params: CSRParams
    certificate_id: str
    def __init__(self, csr_params: _Optional[_Union[CSRParams, _Mapping]] = ..., certificate_id: _Optional[str] = ...) -> None: ...

class CSRParams(_message.Message):
    __slots__ = ("type", "min_key_size", "key_type", "common_name", "country", "state", "city", "organization", "organizational_unit", "ip_address", "email_id")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    MIN_KEY_SIZE_FIELD_NUMBER: _ClassVar[int]
    KEY_TYPE_FIELD_NUMBER: _ClassVar[int]
    COMMON_NAME_FIELD_NUMBER: _ClassVar[int]
    COUNTRY_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    CITY_FIELD_NUMBER: _ClassVar[int]
    ORGANIZATION_FIELD_NUMBER: _ClassVar[int]
    ORGANIZATIONAL_UNIT_FIELD_NUMBER: _ClassVar[int]
    IP_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    EMAIL_ID_FIELD_NUMBER: _ClassVar[int]
    type: CertificateType
    min_key_size: int
    key_type: KeyType
    common_name: str
    country: str
    state: str
    city: str
    organization: str
    organizational_unit: str
    ip_address: str
    email_id: str
    def __init__(self, type: _Optional[_Union[CertificateType, str]] = ..., min_key_size: _Optional[int] = ..., key_type: _Optional[_Union[KeyType, str]] = ..., common_name: _Optional[str] = ..., country: _Optional[str] = ..., state: _Optional[str] = ..., city: _Optional[str] = ..., organization: _Optional[str] = ..., organizational_unit: _Optional[str] = ..., ip_address: _Optional[str] = ..., email_id: _Optional[str] = ...) -> None: ...

class GenerateCSRResponse(_message.Message):
    __slots__ = ("csr",)
    CSR_FIELD_NUMBER: _ClassVar[int]
    csr: CSR
    def __init__(self, csr: _Optional[_Union[CSR, _Mapping]] = ...) -> None: ...

class LoadCertificateRequest(_message.Message):
    __slots__ = ("certificate", "key_pair", "certificate_id", "ca_certificates")
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    KEY_PAIR_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_ID_FIELD_NUMBER: _ClassVar[int]
    CA_CERTIFICATES_FIELD_NUMBER: _ClassVar[int]
    certificate: Certificate
    key_pair: KeyPair
    certificate_id: str
    ca_certificates: _containers.RepeatedCompositeFieldContainer[Certificate]
    def __init__(self, certificate: _Optional[_Union[Certificate, _Mapping]] = ..., key_pair: _Optional[_Union[KeyPair, _Mapping]] = ..., certificate_id: _Optional[str] = ..., ca_certificates: _Optional[_Iterable[_Union[Certificate, _Mapping]]] = ...) -> None: ...

class LoadCertificateResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LoadCertificateAuthorityBundleRequest(_message.Message):
    __slots__ = ("ca_certificates",)
    CA_CERTIFICATES_FIELD_NUMBER: _ClassVar[int]
    ca_certificates: _containers.RepeatedCompositeFieldContainer[Certificate]
    def __init__(self, ca_certificates: _Optional[_Iterable[_Union[Certificate, _Mapping]]] = ...) -> None: ...

class LoadCertificateAuthorityBundleResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FinalizeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetCertificatesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetCertificatesResponse(_message.Message):
    __slots__ = ("certificate_info",)
    CERTIFICATE_INFO_FIELD_NUMBER: _ClassVar[int]
    certificate_info: _containers.RepeatedCompositeFieldContainer[CertificateInfo]
    def __init__(self, certificate_info: _Optional[_Iterable[_Union[CertificateInfo, _Mapping]]] = ...) -> None: ...

class CertificateInfo(_message.Message):
    __slots__ = ("certificate_id", "certificate", "endpoints", "modification_time")
    CERTIFICATE_ID_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    MODIFICATION_TIME_FIELD_NUMBER: _ClassVar[int]
    certificate_id: str
    certificate: Certificate
    endpoints: _containers.RepeatedCompositeFieldContainer[Endpoint]
    modification_time: int
    def __init__(self, certificate_id: _Optional[str] = ..., certificate: _Optional[_Union[Certificate, _Mapping]] = ..., endpoints: _Optional[_Iterable[_Union[Endpoint, _Mapping]]] = ..., modification_time: _Optional[int] = ...) -> None: ...

class RevokeCertificatesRequest(_message.Message):
    __slots__ = ("certificate_id",)
    CERTIFICATE_ID_FIELD_NUMBER: _ClassVar[int]
    certificate_id: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, certificate_id: _Optional[_Iterable[str]] = ...) -> None: ...

class RevokeCertificatesResponse(_message.Message):
    __slots__ = ("revoked_certificate_id", "certificate_revocation_error")
    REVOKED_CERTIFICATE_ID_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_REVOCATION_ERROR_FIELD_NUMBER: _ClassVar[int]
    revoked_certificate_id: _containers.RepeatedScalarFieldContainer[str]
    certificate_revocation_error: _containers.RepeatedCompositeFieldContainer[CertificateRevocationError]
    def __init__(self, revoked_certificate_id: _Optional[_Iterable[str]] = ..., certificate_revocation_error: _Optional[_Iterable[_Union[CertificateRevocationError, _Mapping]]] = ...) -> None: ...

class CertificateRevocationError(_message.Message):
    __slots__ = ("certificate_id", "error_message")
    CERTIFICATE_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    certificate_id: str
    error_message: str
    def __init__(self, certificate_id: _Optional[str] = ..., error_message: _Optional[str] = ...) -> None: ...

class CanGenerateCSRRequest(_message.Message):
    __slots__ = ("key_type", "certificate_type", "key_size")
    KEY_TYPE_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_TYPE_FIELD_NUMBER: _ClassVar[int]
    KEY_SIZE_FIELD_NUMBER: _ClassVar[int]
    key_type: KeyType
    certificate_type: CertificateType
    key_size: int
    def __init__(self, key_type: _Optional[_Union[KeyType, str]] = ..., certificate_type: _Optional[_Union[CertificateType, str]] = ..., key_size: _Optional[int] = ...) -> None: ...

class CanGenerateCSRResponse(_message.Message):
    __slots__ = ("can_generate",)
    CAN_GENERATE_FIELD_NUMBER: _ClassVar[int]
    can_generate: bool
    def __init__(self, can_generate: _Optional[bool] = ...) -> None: ...

class Certificate(_message.Message):
    __slots__ = ("type", "certificate")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    type: CertificateType
    certificate: bytes
    def __init__(self, type: _Optional[_Union[CertificateType, str]] = ..., certificate: _Optional[bytes] = ...) -> None: ...

class CSR(_message.Message):
    __slots__ = ("type", "csr")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    CSR_FIELD_NUMBER: _ClassVar[int]
    type: CertificateType
    csr: bytes
    def __init__(self, type: _Optional[_Union[CertificateType, str]] = ..., csr: _Optional[bytes] = ...) -> None: ...

class KeyPair(_message.Message):
    __slots__ = ("private_key", "public_key")
    PRIVATE_KEY_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_KEY_FIELD_NUMBER: _ClassVar[int]
    private_key: bytes
    public_key: bytes
    def __init__(self, private_key: _Optional[bytes] = ..., public_key: _Optional[bytes] = ...) -> None: ...

class Endpoint(_message.Message):
    __slots__ = ("type", "endpoint")
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        EP_UNSPECIFIED: _ClassVar[Endpoint.Type]
        EP_IPSEC_TUNNEL: _ClassVar[Endpoint.Type]
        EP_DAEMON: _ClassVar[Endpoint.Type]
    EP_UNSPECIFIED: Endpoint.Type
    EP_IPSEC_TUNNEL: Endpoint.Type
    EP_DAEMON: Endpoint.Type
    TYPE_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    type: Endpoint.Type
    endpoint: str
    def __init__(self, type: _Optional[_Union[Endpoint.Type, str]] = ..., endpoint: _Optional[str] = ...) -> None: ...
