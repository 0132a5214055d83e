"""What is booked between our decision and the API server's word for it."""

from scheduler_ext.footprint import Amount, Share
from scheduler_ext.ledger import Entry, Ledger, Stage


def entry(units: int, *, uuid: str = "g", bound: bool = False, **more) -> Entry:
    stage = Stage.PLANNED if bound else Stage.ASSUMED
    footprint = (Share(uuid, Amount(units, units)),)
    return Entry("n", footprint, bound=bound, **{"stage": stage, **more})


def test_what_we_hold_counts_until_the_api_server_says_bound():
    ledger = Ledger()
    ledger.hold("p", entry(10))
    ledger.see("p", None)
    assert ledger.taken_of("g") == Amount(10, 10)
    ledger.see("p", entry(10, bound=True))
    assert ledger.taken_of("g") == Amount(10, 10)
    ledger.let_go("p")
    assert ledger.taken_of("g") == Amount(10, 10)
    ledger.end("p", 0.0)
    assert ledger.is_empty()


def test_a_new_decision_takes_the_place_of_the_one_before():
    ledger = Ledger()
    ledger.hold("p", entry(10))
    ledger.hold("p", entry(20, uuid="other"))
    assert ledger.taken_of("g") == Amount()
    assert ledger.taken_of("other") == Amount(20, 20)
    ledger.let_go("p")
    assert ledger.is_empty()


def test_what_an_earlier_process_left_counts_until_it_runs_out():
    ledger = Ledger()
    ledger.see("p", entry(10, expires_s=30.0))
    assert ledger.overdue(29.0) == []
    assert ledger.overdue(30.0) == ["p"]
    ledger.hold("p", entry(5, uuid="other"))
    assert ledger.taken_of("g") == Amount()
    ledger.let_go("p")
    assert ledger.is_empty()


def test_pods_on_unknown_gpus_and_cpus_are_counted_by_node():
    ledger = Ledger()
    ledger.see("p", Entry("n", (), Amount(8, 5), 1000, 512, Stage.PLANNED, bound=True))
    ledger.see("q", Entry("n", cpu_milli=500, memory_mib=100, stage=Stage.PLANNED, bound=True))
    assert ledger.unlocated_on("n") == Amount(8, 5)
    assert (ledger.host_use("n").cpu_milli, ledger.host_use("n").memory_mib) == (1500, 612)
    assert ledger.totals[Stage.PLANNED].pods == 1
    ledger.end("p", 0.0)
    ledger.end("q", 0.0)
    assert ledger.is_empty()


def test_only_what_frees_something_counts_as_a_release():
    ledger = Ledger()
    ledger.hold("p", entry(10))
    ledger.hold("p", entry(10, stage=Stage.PLANNED))
    ledger.see("p", entry(10, bound=True))
    ledger.see("p", entry(12, bound=True))
    assert ledger.releases == 0
    ledger.see("p", entry(11, bound=True))
    assert ledger.releases == 1
    ledger.see("p", entry(20, uuid="other", bound=True))
    assert ledger.releases == 2
    ledger.end("p", 0.0)
    assert ledger.releases == 3


def test_stages_are_summed_up_for_metrics():
    ledger = Ledger()
    ledger.hold("p", entry(10))
    ledger.see("q", entry(20, bound=True, stage=Stage.TERMINATING))
    assert ledger.totals[Stage.ASSUMED].memory_units == 10
    assert ledger.totals[Stage.TERMINATING].compute_percent == 20
    ledger.end("q", 0.0)
    assert ledger.totals[Stage.TERMINATING].pods == 0


def test_a_whole_gpu_stays_taken_until_its_node_can_offer_it_again():
    ledger = Ledger()
    whole = (Share("g", Amount(0, 100, 1)), Share("other", Amount(4, 50)))
    ledger.see("p", Entry("n", whole, cpu_milli=500, stage=Stage.ACTUAL, bound=True))
    ledger.end("p", 12.0)
    assert (ledger.taken_of("g").wholes, ledger.taken_of("other")) == (1, Amount())
    assert ledger.host_use("n").cpu_milli == 0
    ledger.end("p", 15.0)
    assert ledger.overdue(12.0) == ["p"], "finished first and deleted then, it ended once"
    ledger.let_go("p")
    assert ledger.is_empty()


def test_a_whole_gpu_that_was_never_used_is_free_at_once():
    ledger = Ledger()
    ledger.hold("p", Entry("n", (Share("g", Amount(0, 100, 1)),)))
    ledger.end("p", 12.0)
    assert ledger.is_empty()


def test_what_was_held_beside_a_bound_pod_does_not_keep_it_booked():
    ledger = Ledger()
    ledger.see("p", entry(10, bound=True, stage=Stage.TERMINATING))
    ledger.hold("p", entry(10))
    ledger.end("p", 12.0)
    assert ledger.is_empty()
