"""What this machine's memory does: bandwidths, latencies, the cost of allocations, page reach; and what to use for what."""

from ullage.runtime.probe.advice import Advice, advise
from ullage.runtime.probe.measure import probe
from ullage.runtime.probe.result import ProbeResult
from ullage.runtime.probe.store import known_probe

__all__ = ["Advice", "ProbeResult", "advise", "known_probe", "probe"]
