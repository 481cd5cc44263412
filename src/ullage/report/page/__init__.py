"""The report as one page of HTML: what it holds, and the page around it."""

from ullage.report.page.document import page_of
from ullage.report.page.payload import rank_payload

__all__ = ["page_of", "rank_payload"]
