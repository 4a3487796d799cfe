"""What a person sees of an object, and of a call that is not right."""

import re

import numpy as np
import pytest

import polyrank
from polyrank._coalescing import CoalescingManager


def texts(here):
    group = here.make_group("texts")
    work = group.allreduce(np.ones(2))
    work.wait()
    complete = r"Work\(allreduce #1 of texts, complete, \d+ ms\)"
    assert re.fullmatch(complete, repr(work))
    assert re.fullmatch(rf"Future\({complete}\)", repr(work.get_future()))
    manager = CoalescingManager()
    assert repr(manager) == "CoalescingManager([])"
    manager.append(work)
    assert re.fullmatch(rf"CoalescingManager\(\[{complete}\]\)", repr(manager))
    shown = f"ProcessGroup(texts, rank {here.rank} of {here.size}, tcp"
    assert repr(group) == f"{shown})"
    prepared = group.prepare_allreduce(np.ones(2, np.float32))
    assert repr(prepared) == "PreparedOperation(allreduce of 2 f32 in texts)"
    message = polyrank.P2POp(polyrank.isend, np.ones(2), group_peer=1 - here.rank, group=group)
    assert repr(message) == f"P2POp(isend, peer {1 - here.rank} of texts, tag 0)"
    store = group.get_group_store()
    assert re.fullmatch(r"PrefixStore\('.*texts.*', .*Store\(.+\)\)", repr(store))
    assert re.fullmatch(r"PrefixStore\('.*texts.*', .*Store\(.+\)\)", repr(store.clone()))
    open_end = group.recv([np.ones(2)], 1 - here.rank, 7)
    group.abort()
    with pytest.raises(polyrank.PolyrankError):
        open_end.wait()
    assert re.fullmatch(r"Work\(recv #\d+ of texts, failed, \d+ ms: .*abort.*\)", repr(open_end))
    group.shutdown()
    assert repr(group) == f"{shown}, left)"
    assert repr(store) == "Store(of texts, left)"


def test_of_groups_and_works(pair):
    pair.run(texts)


def test_of_stores(tmp_path):
    memory = polyrank.HashStore()
    assert repr(memory) == "HashStore()"
    assert repr(polyrank.PrefixStore("a", memory)) == "PrefixStore('a', HashStore())"
    file = polyrank.FileStore(str(tmp_path / "store"))
    assert repr(file) == f"FileStore('{tmp_path}/store')"
    server = polyrank.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    assert repr(server) == f"TCPStore(127.0.0.1:{server.port})"
    clone = server.clone()
    assert repr(clone) == repr(server)
    assert isinstance(clone, polyrank.TCPStore) and clone.port == server.port
    view = polyrank.PrefixStore("a", server).clone()
    assert repr(view) == f"PrefixStore('a', TCPStore(127.0.0.1:{server.port}))"
    assert view.prefix == "a" and view.underlying_store.port == server.port


def test_a_tuple_is_called_a_tuple():
    group = polyrank.ProcessGroup(polyrank.HashStore(), 0, 1)
    with pytest.raises(TypeError, match=r"not tuple of 2 int\. A Tensor"):
        group.allreduce((1, 2))
    with pytest.raises(TypeError, match="not list of 2 int"):
        group.allreduce([1, 2])
    pair = np.ones(1), np.ones(1)
    group.allreduce(pair).wait()
    group.allgather(((np.ones(1),),), (np.ones(1),)).wait()
    with pytest.raises(TypeError, match="tuple of str and int"):
        polyrank.HashStore().check(("a", 1))


def test_without_asyncio():
    store = polyrank.HashStore()
    group = polyrank.ProcessGroup(store, 0, 1)
    with pytest.raises(RuntimeError, match="trio.to_thread.run_sync"):
        group.allreduce(np.ones(1)).__await__()
