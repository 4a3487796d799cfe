"""What groups have called, counted, and the same as OpenMetrics text."""

import math
import time

import numpy as np
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

import polyrank

CALLS = 100


def counted(here):
    group = here.make_group("statistics")
    small, large = np.ones(3, np.float32), np.ones(40_000, np.float64)
    for _ in range(CALLS):
        group.allreduce(small).wait()
    for _ in range(3):
        group.broadcast(large, 0).wait()
    stats = group.stats()
    text = polyrank.metrics()
    group.barrier().wait()
    group.shutdown()
    return stats, text


def test_calls_bytes_and_times_are_counted(world):
    for rank, (stats, text) in enumerate(world.run(counted)):
        assert (stats["group"], stats["rank"], stats["size"]) == ("statistics", rank, world.size)
        operations = {operation["name"]: operation for operation in stats["operations"]}
        allreduce, broadcast = operations["allreduce"], operations["broadcast"]
        assert (allreduce["count"], allreduce["bytes"]) == (CALLS, CALLS * 12)
        assert (broadcast["count"], broadcast["bytes"]) == (3, 3 * 320_000)
        assert (broadcast["failed"], broadcast["in_flight"]) == (0, 0)
        times = [broadcast[name] for name in ("p50_seconds", "p99_seconds", "max_seconds")]
        assert times == sorted(times) and times[-1] <= broadcast["total_seconds"]
        assert all(peer["rank"] != rank for peer in stats["peers"])
        check(text, rank)


def check(text, rank):
    """As a parser that is not ours reads it."""
    families = {family.name: family for family in text_string_to_metric_families(text)}
    labels = {"rank": str(rank), "group": "statistics", "operation": "allreduce"}

    def value(family, sample, **more):
        samples = families[family].samples
        found = [it.value for it in samples if (it.name, it.labels) == (sample, {**labels, **more})]
        assert len(found) == 1, (sample, found)
        return found[0]

    assert value("polyrank_operations", "polyrank_operations_total") == CALLS
    assert value("polyrank_operation_bytes", "polyrank_operation_bytes_total") == CALLS * 12
    histogram = "polyrank_operation_duration_seconds"
    assert families[histogram].type == "histogram"
    assert value(histogram, f"{histogram}_bucket", le="+Inf") == value(
        histogram, f"{histogram}_count"
    )


def held_up(here, slow):
    group = here.make_group(f"held up by {slow}")
    # What each gives is more than travels without asking.
    values = np.ones(200_000, np.float64)
    group.barrier().wait()
    for _ in range(5):
        if here.rank == slow:
            until = time.monotonic() + 0.1
            while time.monotonic() < until:
                math.sqrt(2.0)
        group.barrier().wait()
        group.allreduce(values).wait()
    stats = group.stats()
    group.barrier().wait()
    group.shutdown()
    return stats


def many_receives(here):
    group, go = here.make_group("many receives"), here.make_group("go")
    values = [np.zeros(3) for _ in range(10)]
    if here.rank == 0:
        receiving = [group.recv([value], 1, tag) for tag, value in enumerate(values)]
        # What has not come is waited for, and counted as that.
        while not any(peer["waited_seconds"] > 0 for peer in group.stats()["peers"]):
            pass
        go.barrier().wait()
        [work.wait() for work in receiving]
    else:
        go.barrier().wait()
        [group.send([value], 0, tag).wait() for tag, value in enumerate(values)]
    stats = group.stats()
    go.barrier().wait()
    go.shutdown()
    group.shutdown()
    return stats


def test_a_moment_counts_once_however_many_wait_and_before_they_have_ended(pools):
    stats = pools(2).run(many_receives)[0]
    [peer] = stats["peers"]
    assert (peer["rank"], peer["global_rank"], stats["slowest_peer"]) == (1, 1, 1)
    assert (stats["rank"], stats["global_rank"]) == (0, 0)
    assert 0 < peer["waited_seconds"] <= stats["seconds"]


@pytest.mark.parametrize("size", [2, 3, 5, 8])
@pytest.mark.parametrize("is_last", [False, True])
def test_the_rank_that_computes_is_the_one_that_others_wait_for(pools, size, is_last):
    slow = size - 1 if is_last else 0
    waited = [
        {peer["rank"]: peer["waited_seconds"] for peer in stats["peers"]}
        for stats in pools(size).run(held_up, slow)
    ]
    others = [peers for rank, peers in enumerate(waited) if rank != slow]
    assert all(max(peers, key=peers.get) == slow for peers in others), waited
    # It waits for all others together less than each of them waits for it.
    assert sum(waited[slow].values()) < min(peers[slow] for peers in others), waited


def named(here):
    group = here.make_group("named")
    group.allreduce(np.ones(3)).wait()
    for _ in range(2):
        with polyrank.record_comm("layer 1"):
            group.allreduce(np.ones(3)).wait()
    stats, text = group.stats(), polyrank.metrics()
    group.barrier().wait()
    group.shutdown()
    return stats, text


def test_operations_of_a_name_are_counted_apart(pair):
    for rank, (stats, text) in enumerate(pair.run(named)):
        counts = {
            operation["comm_name"]: operation["count"]
            for operation in stats["operations"]
            if operation["name"] == "allreduce"
        }
        assert counts == {None: 1, "layer 1": 2}
        families = {family.name: family for family in text_string_to_metric_families(text)}
        labels = {"rank": str(rank), "group": "named", "operation": "allreduce"}
        samples = families["polyrank_operations"].samples
        found = [it.value for it in samples if it.labels == {**labels, "comm_name": "layer 1"}]
        assert found == [2]
