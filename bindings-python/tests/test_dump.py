"""What all ranks have called lately, in one file."""

import json

import numpy as np
import pytest

import polyrank


def dumped(here, path):
    group = here.make_group("dump")
    with polyrank.record_comm("layer 1"):
        group.allreduce(np.ones((2, 3), np.float32), polyrank.ReduceOp.MAX).wait()
    group.barrier().wait()
    if here.rank == 0:
        assert group.dump(path) == path
    group.barrier().wait()
    group.shutdown()


def test_a_dump_has_all_ranks(world, tmp_path):
    path = tmp_path / "made" / "trace.json"
    world.run(dumped, str(path))
    trace = json.loads(path.read_text())
    assert trace["missing"] == []
    assert [dump["rank"] for dump in trace["ranks"]] == list(range(world.size))
    for dump in trace["ranks"]:
        entries = [entry for entry in dump["entries"] if entry["process_group"][0] == "dump"]
        first = entries[0]
        assert (first["name"], first["comm_name"], first["state"]) == (
            "allreduce",
            "layer 1",
            "completed",
        )
        assert (first["input_sizes"], first["input_dtypes"]) == ([[2, 3]], ["Float"])
        assert first["reduce_op"] == "MAX"
        assert entries[1]["name"] == "barrier"


def step(group):
    return group.barrier()


def noted(here, path):
    polyrank.set_debug_level(polyrank.DebugLevel.DETAIL)
    group = here.make_group("dump: where calls come from")
    polyrank.set_debug_level(polyrank.DebugLevel.OFF)
    plain = here.make_group("dump: as usual")
    works = [step(group), plain.barrier()]
    [work.wait() for work in works]
    if here.rank == 0:
        # Nobody else comes to these before the file is written.
        works = [step(group), plain.barrier()]
        group.dump(path)
    here.store.barrier("dump: written", here.size)
    if here.rank > 0:
        works = [step(group), plain.barrier()]
    [work.wait() for work in works]
    plain.shutdown()
    group.shutdown()


@pytest.mark.parametrize("size", [2, 3])
def test_at_level_detail_it_says_where_operations_were_called(pools, tmp_path, size):
    path = tmp_path / "trace.json"
    pools(size).run(noted, str(path))
    ranks = json.loads(path.read_text())["ranks"]
    entries = [(dump["rank"], entry) for dump in ranks for entry in dump["entries"]]

    def of(name, state):
        named = [(rank, it) for rank, it in entries if it["process_group"][0] == name]
        return [(rank, it) for rank, it in named if it["state"] == state]

    line = step.__code__.co_firstlineno + 1
    for name, has_frames in [("dump: where calls come from", True), ("dump: as usual", False)]:
        [(rank, waiting)] = of(name, "started")
        assert rank == 0 and waiting["timeout_ms"] > 0
        assert set(waiting["waits_for"]) <= set(range(1, size)) and waiting["waits_for"]
        functions = [frame["name"] for frame in waiting["frames"]]
        assert functions[:2] == (["step", "noted"] if has_frames else []), functions
        if has_frames:
            frame = waiting["frames"][0]
            assert (frame["filename"], frame["line"]) == (__file__, line)


def refused(here):
    group = here.make_group("dump nowhere")
    with pytest.raises(ValueError, match="dump: cannot write /proc/none/trace.json"):
        group.dump("/proc/none/trace.json")
    group.shutdown()


def test_a_file_that_cannot_be_written_is_an_error(world):
    world.run(refused)
