"""What runs on each node: finds GPUs, hands out parts of them, and watches over their use."""
