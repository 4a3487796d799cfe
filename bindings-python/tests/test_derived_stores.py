"""Classes that are derived from the stores of the package: how they are made, and cloned."""

import pathlib

import polyrank
import polyrank.distributed as dist
import pytest


@pytest.fixture
def server():
    return polyrank.TCPStore("127.0.0.1", 0, is_master=True, timeout=30)


def stores(server, directory):
    """Each class that users may derive from, and what its objects are made of."""
    return [
        (dist.HashStore, ()),
        (dist.FileStore, (str(directory / "store"), 1)),
        (dist.PrefixStore, ("p", dist.HashStore())),
        (dist.TCPStore, ("127.0.0.1", server.port)),
        (polyrank.WebSocketStore, (f"ws://127.0.0.1:{server.port}",)),
    ]


def works(store):
    store.set("k", "v")
    assert store.get("k") == b"v" and store.check(["k"])


def test_a_derived_class_takes_what_it_likes(server, tmp_path: pathlib.Path):
    for base, given in stores(server, tmp_path):

        class Tagged(base):
            def __init__(self, tag, *, also=None):
                super().__init__(*self.made_of)
                self.tag, self.also = tag, also

            made_of = given

        class Handed(base):
            def __init__(self, *positional, **keywords):
                super().__init__(*positional, **keywords)
                self.keywords = keywords

        class Unchanged(base):
            pass

        tagged = Tagged(3, also="x")
        assert (tagged.tag, tagged.also) == (3, "x")
        handed = Handed(*given)
        assert handed.keywords == {}
        for store in (tagged, handed, Unchanged(*given), base(*given)):
            works(store)
            twin = store.clone()
            assert type(twin) is type(store) and twin is not store and twin.get("k") == b"v"
            assert vars(twin) == vars(store) if type(store) is not base else True
    limited = Handed(f"ws://127.0.0.1:{server.port}", timeout=7)
    assert limited.timeout.total_seconds() == 7 and limited.keywords == {"timeout": 7}


def test_a_server_that_is_derived_is_cloned():
    class Server(dist.TCPStore):
        def __init__(self, purpose):
            super().__init__("127.0.0.1", 0, 1, True)
            self.purpose = purpose

    served = Server("weights")
    works(served)
    twin = served.clone()
    assert type(twin) is Server and twin.purpose == "weights" and twin.port == served.port
    assert twin.get("k") == b"v"


def test_what_a_class_does_not_take_is_told(server, tmp_path: pathlib.Path):
    for base, given in stores(server, tmp_path):
        derived = type("Derived", (base,), {})
        for cls in (base, derived):
            with pytest.raises(TypeError, match=base.__name__):
                cls(*given, unknown=1)


def test_a_store_that_is_not_made_says_so_at_its_first_use(server, tmp_path: pathlib.Path):
    for base, _ in stores(server, tmp_path):

        class Forgetful(base):
            def __init__(self, tag):
                self.tag = tag

        store = Forgetful(1)
        uses = [
            lambda: store.set("k", "v"),
            lambda: store.timeout,
            lambda: store.clone(),
            lambda: dist.PrefixStore("p", store),
            lambda: dist.init_process_group(store=store, rank=0, world_size=1),
        ]
        for use in uses:
            with pytest.raises(polyrank.InvalidTypeError, match=r"Forgetful .* super\(\)"):
                use()
        assert "__init__" in repr(store) and not dist.is_initialized()


def test_a_store_is_made_once():
    class Tagged(dist.HashStore):
        pass

    for store in (dist.HashStore(), Tagged()):
        works(store)
        with pytest.raises(polyrank.InvalidArgumentError, match="called before"):
            store.__init__()
        assert store.get("k") == b"v"


def test_the_longest_limit_is_read_back_as_it_is_given():
    from datetime import timedelta

    store = dist.HashStore()
    group = polyrank.ProcessGroup(store, 0, 1, timeout=timedelta.max)
    store.set_timeout(timedelta.max)
    assert store.timeout == dist.PrefixStore("p", store).timeout == timedelta.max
    assert group.timeout == timedelta.max
    # More than a group can keep.
    store.set_timeout(timedelta(days=220_000))
    assert store.timeout == timedelta(days=220_000)
    for limit in (timedelta(days=200_000), timedelta(milliseconds=1)):
        store.set_timeout(limit)
        group.set_timeout(limit)
        assert store.timeout == group.timeout == limit
    group.shutdown()
