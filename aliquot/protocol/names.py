"""Every name of ours that stands in somebody's manifest, pod or node."""

DOMAIN = "aliquot.dev"

MEMORY_RESOURCE = f"{DOMAIN}/gpu-memory"
"""Counted in memory units; the webhook turns quantities such as 4Gi into them."""
COMPUTE_RESOURCE = f"{DOMAIN}/gpu-compute"
"""Counted in percent of one GPU."""

# What users write on pods.
POLICY = f"{DOMAIN}/compute-policy"
WEIGHT = f"{DOMAIN}/compute-weight"
GPUS = f"{DOMAIN}/gpus"
GPU_MODEL = f"{DOMAIN}/gpu-model"
GPU_UUID = f"{DOMAIN}/gpu-uuid"
PLACEMENT = f"{DOMAIN}/placement"
GROUP = f"{DOMAIN}/group"
GROUP_SIZE = f"{DOMAIN}/group-size"
SHIM = f"{DOMAIN}/shim"
RESIZE = f"{DOMAIN}/resize"

# What only we write.
PLAN = f"{DOMAIN}/plan"
"""On pods, by the extender: what the node shall give."""
ACTUAL = f"{DOMAIN}/actual"
"""On pods, by the node agent: what the node has given."""
RESIZED = f"{DOMAIN}/resized"
"""On pods, by the node agent: what became of the last `resize`."""
RETRY = f"{DOMAIN}/retry"
"""On waiting pods, by the extender: its change makes kube-scheduler try the pod again."""
INVENTORY = f"{DOMAIN}/inventory"
"""On nodes, by the node agent."""

SCHEDULER_NAME = "aliquot-scheduler"
