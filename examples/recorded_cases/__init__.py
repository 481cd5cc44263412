"""Programs with a known GPU-memory problem, or a harmless twin of one; importing this registers them all."""

from recorded_cases import fragmentation, graphs, histories, retention, streams
from recorded_cases.registry import CASES, Case

__all__ = ["CASES", "Case", "fragmentation", "graphs", "histories", "retention", "streams"]
