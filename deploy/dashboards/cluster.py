"""The cluster: how much of all GPUs is held, how much of that is used, and what is wrong."""

from deploy.dashboards.grafana import Column, Dashboard, Panel, Query, Row, number, part

__all__ = ["CLUSTER"]

_GPUS = "max by (node, gpu_uuid)"
_SLICES = "max by (node, namespace, pod, container, gpu_uuid)"
_USED = f"{_SLICES} (aliquot_container_memory_used_bytes)"
_SERIOUS = ((0.8, "orange"), (0.95, "red"))


def _sum(metric: str) -> str:
    return f"sum({_GPUS} ({metric}))"


_STATS = Row(
    "Now",
    (
        number("GPUs", f"count({_GPUS} (aliquot_gpu_usable))", width=3),
        number(
            "Unusable GPUs",
            f"sum(1 - {_GPUS} (aliquot_gpu_usable))",
            width=3,
            steps=((1, "red"),),
        ),
        number(
            "Containers",
            "count(count by (namespace, pod, container) "
            "(aliquot_container_compute_share_ratio)) or vector(0)",
            width=3,
        ),
        number(
            "Waiting pods", "max(aliquot_extender_waiting_pods)", width=3, steps=((1, "orange"),)
        ),
        part(
            "Memory held",
            f"{_sum('aliquot_gpu_memory_held_bytes')}"
            f" / {_sum('aliquot_gpu_memory_advertised_bytes')}",
            width=3,
        ),
        part(
            "Memory used",
            f"{_sum('aliquot_gpu_memory_used_bytes')} / {_sum('aliquot_gpu_memory_bytes')}",
            width=3,
        ),
        part(
            "Compute held",
            f"{_sum('aliquot_gpu_compute_held_ratio')}"
            f" / {_sum('aliquot_gpu_compute_advertised_ratio')}",
            width=3,
        ),
        part(
            "Compute used",
            f"sum(gpu:aliquot_compute_busy:ratio_rate5m) / count({_GPUS} (aliquot_gpu_usable))",
            width=3,
        ),
    ),
)

_COURSE = Row(
    "Held and used",
    (
        Panel(
            "Memory",
            (
                Query(_sum("aliquot_gpu_memory_advertised_bytes"), "advertised"),
                Query(_sum("aliquot_gpu_memory_held_bytes"), "held"),
                Query(f"sum({_USED})", "used by containers"),
                Query("sum(gpu:aliquot_memory_unused:bytes)", "held, not used"),
            ),
            unit="bytes",
        ),
        Panel(
            "Compute, in GPUs",
            (
                Query(_sum("aliquot_gpu_compute_advertised_ratio"), "advertised"),
                Query(_sum("aliquot_gpu_compute_held_ratio"), "held"),
                Query("sum(gpu:aliquot_compute_busy:ratio_rate5m)", "used"),
                Query("sum(gpu:aliquot_compute_unused:ratio)", "held, not used"),
            ),
        ),
        Panel(
            "Memory used, by namespace",
            (Query(f"sum by (namespace) ({_USED})", "{{namespace}}"),),
            unit="bytes",
            stack=True,
        ),
        Panel(
            "Compute used, by namespace, in GPUs",
            (
                Query(
                    "sum by (namespace) (container:aliquot_compute_busy:ratio_rate5m)",
                    "{{namespace}}",
                ),
            ),
            stack=True,
        ),
    ),
)

_NODES = Row(
    "Nodes",
    (
        Panel(
            "Nodes",
            (
                Query(f"count by (node) ({_GPUS} (aliquot_gpu_usable))"),
                Query(f"sum by (node) ({_GPUS} (aliquot_gpu_usable))"),
                Query(
                    f"sum by (node) ({_GPUS} (aliquot_gpu_memory_held_bytes))"
                    f" / sum by (node) ({_GPUS} (aliquot_gpu_memory_advertised_bytes))"
                ),
                Query("sum by (node) (gpu:aliquot_memory_unused:bytes)"),
                Query(
                    f"sum by (node) ({_GPUS} (aliquot_gpu_compute_held_ratio))"
                    f" / sum by (node) ({_GPUS} (aliquot_gpu_compute_advertised_ratio))"
                ),
                Query("avg by (node) (gpu:aliquot_compute_busy:ratio_rate5m)"),
            ),
            kind="table",
            width=24,
            height=9,
            columns={
                "node": Column("Node", link="aliquot-node"),
                "Value #A": Column("GPUs"),
                "Value #B": Column("usable"),
                "Value #C": Column("memory held", "percentunit"),
                "Value #D": Column("held, not used", "bytes"),
                "Value #E": Column("compute held", "percentunit"),
                "Value #F": Column("compute used", "percentunit"),
            },
        ),
    ),
)

_TROUBLE = Row(
    "Trouble",
    (
        Panel(
            "Alerts",
            (
                Query(
                    "max by (alertname, severity, node, namespace, pod) "
                    '(ALERTS{alertname=~"Aliquot.*", alertstate="firing"})'
                ),
            ),
            kind="table",
            columns={
                "alertname": Column("Alert"),
                "severity": Column("Severity"),
                "node": Column("Node", link="aliquot-node"),
                "namespace": Column("Namespace", link="aliquot-pod"),
                "pod": Column("Pod", link="aliquot-pod"),
            },
            about="What to do about each is in docs/alerts.md.",
        ),
        Panel(
            "Containers closest to their cap",
            (Query("topk(10, container:aliquot_memory_used:ratio)"),),
            kind="table",
            unit="percentunit",
            columns={
                "namespace": Column("Namespace", link="aliquot-pod"),
                "pod": Column("Pod", link="aliquot-pod"),
                "container": Column("Container"),
                "Value": Column("of its cap", "percentunit"),
            },
            steps=_SERIOUS,
        ),
        Panel(
            "Refused allocations, by namespace",
            (
                Query(
                    "sum by (namespace) "
                    "(increase(aliquot_container_memory_refusals_total[$__rate_interval]))",
                    "{{namespace}}",
                ),
            ),
            stack=True,
        ),
        Panel(
            "Limits passed, by kind",
            (
                Query("sum by (kind) (aliquot_breaches_total)", "{{kind}}"),
                Query("sum(aliquot_container_shim_missing_processes)", "processes without shim"),
            ),
        ),
    ),
)

CLUSTER = Dashboard(
    "cluster",
    "Aliquot / Cluster",
    "How much of all GPUs is held, how much of that is used, and what is wrong.",
    (_STATS, _COURSE, _NODES, _TROUBLE),
)
