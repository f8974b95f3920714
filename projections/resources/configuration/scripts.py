"""The templates of bf.cfg and of the scripts and files that the plane writes to a DPU.

Values are inserted through the filters `shell` and `toml` only, or are numbers and constants. Therefore no value can
end a quotation. Paths under /opt/dpf and the names of units are those of DPF: tools of its users look for them.
"""

from __future__ import annotations

from collections.abc import Mapping

BF_CFG = """\
# Configuration of DPU {{ hostname }}. The installer of the image reads it with bash.
{% for name, value in assignments %}
{{ name }}={{ value | shell }}
{% endfor %}

bfb_modify_os()
{
    mkdir -p /mnt/opt/dpf /mnt/etc/cloud/cloud.cfg.d /mnt/var/lib/cloud/seed/nocloud-net
    printf 'network:\\n  config: disabled\\n' > /mnt/etc/cloud/cloud.cfg.d/dpf.cfg
    cat > /mnt/var/lib/cloud/seed/nocloud-net/user-data <<'{{ delimiter }}'
{{ user_data }}{{ delimiter }}
    chmod 0600 /mnt/var/lib/cloud/seed/nocloud-net/user-data
}

bfb_post_install()
{
    rm -f /etc/bf.cfg
}
"""

JOIN_CLUSTER = """\
#!/bin/bash
# Joins the DPU cluster, once.
set -u
done=/opt/dpf/joined_cluster_successfully
[ -e "$done" ] && exit 0
until ip -4 -o addr show dev {{ interface | shell }} 2>/dev/null | grep -q inet; do
    sleep 5
done
systemctl enable kubelet
until kubeadm join {{ join.endpoint | shell }} --token {{ join.token | shell }} \\
    --discovery-token-ca-cert-hash {{ join.ca_hash | shell }} --node-name {{ hostname | shell }} --v=5; do
    rm -f /etc/kubernetes/pki/ca.crt /etc/kubernetes/bootstrap-kubelet.conf
    sleep 5
done
touch "$done"
"""

CREATE_FUNCTIONS = """\
#!/bin/bash
# Creates the scalable functions of the first port. mlnx-sf fails for a function that exists.
set -u
[ "${1:-}" = setup ] || { echo "usage: $0 setup" >&2; exit 1; }
for number in $(seq 0 {{ functions - trusted_functions - 1 }}); do
    /sbin/mlnx-sf --action create --device 0000:03:00.0 --sfnum "$number" || true
done
{% if trusted_functions %}
for number in $(seq 101 {{ 100 + trusted_functions }}); do
    /sbin/mlnx-sf --action create --device 0000:03:00.0 --sfnum "$number" -t || true
done
{% endif %}
"""

SET_FIRMWARE = """\
#!/bin/bash
# Sets the firmware parameters of the flavor. They take effect with the next reset.
set -e
shopt -s nullglob
for device in /dev/mst/*; do
    mlxconfig -d "$device" -y reset
done
{% for each in nvconfig %}
for device in /dev/mst/{{ each.devices }}; do
    mlxconfig -d "$device" -y set{% for setting in each.parameters or () %} {{ setting | shell }}{% endfor %}

done
{% endfor %}
"""

SET_MODE = """\
#!/bin/bash
# Sets whether the host may configure the DPU.
set -e
for device in /dev/mst/*; do
{% if mode == "zero-trust" %}
    mlxprivhost -d "$device" r --disable_rshim --disable_tracer --disable_counter_rd --disable_port_owner
{% else %}
    mlxprivhost -d "$device" p
{% endif %}
done
"""

KERNEL = """\
GRUB_CMDLINE_LINUX={{ kernel_parameters | shell }}
"""

REGISTRY = """\
server = "https://nvcr.io"

[host.{{ endpoint | toml }}]
  capabilities = ["pull", "resolve"]
  skip_verify = true
"""

SET_REGISTRY = """\
#!/bin/bash
# Lets containerd read the mirrors in /etc/containerd/certs.d.
set -e
file=/etc/containerd/config.toml
if grep -q '^ *config_path *=' "$file"; then
    sed -i 's|^\\( *config_path *=\\).*|\\1 "/etc/containerd/certs.d"|' "$file"
else
    printf '\\n[plugins."io.containerd.grpc.v1.cri".registry]\\n  config_path = "/etc/containerd/certs.d"\\n' >> "$file"
fi
"""

RENEW_ADDRESS = """\
#!/bin/bash
# Applies the network configuration until the management interface has an address.
set -u
until ip -4 -o addr show dev {{ interface | shell }} 2>/dev/null | grep -q inet; do
    netplan apply
    sleep 20
done
"""

KUBELET_UNIT = """\
[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf \
--kubeconfig=/etc/kubernetes/kubelet.conf"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
"""

UNIT = """\
[Unit]
Description={{ description }}
Wants=network-online.target
After=network-online.target
{% if before_kubelet %}
Before=kubelet.service
{% endif %}

[Service]
Type={{ type }}
ExecStart=/bin/bash {{ command }}

[Install]
WantedBy=multi-user.target
"""

TEMPLATES: Mapping[str, str] = {
    "bf.cfg": BF_CFG,
    "join": JOIN_CLUSTER,
    "functions": CREATE_FUNCTIONS,
    "firmware": SET_FIRMWARE,
    "mode": SET_MODE,
    "kernel": KERNEL,
    "registry": REGISTRY,
    "set-registry": SET_REGISTRY,
    "renew-address": RENEW_ADDRESS,
    "unit": UNIT,
}
