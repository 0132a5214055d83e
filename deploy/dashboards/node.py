"""A node and its GPUs: who holds what, how the hardware is, and what the agent does."""

from deploy.dashboards.grafana import Column, Dashboard, Panel, Query, Row, Variable

__all__ = ["NODE"]

_GPU = 'node=~"$node", gpu_uuid=~"$gpu_uuid"'
_NODE = 'node=~"$node"'
_AGENT = f'job="aliquot-agent", {_NODE}'


def _of_gpus(metric: str) -> str:
    return f"max by (node, gpu_uuid) ({metric}{{{_GPU}}})"


_STATE = Row(
    "GPUs",
    (
        Panel(
            "GPUs",
            (
                Query(f"max by (node, gpu_uuid, gpu, model) (aliquot_gpu_info{{{_GPU}}})"),
                Query(_of_gpus("aliquot_gpu_usable")),
                Query(_of_gpus("aliquot_gpu_memory_advertised_bytes")),
                Query(_of_gpus("aliquot_gpu_memory_held_bytes")),
                Query(_of_gpus("aliquot_gpu_memory_used_bytes")),
                Query(_of_gpus("aliquot_gpu_compute_held_ratio")),
                Query(f"gpu:aliquot_compute_busy:ratio_rate5m{{{_GPU}}}"),
            ),
            kind="table",
            width=24,
            columns={
                "node": Column("Node"),
                "gpu": Column("GPU"),
                "model": Column("Model"),
                "gpu_uuid": Column("UUID"),
                "Value #B": Column("usable", "bool_yes_no"),
                "Value #C": Column("memory", "bytes"),
                "Value #D": Column("held", "bytes"),
                "Value #E": Column("used", "bytes"),
                "Value #F": Column("compute held", "percentunit"),
                "Value #G": Column("compute used", "percentunit"),
            },
        ),
        Panel(
            "Memory",
            (
                Query(_of_gpus("aliquot_gpu_memory_advertised_bytes"), "{{gpu_uuid}} advertised"),
                Query(_of_gpus("aliquot_gpu_memory_held_bytes"), "{{gpu_uuid}} held"),
                Query(_of_gpus("aliquot_gpu_memory_used_bytes"), "{{gpu_uuid}} used"),
            ),
            unit="bytes",
        ),
        Panel(
            "Compute",
            (
                Query(_of_gpus("aliquot_gpu_compute_held_ratio"), "{{gpu_uuid}} held"),
                Query(
                    f"gpu:aliquot_compute_busy:ratio_rate5m{{{_GPU}}}",
                    "{{gpu_uuid}} used by containers",
                ),
                Query(_of_gpus("aliquot_gpu_utilization_ratio"), "{{gpu_uuid}} as the driver says"),
            ),
            unit="percentunit",
        ),
    ),
)

_SLICES = Row(
    "Containers",
    (
        Panel(
            "Memory used",
            (
                Query(
                    "max by (namespace, pod, container, gpu_uuid) "
                    f"(aliquot_container_memory_used_bytes{{{_GPU}}})",
                    "{{namespace}}/{{pod}} {{container}}",
                ),
            ),
            unit="bytes",
            stack=True,
        ),
        Panel(
            "Compute used",
            (
                Query(
                    f"container:aliquot_compute_busy:ratio_rate5m{{{_GPU}}}",
                    "{{namespace}}/{{pod}} {{container}}",
                ),
            ),
            unit="percentunit",
            stack=True,
        ),
        Panel(
            "Of its cap",
            (
                Query(
                    f"container:aliquot_memory_used:ratio{{{_GPU}}}",
                    "{{namespace}}/{{pod}} {{container}}",
                ),
            ),
            unit="percentunit",
            most=1,
            steps=((0.95, "red"),),
        ),
        Panel(
            "Held back",
            (
                Query(
                    f"container:aliquot_compute_throttled:ratio_rate5m{{{_GPU}}}",
                    "{{namespace}}/{{pod}} {{container}}",
                ),
            ),
            unit="percentunit",
            about="Part of the time in which launches waited for their share.",
        ),
    ),
)

_HEALTH = Row(
    "Health",
    (
        Panel(
            "Usable",
            (Query(_of_gpus("aliquot_gpu_usable"), "{{node}} {{gpu_uuid}}"),),
            unit="bool_yes_no",
            width=8,
            most=1,
        ),
        Panel(
            "Errors of the driver (Xid)",
            (
                Query(
                    f"max by (node, gpu_uuid, xid) (aliquot_gpu_xids_total{{{_GPU}}})",
                    "{{gpu_uuid}} Xid {{xid}}",
                ),
            ),
            width=8,
            about="Since the agent has started; docs/watching.md says what the numbers mean.",
        ),
        Panel(
            "Last probe",
            (Query(f"max by (node) (aliquot_gpu_probe_age_seconds{{{_NODE}}})", "{{node}}"),),
            unit="s",
            width=8,
            steps=((60, "red"),),
        ),
    ),
)

_AGENTS = Row(
    "Node agent",
    (
        Panel(
            "Ids",
            (
                Query(
                    f"max by (node, resource) (aliquot_ids_advertised{{{_NODE}}})",
                    "{{node}} {{resource}} advertised",
                ),
                Query(
                    f"max by (node, resource) (aliquot_ids_held{{{_NODE}}})",
                    "{{node}} {{resource}} held",
                ),
            ),
            width=8,
        ),
        Panel(
            "Allocations, by result",
            (
                Query(
                    "sum by (resource, result) "
                    f"(increase(aliquot_allocations_total{{{_NODE}}}[$__rate_interval]))",
                    "{{resource}} {{result}}",
                ),
                Query(
                    f"sum(increase(aliquot_ledger_conflicts_total{{{_NODE}}}[$__rate_interval]))",
                    "given twice by the kubelet",
                ),
            ),
            width=8,
            stack=True,
        ),
        Panel(
            "Plan differs",
            (
                Query(
                    f"sum by (node) (aliquot_container_plan_differs{{{_NODE}}})",
                    "{{node}}",
                ),
            ),
            width=8,
            about="Containers that run on other GPUs than the extender planned.",
        ),
        Panel(
            "CPU",
            (
                Query(
                    f"sum by (node) (rate(process_cpu_seconds_total{{{_AGENT}}}"
                    "[$__rate_interval]))",
                    "{{node}} agent",
                ),
                Query(
                    "sum by (node) (rate(aliquot_arbiter_cpu_seconds_total"
                    f"{{{_NODE}}}[$__rate_interval]))",
                    "{{node}} of it dividing compute",
                ),
            ),
            unit="percentunit",
            width=8,
        ),
        Panel(
            "Memory of the agent",
            (
                Query(
                    f"max by (node) (process_resident_memory_bytes{{{_AGENT}}})",
                    "{{node}}",
                ),
            ),
            unit="bytes",
            width=8,
        ),
        Panel(
            "Versions",
            (Query(f"count by (version, driver) (aliquot_build_info{{{_NODE}}})"),),
            kind="table",
            width=8,
            columns={
                "version": Column("Agent"),
                "driver": Column("Driver"),
                "Value": Column("Nodes"),
            },
        ),
    ),
)

NODE = Dashboard(
    "node",
    "Aliquot / Node and GPU",
    "A node and its GPUs: who holds what, how the hardware is, and what the agent does.",
    (_STATE, _SLICES, _HEALTH, _AGENTS),
    (
        Variable("node", "Node", "label_values(aliquot_build_info, node)"),
        Variable("gpu_uuid", "GPU", f"label_values(aliquot_gpu_info{{{_NODE}}}, gpu_uuid)"),
    ),
)
