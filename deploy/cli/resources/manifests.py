"""Manifests: the objects of YAML or JSON text, each checked as the API server of Kubernetes would check it.

Folders of real installations hold objects of other kinds too, and Helm values. They are passed over and named. Nothing
here reads a file or asks a server, so every fault of a text is known before anything is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from deploy.cli.resources.kinds import full_kind
from deploy.cli.resources.secret_manifests import SecretManifest, secrets_of
from deploy.settings.validation_errors import kind_of
from deploy.settings.yaml_text import NotYaml, documents_of
from projections.field_checks import quoted
from schemas.resources.dpf import DPF_KINDS, KINDS, REFUSED_GROUPS
from schemas.resources.kinds import Kind
from schemas.resources.validation import unreplaced_variables, validate

DEFAULT_NAMESPACE = "default"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""An annotation of kubectl with a copy of the whole manifest."""

_GROUPS = frozenset(kind.group for kind in KINDS)


class Manifest(NamedTuple):
    """An object of a text without faults. `place` tells where the text has it."""

    kind: Kind
    namespace: str
    name: str
    labels: dict[str, str]
    annotations: dict[str, str]
    spec: dict[str, Any]
    place: str

    @property
    def key(self) -> tuple[str, str, str]:
        """The identity of the object."""
        return full_kind(self.kind), self.namespace, self.name

    @property
    def title(self) -> str:
        """The object in words."""
        return _title(self.kind.name, self.namespace, self.name)


class Manifests(NamedTuple):
    """The objects of one or more texts, the faults of others, each as one sentence, and what was passed over. Secrets
    are among what was passed over until it is known that an object names them."""

    objects: list[Manifest]
    faults: list[str]
    passed_over: list[str]
    secrets: list[SecretManifest]


class _Faulty(Exception):
    """A document with faults: sentences without the place."""

    def __init__(self, *sentences: str) -> None:
        super().__init__(*sentences)
        self.sentences = sentences


def read_manifests(text: str, file: str, namespace: str = "", *, is_checked: bool = True) -> Manifests:
    """The objects of a text. `namespace` is that of the command, empty if not given. Without `is_checked`, only what
    identifies an object is looked at."""
    found = Manifests([], [], [], [])
    try:
        documents = documents_of(text)
    except NotYaml as error:
        return Manifests([], [f"{file}: must be YAML or JSON: {error}"], [], [])
    for number, document in enumerate(documents, 1):
        for place, item in _items(f"{file}: document {number}", _with_text_keys(document)):
            try:
                passed_over = _passed_over(item)
                if passed_over:
                    found.passed_over.append(f"{place}: {passed_over}")
                    found.secrets.extend(secrets_of(item, place, namespace or DEFAULT_NAMESPACE, passed_over))
                else:
                    found.objects.append(_manifest(item, place, namespace, is_checked=is_checked))
            except _Faulty as faulty:
                found.faults.extend(f"{place}: {sentence}" for sentence in faulty.sentences)
    return found


def merged(parts: Iterable[Manifests]) -> Manifests:
    """The objects of several texts. An object that occurs twice is a fault of the second place."""
    whole = Manifests([], [], [], [])
    places: dict[tuple[str, str, str], str] = {}
    for part in parts:
        whole.faults.extend(part.faults)
        whole.passed_over.extend(part.passed_over)
        whole.secrets.extend(part.secrets)
        for each in part.objects:
            if each.key in places:
                whole.faults.append(f"{each.place}: {each.title} is given twice, first in {places[each.key]}")
            else:
                places[each.key] = each.place
                whole.objects.append(each)
    return whole


def _items(place: str, document: Any) -> Iterator[tuple[str, Any]]:
    """The objects of a document with their places: the items of a list, or the document itself."""
    if document is None:
        return
    is_list = isinstance(document, Mapping) and str(document.get("kind", "")).endswith("List")
    if is_list and isinstance(document.get("items"), list):
        for number, item in enumerate(document["items"], 1):
            yield f"{place}, item {number}", item
    else:
        yield place, document


def _passed_over(document: Any) -> str:
    """The title of an object that the plane does not take; empty for others."""
    if not isinstance(document, Mapping):
        raise _Faulty(f"must be an object with apiVersion and kind, and is {kind_of(document)}")
    if "apiVersion" not in document and "kind" not in document:
        return "a document without apiVersion and kind, such as the values of a chart"
    group, kind = _group_and_kind(document)
    if (group, kind) in DPF_KINDS:
        return ""
    if group in REFUSED_GROUPS:
        raise _Faulty(f"{kind}: {REFUSED_GROUPS[group]}")
    if group in _GROUPS:
        names = ", ".join(sorted(each.name for each in KINDS if each.group == group))
        raise _Faulty(f"kind: {quoted(kind)} is no kind of {group}; the kinds are {names}")
    metadata = document.get("metadata")
    named = metadata if isinstance(metadata, Mapping) else {}
    return _title(kind, str(named.get("namespace") or ""), str(named.get("name") or named.get("generateName") or ""))


def _group_and_kind(document: Mapping[str, Any]) -> tuple[str, str]:
    for field in ("apiVersion", "kind"):
        value = document.get(field)
        if not isinstance(value, str) or not value:
            said = "must be set" if value is None or value == "" else f"must be text, and is {kind_of(value)}"
            raise _Faulty(f"{field}: {said}")
    return document["apiVersion"].rpartition("/")[0], document["kind"]


def _manifest(document: Mapping[str, Any], place: str, namespace: str, *, is_checked: bool) -> Manifest:
    """An object of a kind that the plane takes. Raises _Faulty."""
    kind = DPF_KINDS[_group_and_kind(document)]
    metadata = document.get("metadata")
    given = metadata if isinstance(metadata, Mapping) else {}
    own = given.get("namespace") or ""
    at = str(own or namespace or DEFAULT_NAMESPACE) if kind.is_namespaced else ""
    title = _title(kind.name, at, str(given.get("name") or given.get("generateName") or ""))
    faults = list(_faults(kind, document, given)) if is_checked else []
    if own and namespace and own != namespace:
        faults.append(f"metadata.namespace: is {quoted(str(own))}, and the command names {quoted(namespace)}")
    if not is_checked and not (isinstance(given.get("name"), str) and given["name"]):
        faults.append("metadata.name: must be set")
    if faults:
        raise _Faulty(*(f"{title}: {fault}" for fault in faults))
    annotations = {key: value for key, value in (given.get("annotations") or {}).items() if key != LAST_APPLIED}
    spec = document.get("spec")
    labels = dict(given.get("labels") or {})
    return Manifest(kind, at, given["name"], labels, annotations, spec if isinstance(spec, dict) else {}, place)


def _faults(kind: Kind, document: Mapping[str, Any], metadata: Mapping[str, Any]) -> Iterator[str]:
    """The faults of an object. A variable that nobody replaced is reported as that, and not as what it breaks."""
    variables = list(unreplaced_variables(kind, document))
    yield from map(str, variables)
    if document["apiVersion"] != kind.api_version:
        yield f"apiVersion: {quoted(document['apiVersion'])} must be {kind.api_version}"
    if metadata.get("generateName") and not metadata.get("name"):
        yield "metadata.generateName: must not be given without metadata.name, because apply looks an object up by name"
        return
    paths = {fault.path for fault in variables}
    yield from (str(fault) for fault in validate(kind, document).faults if fault.path not in paths)


def _title(kind: str, namespace: str, name: str) -> str:
    where = f"{namespace}/" if namespace else ""
    return f"{kind} {where}{name or '(no name)'}"


def _with_text_keys(value: Any) -> Any:
    """A value whose keys are text, as JSON has them."""
    match value:
        case dict():
            return {_text_key(key): _with_text_keys(item) for key, item in value.items()}
        case list():
            return [_with_text_keys(item) for item in value]
        case _:
            return value


def _text_key(key: Any) -> str:
    if isinstance(key, bool) or key is None:
        return {True: "true", False: "false", None: "null"}[key]
    return str(key)
