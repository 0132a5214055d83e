"""What the driver's error numbers (Xids) mean for those who share a GPU.

After NVIDIA's catalog for Ampere and newer: what it answers by restarting the program, or not at
all, leaves the GPU to the others. None was tried on hardware. Every other number counts as fatal,
because a GPU that is withdrawn for nothing comes back after a few seconds of passing probes, and
one that is kept for nothing takes pods down with it.
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


# Of one engine each, on GPUs that have so many of them.
_COPY_ENGINES = (39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136))
_MEDIA_ENGINES = (68, 82, 83, 84, 86, 88, 89, *range(96, 106), 139)

XIDS: dict[int, tuple[Meaning, str]] = {
    8: (Meaning.APPLICATION, "a kernel did not end in time"),
    11: (Meaning.APPLICATION, "a program sent a malformed command"),
    13: (Meaning.APPLICATION, "a kernel caused an exception"),
    25: (Meaning.APPLICATION, "a program sent a command that is not allowed"),
    31: (Meaning.APPLICATION, "a program used an address that is not its own"),
    32: (Meaning.APPLICATION, "a program's commands could not be fetched"),
    **dict.fromkeys(_COPY_ENGINES, (Meaning.APPLICATION, "a program's copy failed")),
    43: (Meaning.APPLICATION, "a program was stopped after an error of its own"),
    45: (Meaning.APPLICATION, "a program was ended with work on the GPU"),
    63: (Meaning.NOTICE, "a bad memory row was put aside"),
    **dict.fromkeys(_MEDIA_ENGINES, (Meaning.APPLICATION, "a program's video or image failed")),
    69: (Meaning.APPLICATION, "a program used a class that the GPU does not have"),
    80: (Meaning.APPLICATION, "a program's commands arrived damaged"),
    92: (Meaning.NOTICE, "many memory errors were corrected"),
    94: (Meaning.APPLICATION, "a memory error was contained in one program"),
    106: (Meaning.NOTICE, "a test message"),
    107: (Meaning.NOTICE, "a test message"),
    121: (Meaning.NOTICE, "an error on the link to the CPU was corrected"),
    154: (Meaning.NOTICE, "the driver has changed its advice, which every probe reads"),
    # Fatal by the rule above; named because administrators meet them.
    46: (Meaning.FATAL, "the GPU has stopped working on commands"),
    48: (Meaning.FATAL, "an uncorrectable memory error"),
    61: (Meaning.FATAL, "the GPU's internal controller stopped"),
    62: (Meaning.FATAL, "the GPU's internal controller halted"),
    64: (Meaning.FATAL, "a bad memory row could not be put aside"),
    74: (Meaning.FATAL, "an error of an NVLink"),
    79: (Meaning.FATAL, "the GPU has fallen off the bus"),
    95: (Meaning.FATAL, "a memory error that was not contained"),
    109: (Meaning.FATAL, "the GPU could not switch between programs in time"),
    110: (Meaning.FATAL, "a fault of the GPU's security"),
    119: (Meaning.FATAL, "the GPU's system processor does not answer"),
    120: (Meaning.FATAL, "the GPU's system processor has failed"),
    140: (Meaning.FATAL, "a memory error that the driver could not put aside"),
    143: (Meaning.FATAL, "the GPU could not be initialised"),
    158: (Meaning.FATAL, "the GPU does not answer in time"),
}


def meaning_of(xid: int) -> Meaning:
    return XIDS[xid][0] if xid in XIDS else Meaning.FATAL


def describe(xid: int) -> str:
    return f"Xid {xid}: {XIDS[xid][1]}" if xid in XIDS else f"Xid {xid}"
