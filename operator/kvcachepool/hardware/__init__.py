"""Which nodes can run a pool's pods, with which build, and why the others cannot. Pure."""
