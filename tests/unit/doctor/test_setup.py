"""How the configuration string is taken apart, and which word counts when string and recording differ."""

from __future__ import annotations

from ullage.doctor import Recorded, Setup


def test_commas_in_brackets_do_not_part_and_blanks_do_not_count() -> None:
    setup = Setup(conf="roundup_power2_divisions:[256:1, >:8] , backend:native,")
    assert setup.parts == ("roundup_power2_divisions:[256:1,>:8]", "backend:native")
    assert setup.values == {"roundup_power2_divisions": "[256:1,>:8]", "backend": "native"}


def test_the_recorded_setting_counts_before_the_string() -> None:
    conf = "expandable_segments:True"
    assert Setup(conf=conf).is_on("expandable_segments")
    assert not Setup(conf=conf, recorded=Recorded(settings={"expandable_segments": False})).is_on("expandable_segments")
    assert Setup(conf=conf, recorded=Recorded()).is_on("expandable_segments")


def test_a_limit_on_splits_is_seen_in_either() -> None:
    assert Setup(conf="max_split_size_mb:64").has_max_split
    assert Setup(recorded=Recorded(settings={"max_split_size": 67108864})).has_max_split
    assert not Setup(recorded=Recorded(settings={"max_split_size": -1})).has_max_split
    assert not Setup().has_max_split
