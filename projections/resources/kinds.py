"""The kinds of objects that the fold and its derivations read, as `Kind.group`."""

from __future__ import annotations

from schemas.resources.dpf.names import OPERATOR, PROVISIONING, SERVICES

BFB = f"BFB.{PROVISIONING}"
BLUEFIELD_SOFTWARE = f"BlueFieldSoftware.{PROVISIONING}"
DPU = f"DPU.{PROVISIONING}"
DPU_CLUSTER = f"DPUCluster.{PROVISIONING}"
DPU_DISCOVERY = f"DPUDiscovery.{PROVISIONING}"
DPU_DEVICE = f"DPUDevice.{PROVISIONING}"
DPU_DISCOVERY = f"DPUDiscovery.{PROVISIONING}"
DPU_FLAVOR = f"DPUFlavor.{PROVISIONING}"
DPU_FLAVOR_TEMPLATE = f"DPUFlavorTemplate.{PROVISIONING}"
DPU_NODE = f"DPUNode.{PROVISIONING}"
DPU_NODE_MAINTENANCE = f"DPUNodeMaintenance.{PROVISIONING}"
DPU_SET = f"DPUSet.{PROVISIONING}"

DPF_OPERATOR_CONFIG = f"DPFOperatorConfig.{OPERATOR}"

DPU_DEPLOYMENT = f"DPUDeployment.{SERVICES}"
DPU_SERVICE = f"DPUService.{SERVICES}"
DPU_SERVICE_CHAIN = f"DPUServiceChain.{SERVICES}"
DPU_SERVICE_CONFIGURATION = f"DPUServiceConfiguration.{SERVICES}"
DPU_SERVICE_CREDENTIAL_REQUEST = f"DPUServiceCredentialRequest.{SERVICES}"
DPU_SERVICE_INTERFACE = f"DPUServiceInterface.{SERVICES}"
DPU_SERVICE_IPAM = f"DPUServiceIPAM.{SERVICES}"
DPU_SERVICE_NAD = f"DPUServiceNAD.{SERVICES}"
DPU_SERVICE_TEMPLATE = f"DPUServiceTemplate.{SERVICES}"
SERVICE_CHAIN_SET = f"ServiceChainSet.{SERVICES}"
SERVICE_INTERFACE_SET = f"ServiceInterfaceSet.{SERVICES}"

DPF_OPERATOR_CONFIG = f"DPFOperatorConfig.{OPERATOR}"

NODE = "Node.core"
"""A node of a source cluster. Kubernetes calls its unnamed group the core group."""
NAMESPACE = "Namespace.core"
POD = "Pod.core"
SECRET = "Secret.core"
SERVICE = "Service.core"
ENDPOINT_SLICE = "EndpointSlice.discovery.k8s.io"
CONFIG_MAP = "ConfigMap.core"
SERVICE_ACCOUNT = "ServiceAccount.core"
CONFIG_MAP = "ConfigMap.core"
DAEMON_SET = "DaemonSet.apps"
APPLICATION = "Application.argoproj.io"
APP_PROJECT = "AppProject.argoproj.io"
TENANT_CONTROL_PLANE = "TenantControlPlane.kamaji.clastix.io"
NODE_MAINTENANCE = "NodeMaintenance.maintenance.nvidia.com"
CERTIFICATE = "Certificate.cert-manager.io"
ISSUER = "Issuer.cert-manager.io"
CIDR_POOL = "CIDRPool.nv-ipam.nvidia.com"
IP_POOL = "IPPool.nv-ipam.nvidia.com"
NETWORK_ATTACHMENT = "NetworkAttachmentDefinition.k8s.cni.cncf.io"


def short_name(key: str) -> str:
    """The kind, namespace and name in the key of an object, for messages: `BFB dpf/image`."""
    _, kind, namespace, name = key.split("/", 3)
    return f"{kind.split('.')[0]} {namespace}/{name}" if namespace else f"{kind.split('.')[0]} {name}"
