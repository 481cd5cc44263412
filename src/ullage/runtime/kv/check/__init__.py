"""What a cache's format does to a model, measured on the user's own texts."""

from ullage.runtime.kv.check.result import KVCheck, LossBudget
from ullage.runtime.kv.check.search import check

__all__ = ["KVCheck", "LossBudget", "check"]
