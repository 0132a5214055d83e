"""What a container is given: limits, the shim, a place to write, a way to its GPUs."""
