"""Comparisons: two snapshots, or two instants of one."""

from ullage.callable_room import make_callable
from ullage.diff.compare import Diff, SiteChange, diff

__all__ = ["Diff", "SiteChange", "diff"]

make_callable(__name__, diff)
