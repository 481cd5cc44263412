"""Names that a recording can hold and that no drawing may let through as they are."""

from __future__ import annotations

TAG = "<script>alert(1)</script>"
QUOTE = "\"'><img src=x onerror=alert(1)>"
RIGHT_TO_LEFT = "step\u202e\u2066reversed"
ESCAPE = "step\x1b[31m\x07"
MATHS = "$\\frac{1}{$ ^_{"
MEGABYTE = "x" * (1 << 20)
HIDDEN = "_private"
CHINESE = "训练"
NAMES = (TAG, QUOTE, RIGHT_TO_LEFT, ESCAPE, MATHS, MEGABYTE, HIDDEN, CHINESE, "\ud800", "a\nb\u2028c")
