"""Comparisons: two snapshots, or two instants of one."""

from ullage.diff.compare import Diff, SiteChange, diff

__all__ = ["Diff", "SiteChange", "diff"]
