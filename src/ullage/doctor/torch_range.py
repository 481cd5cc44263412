"""The torch versions that may have made a recording, or the one that is installed."""

from __future__ import annotations

import re
from dataclasses import dataclass

Version = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class TorchRange:
    """All versions from `low` to `high`, both included; `high` None is open. (2, 11) is every 2.11.x.

    Example:
        >>> TorchRange.parse("2.10 or 2.11")
        TorchRange(low=(2, 10), high=(2, 11))
        >>> TorchRange.parse("2.9.1+cu128").may_be((2, 9, 1)), TorchRange.parse("2.12 or newer").may_be((2, 9, 1))
        (True, False)
    """

    low: Version
    high: Version | None

    @classmethod
    def parse(cls, text: str) -> TorchRange | None:
        """Read a version ("2.9.1+cu128") or a range ("2.5 to 2.7", "2.12 or newer"); None where there is none."""
        numbers = re.findall(r"\d+(?:\.\d+)+", text.partition("+")[0])
        if not numbers:
            return None
        versions = [tuple(int(part) for part in number.split(".")) for number in numbers]
        return cls(low=versions[0], high=None if "newer" in text else versions[-1])

    def __str__(self) -> str:
        low = _words(self.low)
        if self.high is None:
            return f"{low} or newer"
        return low if self.low == self.high else f"{low} to {_words(self.high)}"

    def is_before(self, version: Version) -> bool:
        """Tell whether every version of the range is older."""
        return self.high is not None and self.high[: len(version)] < version

    def may_be_before(self, version: Version) -> bool:
        """Tell whether some version of the range is older."""
        return self.low[: len(version)] < version

    def may_be(self, version: Version) -> bool:
        """Tell whether the range names a version, down to its last number."""
        return self.low == version or self.high == version


def _words(version: Version) -> str:
    return ".".join(str(part) for part in version)
