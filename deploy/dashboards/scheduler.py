"""The extender: who waits and why, how quick it is, and how fresh its picture."""

from deploy.dashboards.grafana import Dashboard, Panel, Query, Row, number

__all__ = ["SCHEDULER"]

_EXTENDER = 'job="aliquot-extender"'


def _quantile(part: float) -> str:
    return (
        f"histogram_quantile({part}, sum by (verb, le) "
        "(rate(aliquot_extender_verb_seconds_bucket[$__rate_interval])))"
    )


_NOW = Row(
    "Now",
    (
        number("Ready replicas", "sum(aliquot_extender_ready)", width=4),
        number("Leaders", "sum(aliquot_extender_leader)", width=4, steps=((2, "red"),)),
        number(
            "Waiting pods", "max(aliquot_extender_waiting_pods)", width=4, steps=((1, "orange"),)
        ),
        number(
            "Longest wait",
            "max(aliquot_extender_longest_wait_seconds)",
            width=4,
            unit="s",
            steps=((600, "orange"), (1800, "red")),
        ),
        number(
            "Nodes left out",
            "count(count by (node) (aliquot_extender_node_left_out)) or vector(0)",
            width=4,
            steps=((1, "red"),),
        ),
        number(
            "Certificate ends in",
            "min(aliquot_extender_certificate_expiry_timestamp_seconds) - time()",
            width=4,
            unit="s",
        ),
    ),
)

_ROOM = Row(
    "Room",
    (
        Panel(
            "GPUs",
            (
                Query("max(aliquot_extender_gpus)", "all"),
                Query("max(aliquot_extender_gpus_free)", "free, in GPUs"),
                Query("max(aliquot_extender_gpus_wholly_free)", "wholly free"),
            ),
            width=8,
        ),
        Panel(
            "Fragmentation",
            (Query("max(aliquot_extender_fragmentation_ratio)", "scattered"),),
            unit="percentunit",
            width=8,
            most=1,
            about="Part of what is free that lies on GPUs in use.",
        ),
        Panel(
            "Waiting pods",
            (
                Query("max(aliquot_extender_waiting_pods)", "waiting"),
                Query(
                    "sum(increase(aliquot_extender_pods_woken_total[$__rate_interval]))", "woken"
                ),
                Query(
                    "sum(increase(aliquot_extender_unschedulable_total[$__rate_interval]))",
                    "fitted nowhere",
                ),
            ),
            width=8,
        ),
        Panel(
            "Pods, by stage",
            (Query("max by (stage) (aliquot_extender_ledger_pods)", "{{stage}}"),),
            width=8,
            stack=True,
        ),
        Panel(
            "Memory taken, by stage",
            (Query("max by (stage) (aliquot_extender_ledger_memory_bytes)", "{{stage}}"),),
            unit="bytes",
            width=8,
            stack=True,
        ),
        Panel(
            "Compute taken, by stage, in GPUs",
            (Query("max by (stage) (aliquot_extender_ledger_compute_gpus)", "{{stage}}"),),
            width=8,
            stack=True,
        ),
    ),
)

_VERBS = Row(
    "Answers to kube-scheduler",
    (
        Panel("Half are faster than", (Query(_quantile(0.5), "{{verb}}"),), unit="s"),
        Panel(
            "99 of 100 are faster than",
            (Query(_quantile(0.99), "{{verb}}"),),
            unit="s",
            steps=((0.5, "red"),),
        ),
        Panel(
            "Calls",
            (
                Query(
                    "sum by (verb) (rate(aliquot_extender_verb_seconds_count[$__rate_interval]))",
                    "{{verb}}",
                ),
                Query(
                    "sum by (verb) (rate(aliquot_extender_verb_failures_total[$__rate_interval]))",
                    "{{verb}} failed",
                ),
            ),
            unit="reqps",
        ),
        Panel(
            "Nodes rejected, by cause",
            (
                Query(
                    "sum by (cause) "
                    "(increase(aliquot_extender_node_rejections_total[$__rate_interval]))",
                    "{{cause}}",
                ),
            ),
            stack=True,
            about="For one pod, aliquot explain says the same in words.",
        ),
    ),
)

_ITSELF = Row(
    "The extender itself",
    (
        Panel(
            "Since the API server's last word",
            (Query("max by (pod, resource) (aliquot_extender_cache_age_seconds)", "{{pod}}"),),
            unit="s",
            width=8,
            steps=((120, "red"),),
        ),
        Panel(
            "CPU",
            (
                Query(
                    "sum by (pod) "
                    f"(rate(process_cpu_seconds_total{{{_EXTENDER}}}[$__rate_interval]))",
                    "{{pod}}",
                ),
            ),
            unit="percentunit",
            width=8,
        ),
        Panel(
            "Memory",
            (Query(f"max by (pod) (process_resident_memory_bytes{{{_EXTENDER}}})", "{{pod}}"),),
            unit="bytes",
            width=8,
        ),
    ),
)

SCHEDULER = Dashboard(
    "scheduler",
    "Aliquot / Scheduler",
    "The extender: who waits and why, how quick it is, and how fresh its picture.",
    (_NOW, _ROOM, _VERBS, _ITSELF),
)
