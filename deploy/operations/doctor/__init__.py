"""The checks of `dpuplane doctor`: on the host, and in and around the log."""
