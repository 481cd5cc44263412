"""The doctor: allocator settings that silently do nothing, or are known to break."""

from ullage.doctor.advice import Advice
from ullage.doctor.environment import setup_of_environment
from ullage.doctor.examine import examine
from ullage.doctor.recording import setup_of_recording
from ullage.doctor.setup import PoolFact, Recorded, RoundupCost, Setup
from ullage.doctor.torch_range import TorchRange

__all__ = [
    "Advice",
    "PoolFact",
    "Recorded",
    "RoundupCost",
    "Setup",
    "TorchRange",
    "examine",
    "setup_of_environment",
    "setup_of_recording",
]
