"""Which GPU a number in the settings means: the one that had it when it was first seen.

NVML numbers GPUs anew whenever one leaves or joins the bus. Whoever has left GPU 2 to others has
meant that very GPU, and not the next one when another is gone.
"""

import json
import logging
from dataclasses import replace
from pathlib import Path

from deviceplugin.gpus.inventory import Choice, Found
from deviceplugin.gpus.nvml import GpuFacts

__all__ = ["Numbering"]

_log = logging.getLogger(__name__)


class Numbering:
    """Matters only where the settings name numbers; elsewhere GPUs have those of NVML."""

    def __init__(self, choice: Choice, file: Path | None = None) -> None:
        """`file` keeps the numbers for the next agent of this node."""
        self._choice = choice
        self._file = file
        self._numbers: dict[str, int] | None = None

    def settle(self, found: Found) -> tuple[tuple[GpuFacts, ...], tuple[GpuFacts, ...]]:
        """The GPUs with the numbers that are meant, and those of which nobody can tell."""
        if self._numbers is None:
            self._numbers = self._load()
        if not self._choice.has_numbers:
            return found.gpus, ()
        kept, here = self._numbers, {gpu.uuid for gpu in found.gpus}
        if here and not found.silent and kept.keys().isdisjoint(here):
            # Those of other hardware, as where a virtual machine begins anew: no GPU that we knew
            # is here to be mistaken for another.
            kept = {}
        numbers = dict(kept)
        # One that is silent still has its place, so that the numbers behind it are right.
        has_shifted = len(numbers.keys() - here) > len(found.silent)
        settled, doubtful = [], []
        for gpu in found.gpus:
            if gpu.uuid in numbers:
                settled.append(replace(gpu, index=numbers[gpu.uuid]))
            elif not has_shifted and gpu.index not in kept.values():
                numbers[gpu.uuid] = gpu.index
                settled.append(gpu)
            elif self._choice.names(gpu.uuid):
                settled.append(gpu)
            else:
                doubtful.append(gpu)
        if numbers != self._numbers:
            self._numbers = numbers
            self._save()
        return tuple(settled), tuple(doubtful)

    def explain(self, gpu: GpuFacts) -> str:
        """Why nobody can tell whether this one is ours."""
        remedy = f", or remove {self._file} and restart the agent" if self._file else ""
        return (
            f"GPU {gpu.index} ({gpu.uuid}) is left out: others have gone or changed places, so the "
            "numbers in the settings gpus and gpus-left do not tell whether it is ours; write "
            f"uuids there{remedy}"
        )

    def _load(self) -> dict[str, int]:
        if self._file is None:
            return {}
        try:
            if not self._choice.has_numbers:
                self._file.unlink(missing_ok=True)  # they would mean something else next time
                return {}
            kept = json.loads(self._file.read_text())
            return {str(uuid): int(number) for uuid, number in kept.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, AttributeError) as error:
            _log.warning("the GPUs' numbers from before are not known: %s: %s", self._file, error)
            return {}

    def _save(self) -> None:
        if self._file is None:
            return
        fresh = self._file.with_name(f".{self._file.name}.new")
        try:
            fresh.write_text(json.dumps(self._numbers))
            fresh.replace(self._file)
        except OSError as error:
            _log.warning(
                "%s cannot be written, so an agent that starts while a GPU is missing may take "
                "another for it: %s",
                self._file,
                error,
            )
