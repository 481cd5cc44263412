"""The statements of the user's loop: which line of it each site belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ullage.trace import NONE, Action

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ullage.trace import DeviceTrace

_COMMON = 0.9  # of the loop's requests: a frame that so many share is on the way to the loop, not in it


def loop_lines(device: DeviceTrace) -> NDArray[np.int32]:
    """Return, for each site, the frame id of the loop's statement that it was reached from.

    All requests of a loop share the frames down to the function that loops, and part there by the line it is at. Sites
    that do not pass through that function keep their own leading frame.
    """
    sites = device.trace.sites
    leads = sites.leads.copy()
    weights = _requests_in_loop(device, len(leads))
    used = np.flatnonzero(weights)
    stacks = {int(site): sites.python_stack(int(site)) for site in used}
    stacks = {site: stack for site, stack in stacks.items() if stack}
    inside, depth = _descend(stacks, weights)
    if not inside:
        return leads
    function = _function_of_statements(device, stacks, inside, depth, weights)
    if function is None:
        depth -= 1  # the requests part in what one line calls: that line is the statement
        if depth < 0:
            return leads
    prefix = stacks[inside[0]][:depth]
    for site in range(len(leads)):
        stack = stacks.get(site) or sites.python_stack(site)
        if len(stack) <= depth or stack[:depth] != prefix:
            continue
        frame = sites.frame(stack[depth])
        if function is None or (frame.file, frame.function) == function:
            leads[site] = stack[depth]
    return leads


def _requests_in_loop(device: DeviceTrace, num_sites: int) -> NDArray[np.int64]:
    events, starts = device.events, device.steps.starts
    part = slice(int(starts[0]), int(starts[-1]))
    sites = events.site[part][events.action[part] == Action.ALLOC]
    return np.bincount(sites[sites != NONE], minlength=num_sites)


def _descend(stacks: dict[int, list[int]], weights: NDArray[np.int64]) -> tuple[list[int], int]:
    """Follow the frames that nearly all requests share, from the outermost; return who shares them, and how many."""
    inside = list(stacks)
    depth = 0
    while inside:
        by_next: dict[int, list[int]] = {}
        for site in inside:
            if len(stacks[site]) > depth:
                by_next.setdefault(stacks[site][depth], []).append(site)
        if not by_next:
            break
        heaviest = max(by_next.values(), key=lambda some: int(weights[some].sum()))
        ends_here = all(len(stacks[site]) == depth + 1 for site in heaviest)
        if ends_here or weights[heaviest].sum() < _COMMON * weights[inside].sum():
            break
        inside, depth = heaviest, depth + 1
    return inside, depth


def _function_of_statements(
    device: DeviceTrace, stacks: dict[int, list[int]], inside: list[int], depth: int, weights: NDArray[np.int64]
) -> tuple[str, str] | None:
    """Return the function in which nearly all requests part by the line it is at; None where they part otherwise."""
    by_function: dict[tuple[str, str], int] = {}
    for site in inside:
        if len(stacks[site]) > depth:
            frame = device.trace.sites.frame(stacks[site][depth])
            key = (frame.file, frame.function)
            by_function[key] = by_function.get(key, 0) + int(weights[site])
    if not by_function:
        return None
    best = max(by_function, key=lambda key: by_function[key])
    return best if by_function[best] >= _COMMON * int(weights[inside].sum()) else None
