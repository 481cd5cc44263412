"""Compares what is live at two instants: of two snapshots, or of one."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ullage.trace import BEFORE, NO_STACK, NONE, Frame

if TYPE_CHECKING:
    from ullage.trace import DeviceTrace, Trace

_Region = tuple[int, int, tuple[Frame, ...]]


@dataclass(kw_only=True)
class SiteChange:
    """How one line's live bytes changed.

    Attributes:
        stack: The leading frame, and the user's frames that called it.
        before_bytes: Live at the first instant.
        after_bytes: Live at the second.
        num_new: Blocks that only the second has.
        num_gone: Blocks that only the first has.
        num_moved: Blocks of the same size and line at another address.
        num_same: Blocks of the same size and line at the same address.
    """

    stack: tuple[Frame, ...]
    before_bytes: int = 0
    after_bytes: int = 0
    num_new: int = 0
    num_gone: int = 0
    num_moved: int = 0
    num_same: int = 0

    @property
    def net_bytes(self) -> int:
        """By how much it grew; negative where it shrank."""
        return self.after_bytes - self.before_bytes

    def to_json(self) -> dict[str, Any]:
        """Return the change as plain data."""
        return {
            "site": [{"file": f.file, "line": f.line, "function": f.function} for f in self.stack],
            "before_bytes": self.before_bytes,
            "after_bytes": self.after_bytes,
            "net_bytes": self.net_bytes,
            "num_new": self.num_new,
            "num_gone": self.num_gone,
            "num_moved": self.num_moved,
            "num_same": self.num_same,
        }


@dataclass(frozen=True, kw_only=True)
class Diff:
    """What changed between two instants of one device.

    Attributes:
        device: The device's number.
        before: The four sums at the first instant, in bytes, by name.
        after: The four sums at the second.
        sites: The changes by line, the largest first.
    """

    device: int
    before: dict[str, int]
    after: dict[str, int]
    sites: list[SiteChange] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as plain data with stable keys."""
        return {
            "device": self.device,
            "before": self.before,
            "after": self.after,
            "sites": [site.to_json() for site in self.sites],
        }


def diff(
    before: Trace,
    after: Trace,
    *,
    before_at: str | int = "end",
    after_at: str | int = "end",
    device: int | None = None,
) -> list[Diff]:
    """Compare what is live at two instants, device by device.

    Regions match on address, size and stack; of the rest, those of equal size and stack have moved.

    Args:
        before: The first trace.
        after: The second; the same one to compare two instants of it.
        before_at: The instant of the first, as in `DeviceTrace.event_at`.
        after_at: The instant of the second.
        device: One device's number; None: all that both traces have.

    Raises:
        UllageError: There is no such device or instant.

    Cost: linear in the live blocks, and a pass over each trace's events.
    """
    if device is not None:
        pairs = [(before.device(device), after.device(device))]
    else:
        have = {one.number: one for one in after.devices}
        pairs = [(one, have[one.number]) for one in before.devices if one.number in have]
    return [_diff_device(one, other, before_at, after_at) for one, other in pairs]


def _diff_device(one: DeviceTrace, other: DeviceTrace, before_at: str | int, after_at: str | int) -> Diff:
    old, new = _regions(one, before_at), _regions(other, after_at)
    changes: dict[Frame, SiteChange] = {}

    def change(stack: tuple[Frame, ...]) -> SiteChange:
        return changes.setdefault(stack[0], SiteChange(stack=stack))

    for (_, size, stack), count in old.items():
        change(stack).before_bytes += size * count
    for (_, size, stack), count in new.items():
        change(stack).after_bytes += size * count
    for (_, _, stack), count in (old & new).items():
        change(stack).num_same += count
    gone, fresh = _without_address(old - new), _without_address(new - old)
    for kind, count in (gone & fresh).items():
        change(kind[1]).num_moved += count
    for kind, count in (gone - fresh).items():
        change(kind[1]).num_gone += count
    for kind, count in (fresh - gone).items():
        change(kind[1]).num_new += count
    return Diff(
        device=one.number,
        before=_sums(one, before_at),
        after=_sums(other, after_at),
        sites=sorted(changes.values(), key=lambda site: (-abs(site.net_bytes), -site.after_bytes)),
    )


def _regions(device: DeviceTrace, at: str | int) -> Counter[_Region]:
    event = device.event_at(at)
    rows = device.live_after(event)
    blocks = device.blocks
    stacks: dict[tuple[int, bool], tuple[Frame, ...]] = {}
    regions: Counter[_Region] = Counter()
    columns = (blocks.address[rows], blocks.size_bytes[rows], blocks.site[rows], blocks.birth[rows])
    for address, size, site, birth in zip(*(column.tolist() for column in columns), strict=True):
        key = (site, birth == NONE)
        if key not in stacks:
            unknown = BEFORE if key[1] else NO_STACK
            stacks[key] = device.trace.sites.user_stack(site) or (unknown,)
        regions[(address, size, stacks[key])] += 1
    return regions


def _without_address(regions: Counter[_Region]) -> Counter[tuple[int, tuple[Frame, ...]]]:
    out: defaultdict[tuple[int, tuple[Frame, ...]], int] = defaultdict(int)
    for (_, size, stack), count in regions.items():
        out[(size, stack)] += count
    return Counter(out)


def _sums(device: DeviceTrace, at: str | int) -> dict[str, int]:
    return device.counters_at(at)._asdict()
