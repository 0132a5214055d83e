"""Takes away what the agent has put on a node."""

from aliquot.errors import UserError
from deviceplugin.agent import files_of
from deviceplugin.booking.journal import Journal, JournalError
from deviceplugin.kubelet.server import SOCKET_PREFIX
from deviceplugin.settings import Settings

__all__ = ["uninstall"]


def uninstall(settings: Settings) -> str:
    """What was done, for people; refuses while an agent runs or containers hold GPUs."""
    if not settings.state_dir.exists():
        return f"nothing of ours is at {settings.state_dir}\n"
    try:
        held = Journal(settings.state_dir / "journal").open()
    except JournalError as error:
        raise UserError(f"stop the agent of this node first: {error}") from None
    if held:
        names = sorted({str(each.owner) if each.owner else each.name for each in held})
        raise UserError(
            f"{len(held)} allocations are still booked: {', '.join(names)}; drain the node of pods "
            "with GPUs, let the agent notice (a minute), and try again"
        )
    files_of(settings).uninstall()
    sockets = list((settings.kubelet_dir / "device-plugins").glob(f"{SOCKET_PREFIX}*.sock"))
    for socket in sockets:
        socket.unlink(missing_ok=True)
    return f"removed {settings.state_dir} and {len(sockets)} sockets\n"
