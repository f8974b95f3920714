"""Changes that DPUs get in stages, whatever changes: a policy (`projections.fleet.staging`) or the networks of a source
(`projections.resources.network_stages`)."""
