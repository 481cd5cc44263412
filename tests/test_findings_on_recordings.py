"""Each kind of finding speaks on the recordings of its problem, with the right line and bytes, and on no control."""

from __future__ import annotations

import pytest

import ullage
from tests.recordings import EXAMPLE, EXPECTED, device_of, findings_of

EXAMPLES = EXAMPLE.parent
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


def found(name: str, kind: str) -> list[ullage.Finding]:
    return [finding for finding in findings_of(name) if finding.kind == kind]


def only(name: str, kind: str) -> ullage.Finding:
    findings = found(name, kind)
    assert len(findings) == 1, [finding.title for finding in findings]
    return findings[0]


def lines(finding: ullage.Finding) -> list[str]:
    return [f"{frame.file}:{frame.line}" for frame in finding.site]


# --- all of them ---


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_every_finding_has_its_bytes_its_reason_and_a_next_step(name: str) -> None:
    findings = findings_of(name)
    assert findings
    for finding in findings:
        assert finding.bytes >= 0
        assert all(text.strip() == text != "" for text in (finding.title, finding.why, finding.next_step))


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_the_worst_finding_comes_first(name: str) -> None:
    severities = [("error", "warning", "info").index(finding.severity) for finding in findings_of(name)]
    assert severities == sorted(severities)


# --- growth ---


def test_a_model_kept_by_a_cache_on_its_method_is_growth_at_the_line_that_makes_it() -> None:
    growth = only("lru_model", "growth")
    assert lines(growth)[0] == "retention.py:49"
    assert 7 * 64 * MIB <= growth.bytes <= 8 * (64 * MIB + 16 * KIB)
    assert growth.severity == "warning"


def test_outputs_kept_on_an_autograd_context_are_growth_at_the_line_in_forward() -> None:
    growth = only("ctx_cycle", "growth")
    assert lines(growth)[:2] == ["retention.py:69", "retention.py:86"]
    assert growth.bytes == 7 * 32 * MIB
    assert growth.evidence["bytes_per_step"] == 32 * MIB
    assert growth.evidence["num_steps"] == growth.evidence["rising_steps"] == 7


def test_logits_concatenated_on_the_gpu_are_one_object_that_grows() -> None:
    growth = only("eval_concat", "growth")
    assert lines(growth)[0] == "retention.py:106"
    # Each part is 4 x 256 x 30,522 floats; segments round it up to 2 MiB.
    part_bytes = 4 * 256 * 30522 * 4
    assert 10 * part_bytes <= growth.bytes <= 11 * (part_bytes + 2 * MIB)
    assert growth.evidence["num_blocks"] == 1
    assert "concatenation" in growth.why


def test_activations_kept_every_third_step_are_found_without_annotations() -> None:
    growth = only("leak_no_annotations", "growth")
    assert lines(growth)[0] == "retention.py:141"
    # h has 1,024 + 64 x (step % 5) rows of 1,024 floats; eight were kept, the last of them in the last round.
    kept_bytes = [(1024 + 64 * (step % 5)) * 1024 * 4 for step in range(2, 24, 3)]
    assert sum(kept_bytes[:-1]) <= growth.bytes <= sum(kept_bytes)
    assert growth.evidence["steps_from"] == "the period of the request stream"


def test_keys_and_values_that_grow_by_concatenation_are_two_lines() -> None:
    keys, values = sorted(found("kv_growth", "growth"), key=lambda finding: lines(finding)[0])
    assert (lines(keys)[0], lines(values)[0]) == ("retention.py:160", "retention.py:161")
    # 32 x 16 x 128 halves a token, 60 tokens.
    assert keys.bytes + values.bytes >= 2 * 55 * 32 * 16 * 128 * 2


def test_the_example_names_the_line_that_keeps_logits_alive_through_a_slice() -> None:
    growth = [finding for finding in ullage.explain(ullage.load(EXAMPLE)) if finding.kind == "growth"]
    assert [lines(finding)[0] for finding in growth] == ["workloads.py:140"]


@pytest.mark.parametrize(
    "name",
    [
        "cache_settles",
        "ctx_saved",
        "eval_argmax",
        "eval_sum_after_backward",
        "eval_sum_control_item",
        "gc_mix",
        "lru_model_cleared",
        "metadata",
        "retries",
        "roundup",
        "split_mix",
        "stranded_weights_first",
        "two_threads",
    ],
)
def test_a_loop_that_keeps_nothing_shows_no_growth(name: str) -> None:
    assert found(name, "growth") == []


# --- fragmentation ---


def test_weights_in_the_blocks_of_larger_temporaries_strand_fifteen_tails() -> None:
    fragmentation = only("stranded_weights", "fragmentation")
    assert fragmentation.bytes == 3900 * MIB == 15 * 260 * MIB
    assert lines(fragmentation)[:2] == ["registry.py:45", "fragmentation.py:32"]
    (pin,) = fragmentation.evidence["pinning"]
    assert (pin["held_back_bytes"], pin["live_bytes"], pin["num_blocks"]) == (3900 * MIB, 15 * 270 * MIB, 15)
    assert "260 MiB" in fragmentation.why
    assert "expandable_segments" in fragmentation.next_step


@pytest.mark.parametrize(
    "name",
    ["stranded_weights_first", "stranded_weights.split", "stranded_weights.exp", "retries", "lru_model", "ctx_saved"],
)
def test_weights_made_first_or_under_other_settings_strand_nothing(name: str) -> None:
    assert found(name, "fragmentation") == []


def test_small_survivors_pin_the_huge_segment_they_split() -> None:
    fragmentation = only("survivors", "fragmentation")
    assert fragmentation.evidence["at"] == "oom"
    assert fragmentation.bytes == 11 * GIB - 640 * MIB
    assert lines(fragmentation)[:2] == ["registry.py:45", "fragmentation.py:18"]


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_pinning_blocks_hold_back_exactly_the_stranded_bytes(name: str) -> None:
    for finding in found(name, "fragmentation"):
        held_back = sum(row["held_back_bytes"] for row in finding.evidence["pinning"])
        assert held_back == finding.bytes == finding.evidence["stranded_bytes"]


# --- out of memory ---


def test_the_request_that_failed_is_explained_by_forty_survivors() -> None:
    oom = only("survivors", "oom")
    assert oom.severity == "error"
    assert oom.bytes == oom.evidence["requested_bytes"] == 11 * GIB
    assert lines(oom)[:2] == ["registry.py:45", "fragmentation.py:20"]
    assert oom.evidence["largest_hole_bytes"] == 11 * GIB - 640 * MIB
    assert (len(oom.evidence["in_the_way"]), oom.evidence["in_the_way_bytes"]) == (40, 640 * MIB)
    assert {row["site"][1]["line"] for row in oom.evidence["in_the_way"]} == {18}
    assert "memory fraction" in oom.why


@pytest.mark.parametrize("name", sorted(EXPECTED.keys() - {"survivors"}))
def test_a_run_that_met_no_error_has_no_such_finding(name: str) -> None:
    assert EXPECTED[name]["stats"]["num_ooms"] == 0
    assert found(name, "oom") == []


# --- private pools ---


def test_a_graph_for_each_length_could_share_one_pool() -> None:
    pools = only("graph_per_length", "private_pool")
    assert len(pools.evidence["pools"]) == 12
    assert pools.bytes == sum(row["reserved_bytes"] for row in pools.evidence["pools"]) == 92 * MIB
    free = [row["free_bytes"] for row in pools.evidence["pools"]]
    assert pools.evidence["estimated_saving_bytes"] == sum(free) - max(free) > 16 * MIB
    assert pools.severity == "warning"
    assert "graph_pool_handle" in pools.next_step


def test_a_workspace_made_in_a_capture_lies_where_a_temporary_was() -> None:
    pool = only("graph_workspace", "private_pool")
    kept = {row["site"][0]["line"]: row for row in pool.evidence["kept_over_temporaries"]}
    assert kept[37]["bytes"] == MIB
    assert kept[37]["temporary_site"][0]["line"] == 32
    assert "make it before" in pool.next_step
    assert "kept where replays write" in pool.title
    assert pool.severity == "info"


def test_a_workspace_made_before_the_capture_overlaps_nothing() -> None:
    assert only("graph_workspace_before", "private_pool").evidence["kept_over_temporaries"] == []


def test_an_input_freed_after_its_capture_and_overwritten_is_named() -> None:
    pool = only("graph_input_freed", "private_pool")
    (freed,) = pool.evidence["freed_after_capture"]
    assert freed["bytes"] == 4 * MIB
    assert (freed["site"][0]["line"], freed["over_site"][0]["line"]) == (58, 64)
    assert pool.severity == "warning"
    assert "freed after a capture and overwritten" in pool.title
    assert "Keep whatever a graph reads alive" in pool.next_step


def test_graphs_chained_through_a_shared_pool_read_nothing_that_was_freed() -> None:
    assert only("graph_chain", "private_pool").evidence["freed_after_capture"] == []


@pytest.mark.parametrize("name", [name for name in sorted(EXPECTED) if name.startswith("graph_")])
def test_every_pool_that_a_capture_filled_is_a_graphs(name: str) -> None:
    assert all(row["is_graph"] for finding in found(name, "private_pool") for row in finding.evidence["pools"])


def test_pools_that_no_capture_filled_are_no_graphs() -> None:
    pools = only("mem_pool", "private_pool")
    assert [row["is_graph"] for row in pools.evidence["pools"]] == [False, False]
    assert not any("replay" in text for text in (pools.title, pools.why, pools.next_step))


@pytest.mark.parametrize("name", ["graph_destroyed", "retries", "two_threads", "stranded_weights"])
def test_without_a_private_pool_at_the_end_nothing_is_said_of_pools(name: str) -> None:
    assert found(name, "private_pool") == []


# --- streams ---


def test_record_stream_keeps_nineteen_buffers_waiting() -> None:
    stream = only("record_stream_backlog", "stream")
    assert stream.bytes == 19 * 256 * MIB
    assert stream.evidence["num_waiting"] == 19
    assert lines(stream)[:2] == ["registry.py:45", "streams.py:20"]
    assert stream.severity == "warning"


def test_blocks_still_waiting_at_the_end_are_counted() -> None:
    assert only("pending_end", "stream").bytes == 30 * MIB + 512 + 12 * MIB + 700 * KIB


def test_a_block_freed_by_the_very_last_event_is_no_warning() -> None:
    stream = only("graph_record_stream.reuse", "stream")
    assert (stream.severity, stream.evidence["max_wait_us"]) == ("info", 0)
    assert "µs" not in stream.why


@pytest.mark.parametrize(
    "name",
    ["record_stream_waited", "expandable_toggle", "settings_change", "skipped_actions", "stranded_weights", "retries"],
)
def test_frees_that_no_stream_holds_up_wait_for_nothing(name: str) -> None:
    assert found(name, "stream") == []


# --- churn ---


def test_requests_that_never_fit_the_cached_block_are_thirty_nine_retries() -> None:
    churn = only("retries", "churn")
    assert churn.evidence["retries"] == EXPECTED["retries"]["stats"]["num_alloc_retries"] == 39
    assert (churn.evidence["num_device_alloc"], churn.evidence["num_device_free"]) == (40, 39)
    assert lines(churn)[:2] == ["registry.py:45", "fragmentation.py:49"]


def test_oversize_blocks_given_back_under_max_split_size_are_no_retries() -> None:
    churn = only("split_mix_capped", "churn")
    assert churn.evidence["retries"] == EXPECTED["split_mix_capped"]["stats"]["num_alloc_retries"] == 1
    assert churn.evidence["num_device_free"] == 43
    assert "max_split_size_mb" in churn.next_step
    assert {burst["reason"] for burst in churn.evidence["bursts"]} == {"retry", "max_split_release"}


def test_the_example_that_ran_out_of_memory_met_the_two_retries_that_torch_counted() -> None:
    (churn,) = [one for one in ullage.explain(ullage.load(EXAMPLES / "oom.pickle.xz")) if one.kind == "churn"]
    assert churn.evidence["retries"] == 2


def test_what_the_captures_of_the_example_release_is_no_churn_and_its_workspaces_share_streams() -> None:
    findings = {one.kind: one for one in ullage.explain(ullage.load(EXAMPLES / "graphs.pickle.xz"))}
    assert "churn" not in findings
    assert "has the size of cuBLAS workspaces" in findings["held"].title
    assert "reuse one side stream" in findings["held"].next_step


@pytest.mark.parametrize("name", ["retries_first", "gc_mix", "cublas_workspaces", "survivors", "graph_destroyed"])
def test_few_or_no_releases_are_no_churn(name: str) -> None:
    assert found(name, "churn") == []


# --- the recording itself ---


@pytest.mark.parametrize(
    ("name", "history", "title"),
    [
        ("late_start", "late", "The recording began late: 215 MiB was already allocated"),
        ("wrapped", "wrapped", "The ring buffer wrapped: only the last 500 events are known"),
        ("context_state", "none", "No history: only the layout at the end is known"),
        ("no_stacks", "complete", "No stacks: 193 of 193 requests do not say which line made them"),
    ],
)
def test_what_a_recording_lacks_is_said_once(name: str, history: str, title: str) -> None:
    recording = only(name, "recording")
    assert recording.title == title
    assert recording.evidence["history"] == history
    assert "record" in recording.next_step.lower()


@pytest.mark.parametrize("name", ["settings_change", "expandable_toggle"])
def test_events_that_contradict_the_settings_in_the_file_are_owned_up_to(name: str) -> None:
    assert only(name, "recording").evidence["conflicts"] > 0


@pytest.mark.parametrize(
    "name", ["stranded_weights", "metadata", "graph_chain", "two_threads", "cpp_stacks", "lru_model"]
)
def test_a_complete_recording_with_stacks_lacks_nothing(name: str) -> None:
    assert found(name, "recording") == []


# --- peak and held ---


def test_the_peak_is_split_by_line_to_the_byte() -> None:
    peak = only("stranded_weights", "peak")
    assert peak.bytes == EXPECTED["stranded_weights"]["stats"]["allocated_bytes.all.peak"]
    assert [row["bytes"] for row in peak.evidence["by_site"]] == [15 * 270 * MIB + 530 * MIB]
    assert peak.evidence["reserved_bytes"] == 16 * 530 * MIB


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_what_was_live_at_the_peak_and_what_was_reserved_add_up(name: str) -> None:
    for finding in found(name, "peak"):
        evidence = finding.evidence
        for rows in (evidence["by_site"], evidence["by_age"] if evidence["event"] >= 0 else evidence["by_site"]):
            assert sum(row["bytes"] for row in rows) == finding.bytes
        assert sum(row["bytes"] for row in evidence["waterfall"]) == evidence["reserved_bytes"]
        assert all(row["bytes"] >= 0 for row in evidence["waterfall"])


def test_cublas_workspaces_left_at_the_end_are_called_by_their_name() -> None:
    held = only("cublas_workspaces", "held")
    assert held.bytes == held.evidence["likely_cublas_workspace_bytes"] == 8 * 32 * MIB
    assert "cuBLAS workspaces" in held.title
    assert "_cuda_clearCublasWorkspaces" in held.next_step


@pytest.mark.parametrize("name", ["cublas_workspaces_cleared", "lru_model_cleared", "retries", "record_stream_waited"])
def test_nothing_is_held_where_all_was_freed(name: str) -> None:
    assert found(name, "held") == []


def test_forty_survivors_are_held_by_the_line_that_made_them() -> None:
    held = only("survivors", "held")
    assert held.bytes == 40 * 16 * MIB
    assert lines(held)[:2] == ["registry.py:45", "fragmentation.py:18"]
    assert held.evidence["likely_cublas_workspace_bytes"] == 0


def test_an_end_that_the_events_do_not_lead_to_is_told_and_shown_as_recorded() -> None:
    (recording,) = found("mem_pool", "recording")
    counted = EXPECTED["mem_pool"]["stats"]["allocated_bytes.all.current"]
    assert device_of("mem_pool").end.allocated_bytes == counted == 282_775_040
    assert (recording.severity, recording.bytes) == ("warning", 282_775_040 - 263_847_936)
