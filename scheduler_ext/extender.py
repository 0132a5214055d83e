"""The whole extender, put together: what watches, what decides, what answers, and who leads."""

import logging
import threading

from aliquot.kubernetes.client import ApiClient
from aliquot.kubernetes.errors import ApiServerError
from aliquot.kubernetes.events import EventRecorder, pod_reference
from aliquot.kubernetes.lease import LeaseTimes
from aliquot.kubernetes.paths import BUDGETS, NODES, PODS
from aliquot.kubernetes.reflector import Reflector
from aliquot.settings import Address
from scheduler_ext.admitting import webhook_routes
from scheduler_ext.binding import Binder
from scheduler_ext.certificates import CertificateKeeper, Material, ServingContext
from scheduler_ext.choices import Choices
from scheduler_ext.dashboard import Dashboard
from scheduler_ext.dashboard.routes import VIEWER_LIMITS, page_routes, view_routes
from scheduler_ext.disruption import Budget
from scheduler_ext.garbage import keep_what_is_there
from scheduler_ext.groups import GroupTimes
from scheduler_ext.leader import Alone, Leader, Leadership
from scheduler_ext.metrics import Metrics
from scheduler_ext.objects import Node, Pod
from scheduler_ext.records import PodRecord
from scheduler_ext.routes import Service
from scheduler_ext.sample import Sampler
from scheduler_ext.server import Limits, Route, Server
from scheduler_ext.settings import Settings
from scheduler_ext.state import ClusterState
from scheduler_ext.tending import Tender
from scheduler_ext.verbs import Verbs
from scheduler_ext.waiting import WaitingPods

__all__ = ["Extender"]

log = logging.getLogger(__name__)

COMPONENT = "aliquot-extender"
STALE_S = 300.0
"""After so long without a word of the API server, what we would decide is worth nothing."""
BIND_S = 4.0
"""For each request of a bind. Less than a lease outlasts its holder's right to act, so that none
of them can still be under way when another replica leads."""
# Pods that will never run again hold nothing; for us they are gone.
_UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"


class Extender:
    def __init__(
        self,
        settings: Settings,
        client: ApiClient,
        *,
        lease_times: LeaseTimes | None = None,
        group_times: GroupTimes | None = None,
        limits: Limits | None = None,
    ) -> None:
        client.namespace = settings.namespace
        self.state = ClusterState(unit_mib=settings.unit_mib)
        self.metrics = Metrics()
        self.leader: Leadership = Alone()
        if settings.leader_election:
            self.leader = Leader(client, settings.namespace, settings.pod_name, times=lease_times)
        self.verbs = Verbs(
            self.state,
            Choices(self.state.cluster, settings.placement),
            WaitingPods(),
            assume_s=settings.assume_s,
            group_times=group_times or GroupTimes(hold_s=settings.group_wait_s),
        )
        self._leads = lambda: self.leader.leads
        binder = Binder(client.with_timeout(BIND_S), self.verbs, self._leads, self.metrics.timed)
        self._events = EventRecorder(client, COMPONENT, settings.pod_name or COMPONENT)
        self._tender = Tender(
            client,
            self.verbs,
            binder,
            # Before all pods are read, everything looks free.
            lambda: self.leader.leads and self._pods.synced.is_set(),
            on_woken=self.metrics.woken,
            tell=self._tell,
        )
        self._budgets = Reflector(
            client, BUDGETS, Budget, self.verbs.budgets.replace, self.verbs.budgets.change
        )
        self._nodes = Reflector(
            client, NODES, Node, self.state.replace_nodes, self.state.change_node
        )
        self._pods = Reflector(
            client,
            PODS,
            Pod,
            self.state.replace_pods,
            self.state.change_pod,
            field_selector=_UNFINISHED,
        )
        self._certificate_ends_s: float | None = None
        sampler = Sampler(
            self.state,
            self.verbs.waiting,
            self._cache_ages_s,
            self.not_ready,
            self._leads,
            lambda: self._certificate_ends_s,
        )
        self.metrics.read(sampler.sample)
        service = Service(self.verbs, binder, self.metrics, self.not_ready)
        self._dashboard = Dashboard(self.state)
        views = view_routes(self._dashboard, self.not_ready)
        host, port = settings.listen
        webhook = webhook_routes(settings, self.state)
        routes = service.routes() + webhook + views
        self._server = Server(routes, host=host, port=port, limits=limits)
        self._page_server = _page_server(settings.dashboard, views)
        # Where the API server calls from is unknown, so every pod reaches this port.
        self._tls_routes = webhook + service.open_routes()
        self._limits = limits
        self._tls_address = settings.listen_tls
        host_name = f"{settings.webhook_service}.{settings.namespace}.svc"
        self._keeper = CertificateKeeper(client, [host_name], self._renew)
        self._serving: ServingContext | None = None
        self._tls_server: Server | None = None
        self._starter = threading.Thread(target=self._start, name="start", daemon=True)
        self._stopping = threading.Event()

    @property
    def port(self) -> int:
        return self._server.port

    @property
    def tls_port(self) -> int | None:
        """None until there is a certificate."""
        return self._tls_server.port if self._tls_server else None

    @property
    def dashboard_port(self) -> int | None:
        return self._page_server.port if self._page_server else None

    def start(self) -> None:
        """Answers at once, though at first only that it is not ready."""
        self._server.start()
        self._dashboard.start()
        if self._page_server:
            self._page_server.start()
        self._starter.start()

    def stop(self, linger_s: float = 0.0) -> None:
        """In this order, so that another replica leads only when nothing of ours is under way.

        The webhook is answered `linger_s` longer: so long API servers may be sent to us still.
        """
        self._stopping.set()
        self._server.stop()
        self._starter.join(15.0)
        if self._page_server:
            self._page_server.stop()
        self._dashboard.stop()
        self._tender.stop()
        self._events.stop()
        self.leader.stop()
        if self._tls_server:
            self._tls_server.linger(linger_s)
            self._tls_server.stop()
        self._keeper.stop()
        self._nodes.stop()
        self._pods.stop()
        self._budgets.stop()

    def not_ready(self, leading: bool = False) -> str:
        """Why we cannot serve, and with `leading` not kube-scheduler; empty when we can."""
        if not self._pods.synced.is_set():
            trouble = self._nodes.trouble or self._pods.trouble
            return f"nodes and pods are still being read{': ' if trouble else ''}{trouble}"
        age_s = max(self._cache_ages_s().values())
        if age_s > STALE_S:
            return f"the API server has not been heard of for {age_s:.0f} s"
        if self._tls_address and not self._tls_server:
            # A Service that sent API servers here would make them refuse pods.
            return "the webhook has no certificate yet"
        if leading and not self.leader.leads:
            return "this replica does not lead; the Service must select the one that does"
        return ""

    def _start(self) -> None:
        # Nodes first: which GPU a pod has is understood by what its node reports.
        self._nodes.start()
        while not self._nodes.synced.wait(0.2):
            if self._stopping.is_set():
                return
        self._pods.start()
        # Nobody waits for these: without them preemption knows less, and all else is as good.
        self._budgets.start()
        self._events.start()
        self._tender.start()
        self._serve_webhook()
        while not self._pods.synced.wait(0.2):
            if self._stopping.is_set():
                return
        with self.state.lock:
            self.verbs.choices.prepare()
        keep_what_is_there()
        # Only who knows the cluster may lead.
        self.leader.start()

    def _serve_webhook(self) -> None:
        while self._tls_address and not self._stopping.is_set():
            try:
                self._keeper.refresh()
            except ApiServerError as error:
                log.warning("the webhook has no certificate yet: %s", error)
                self._stopping.wait(1.0)
                continue
            self._keeper.start()
            return

    def _renew(self, material: Material) -> None:
        self._certificate_ends_s = material.certificate.not_valid_after_utc.timestamp()
        if self._serving is not None:
            self._serving.load(material)
        elif self._tls_address and not self._stopping.is_set():
            self._serving = ServingContext(material)
            host, port = self._tls_address
            self._tls_server = Server(
                self._tls_routes,
                host=host,
                port=port,
                tls=self._serving.context,
                limits=self._limits,
            )
            self._tls_server.start()

    def _tell(self, pod: PodRecord, text: str) -> None:
        about = pod_reference(pod.namespace, pod.name, pod.uid)
        self._events.emit(about, "GpusNotFree", text, "Warning")

    def _cache_ages_s(self) -> dict[str, float]:
        return {"nodes": self._nodes.age_s, "pods": self._pods.age_s}


def _page_server(address: Address | None, views: list[Route]) -> Server | None:
    """A port of its own: whoever may look at the page must not reach kube-scheduler's verbs."""
    if address is None:
        return None
    host, port = address
    try:
        return Server(page_routes() + views, host=host, port=port, limits=VIEWER_LIMITS)
    except OSError as error:
        # Scheduling goes on without a page.
        log.warning("no dashboard: port %d cannot be listened on: %s", port, error)
        return None
