"""Reports: text and JSON. They render results and compute none."""

from ullage.report.summary_json import summary_json

__all__ = ["summary_json"]
