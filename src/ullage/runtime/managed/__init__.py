"""Managed memory done right: advice by role, moves of many ranges and ahead of their use, and what over-subscription costs."""

from ullage.runtime.managed.memory import gpu_view, host_view, managed_bytes, managed_tensor
from ullage.runtime.managed.model import ManagedModel, manage
from ullage.runtime.managed.over_subscription import OverSubscription, over_subscribed, zigzag
from ullage.runtime.managed.prefetched import PrefetchedModel, prefetching
from ullage.runtime.managed.read_guard import ReadGuard
from ullage.runtime.managed.roles import Role
from ullage.runtime.managed.transfers import discard, discard_and_prefetch, prefetch, written

__all__ = [
    "ManagedModel",
    "OverSubscription",
    "PrefetchedModel",
    "ReadGuard",
    "Role",
    "discard",
    "discard_and_prefetch",
    "gpu_view",
    "host_view",
    "manage",
    "managed_bytes",
    "managed_tensor",
    "over_subscribed",
    "prefetch",
    "prefetching",
    "written",
    "zigzag",
]
