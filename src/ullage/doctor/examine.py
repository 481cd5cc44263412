"""Runs every check over one setup."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ullage.doctor.combinations import (
    check_backend,
    check_collection_without_cap,
    check_fixed_pools,
    check_memory_saver,
    check_split_with_expandable,
)
from ullage.doctor.recorded_effects import (
    check_changed_settings,
    check_native_stacks,
    check_roundup_cost,
    check_untaken_expandable,
)
from ullage.doctor.spelling import check_idle_roundup, check_keys, check_newer_keys, check_values
from ullage.doctor.variables import check_ignored_variable, check_no_caching, check_several_variables
from ullage.explain import SEVERITIES

if TYPE_CHECKING:
    from collections.abc import Callable

    from ullage.doctor.advice import Advice
    from ullage.doctor.setup import Setup

CHECKS: tuple[Callable[[Setup], list[Advice]], ...] = (
    check_keys,
    check_values,
    check_newer_keys,
    check_split_with_expandable,
    check_several_variables,
    check_ignored_variable,
    check_untaken_expandable,
    check_no_caching,
    check_backend,
    check_collection_without_cap,
    check_roundup_cost,
    check_idle_roundup,
    check_memory_saver,
    check_fixed_pools,
    check_changed_settings,
    check_native_stacks,
)


def examine(setup: Setup) -> list[Advice]:
    """Return all that is to be said about a setup, the most severe first.

    Args:
        setup: The settings.
    """
    found = [advice for check in CHECKS for advice in check(setup)]
    return sorted(found, key=lambda advice: -SEVERITIES.index(advice.severity))
