"""How the agent says no; every text tells what was asked, what there is and what to do."""

__all__ = ["Conflict", "Refusal", "Retry", "StartDelayed", "StartRefused", "Unsettled"]


class Refusal(Exception):  # noqa: N818 - an answer, not a fault
    """What was asked cannot be given; from an RPC, the pod is rejected for good with this text."""


class Conflict(Refusal):
    """The kubelet has handed out what a living container holds."""


class Retry(Exception):  # noqa: N818 - an answer, not a fault
    """A container may not start yet; the kubelet shows the text and asks again by itself."""


class Unsettled(Exception):  # noqa: N818 - an answer, not a fault
    """Nothing can be decided before the books were compared with the kubelet's; ask again then."""


class StartRefused(Exception):  # noqa: N818 - an answer, not a fault
    """The agent may not run with these settings while the pods named in the text run."""


class StartDelayed(StartRefused):
    """The same, but those pods may be gone: the kubelet's list does not have them any more."""
