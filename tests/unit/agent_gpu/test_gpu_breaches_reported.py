"""What follows from a breach: who is named, told and evicted."""

from dataclasses import dataclass, field

import pytest

from deviceplugin.booking.sources import ContainerKey
from deviceplugin.breaches import BreachReports
from deviceplugin.telemetry.counts import Counts
from deviceplugin.tenants.judgement import Breach, Kind, Tenant

TENANT = Tenant("t1", ContainerKey("team", "web", "main"), "uid-1", {"GPU-a": 4 << 30})
NAMELESS = Tenant("t2", None, "uid-2", {"GPU-a": 4 << 30})


@dataclass
class Cluster:
    """Knows one pod that was given nothing."""

    told: list[tuple[str, str, str]] = field(default_factory=list)
    evicted: list[str] = field(default_factory=list)

    def name_of(self, pod_uid: str) -> tuple[str, str] | None:
        return ("team", "stranger") if pod_uid == "uid-2" else None

    def tell_pod(self, pod_uid: str, reason: str, message: str) -> None:
        self.told.append((pod_uid, reason, message))

    def evict(self, pod_uid: str, why: str) -> None:
        assert why
        self.evicted.append(pod_uid)


def breach(kind: Kind, tenant: Tenant | None, pod_uid: str) -> Breach:
    return Breach(kind, tenant, "GPU-a", pod_uid, "what is and what to do")


@pytest.mark.parametrize(
    ("tenant", "pod_uid", "names"),
    [
        (TENANT, "uid-1", ("team", "web", "main")),
        (None, "uid-2", ("team", "stranger", "")),
        (NAMELESS, "uid-2", ("team", "stranger", "")),
        (None, "uid-3", ("", "", "")),
    ],
    ids=["a tenant", "given nothing", "not known yet", "not shown by the API server"],
)
def test_a_breach_is_counted_under_the_name_that_its_event_has(
    tenant: Tenant | None, pod_uid: str, names: tuple[str, str, str]
) -> None:
    counts, cluster = Counts(), Cluster()
    BreachReports(counts, cluster, evicts=False).report(breach(Kind.NOT_ALLOCATED, tenant, pod_uid))
    assert counts.breaches == {("not-allocated", *names): 1}
    assert cluster.told == [(pod_uid, "GpuLimitBreached", "what is and what to do")]


def test_only_who_is_over_its_cap_for_certain_is_evicted_and_only_if_so_set() -> None:
    for evicts in (False, True):
        cluster = Cluster()
        reports = BreachReports(Counts(), cluster, evicts)
        for number, kind in enumerate(Kind):
            reports.report(breach(kind, TENANT, f"uid-{number}"))
        assert cluster.evicted == []
        for number, kind in enumerate(Kind):
            reports.end(breach(kind, TENANT, f"uid-{number}"))
        over_cap = f"uid-{list(Kind).index(Kind.OVER_CAP)}"
        assert cluster.evicted == ([over_cap] if evicts else [])


def test_without_an_api_server_a_breach_is_counted_all_the_same() -> None:
    counts = Counts()
    reports = BreachReports(counts, None, evicts=True)
    reports.report(breach(Kind.OVER_CAP, TENANT, "uid-1"))
    reports.end(breach(Kind.OVER_CAP, TENANT, "uid-1"))
    reports.report(breach(Kind.NOT_ALLOCATED, None, "uid-2"))
    assert counts.breaches == {
        ("over-cap", "team", "web", "main"): 1,
        ("not-allocated", "", "", ""): 1,
    }
