"""The device demo: DPUs with a bridge of a real Open vSwitch and a BMC that speaks Redfish over HTTPS."""
