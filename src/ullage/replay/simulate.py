"""Runs a recording's requests through another policy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from ullage import _core
from ullage.errors import UllageError
from ullage.replay.models import MODELS, GrowingPool
from ullage.replay.outcome import Certainty, FailedRequest, Outcome
from ullage.replay.policy import Policy, recorded_policy

if TYPE_CHECKING:
    from ullage.trace import DeviceTrace, Trace

# How much longer or shorter frees may wait for their stream in another run: at once, as recorded, twice as long.
# Measured on an H200 (torch 2.11): this holds what ten settings did to a program with record_stream.
_WAITS = (0.0, 2.0)

_MIN_CAP_STEP = 2 << 20


def replay(
    trace: Trace, policy: Policy | GrowingPool | None = None, *, cap_bytes: int | None = None, device: int | None = None
) -> Outcome:
    """Simulate what a policy would have done with a recording's requests, in the recorded order.

    Args:
        trace: The recording.
        policy: The settings, or another allocator; None: the settings it was recorded under.
        cap_bytes: A limit on reserved memory; None: none.
        device: The device's number; None: the one with the most events.

    Raises:
        UllageError: There is no such device, or it has no requests.

    Cost: about 0.1 µs an event, a few times over where ties or waits leave a range.

    Source: CUDACachingAllocator.cpp, torch 2.11; all of 78 measured runs were met to the byte (torch 2.11, H200;
    benchmarks/results/replay_cases.json).
    """
    return Simulation.of(trace, device).outcome(policy, cap_bytes)


@dataclass(frozen=True)
class Simulation:
    """A device's requests, ready to be run through policies."""

    device: DeviceTrace
    stream: _core.RequestStream
    recorded: Policy

    @classmethod
    def of(cls, trace: Trace, number: int | None = None) -> Simulation:
        """Take the requests out of a device's recording.

        Args:
            trace: The recording.
            number: The device's number; None: the one with the most events.

        Raises:
            UllageError: There is no such device, or it has no requests.
        """
        name = trace.path or "the trace"
        if number is None and not trace.devices:
            raise UllageError(f"no requests to replay: {name} has no device with events or segments")
        device = trace.device(number)
        if not device.num_events:
            raise UllageError(
                f"no requests to replay: {name} has no events of GPU {device.number}; they are recorded after "
                "torch.cuda.memory._record_memory_history()"
            )
        stream = _core.request_stream(trace.tables, device.number, device.history)
        if not stream.num_requests:
            raise UllageError(f"no requests to replay: none of GPU {device.number}'s events in {name} asks for memory")
        return cls(device, stream, recorded_policy(trace))

    @cached_property
    def scaled(self) -> list[_core.RequestStream]:
        """The same requests with other waits; empty where no free waited."""
        if not _core.num_waiting_frees(self.stream):
            return []
        return [_core.with_waits_scaled(self.stream, factor) for factor in _WAITS]

    def core_policy(self, policy: Policy | GrowingPool, cap_bytes: int | None) -> _core.ModelPolicy:
        """Return the core's policy; under the recorded settings it takes the recorded segment addresses."""
        core = policy.to_core(cap_bytes)
        core.descending_addresses = self.mostly_descending
        if policy == self.recorded:
            core.use_recorded_segments(self.device.trace.tables, self.device.number)
        return core

    @cached_property
    def mostly_descending(self) -> bool:
        """Whether the recorded driver gave mostly descending addresses; drivers do (CUDA 13.0, H200)."""
        segments = self.device.segments
        rows = (segments.birth >= 0) & (segments.is_expandable == 0)
        addresses = segments.address[rows].astype("int64")
        if len(addresses) < 8:
            return True
        return bool((addresses[1:] < addresses[:-1]).mean() >= 0.5)

    def run(self, policy: Policy | GrowingPool, cap_bytes: int | None) -> _core.Outcome:
        """Run one policy once."""
        return _core.run_model(self.stream, self.core_policy(policy, cap_bytes))

    def outcome(self, policy: Policy | GrowingPool | None = None, cap_bytes: int | None = None) -> Outcome:
        """Run one policy, and find out how sure the answer is."""
        policy = self.recorded if policy is None else policy
        core = self.core_policy(policy, cap_bytes)
        main = _core.run_model(self.stream, core)
        certainty, bounds = self._certainty(policy, cap_bytes, main)
        waste = _core.waste_at_peak(self.stream, core, main)
        return replace(self.unranged(policy, cap_bytes, main), waste=waste, certainty=certainty, range_bytes=bounds)

    def unranged(self, policy: Policy | GrowingPool, cap_bytes: int | None, run: _core.Outcome) -> Outcome:
        """Return what one run did, before it is worked out how sure that is."""
        return Outcome(
            device=self.device.number,
            policy=policy.conf() or "default",
            cap_bytes=cap_bytes,
            peak_reserved_bytes=run.peak_reserved,
            peak_allocated_bytes=run.peak_allocated,
            num_device_alloc=run.num_device_alloc,
            num_device_free=run.num_device_free,
            num_retries=run.num_retries,
            first_oom=self.first_oom(run),
            certainty="range",
        )

    def recorded_outcome(self) -> Outcome:
        """Return what the recording itself says, in the same form; it knows no retries."""
        history = self.device.history
        return Outcome(
            device=self.device.number,
            policy=self.recorded.conf() or "default",
            cap_bytes=None,
            peak_reserved_bytes=history.peak[3],
            peak_allocated_bytes=history.peak[1],
            num_device_alloc=history.num_device_alloc,
            num_device_free=history.num_device_free,
            num_retries=None,
            first_oom=self._recorded_oom(),
        )

    def _recorded_oom(self) -> FailedRequest | None:
        ooms = self.device.ooms()
        if not len(ooms):
            return None
        event = int(ooms[0])
        counters = self.device.counters_at("oom")
        return FailedRequest(
            event=event,
            bytes=int(self.device.events.size_bytes[event]),
            reserved_bytes=counters.reserved_bytes,
            allocated_bytes=counters.allocated_bytes,
            site=self.device.trace.sites.user_stack(int(self.device.events.site[event])),
        )

    def _certainty(
        self, policy: Policy | GrowingPool, cap_bytes: int | None, main: _core.Outcome
    ) -> tuple[Certainty, tuple[int, int] | None]:
        peaks = [main.peak_reserved]
        is_recorded = policy == self.recorded
        for stream in [self.stream, *self.scaled]:
            for descending in (True, False):
                core = policy.to_core(cap_bytes)
                core.descending_addresses = descending
                if is_recorded and stream is self.stream:
                    continue  # what it did is known
                peaks.append(_core.run_model(stream, core).peak_reserved)
        bounds = (min(peaks), max(peaks))
        if isinstance(policy, GrowingPool) and policy.error_share:
            bounds = (round(bounds[0] * (1 - policy.error_share)), round(bounds[1] * (1 + policy.error_share)))
        if self.device.completeness.kind != "complete":
            return "window", bounds
        return ("exact", None) if bounds[0] == bounds[1] else ("range", bounds)

    def first_oom(self, run: _core.Outcome) -> FailedRequest | None:
        """Return the first request that a run could not serve, with its line; None if it served all."""
        if not run.num_ooms:
            return None
        return FailedRequest(
            event=run.first_oom_event,
            bytes=run.first_oom_size,
            reserved_bytes=run.first_oom_reserved,
            allocated_bytes=run.first_oom_allocated,
            site=self.device.trace.sites.user_stack(run.first_oom_site),
        )

    def min_cap(self, policy: Policy | GrowingPool) -> int:
        """Return the smallest cap, in steps of 2 MiB, under which a policy serves every request of the recording.

        Where a larger cap can serve less, as with garbage collection, it is the smallest that the halving meets.

        Cost: a run for each halving, about fifteen.
        """
        free = self.run(policy, None)
        low, high = free.peak_allocated // _MIN_CAP_STEP, -(-free.peak_reserved // _MIN_CAP_STEP)
        # Garbage collection works under a cap alone: there, what was enough without one may not be.
        while self.run(policy, high * _MIN_CAP_STEP).num_ooms:
            low, high = high + 1, high + max(high // 16, 1)
        while low < high:
            middle = (low + high) // 2
            if self.run(policy, middle * _MIN_CAP_STEP).num_ooms:
                low = middle + 1
            else:
                high = middle
        return high * _MIN_CAP_STEP

    def min_caps(self) -> dict[str, int]:
        """Return the smallest cap of the recorded settings, of expandable segments, and of each model, the least first.

        Cost: as `min_cap`, for each of them.
        """
        policies: dict[str, Policy | GrowingPool] = {self.recorded.conf() or "default": self.recorded}
        policies["expandable_segments:True"] = Policy(expandable_segments=True)
        policies.update(MODELS)
        caps = {name: self.min_cap(policy) for name, policy in policies.items()}
        return dict(sorted(caps.items(), key=lambda pair: pair[1]))
