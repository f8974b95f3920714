"""A simulated BMC of a BlueField that speaks Redfish over HTTPS."""
