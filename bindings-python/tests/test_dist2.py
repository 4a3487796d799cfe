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


def test_options_of_a_registered_backend_are_its_factorys(environment):
    given = []

    class Nothing:
        def allreduce(self, tensors, opts):
            pass

    def factory(about, options):
        given.append(options)
        return Nothing()

    polyrank.register_backend("dist2_extended", factory, extended_api=True)
    polyrank.register_backend("dist2_plain", lambda *_: Nothing())
    options = polyrank.BackendOptions()
    groups = [
        _dist2.new_group("dist2_extended", 5, algorithm="tree"),
        _dist2.new_group("dist2_extended", 5, pg_options=options),
        _dist2.new_group("Dist2_Extended", 5),
        _dist2.new_group("dist2_plain", 5),
    ]
    assert given == [{"algorithm": "tree"}, options, None]
    with pytest.raises(TypeError, match="the backend 'dist2_plain' takes no options .*tree"):
        _dist2.new_group("dist2_plain", 5, algorithm="tree")
    for group in groups:
        polyrank.destroy_process_group(group)


def test_factories_are_given_the_device_and_further_options(environment):
    given = []

    class Backend:
        def __init__(self, store, rank, world_size, timeout, device, **options):
            given.append((rank, world_size, timeout.total_seconds(), device, options))

        def allreduce(self, tensors, opts):
            tensors[0] += 1

    def exact(store, rank, world_size, timeout, where, *, depth):
        return Backend(store, rank, world_size, timeout, where, depth=depth)

    def without(store, rank, size, timeout, retries=3):
        return Backend(store, rank, size, timeout, retries)

    def group(store, rank, world_size, timeout, device, **options):
        return polyrank.ProcessGroup(store, rank, world_size, "tcp", timeout)

    _dist2.register_backend("dist2_group", group)
    over = _dist2.new_group("dist2_group", 5, "cpu")
    over.allreduce(np.ones(2)).wait()
    polyrank.destroy_process_group(over)
    _dist2.register_backend("dist2_device", Backend)
    polyrank.register_backend("dist2_exact", exact)
    _dist2.register_backend("dist2_retries", without)
    groups = [
        _dist2.new_group("dist2_device", 5, "cpu", algorithm="tree", depth=2),
        _dist2.new_group("dist2_device", 5),
        _dist2.new_group("dist2_exact", 5, "cpu", depth=4),
        _dist2.new_group("dist2_retries", 5, "cpu"),
        _dist2.new_group("dist2_retries", 5, "cpu", retries=7),
        polyrank.ProcessGroup(polyrank.HashStore(), 0, 1, backend="dist2_device", timeout=6),
    ]
    assert given == [
        (0, 1, 5, "cpu", {"algorithm": "tree", "depth": 2}),
        (0, 1, 5, None, {}),
        (0, 1, 5, "cpu", {"depth": 4}),
        (0, 1, 5, 3, {}),
        (0, 1, 5, 7, {}),
        (0, 1, 6, None, {}),
    ]
    for group in groups:
        tensor = np.ones(2)
        group.allreduce(tensor).wait()
        assert list(tensor) == [2, 2]
    with pytest.raises(TypeError, match="'dist2_exact' takes no options .*'width'"):
        _dist2.new_group("dist2_exact", 5, "cpu", depth=4, width=1)
    for group in groups:
        polyrank.destroy_process_group(group)


def test_a_group_that_could_not_be_made_does_not_count(environment):
    first = _dist2.new_group("tcp", 5)
    for wrong in ({"backend": "unheard"}, {"device": "toaster"}, {"bogus": 1}):
        with pytest.raises((polyrank.PolyrankError, TypeError)):
            _dist2.new_group(**{"backend": "tcp", "timeout": 5, **wrong})
    second = _dist2.new_group("tcp", 5)
    numbers = [int(group.group_name.removeprefix("dist2_")) for group in (first, second)]
    assert numbers[1] == numbers[0] + 1
    for group in (first, second):
        polyrank.destroy_process_group(group)


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
