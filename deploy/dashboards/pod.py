"""A pod: what it may use, what it uses, and what stands in its way."""

from deploy.dashboards.grafana import Column, Dashboard, Panel, Query, Row, Variable

__all__ = ["POD"]

_POD = 'namespace=~"$namespace", pod=~"$pod"'
_SLICES = "max by (namespace, pod, container, gpu_uuid)"
_LEGEND = "{{pod}} {{container}}"


def _of_slices(metric: str) -> str:
    return f"{_SLICES} ({metric}{{{_POD}}})"


_WHERE = Row(
    "Where",
    (
        Panel(
            "Parts of GPUs",
            (
                Query(
                    "max by (node, namespace, pod, container, gpu_uuid) "
                    f"(aliquot_container_compute_share_ratio{{{_POD}}})"
                ),
                Query(
                    "max by (node, namespace, pod, container, gpu_uuid) "
                    f"(aliquot_container_memory_limit_bytes{{{_POD}}})"
                ),
                Query(f"container:aliquot_memory_used:ratio{{{_POD}}}"),
                Query(f"container:aliquot_compute_busy:ratio_rate5m{{{_POD}}}"),
            ),
            kind="table",
            width=24,
            columns={
                "namespace": Column("Namespace"),
                "pod": Column("Pod"),
                "container": Column("Container"),
                "node": Column("Node", link="aliquot-node"),
                "gpu_uuid": Column("GPU"),
                "Value #A": Column("share", "percentunit"),
                "Value #D": Column("used of the GPU", "percentunit"),
                "Value #B": Column("cap", "bytes"),
                "Value #C": Column("used of it", "percentunit"),
            },
        ),
    ),
)

_MEMORY = Row(
    "Memory",
    (
        Panel(
            "Memory",
            (
                Query(_of_slices("aliquot_container_memory_limit_bytes"), f"{_LEGEND} cap"),
                Query(_of_slices("aliquot_container_memory_used_bytes"), f"{_LEGEND} used"),
                Query(_of_slices("aliquot_container_memory_peak_bytes"), f"{_LEGEND} peak"),
            ),
            unit="bytes",
        ),
        Panel(
            "Used of its cap",
            (Query(f"container:aliquot_memory_used:ratio{{{_POD}}}", _LEGEND),),
            unit="percentunit",
            width=6,
            most=1,
            steps=((0.95, "red"),),
        ),
        Panel(
            "Refused allocations",
            (
                Query(
                    "sum by (pod, container) (increase(aliquot_container_memory_refusals_total"
                    f"{{{_POD}}}[$__rate_interval]))",
                    _LEGEND,
                ),
            ),
            width=6,
            about="Calls that would have passed the cap, and were told CUDA_ERROR_OUT_OF_MEMORY.",
        ),
    ),
)

_COMPUTE = Row(
    "Compute",
    (
        Panel(
            "Compute",
            (
                Query(_of_slices("aliquot_container_compute_share_ratio"), f"{_LEGEND} share"),
                Query(
                    f"container:aliquot_compute_busy:ratio_rate5m{{{_POD}}}",
                    f"{_LEGEND} used",
                ),
            ),
            unit="percentunit",
            about="Above its share: borrowed idle time of others (burst, best-effort).",
        ),
        Panel(
            "Held back",
            (Query(f"container:aliquot_compute_throttled:ratio_rate5m{{{_POD}}}", _LEGEND),),
            unit="percentunit",
            width=6,
            about="Part of the time in which launches waited for their share.",
        ),
        Panel(
            "Launches",
            (
                Query(
                    "sum by (pod, container) (rate(aliquot_container_launches_total"
                    f"{{{_POD}}}[$__rate_interval]))",
                    _LEGEND,
                ),
            ),
            unit="ops",
            width=6,
        ),
    ),
)

_TROUBLE = Row(
    "Trouble",
    (
        Panel(
            "Differs from the plan",
            (
                Query(
                    f"max by (pod, container) (aliquot_container_plan_differs{{{_POD}}})",
                    _LEGEND,
                ),
            ),
            unit="bool_yes_no",
            width=8,
            most=1,
        ),
        Panel(
            "Processes without the shim",
            (
                Query(
                    f"max by (pod, container) (aliquot_container_shim_missing_processes{{{_POD}}})",
                    _LEGEND,
                ),
            ),
            width=8,
        ),
        Panel(
            "Limits passed",
            (
                Query(
                    f"max by (kind, pod, container) (aliquot_breaches_total{{{_POD}}})",
                    f"{_LEGEND} {{{{kind}}}}",
                ),
            ),
            width=8,
            about="docs/watching.md says what the kinds mean.",
        ),
    ),
)

POD = Dashboard(
    "pod",
    "Aliquot / Pod",
    "A pod: what it may use, what it uses, and what stands in its way.",
    (_WHERE, _MEMORY, _COMPUTE, _TROUBLE),
    (
        Variable(
            "namespace",
            "Namespace",
            "label_values(aliquot_container_compute_share_ratio, namespace)",
        ),
        Variable(
            "pod",
            "Pod",
            'label_values(aliquot_container_compute_share_ratio{namespace=~"$namespace"}, pod)',
        ),
    ),
)
