"""The resources of a process on its host: storage, file descriptors, listening addresses, child processes."""
