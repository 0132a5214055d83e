"""What the driver's error numbers (Xids) mean for those who share a GPU.

After the meanings that NVIDIA publishes; none was tried on hardware. Only numbers that say nothing
about the hardware are listed here; every other one counts as fatal, because a GPU that is withdrawn
for nothing comes back after a few seconds of passing probes, and one that is kept for nothing takes
pods down with it.
"""

import enum

__all__ = ["XIDS", "Meaning", "describe", "meaning_of"]


class Meaning(enum.Enum):
    APPLICATION = "application"
    """A program did something wrong or was ended; the GPU goes on for everybody else."""
    NOTICE = "notice"
    """Nothing broke: counted, and left to whoever looks at the hardware's health over weeks."""
    FATAL = "fatal"
    """Nothing new may start on the GPU until it passes a probe."""


XIDS: dict[int, tuple[Meaning, str]] = {
    8: (Meaning.APPLICATION, "a kernel did not end in time"),
    11: (Meaning.APPLICATION, "a program sent a malformed command"),
    13: (Meaning.APPLICATION, "a kernel caused an exception"),
    31: (Meaning.APPLICATION, "a program used an address that is not its own"),
    43: (Meaning.APPLICATION, "a program was stopped after an error of its own"),
    45: (Meaning.APPLICATION, "a program was ended with work on the GPU"),
    63: (Meaning.NOTICE, "a bad memory row was put aside"),
    68: (Meaning.APPLICATION, "the video decoder caused an exception"),
    69: (Meaning.APPLICATION, "a program used a class that the GPU does not have"),
    92: (Meaning.NOTICE, "many memory errors were corrected"),
    94: (Meaning.APPLICATION, "a memory error was contained in one program"),
    109: (Meaning.APPLICATION, "a program did not let others onto the GPU in time"),
    121: (Meaning.NOTICE, "an error on the link to the CPU was corrected"),
    154: (Meaning.NOTICE, "the driver has changed its advice, which every probe reads"),
    # Fatal by the rule above; named because administrators meet them.
    48: (Meaning.FATAL, "an uncorrectable memory error"),
    61: (Meaning.FATAL, "the GPU's internal controller stopped"),
    62: (Meaning.FATAL, "the GPU's internal controller halted"),
    64: (Meaning.FATAL, "a bad memory row could not be put aside"),
    74: (Meaning.FATAL, "an error of an NVLink"),
    79: (Meaning.FATAL, "the GPU has fallen off the bus"),
    95: (Meaning.FATAL, "a memory error that was not contained"),
    119: (Meaning.FATAL, "the GPU's system processor does not answer"),
    120: (Meaning.FATAL, "the GPU's system processor has failed"),
}


def meaning_of(xid: int) -> Meaning:
    return XIDS[xid][0] if xid in XIDS else Meaning.FATAL


def describe(xid: int) -> str:
    return f"Xid {xid}: {XIDS[xid][1]}" if xid in XIDS else f"Xid {xid}"
