"""What the agent tells about the node: metrics from one table, health over HTTP."""
