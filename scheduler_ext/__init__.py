"""What runs once per cluster: decides on which node and GPU a pod runs, and says why."""
