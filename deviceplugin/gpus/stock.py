"""Takes stock of a session: which GPUs are there, which of them are ours, and who else comes."""

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from deviceplugin.gpus.inventory import Choice, Found, find, unknown_names
from deviceplugin.gpus.numbering import Numbering
from deviceplugin.gpus.nvml import GpuFacts, Nvml, NvmlError, Vitals
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
        patience_s: float,
    ) -> None:
        self.found = Found("", (), ())
        self.doubts: tuple[str, ...] = ()
        """Why GPUs are left out of which nobody can tell whether they are ours."""
        self._in_mig: frozenset[str] = frozenset()
        """Those that would be ours otherwise."""
        self._is_missing_mig = False
        self._nvml = nvml
        self._patience = patience
        self._choice = choice
        self._numbering = Numbering(choice, numbers)
        self._complain = complain
        self._patience_s = patience_s

    def take(self, known: frozenset[str], patience_s: float) -> tuple[GpuFacts, ...]:
        """Those that are ours, as far as they tell in time; `known` are those that were before."""
        self.found = found = find(self._nvml, self._patience, patience_s)
        for index, why in found.silent:
            self._complain(f"GPU {index} does not answer: {why}")
        settled, doubtful = self._numbering.settle(found)
        self.doubts = tuple(map(self._numbering.explain, doubtful))
        for doubt in self.doubts:
            self._complain(doubt)
        if not found.silent:
            for name in unknown_names(self._choice, settled):
                there = ", ".join(f"{gpu.index} ({gpu.uuid})" for gpu in settled)
                self._complain(f"the settings name GPU {name}, but there are: {there or 'none'}")
        ours = [gpu for gpu in settled if self._choice.takes(gpu) and self._has_memory(gpu)]
        fresh = self._ask(gpu.uuid for gpu in ours if gpu.uuid not in known)
        # One that was lost just now is ours as far as we know, and the next probe will say so.
        self._in_mig = frozenset(
            uuid
            for uuid in (gpu.uuid for gpu in ours)
            if (fresh[uuid].has_mig if uuid in fresh else uuid in self._in_mig)
        )
        self._is_missing_mig = False
        for gpu in ours:
            if gpu.uuid in self._in_mig:
                self._complain(
                    f"GPU {gpu.index} ({gpu.uuid}) is left out: it is in MIG mode, whose parts "
                    "only the driver can share out; switch it off with `nvidia-smi -mig 0` to "
                    "share it here"
                )
        return tuple(gpu for gpu in ours if gpu.uuid not in self._in_mig)

    @property
    def is_missing_some(self) -> bool:
        """Whether somebody does not answer whom a new session may show."""
        return bool(self.found.silent) or self._is_missing_mig

    def has_new_answers(self) -> bool:
        """Of those that were silent."""
        return any(self._answers(index) for index, _ in self.found.silent)

    def has_left_mig(self) -> bool:
        """Whether one that was left out could be ours now: in a new session, because it is reset
        by that, so that its handles are of no use any more."""
        told = self._ask(self._in_mig)
        self._is_missing_mig = len(told) < len(self._in_mig)
        return not all(vitals.has_mig for vitals in told.values())

    def _has_memory(self, gpu: GpuFacts) -> bool:
        if not gpu.memory_bytes:
            self._complain(
                f"GPU {gpu.index} ({gpu.uuid}, {gpu.model}) is left out: its driver does not tell "
                "its memory, as where GPU and node have one memory, and such GPUs are not "
                "supported here"
            )
        return gpu.memory_bytes > 0

    def _answers(self, index: int) -> bool:
        try:
            self._patience.ask(f"GPU {index}", partial(self._nvml.facts, index), self._patience_s)
        except NvmlError:
            return False
        return True

    def _ask(self, uuids: Iterable[str]) -> dict[str, Vitals]:
        """Of those that answer."""
        asked = {uuid: partial(self._nvml.vitals, uuid) for uuid in uuids}
        answers = self._patience.ask_all(asked, self._patience_s)
        for told in answers.values():
            if isinstance(told, NvmlError) and told.ends_session:
                raise told
        return {uuid: told for uuid, told in answers.items() if isinstance(told, Vitals)}
