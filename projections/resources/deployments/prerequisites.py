"""The objects that a DPUDeployment needs, and what is wrong with them.

A deployment with a fault is not derived completely: what exists of it is kept as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from projections.resources.blame import Blame, absent, deleting
from projections.resources.deployments.order import dependency_order
from projections.resources.deployments.quantities import misfits
from projections.resources.deployments.specs import (
    ConfigurationSpec,
    DPUDeploymentSpec,
    FlavorSpec,
    TemplateSpec,
)
from projections.resources.deployments.values import referenced_services
from projections.resources.deployments.version_matching import mismatches
from projections.resources.items import check_object_name
from projections.resources.kinds import (
    BFB,
    BLUEFIELD_SOFTWARE,
    DPU_FLAVOR,
    DPU_FLAVOR_TEMPLATE,
    DPU_SERVICE_CONFIGURATION,
    DPU_SERVICE_TEMPLATE,
    short_name,
)
from projections.resources.observation import Observation
from projections.resources.specs import Read, read
from projections.resources.state import ObjectId, Resource
from schemas.resources.dpf.service_template import DELIMITERS


class ServiceParts(NamedTuple):
    """The template and configuration of a service."""

    template: TemplateSpec
    configuration: ConfigurationSpec
    delimiters: str | None


class Prerequisites(NamedTuple):
    """What a deployment is made from. `services` are in order of dependency; those with a fault are absent."""

    services: dict[str, ServiceParts]
    missing: tuple[Blame, ...]
    """Objects that do not exist or do not fit to each other."""
    leaving: tuple[Blame, ...]
    """Objects that are being deleted. They serve until they are gone: what is made from them must not go before."""
    unfit: tuple[Blame, ...]
    """Resources that the flavor does not leave to the services."""
    mismatched: tuple[Blame, ...]
    """Versions that a service needs and that the image does not have. A version that is not known yet holds up
    nothing."""

    @property
    def is_complete(self) -> bool:
        return not self.missing and not self.unfit and all(each.is_unknown for each in self.mismatched)


def prerequisites(
    at: ObjectId, spec: DPUDeploymentSpec, rows: Mapping[str, Resource], seen: Mapping[str, Observation]
) -> Prerequisites:
    """The objects that a deployment needs. `seen` is what is observed of the real things behind objects."""
    missing = [*_misnamed(at, spec), *(absent(key) for key in _of_dpus(at, spec) if key not in rows)]
    order = dependency_order(spec.services)
    if isinstance(order, str):
        missing.append(Blame(at.key, order))
        order = ()
    services: dict[str, ServiceParts] = {}
    for name in order:
        if any(each.name not in services for each in spec.services[name].depends_on or ()):
            continue
        parts = _parts(at, name, spec, rows)
        if isinstance(parts, ServiceParts):
            services[name] = parts
        else:
            missing += parts
    return Prerequisites(
        services,
        tuple(missing),
        tuple(deleting(key) for key in _of_dpus(at, spec) if key in rows and rows[key].deleted_ms),
        tuple(_unfit(at, spec, services, rows)),
        tuple(mismatches(at, spec, services, rows, seen)),
    )


def _misnamed(at: ObjectId, spec: DPUDeploymentSpec) -> Iterator[Blame]:
    """The blames on names from which no object can be named."""
    named = [
        (f"dpus.dpuSets[{number}].nameSuffix", each.name_suffix) for number, each in enumerate(spec.dpus.dpu_sets or ())
    ]
    for field, name in (*named, *((f"services.{name}", name) for name in sorted(spec.services))):
        if fault := check_object_name(field, name):
            yield Blame(at.key, fault)


def _of_dpus(at: ObjectId, spec: DPUDeploymentSpec) -> Iterator[str]:
    """The keys of the objects that the DPUs of a deployment are made from."""
    dpus = spec.dpus
    for kind, name in (
        (BFB, dpus.bfb),
        (BLUEFIELD_SOFTWARE, dpus.blue_field_software),
        (DPU_FLAVOR, dpus.flavor),
        (DPU_FLAVOR_TEMPLATE, dpus.flavor_template),
    ):
        if name:
            yield ObjectId(at.source, kind, at.namespace, name).key


def _parts(
    at: ObjectId, name: str, spec: DPUDeploymentSpec, rows: Mapping[str, Resource]
) -> ServiceParts | list[Blame]:
    service = spec.services[name]
    template_key = ObjectId(at.source, DPU_SERVICE_TEMPLATE, at.namespace, service.service_template).key
    settings_key = ObjectId(at.source, DPU_SERVICE_CONFIGURATION, at.namespace, service.service_configuration).key
    template = _read(template_key, TemplateSpec, rows)
    settings = _read(settings_key, ConfigurationSpec, rows)
    blames = [each for each in (template, settings) if isinstance(each, Blame)]
    for key, found in ((template_key, template), (settings_key, settings)):
        if not isinstance(found, Blame) and found.deployment_service_name != name:
            message = f"{short_name(key)} is for service {found.deployment_service_name!r}, not {name!r}"
            blames.append(Blame(key, message))
    if blames or isinstance(template, Blame) or isinstance(settings, Blame):
        return blames
    for each in settings.interfaces or ():
        if fault := check_object_name("interfaces.name", each.name.replace("_", "-")):
            return [Blame(settings_key, f"{short_name(settings_key)} has a fault, {fault}")]
    delimiters = rows[settings_key].annotations.get(DELIMITERS)
    named = referenced_services((settings.service_configuration.helm_chart or {}).get("values"), delimiters)
    if unknown := sorted({*named} - {each.name for each in service.depends_on or ()}):
        message = f"{short_name(settings_key)} names service {unknown[0]!r}, which is not in dependsOn of {name!r}"
        return [Blame(settings_key, message)]
    return ServiceParts(template, settings, delimiters)


def _read(key: str, kind: type[Read], rows: Mapping[str, Resource]) -> Read | Blame:
    row = rows.get(key)
    if row is None:
        return absent(key)
    found = read(kind, row)
    return Blame(key, f"{short_name(key)} cannot be read: {found}") if isinstance(found, str) else found


def _unfit(
    at: ObjectId, spec: DPUDeploymentSpec, services: Mapping[str, ServiceParts], rows: Mapping[str, Resource]
) -> Iterator[Blame]:
    kind, name = (
        (DPU_FLAVOR, spec.dpus.flavor) if spec.dpus.flavor else (DPU_FLAVOR_TEMPLATE, spec.dpus.flavor_template)
    )
    key = ObjectId(at.source, kind, at.namespace, name or "").key
    flavor = _read(key, FlavorSpec, rows)
    if not isinstance(flavor, Blame):
        on_dpus = [
            parts.template.resource_requirements
            for parts in services.values()
            if not parts.configuration.service_configuration.deploy_in_cluster
        ]
        for fault in misfits(on_dpus, flavor.dpu_resources, flavor.system_reserved_resources):
            yield Blame(key, f"{short_name(key)} is too small, {fault}")
