"""Takes stock of an open session: which GPUs are there, and which of them are ours."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from deviceplugin.gpus.inventory import Choice, Found, find, unknown_names
from deviceplugin.gpus.numbering import Numbering
from deviceplugin.gpus.nvml import GpuFacts, Nvml, NvmlError
from deviceplugin.gpus.patience import Patience

__all__ = ["Stock"]


class Stock:
    def __init__(
        self,
        nvml: Nvml,
        patience: Patience,
        choice: Choice,
        numbers: Path | None,
        complain: Callable[[str], None],
    ) -> None:
        self.found = Found("", (), ())
        self._nvml = nvml
        self._patience = patience
        self._choice = choice
        self._numbering = Numbering(choice, numbers)
        self._complain = complain

    def take(self, known: frozenset[str], patience_s: float) -> tuple[GpuFacts, ...]:
        """Those that are ours; `known` are those that were before."""
        self.found = found = find(self._nvml, self._patience, patience_s)
        for index, why in found.silent:
            self._complain(f"GPU {index} does not answer: {why}")
        settled, doubtful = self._numbering.settle(found)
        for gpu in doubtful:
            self._complain(self._numbering.explain(gpu))
        if not found.silent:
            for name in unknown_names(self._choice, settled):
                there = ", ".join(f"{gpu.index} ({gpu.uuid})" for gpu in settled)
                self._complain(f"the settings name GPU {name}, but there are: {there or 'none'}")
        return tuple(gpu for gpu in settled if self._takes(gpu, known, patience_s))

    def is_stale(self, patience_s: float) -> bool:
        """Whether somebody answers who did not before."""
        return any(self._answers(index, patience_s) for index, _ in self.found.silent)

    def _answers(self, index: int, patience_s: float) -> bool:
        try:
            self._patience.ask(f"GPU {index}", partial(self._nvml.facts, index), patience_s)
        except NvmlError:
            return False
        return True

    def _takes(self, gpu: GpuFacts, known: frozenset[str], patience_s: float) -> bool:
        if not self._choice.takes(gpu):
            return False
        if gpu.uuid not in known and self._has_mig(gpu.uuid, patience_s):
            self._complain(
                f"GPU {gpu.index} ({gpu.uuid}) is left out: it is in MIG mode, whose parts only "
                "the driver can share out; switch it off with `nvidia-smi -mig 0` to share it here"
            )
            return False
        return True

    def _has_mig(self, uuid: str, patience_s: float) -> bool:
        try:
            vitals = self._patience.ask(uuid, partial(self._nvml.vitals, uuid), patience_s)
        except NvmlError as error:
            if error.ends_session:
                raise
            return False  # lost just now, which the probe will say
        return vitals.has_mig
