"""The agent of a host: it finds the DPUs of the host, reports them, and does the tasks that their steps have for it."""
