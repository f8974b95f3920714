"""What a process uses of its host: storage, file descriptors, listening addresses, child processes."""
