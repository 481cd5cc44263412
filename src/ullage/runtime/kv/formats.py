"""How a cache stores keys and values: formats, and where the bytes of a page lie.

A page holds `page_tokens` tokens of one layer, for all its KV heads::

    | codes of K | codes of V | parameters of K | parameters of V |

    codes of K   [head, token, code_bytes]       a token's vector, 16 bytes a thread
    codes of V   [head, code_bytes, token]       a value's tokens, since attention sums over them; 16-bit formats as K
    parameters   [head, group, token, 2] fp16    scale and zero of each group of a vector; none for 16-bit formats

A vector of head_dim values is stored in two halves. With 4 bits, byte j holds value j in its low bits and value
j + head_dim / 2 in its high ones, so that a kernel gets both halves of a vector without moving anything::

    byte     0            1                        value of a code c in group g:  c * scale[g] + zero[g]
           +----+----+  +----+----+
           | 64 |  0 |  | 65 |  1 |   ...
           +----+----+  +----+----+
            high  low
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["bf16", "fp16", "fp8", "int8", "int4"]

CODE_BITS: dict[Kind, int] = {"bf16": 16, "fp16": 16, "fp8": 8, "int8": 8, "int4": 4}
_ALIGN = 16


@dataclass(frozen=True, kw_only=True)
class KVFormat:
    """How keys and values are stored.

    Attributes:
        kind: "bf16" and "fp16" as they are; "fp8" (e4m3) with a scale; "int8" and "int4" with scale and zero.
        group_size: How many values share a scale: a vector's half or the whole of it, whichever this is nearer to.
            16-bit formats have none.
        rotates_keys: Whether keys are turned by a block-Hadamard matrix before they are rounded, and queries with them: an
            outlier channel is then spread over its block. Attention stays what it was.
        rotates_values: The same for values.
    """

    kind: Kind = "bf16"
    group_size: int = 64
    rotates_keys: bool = False
    rotates_values: bool = False

    def __post_init__(self) -> None:
        if self.kind not in CODE_BITS:
            raise ValueError(f"no format is called {self.kind!r}: use one of {', '.join(CODE_BITS)}")
        if self.group_size not in (32, 64, 128):
            raise ValueError(f"group_size is {self.group_size}: use 32, 64 or 128")

    @classmethod
    def named(cls, name: str) -> KVFormat:
        """Return a format by its name, with what is advisable: 4-bit keys are rotated, an 8-bit vector shares a scale.

        Raises:
            ValueError: There is no such format.

        Example:
            >>> KVFormat.named("int4").rotates_keys, KVFormat.named("fp8").rotates_keys
            (True, False)
        """
        if name not in CODE_BITS:
            raise ValueError(f"no format is called {name!r}: use one of {', '.join(CODE_BITS)}")
        return cls(kind=name, group_size=64 if name == "int4" else 128, rotates_keys=name == "int4")

    @property
    def is_plain(self) -> bool:
        """Whether values are stored as they are."""
        return CODE_BITS[self.kind] == 16

    @property
    def has_zero(self) -> bool:
        """Whether a group has a zero beside its scale."""
        return self.kind in ("int8", "int4")

    def num_groups(self, head_dim: int) -> int:
        """Return how many groups a vector has: 0 where it has no scales, 1, or one for each half."""
        if self.is_plain:
            return 0
        return 1 if self.group_size >= head_dim else 2

    def code_bytes(self, head_dim: int) -> int:
        """Return the bytes of a vector's codes."""
        return head_dim * CODE_BITS[self.kind] // 8

    def vector_bytes(self, head_dim: int) -> int:
        """Return the bytes of a vector with its parameters.

        Example:
            >>> KVFormat(kind="int4").vector_bytes(128), KVFormat(kind="bf16").vector_bytes(128)
            (72, 256)
        """
        return self.code_bytes(head_dim) + 4 * self.num_groups(head_dim)


@dataclass(frozen=True, kw_only=True)
class PageLayout:
    """Where things lie in a page of one layer. All figures are bytes."""

    format: KVFormat
    num_kv_heads: int
    head_dim: int
    page_tokens: int = 64

    def __post_init__(self) -> None:
        if self.page_tokens not in (16, 32, 64):
            raise ValueError(f"page_tokens is {self.page_tokens}: use 16, 32 or 64")
        if self.head_dim % 16 or not 16 <= self.head_dim <= 256:
            raise ValueError(f"head_dim is {self.head_dim}: it must be a multiple of 16, up to 256")
        if self.num_kv_heads < 1:
            raise ValueError(f"num_kv_heads is {self.num_kv_heads}")

    @property
    def code_bytes(self) -> int:
        """The codes of one vector."""
        return self.format.code_bytes(self.head_dim)

    @property
    def num_groups(self) -> int:
        """The groups of one vector."""
        return self.format.num_groups(self.head_dim)

    @property
    def codes_size(self) -> int:
        """The codes of K, or of V."""
        return self.num_kv_heads * self.page_tokens * self.code_bytes

    @property
    def parameters_size(self) -> int:
        """The parameters of K, or of V."""
        return self.num_kv_heads * self.num_groups * 2 * self.page_tokens * 2

    @property
    def parameters_offset(self) -> int:
        """Where the parameters of K begin; those of V follow."""
        return 2 * self.codes_size

    @property
    def page_bytes(self) -> int:
        """A whole page, a multiple of 16.

        Example:
            >>> layout = PageLayout(format=KVFormat(kind="int4"), num_kv_heads=8, head_dim=128)
            >>> layout.page_bytes, layout.page_bytes / (2 * 8 * 64)
            (73728, 72.0)
        """
        size = self.parameters_offset + 2 * self.parameters_size
        return -(-size // _ALIGN) * _ALIGN
