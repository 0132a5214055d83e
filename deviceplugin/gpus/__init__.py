"""What GPUs the node has, how they are, and who else claims them."""
