"""The names of `_dist2`: groups as objects, for programs without a default group."""

import socket
import threading

import numpy as np
import pytest

import polyrank
from polyrank import _dist2


@pytest.fixture
def environment(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    values = {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    for name, value in values.items():
        monkeypatch.setenv(name, str(value))


def test_groups_are_made_from_the_environment(environment):
    group = _dist2.new_group("tcp", 5, "cpu")
    another = _dist2.new_group(backend="tcp", timeout=7.5, device=None, group_name="another")
    assert not polyrank.is_initialized()
    assert (group.size(), group.timeout.total_seconds()) == (1, 5)
    assert (another.group_name, another.timeout.total_seconds()) == ("another", 7.5)
    with _dist2.process_group(another):
        assert _dist2.current_process_group().group_name == "another"
    with pytest.raises(polyrank.NotInitializedError):
        _dist2.current_process_group()
    with pytest.raises(polyrank.DuplicateGroupError):
        _dist2.new_group("tcp", group_name="another")
    tensor = np.ones(3)
    group.allreduce(tensor).wait()
    for made in (group, another):
        polyrank.destroy_process_group(made)
    with pytest.raises(TypeError, match="bogus"):
        _dist2.new_group("tcp", 5, "cpu", bogus=True)


def test_a_destroyed_group_is_refused(environment):
    group = _dist2.new_group("tcp", 5, "cpu")
    polyrank.destroy_process_group(group)
    asked = [
        lambda: polyrank.get_rank(group),
        lambda: polyrank.get_world_size(group),
        lambda: polyrank.get_backend(group),
        lambda: polyrank.get_process_group_ranks(group),
        lambda: polyrank.get_group_rank(group, 0),
        lambda: polyrank.get_global_rank(group, 0),
        lambda: polyrank.set_timeout(3, group),
        lambda: polyrank.all_reduce(np.ones(2), group=group),
        lambda: polyrank.barrier(group=group),
        lambda: polyrank.all_gather_object([None], 1, group=group),
        lambda: polyrank.isend(np.ones(2), 0, group),
        lambda: polyrank.split_group(group, [[0]]),
        lambda: polyrank.destroy_process_group(group),
    ]
    for ask in asked:
        with pytest.raises(polyrank.InvalidGroupError, match="Invalid process group specified"):
            ask()


def test_threads_cannot_be_the_same_rank():
    store = polyrank.HashStore()
    made, refused = [], []
    ready = threading.Barrier(4)

    def join():
        ready.wait()
        try:
            made.append(polyrank.join_group("one", store=store, rank=0, world_size=1))
        except polyrank.DuplicateGroupError as error:
            refused.append(error)

    threads = [threading.Thread(target=join) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(made), len(refused)) == (1, 3)
    with pytest.raises(polyrank.DuplicateGroupError):
        polyrank.init_process_group(store=store, rank=0, world_size=1, group_name="one")
    polyrank.destroy_process_group(made[0])
