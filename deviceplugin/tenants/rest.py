"""Who need not be looked at now: tenants that were well a moment ago and use the same since."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from deviceplugin.tenants.judgement import Tenant, Use

__all__ = ["Rest"]


@dataclass(slots=True)
class Rest:
    """Lasts for one look: a tenant can change its account without using more of a GPU."""

    _owners: Mapping[int, str] = field(default_factory=dict)
    """Ids of tenants by process, as far as they are known; empty for strangers."""
    _well: Mapping[str, frozenset[Use]] = field(default_factory=dict)
    resting: frozenset[str] = frozenset()
    """Who is left out of this look."""

    def awake(self, uses: list[Use]) -> list[Use]:
        """Those that are to be judged in this look: of each tenant all, or none."""
        well, self._well = self._well, {}
        self.resting = frozenset()
        known = self._owners
        self._owners = {use.pid: known[use.pid] for use in uses if use.pid in known}
        if not well or any(use.pid not in self._owners for use in uses):
            return uses  # whose newcomers are, only a look at everybody tells
        present = _by_owner(uses, self._owners)
        self.resting = frozenset(
            owner for owner, some in well.items() if present.get(owner) == some
        )
        return [use for use in uses if self._owners[use.pid] not in self.resting]

    def judged(
        self, uses: list[Use], owners: Mapping[int, Tenant], suspects: Collection[str]
    ) -> None:
        """What came out of it, about everybody who was awake; `suspects` are ids of tenants."""
        known = {use.pid: owners[use.pid].id if use.pid in owners else "" for use in uses}
        self._owners = {**self._owners, **known}
        self._well = {
            owner: some
            for owner, some in _by_owner(uses, known).items()
            if owner and owner not in suspects
        }


def _by_owner(uses: Iterable[Use], owners: Mapping[int, str]) -> dict[str, frozenset[Use]]:
    found: dict[str, set[Use]] = {}
    for use in uses:
        found.setdefault(owners[use.pid], set()).add(use)
    return {owner: frozenset(some) for owner, some in found.items()}
