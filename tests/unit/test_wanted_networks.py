"""Network documents on DPUs in the zones fold: versions, sharing, order, reports, and what is left behind."""

from __future__ import annotations

from projections.zones.rows import DpuNetwork
from projections.zones.state import ZonesState
from tests.support.zones import ZonesPartition

ONE, TWO = '{"bridge":"one"}', '{"bridge":"two"}'


def wanted(*dpus: str) -> ZonesPartition:
    log = ZonesPartition()
    log.join("n")
    log.want(*dpus)
    return log


def row(log: ZonesPartition, dpu: str) -> DpuNetwork:
    return log.state.networks.rows[dpu]


def texts(state: ZonesState) -> set[str]:
    return {each.text for each in state.network_texts.rows.values()}


def test_dpus_share_a_document_and_its_version_is_the_offset_of_the_record() -> None:
    log = wanted("a", "b", "c")
    assert log.want_networks({"a": ONE, "b": ONE, "c": TWO}).code == "done"
    assert row(log, "a") == row(log, "b") and row(log, "a").version == log.end - 1
    assert texts(log.state) == {ONE, TWO}


def test_an_equal_document_is_not_a_new_version() -> None:
    log = wanted("a")
    log.want_networks({"a": ONE})
    before = row(log, "a")
    log.want_networks({"a": ONE})
    assert row(log, "a") == before
    log.want_networks({"a": TWO})
    log.want_networks({"a": ONE})
    assert row(log, "a").version > before.version and row(log, "a").digest == before.digest


def test_a_document_is_dropped_with_its_last_dpu() -> None:
    log = wanted("a", "b")
    log.want_networks({"a": ONE, "b": ONE})
    log.want_networks({"a": TWO})
    assert texts(log.state) == {ONE, TWO}
    log.want("b", zone="")
    assert texts(log.state) == {TWO} and "b" not in log.state.networks.rows
    log.want_networks({"a": ONE})
    assert texts(log.state) == {ONE}


def test_a_restarted_fold_drops_documents_as_the_first_one_does() -> None:
    log = wanted("a", "b")
    log.want_networks({"a": ONE, "b": ONE})
    log.state.rederive()
    log.want_networks({"a": TWO})
    assert texts(log.state) == {ONE, TWO}
    log.want_networks({"b": TWO})
    assert texts(log.state) == {TWO}


def test_only_the_object_that_wants_a_dpu_gives_it_a_document() -> None:
    log = wanted("a")
    log.want_networks({"a": ONE}, objects=["local/DPU.p/dpf/other"])
    log.want_networks({"unknown": ONE})
    assert not log.state.networks.rows and not log.state.network_texts.rows


def test_a_record_that_does_not_begin_at_the_mark_changes_nothing() -> None:
    log = wanted("a")
    log.want_networks({"a": ONE}, from_offset=0, to_offset=5)
    for first, last in ((0, 5), (4, 9), (6, 9), (5, 4)):
        assert log.want_networks({"a": TWO}, from_offset=first, to_offset=last).code == "refused"
    assert log.want_networks({"a": TWO}, from_offset=5, to_offset=5).code == "done", "a second record of the range"
    assert log.state.wanted_before(0) == 1, "wanted DPUs have a mark of their own"


def test_a_report_counts_only_for_the_version_that_is_wanted() -> None:
    log = wanted("a", "b")
    log.want_networks({"a": ONE, "b": ONE})
    first = row(log, "a").version
    assert log.report_network("a", "b", unresolved=["dpf/x,dpf/y"]).code == "done"
    assert row(log, "a").applied == first and row(log, "b").unresolved == ("dpf/x", "dpf/y")
    assert not row(log, "a").is_applied
    log.report_network("a", "b")
    assert row(log, "a").is_applied
    assert log.report_network("a", "b").code == "unchanged"
    log.want_networks({"a": TWO})
    assert (row(log, "a").applied, row(log, "a").is_applied) == (first, False)
    log.report_network("b", "a", refusals=["too late"])
    assert row(log, "a").refusal == "" and row(log, "b").refusal == "too late"
    log.report_network("a", applied=[0])
    assert row(log, "a").applied == 0, "a DPU may lose its document"
