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


def refused(here):
    group = here.make_group("dump nowhere")
    with pytest.raises(ValueError, match="dump: cannot write /proc/none/trace.json"):
        group.dump("/proc/none/trace.json")
    group.shutdown()


def test_a_file_that_cannot_be_written_is_an_error(world):
    world.run(refused)
