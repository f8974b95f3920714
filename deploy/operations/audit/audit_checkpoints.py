"""Checkpoints of a log: small signed files about its content, to be stored outside it.

A checkpoint is one JSON value: its content, and an Ed25519 signature over the content's canonical bytes (sorted keys,
no spaces). It names the log, and the length and attestation of every partition that is kept forever. Topics that expire
are not in it. An optional second file holds the hashes of all records, eight bytes each; its digest is signed too.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from hashlib import file_digest
from pathlib import Path

import msgspec
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from eventstore.errors import LogMismatch, PermanentError
from eventstore.folding.origin import find_origin, wait_for_origin
from eventstore.log import EventLog, Partition
from eventstore.progress import ReportProgress
from eventstore.recovery.attestation import HASH_BYTES, Attestation, Difference, attest, find_difference
from eventstore.replicas.lineage import lineage_of

FORMAT = 1
FILE_BYTES_MAX = 16 << 20


class CheckpointContent(msgspec.Struct, frozen=True, kw_only=True):
    """The content of an audit checkpoint. `hashes` is the SHA-256 of the file of all hashes, if there is one."""

    format: int
    log_id: str
    generation: int
    made_at_ms: int
    partitions: dict[str, Attestation]
    hashes: str = ""


class Checkpoint(msgspec.Struct, frozen=True):
    """An audit checkpoint: its content, and the signature of the content in base64."""

    statement: CheckpointContent
    signature: str


class ProofResult(msgspec.Struct, frozen=True):
    """The proof of a log against a checkpoint: the number of unchanged records, or the first difference per
    partition.
    """

    records: int
    differences: list[str]
    restored: str = ""


def new_keys(path: Path, public_path: Path) -> None:
    """Create a signing key, readable by its owner only, and its public key. Raises PermanentError."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    for file, content, mode in ((path, private, 0o600), (public_path, public, 0o644)):
        try:
            file.touch(mode, exist_ok=False)
            file.write_bytes(content)
        except OSError as error:
            raise PermanentError(f"key: {file} cannot be created: {error.strerror}") from error


async def describe_log(log: EventLog, now_ms: int, hashes: Path | None, report: ReportProgress) -> CheckpointContent:
    """The present content of the log; the hash of each record is written to `hashes`."""
    origin = await wait_for_origin(log)
    partitions = sorted((p for topic in log.topics.deciding for p in log.partitions(topic)), key=str)
    ends = {partition: await log.end(partition) for partition in partitions}
    total, done = sum(ends.values()) or 1, 0
    attestation: dict[str, Attestation] = {}
    with (hashes or Path("/dev/null")).open("wb") as kept:
        for partition, end in ends.items():
            report(str(partition), done / total)
            attestation[str(partition)] = await attest(log, partition, end, kept.write if hashes else None)
            done += end
    digest = _digest(hashes) if hashes else ""
    return CheckpointContent(
        format=FORMAT,
        log_id=origin.log_id,
        generation=origin.generation,
        made_at_ms=now_ms,
        partitions=attestation,
        hashes=digest,
    )


def signed(statement: CheckpointContent, key_path: Path) -> bytes:
    """The bytes of a checkpoint file. Raises PermanentError for an invalid key."""
    try:
        key = serialization.load_pem_private_key(_read(key_path, "key"), None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise PermanentError(f"key: {key_path} must hold an Ed25519 private key in PEM, without a password") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise PermanentError(
            f"key: {key_path} must hold an Ed25519 private key; create one with `dpuplane checkpoint keygen`"
        )
    signature = b64encode(key.sign(_canonical(statement))).decode()
    return msgspec.json.format(msgspec.json.encode(Checkpoint(statement, signature), order="sorted"), indent=1) + b"\n"


def load(path: Path, public_key_path: Path) -> CheckpointContent:
    """Read a checkpoint file and verify its signature. Raises PermanentError."""
    try:
        key = serialization.load_pem_public_key(_read(public_key_path, "public key"))
    except (ValueError, UnsupportedAlgorithm) as error:
        raise PermanentError(f"public key: {public_key_path} must hold an Ed25519 public key in PEM") from error
    if not isinstance(key, Ed25519PublicKey):
        raise PermanentError(f"public key: {public_key_path} must hold an Ed25519 public key")
    try:
        found = msgspec.json.decode(_read(path, "checkpoint"), type=Checkpoint)
        key.verify(b64decode(found.signature), _canonical(found.statement))
    except (ValueError, RecursionError) as error:
        raise PermanentError(f"checkpoint: {path} is not a valid checkpoint: {error}") from error
    except InvalidSignature:
        raise PermanentError(
            f"checkpoint: {path} was not signed with the key of {public_key_path}, or was changed"
        ) from None
    if found.statement.format != FORMAT:
        raise PermanentError(
            f"checkpoint: {path} has format {found.statement.format}; this program reads format {FORMAT}"
        )
    return found.statement


async def prove(
    log: EventLog, statement: CheckpointContent, hashes: Path | None, report: ReportProgress
) -> ProofResult:
    """Compare a log with a checkpoint. Raises PermanentError if the file of hashes differs from the signed one. If no
    file of hashes was signed with the checkpoint, a file at `hashes` is of an earlier checkpoint, and is not read.
    """
    kept = _open_hashes(statement, hashes) if hashes and statement.hashes else {}
    try:
        origin = await find_origin(log)
    except LogMismatch:
        origin = None  # record 0 of fleet has changed: it is named below
    fork = None if origin is None else lineage_of(origin).fork_of(statement.log_id)
    if origin is not None and origin.log_id != statement.log_id and fork is None:
        return ProofResult(0, [f"log: {origin.log_id} is not log {statement.log_id}, and was not restored from it"])
    ends = {_partition(name): attestation for name, attestation in sorted(statement.partitions.items())}
    there = {p for topic in log.topics.deciding for p in log.partitions(topic)}
    total, done, proven = sum(attestation.end for attestation in ends.values()) or 1, 0, 0
    differences: list[str] = []
    for partition, attestation in ends.items():
        report(str(partition), done / total)
        done += attestation.end
        found: Difference | None = Difference(partition, 0, -1, "the log lacks this partition")
        if partition in there:
            found = await find_difference(log, partition, attestation, kept.get(partition), same_log=fork is None)
        proven += attestation.end if found is None else found.first
        if found is not None:
            differences.append(_sentence(found))
    restored = f"{origin.log_id}, generation {origin.generation}" if origin is not None and fork is not None else ""
    return ProofResult(proven, differences, restored)


def _sentence(found: Difference) -> str:
    partition, first, end, reason = found
    if end == -1:
        return f"{partition}: record {first} and all after it are missing: {reason}"
    if end - first == 1:
        return f"{partition}: record {first} differs: {reason}"
    return f"{partition}: the first record that differs is one of {first} to {end - 1}: {reason}"


class _HashFile:
    """The hashes of one partition, in a file."""

    def __init__(self, content: memoryview) -> None:
        self._content = content

    def __getitem__(self, index: int) -> bytes:
        return bytes(self._content[index * HASH_BYTES : (index + 1) * HASH_BYTES])


def _open_hashes(statement: CheckpointContent, path: Path) -> Mapping[Partition, _HashFile]:
    content = memoryview(_read(path, "hashes", 1 << 40))
    if _digest(path) != statement.hashes:
        raise PermanentError(f"hashes: {path} is not the file of this checkpoint, or was changed")
    found, at = {}, 0
    for name, attestation in sorted(statement.partitions.items()):  # in the order in which they were written
        size = attestation.chained * HASH_BYTES
        found[_partition(name)] = _HashFile(content[at : at + size])
        at += size
    return found


def _partition(text: str) -> Partition:
    topic, _, number = text.partition("/")
    return Partition(topic, int(number))


def _canonical(statement: CheckpointContent) -> bytes:
    return msgspec.json.encode(statement, order="sorted")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _read(path: Path, what: str, most: int = FILE_BYTES_MAX) -> bytes:
    try:
        size = path.stat().st_size
        if size > most:
            raise PermanentError(f"{what}: {path} has {size} bytes and must have at most {most}")
        return path.read_bytes()
    except OSError as error:
        raise PermanentError(f"{what}: {path} cannot be read: {error.strerror}") from error
