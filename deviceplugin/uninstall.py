"""Takes away what the agent has put on a node."""

from contextlib import closing

from aliquot.errors import OperationError, UserError
from deviceplugin.agent import files_of
from deviceplugin.booking.journal import Journal, JournalError
from deviceplugin.kubelet.server import SOCKET_PREFIX
from deviceplugin.settings import Settings

__all__ = ["uninstall"]


def uninstall(settings: Settings) -> str:
    """What was done, for people; refuses while an agent runs or containers hold GPUs."""
    if not settings.state_dir.exists():
        return f"nothing of ours is at {settings.state_dir}\n"
    # Its lock keeps an agent from starting meanwhile.
    with closing(Journal(settings.state_dir / "journal")) as journal:
        _refuse_if_used(journal)
        files_of(settings).uninstall()
        sockets = list((settings.kubelet_dir / "device-plugins").glob(f"{SOCKET_PREFIX}*.sock"))
        for socket in sockets:
            socket.unlink(missing_ok=True)
    told = "" if settings.api_server == "off" else _withdraw(settings.node_name)
    return f"removed {settings.state_dir} and {len(sockets)} sockets{told}\n"


def _refuse_if_used(journal: Journal) -> None:
    try:
        held = journal.open()
    except JournalError as error:
        raise UserError(f"stop the agent of this node first: {error}") from None
    if held:
        names = sorted({str(each.owner) if each.owner else each.name for each in held})
        raise UserError(
            f"{len(held)} allocations are still booked: {', '.join(names)}; drain the node of pods "
            "with GPUs, let the agent notice (a minute), and try again"
        )


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
