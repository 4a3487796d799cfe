"""What a person sees of an object, and of a call that is not right."""

import numpy as np
import pytest

import polyrank
from polyrank._coalescing import CoalescingManager


def texts(here):
    group = here.make_group("texts")
    work = group.allreduce(np.ones(2))
    work.wait()
    assert repr(work) == "Work(allreduce #1, complete)"
    assert repr(work.get_future()) == "Future(Work(allreduce #1, complete))"
    manager = CoalescingManager()
    assert repr(manager) == "CoalescingManager([])"
    manager.append(work)
    assert repr(manager) == "CoalescingManager([Work(allreduce #1, complete)])"
    assert "'texts'" in repr(group) and f"rank {here.rank} of {here.size}" in repr(group)
    assert "left" not in repr(group)
    group.shutdown()
    assert repr(group).endswith(", left)>")


def test_of_groups_and_works(pair):
    pair.run(texts)


def test_of_stores(tmp_path):
    memory = polyrank.HashStore()
    assert repr(memory) == "HashStore()"
    assert repr(polyrank.PrefixStore("a", memory)) == "PrefixStore('a', HashStore())"
    file = polyrank.FileStore(str(tmp_path / "store"))
    assert repr(file) == f"FileStore('{tmp_path}/store')"
    server = polyrank.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    assert repr(server) == f"TCPStore('127.0.0.1', {server.port})"


def test_without_asyncio():
    store = polyrank.HashStore()
    group = polyrank.ProcessGroup(store, 0, 1)
    with pytest.raises(RuntimeError, match="trio.to_thread.run_sync"):
        group.allreduce(np.ones(1)).__await__()
