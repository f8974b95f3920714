"""What `dpuplane doctor` finds: on the host, and in the log and around it."""
