"""The node agent: makes its parts, lets them know each other, starts and stops them in order."""

import logging
import threading
import time
from collections.abc import Iterator

import shim
from aliquot.errors import OperationError, UserError
from aliquot.protocol.names import MEMORY_RESOURCE
from aliquot.sizes import format_size
from deviceplugin.arbiter import NodeArbiter
from deviceplugin.booking.allocator import Allocator, ContainerAllocation
from deviceplugin.booking.errors import StartDelayed, StartRefused
from deviceplugin.booking.journal import Journal, JournalError
from deviceplugin.booking.sharing import Sharing
from deviceplugin.booking.supply import Supply
from deviceplugin.breaches import BreachReports
from deviceplugin.clusterside import NoPods, connect_cluster
from deviceplugin.container.files import ContainerFiles, UsageStore
from deviceplugin.container.gpuaccess import GpuAccess, SimulatedAccess, choose_access
from deviceplugin.gpus.hardware import Hardware
from deviceplugin.gpus.health import HealthWatch
from deviceplugin.gpus.inventory import Choice
from deviceplugin.gpus.nvml import Nvml
from deviceplugin.gpus.others import was_given
from deviceplugin.gpus.picture import Picture
from deviceplugin.kubelet.link import KubeletLink
from deviceplugin.kubelet.podresources import BACKGROUND_TIMEOUT_S, PodResourcesError
from deviceplugin.repeating import Repeating
from deviceplugin.settings import Settings, agent_url
from deviceplugin.telemetry.counts import Counts
from deviceplugin.telemetry.metrics import CONTENT_TYPE, Metrics
from deviceplugin.telemetry.sample import Sampler
from deviceplugin.telemetry.view import NOTE_S, Viewer
from deviceplugin.telemetry.web import Page, Web, text_page
from deviceplugin.tenants.watch import TenantWatch
from deviceplugin.thrift import give_back

__all__ = [
    "FIRST_LOOK_S",
    "Agent",
    "access_of",
    "choice_of",
    "files_of",
    "sharing_of",
    "without_units",
]

THRIFT_S = 10.0
"""How often memory is given back: the kubelet's lists are long, and what they took stays ours."""
DRIVER_S = 5.0
"""How often the driver's files are looked for: parts of it are loaded when first needed."""
ROUND_S = 60.0
"""How often books are compared with the kubelet's, and what others know of us is checked."""
SPACING_S = 1.0
"""The least time between two comparisons: many pods may end at once."""
FIRST_LOOK_S = 60.0
"""How long the driver may take to tell its GPUs for the first time."""
ENDING_S = 0.2
"""How soon a start that waits for the driver notices that it is to end."""
OTHERS_S = 0.5
"""How long a look at other plugins may hold up a new GPU or the start; every round looks again."""
DELAYED_S = 1.0
"""How often a start that has to wait is tried again."""
STUCK_S = 300.0
"""A round that is this late will not end any more."""

log = logging.getLogger(__name__)


class Agent:
    def __init__(self, settings: Settings, ending: threading.Event) -> None:
        """Whoever sets `ending` lets a start that has to wait end at once."""
        self._settings = settings
        self._ending = ending
        self._looked = threading.Event()
        self._misfit = ""
        """Why the GPUs of the last look cannot be advertised as the settings want it."""
        self._sharing = sharing_of(settings)
        self._counts = Counts()
        self._files = files = files_of(settings)
        try:
            self._allocator = Allocator(
                self._sharing,
                files,
                Journal(settings.state_dir / "journal"),
                time.monotonic,
            )
        except JournalError as error:
            raise OperationError(str(error)) from None
        except OSError as error:
            raise OperationError(
                f"{settings.state_dir} cannot be set up: {error}; it must be a folder of a disk "
                "with room, and the agent be allowed to write there"
            ) from None
        self._round = Repeating("reconciliation", ROUND_S, self._go_round, SPACING_S)
        self._checks = Repeating("checking what others know", ROUND_S, self._check_others)
        self._thrift = Repeating("giving memory back", THRIFT_S, give_back)
        self._driver = Repeating("looking for the driver's files", DRIVER_S, files.access.refresh)
        self._cluster = connect_cluster(
            settings,
            self._sharing,
            self._allocator,
            on_gone=self._round.soon,
            give_way=lambda: self._kubelet.traffic.give_way(),
        )
        nvml = Nvml(settings.host_dir)
        choice = choice_of(settings)
        self._picture = Picture(choice, self._show, self._tell_node, self._find_advertised)
        self._health = HealthWatch(
            nvml,
            self._picture.take_hardware,
            choice,
            host=settings.host_dir,
            numbers=settings.state_dir / "gpu-numbers",
        )
        self._kubelet = KubeletLink(
            settings.kubelet_dir,
            self._allocator,
            NoPods() if self._cluster is None else self._cluster.pods,
            self._counts,
            self._refresh_cluster,
        )
        self._arbiter = NodeArbiter(
            settings.state_dir / ".arbiter",
            self._allocator.allocations,
            nvml,
            lambda: self._kubelet.traffic.is_busy,
        )
        reports = BreachReports(self._counts, self._cluster, settings.breach == "evict")
        self._tenants = TenantWatch(
            nvml,
            lambda: [gpu.uuid for gpu in self._picture.hardware.gpus],
            self._allocator.allocations,
            lambda: (settings.state_dir / "lib").glob("*.so"),
            reports.report,
            is_excused=self._is_excused,
            was_given=lambda gpu, pod_uid: was_given(
                gpu, self._kubelet.held_in(pod_uid), self._picture.rivals
            ),
            end=reports.end,
        )
        sampler = Sampler(
            self._sharing,
            self._picture,
            self._allocator,
            self._health,
            self._tenants,
            self._arbiter,
            self._counts,
        )
        self._viewer = Viewer(settings.node_name, sampler.look, self.why_not_ready)
        self._history = Repeating("history", NOTE_S, self._note_history)
        self._web = self._make_web(sampler)

    def start(self) -> None:
        """Returns when the kubelet can register us, or it is to end already; what fails before
        that ends the agent."""
        if self._web is not None:
            self._web.start()
            log.info("answers HTTP on port %d", self._web.port)
            self._history.start()
        if self._cluster is not None:
            self._cluster.start()
        self._health.start()
        self._await_gpus()
        if self._misfit:
            raise OperationError(self._misfit)
        self._reconcile_first()
        if self._ending.is_set():
            return
        # Pods that the API server has shown before we knew what they have.
        self._refresh_cluster()
        # Before anything is advertised, so that no pod lands on a GPU of another plugin.
        self._look_at_others(OTHERS_S)
        self._kubelet.start()
        self._round.start()
        self._checks.start()
        self._thrift.start()
        self._driver.start()
        self._arbiter.start()
        self._tenants.start()
        # So that the first who looks finds something to compare with.
        self._history.soon()

    def stop(self) -> None:
        """In an order in which nobody is asked for what has ended already; after any failure."""
        self._health.stop_soon()
        self._round.stop()
        self._checks.stop()
        self._thrift.stop()
        self._driver.stop()
        self._history.stop()
        self._kubelet.stop()
        for watch in (self._tenants, self._arbiter):
            if watch.is_alive():
                watch.stop()
        self._health.stop()
        if self._cluster is not None:
            self._cluster.stop()
        if self._web is not None:
            self._web.stop()

    def why_not_ready(self) -> str:
        """Why no container could get a GPU here now; empty when it could, and where there is none:
        an agent that has nothing to do has done it."""
        if not self._looked.is_set():
            return "the driver has not told its GPUs yet"
        if self._misfit:
            return self._misfit
        gpus, absence = self._picture.hardware.gpus, self._health.absence
        if absence is not None and absence.is_fault:
            return absence.why
        if gpus and all(gpu.unusable for gpu in gpus):
            reasons = "; ".join(f"GPU {gpu.index}: {gpu.unusable}" for gpu in gpus)
            return f"no GPU of this node can be handed out ({reasons})"
        if self._files.access.problem:
            return self._files.access.problem
        if self._kubelet.registration.problem:
            return self._kubelet.registration.problem
        if not self._kubelet.registration.is_complete:
            return "the kubelet has not asked for our lists yet"
        return ""

    def why_idle(self) -> str:
        """Why there is nothing to hand out, though all is well; empty where there is something."""
        absence = self._health.absence
        return absence.why if absence is not None and not absence.is_fault else ""

    def why_not_alive(self) -> str:
        """What only a restart of the agent can mend."""
        for each in (self._round, self._checks):
            if each.overdue_s > STUCK_S:
                return f"{each.name} is stuck for {each.overdue_s:.0f} s"
        if self._health.stalled_s > STUCK_S:
            return f"the watch over the GPUs is stuck for {self._health.stalled_s:.0f} s"
        return ""

    def _await_gpus(self) -> None:
        until_s = time.monotonic() + FIRST_LOOK_S
        while not self._looked.wait(ENDING_S) and not self._ending.is_set():
            if time.monotonic() >= until_s:
                raise OperationError(
                    f"the driver has not told its GPUs within {FIRST_LOOK_S:g} s; "
                    "does nvidia-smi answer on this node?"
                )

    def _reconcile_first(self) -> None:
        """Until it is certain that nobody runs who was started with other settings."""
        told = False
        while not self._ending.is_set():
            try:
                self._kubelet.reconcile()
            except StartDelayed as delay:
                if not told:
                    log.warning("waits: %s", delay)
                told = True
                self._ending.wait(DELAYED_S)
            except StartRefused as refusal:
                raise OperationError(str(refusal)) from None
            else:
                return

    def _go_round(self) -> None:
        self._kubelet.reconcile()
        self._files.clear(self._kubelet.traffic.give_way)

    def _check_others(self) -> None:
        self._look_at_others()
        self._refresh_cluster()

    def _note_history(self) -> None:
        self._kubelet.traffic.give_way()
        self._viewer.note()

    def _look_at_others(self, timeout_s: float = BACKGROUND_TIMEOUT_S) -> None:
        advertised = self._find_advertised(timeout_s)
        if advertised is not None:
            self._picture.take_advertised(advertised)

    def _find_advertised(self, timeout_s: float = OTHERS_S) -> dict[str, frozenset[str]] | None:
        try:
            return self._kubelet.podresources.allocatable(timeout_s)
        except PodResourcesError as error:
            log.info("other plugins are not looked at: %s", error)
            return None

    def _show(self, hardware: Hardware) -> None:
        try:
            self._allocator.update_hardware(hardware)
            self._misfit = ""
        except ValueError as error:
            self._misfit = str(error)
            log.error("these GPUs are not advertised: %s", error)
        for each in without_units(Supply(self._sharing, hardware)):
            log.warning("%s", each)
        self._looked.set()
        if self._cluster is not None and not self._misfit:
            from deviceplugin.cluster.inventory import inventory_of

            self._cluster.publish_inventory(
                inventory_of(
                    hardware,
                    self._allocator.units_of,
                    self._sharing.unit_mib,
                    self._sharing.compute_percent,
                    self._url(),
                )
            )

    def _is_excused(self, allocation: ContainerAllocation) -> bool:
        """Whether its pod may go, and goes, without the shim."""
        key = allocation.key
        if self._cluster is None or key is None:
            return False
        pod = self._cluster.pods.find(key.namespace, key.pod)
        is_off = pod is not None and pod.request is not None and pod.request.shim_off
        return is_off and key.namespace in self._sharing.shim_off_namespaces

    def _refresh_cluster(self, pod_uid: str = "") -> None:
        if self._cluster is not None:
            self._cluster.refresh(pod_uid)

    def _tell_node(self, reason: str, text: str) -> None:
        if self._cluster is not None:
            self._cluster.tell_node(reason, text)

    def _url(self) -> str:
        """Where the cluster finds our pages; empty when it does not."""
        return agent_url(self._settings, self._web.port) if self._web is not None else ""

    def _make_web(self, sampler: Sampler) -> Web | None:
        if self._settings.listen is None:
            return None
        metrics = Metrics(sampler.sample)
        return Web(
            self._settings.listen,
            {
                "/readyz": lambda _: text_page(self.why_not_ready(), self.why_idle()),
                "/livez": lambda _: text_page(self.why_not_alive()),
                "/metrics": lambda _: Page(metrics.render(), content_type=CONTENT_TYPE),
                "/view": lambda query: Page(
                    self._viewer.render(query), content_type="application/json"
                ),
            },
        )


def choice_of(settings: Settings) -> Choice:
    return Choice(frozenset(settings.gpus), frozenset(settings.gpus_left))


def sharing_of(settings: Settings) -> Sharing:
    return Sharing(
        unit_bytes=settings.memory_unit_bytes,
        kept_back_bytes=settings.kept_back_bytes,
        compute_percent=settings.compute_percent,
        default_policy=settings.default_policy,
        shim_off_namespaces=frozenset(settings.shim_off_namespaces),
    )


def without_units(supply: Supply) -> Iterator[str]:
    """GPUs that settings leave without any memory to hand out, and so without containers."""
    for gpu in supply.hardware.gpus:
        if not supply.count(MEMORY_RESOURCE, gpu.uuid):
            yield (
                f"GPU {gpu.index} has {format_size(gpu.memory_bytes)}, which leaves no memory unit "
                f"of {format_size(supply.sharing.unit_bytes)}: choose a smaller --memory-unit or "
                "--memory-kept-back"
            )


def files_of(settings: Settings) -> ContainerFiles:
    return ContainerFiles(
        settings.state_dir,
        shim.PRELOAD_LIBRARY,
        access_of(settings),
        UsageStore(settings.usage_store),
    )


def access_of(settings: Settings) -> GpuAccess:
    if settings.gpu_access != "simulated":
        return choose_access(settings.gpu_access, settings.host_dir)
    if settings.sim_libraries is None or settings.sim_state is None:
        raise UserError("--gpu-access simulated needs --sim-libraries and --sim-state")
    return SimulatedAccess(settings.sim_libraries, settings.sim_state)
