"""Takes away what the agent has put on a node."""

import logging
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from aliquot.errors import OperationError, UserError
from deviceplugin.agent import files_of, sharing_of
from deviceplugin.booking import checkpoint
from deviceplugin.booking.journal import Journal, JournalError
from deviceplugin.booking.ledger import Allocation
from deviceplugin.booking.remainder import Records, why_in_use
from deviceplugin.booking.sources import Held, Holder
from deviceplugin.kubelet.link import PLUGINS_FOLDER, POD_RESOURCES_SOCKET
from deviceplugin.kubelet.podresources import BACKGROUND_TIMEOUT_S, PodResources, PodResourcesError
from deviceplugin.kubelet.server import SOCKET_PREFIX
from deviceplugin.kubelet.traffic import Traffic
from deviceplugin.settings import Settings
from deviceplugin.tenants.mountedfiles import Use, uses_of

__all__ = ["InUseError", "uninstall", "uninstall_when_free"]

AGAIN_S = 2.0
"""How often it is tried again, by whoever waits."""
ANSWERED_S = 2.0
"""After this the kubelet lists what the agent has answered last."""

log = logging.getLogger(__name__)


class InUseError(UserError):
    """Nothing was taken away: an agent runs, or containers hold GPUs."""


def uninstall_when_free(settings: Settings) -> str:
    """Waits for the agent and for the last container to end."""
    told = ""
    while True:
        try:
            return uninstall(settings)
        except InUseError as reason:
            if str(reason) != told:
                told = str(reason)
                log.info("waits: %s", told)
        time.sleep(AGAIN_S)


def uninstall(settings: Settings) -> str:
    """What was done, for people; refuses while an agent runs or containers hold GPUs."""
    files, was_there = files_of(settings), settings.state_dir.exists()
    if files.is_foreign():
        raise UserError(
            f"{settings.state_dir} is no folder of an agent, so nothing was removed; say with "
            "--state-dir which one it was"
        )
    with _locked_journal(settings.state_dir) as booked:
        reason = why_in_use(_records(settings, booked), sharing_of(settings))
        if reason:
            raise InUseError(reason)
        try:
            left = files.uninstall()
        except OSError as error:
            raise OperationError(f"not everything could be removed: {error}") from None
        sockets = list((settings.kubelet_dir / PLUGINS_FOLDER).glob(f"{SOCKET_PREFIX}*.sock"))
        for socket in sockets:
            socket.unlink(missing_ok=True)
    told = "" if settings.api_server == "off" else _withdraw(settings.node_name)
    if not was_there and not sockets:
        return f"nothing of ours is at {settings.state_dir}{told}\n"
    if left:
        told += f"; what is left in {settings.state_dir} is not ours: {', '.join(left)}"
    return f"removed {settings.state_dir} and {len(sockets)} sockets{told}\n"


@contextmanager
def _locked_journal(state: Path) -> Iterator[list[Allocation]]:
    """What was booked; its lock keeps an agent from starting meanwhile."""
    path = state / "journal"
    if not state.exists():
        yield []
        return
    try:
        written_s = path.stat().st_mtime
    except FileNotFoundError:
        written_s = 0.0
    with closing(Journal(path)) as journal:
        try:
            booked = journal.open()
        except JournalError as error:
            raise InUseError(f"stop the agent of this node first: {error}") from None
        if booked:
            time.sleep(min(ANSWERED_S, max(0.0, written_s + ANSWERED_S - time.time())))
        yield booked


def _records(settings: Settings, booked: list[Allocation]) -> Records:
    listing, silence = _list(settings.kubelet_dir / POD_RESOURCES_SOCKET)
    return Records(
        booked=booked,
        listing=listing,
        silence=silence,
        checkpoint=_read_checkpoint(settings.kubelet_dir / PLUGINS_FOLDER / checkpoint.FILE_NAME),
        kubelet_age_s=_age_s(settings.kubelet_dir / POD_RESOURCES_SOCKET),
        mounted=_by_allocation(uses_of(settings.state_dir)),
    )


def _by_allocation(uses: list[Use]) -> dict[str, str]:
    """Whoever has only a library or such of ours counts under the name of that."""
    found = {use.path.parts[1]: use for use in uses if use.path.match("alloc/*/*")}
    known = {use.pid for use in found.values()}
    found |= {str(use.path): use for use in uses if use.pid not in known}
    return {name: str(use) for name, use in found.items()}


def _list(socket: Path) -> tuple[list[Held] | None, str]:
    """The kubelet's list, or why there is none."""
    podresources = PodResources(socket, Traffic())
    try:
        return podresources.list_now(BACKGROUND_TIMEOUT_S), ""
    except PodResourcesError as error:
        return None, str(error)
    finally:
        podresources.close()


def _read_checkpoint(path: Path) -> list[Holder] | None:
    try:
        return checkpoint.Reader(path).read()
    except checkpoint.CheckpointError as error:
        log.warning("the kubelet's checkpoint is left aside: %s", error)
        return None


def _age_s(socket: Path) -> float:
    """Since when this kubelet runs: each makes its socket anew."""
    try:
        return time.time() - socket.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _withdraw(node_name: str) -> str:
    """Takes back what the cluster was told; a node that has left its cluster can do without."""
    # Imported here: without an API server nobody pays for its client.
    from aliquot.kubernetes.client import connect
    from deviceplugin.cluster.inventory import clear_inventory

    try:
        clear_inventory(connect(), node_name)
    except (OperationError, UserError) as error:
        return f"; the annotation on the Node stays: {error}"
    return ", and the annotation on the Node"
