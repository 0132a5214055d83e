"""How Python looks for garbage while kube-scheduler waits for an answer: seldom, and not in all."""

import gc

__all__ = ["keep_what_is_there"]

# Hardly anything of ours becomes garbage in cycles, which is all that is looked for; Python's own
# thresholds have it look for that in every other call.
_THRESHOLDS = (50_000, 20, 20)


def keep_what_is_there() -> None:
    """What was read until now stays: looking through it again would hold up verbs for nothing."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
