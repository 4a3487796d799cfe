"""Stores that are written in Python: whatever takes a store takes them."""

import threading
import time
from datetime import timedelta

import numpy as np
import polyrank
import pytest


class Shared:
    """What the stores of several ranks, threads of this process, have in common."""

    def __init__(self):
        self.lock = threading.Lock()
        self.values = {}
        self.calls = []


class DictStore(polyrank.Store):
    """No more than groups need."""

    def __init__(self, shared):
        super().__init__()
        self.shared = shared

    def set(self, key, value):
        self.shared.calls.append("set")
        with self.shared.lock:
            self.shared.values[key] = value

    def get(self, key):
        deadline = time.monotonic() + self.timeout.total_seconds()
        while key not in self.shared.values:
            if time.monotonic() > deadline:
                raise TimeoutError(key)
            time.sleep(0.001)
        return self.shared.values[key]

    def add(self, key, amount):
        with self.shared.lock:
            total = int(self.shared.values.get(key, b"0")) + amount
            self.shared.values[key] = str(total).encode()
            return total

    def check(self, keys):
        return all(key in self.shared.values for key in keys)

    def compare_set(self, key, expected, desired):
        with self.shared.lock:
            present = self.shared.values.get(key)
            if (expected if present is not None else b"") == (present or b""):
                self.shared.values[key] = desired
            return self.shared.values.get(key, expected)

    def delete_key(self, key):
        with self.shared.lock:
            return self.shared.values.pop(key, None) is not None


def on_threads(size, rank_main):
    failures = []

    def run(rank):
        try:
            rank_main(rank)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    if failures:
        raise failures[0]


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_groups_meet_in_a_store_of_python(size):
    shared = Shared()

    def rank_main(rank):
        store = polyrank.PrefixStore("under", DictStore(shared)) if rank % 2 else DictStore(shared)
        if rank % 2 == 0:
            store = polyrank.PrefixStore("under", store)
        assert isinstance(store.underlying_store, DictStore)
        with polyrank.ProcessGroup(store, rank, size, timeout=60, group_name="own") as group:
            total = np.full(3, float(rank + 1))
            group.allreduce(total).wait()
            assert total.tolist() == [size * (size + 1) / 2] * 3
            group.get_group_store().set(f"key {rank}", "v")
            group.get_group_store().wait([f"key {other}" for other in range(size)])
            group.monitored_barrier(timeout=60)

    on_threads(size, rank_main)
    assert shared.calls and all(key.startswith("under/") for key in shared.values)


def test_the_default_group_takes_one():
    polyrank.init_process_group(store=DictStore(Shared()), rank=0, world_size=1)
    try:
        half = polyrank.new_group([0])
        value = np.ones(1)
        half.allreduce(value).wait()
        assert value[0] == 1
    finally:
        polyrank.destroy_process_group()


def test_what_a_class_lacks_is_made_of_what_it_has():
    store = polyrank.PrefixStore("p", DictStore(Shared()))
    store.multi_set(["a", "b"], [b"1", b"2"])
    assert store.multi_get(["b", "a"]) == [b"2", b"1"]
    assert store.compare_set("a", b"1", b"3") == b"3" == store.get("a")
    assert store.delete_key("a") and not store.delete_key("a")
    store.wait(["b"])
    with pytest.raises(polyrank.StoreTimeoutError):
        store.wait(["never"], timedelta(milliseconds=20))
    store.set_timeout(timedelta(milliseconds=20))
    assert store.timeout == timedelta(milliseconds=20)
    with pytest.raises(polyrank.StoreTimeoutError):
        store.get("never")
    with pytest.raises(polyrank.UnsupportedError):
        store.append("a", b"x")
    with pytest.raises(polyrank.UnsupportedError):
        polyrank.Store().set("a", "b")


class Failing(DictStore):
    def get(self, key):
        raise LookupError(f"no {key} today")

    def add(self, key, amount):
        return "many"


def test_what_the_class_raises_is_the_cause_of_a_typed_error():
    store = polyrank.PrefixStore("p", Failing(Shared()))
    with pytest.raises(polyrank.DistStoreError, match="LookupError: no p/k today") as caught:
        store.get("k")
    assert isinstance(caught.value.__cause__, LookupError)
    with pytest.raises(polyrank.DistStoreError, match="add"):
        store.add("k", 1)
    with pytest.raises(polyrank.DistError):
        polyrank.init_process_group(store=Failing(Shared()), rank=0, world_size=1, timeout=5)
    assert not polyrank.is_initialized()


class Counted(polyrank.HashStore):
    """A class of the package with a method of its own."""

    def __init__(self):
        self.sets = 0

    def set(self, key, value):
        self.sets += 1
        super().set(key, value)


class Plain(polyrank.HashStore):
    pass


def test_methods_of_derived_classes_are_called():
    store = Counted()
    view = polyrank.PrefixStore("p", store)
    view.set("a", "1")
    assert store.sets == 1 and store.get("p/a") == b"1" and view.get("a") == b"1"
    assert view.underlying_store is store
    plain = Plain()
    polyrank.PrefixStore("p", plain).set("a", "1")
    assert plain.get("p/a") == b"1"


class Listed(DictStore):
    """A class that knows its keys, too."""

    def list_keys(self):
        return list(self.shared.values)


def test_what_is_made_of_a_class_is_there_on_the_object_itself():
    store = Listed(Shared())
    store.multi_set(["a", "b"], [b"1", b"2"])
    assert store.multi_get(["b", "a"]) == [b"2", b"1"] and store.multi_get([]) == []
    assert store.num_keys() == 2 == polyrank.PrefixStore("p", store).num_keys()
    store.wait(["a"])
    store.barrier("door", 1)
    on_threads(2, lambda rank: store.barrier("gate", 2))
    with pytest.raises(polyrank.InvalidArgumentError, match="2 keys, 1 values"):
        store.multi_set(["a", "b"], [b"1"])
    with pytest.raises(polyrank.StoreTimeoutError, match="never") as caught:
        store.wait(["never"], timedelta(milliseconds=20))
    assert caught.value.operation == "wait" and caught.value.waited_ms == 20
    with pytest.raises(polyrank.StoreTimeoutError, match="barrier"):
        store.barrier("alone", 2, timedelta(milliseconds=20))
    with pytest.raises(polyrank.UnsupportedError, match="append"):
        store.append("a", b"x")
    assert not store.has_extended_api()
    assert not polyrank.PrefixStore("p", store).has_extended_api()


def test_a_class_with_all_methods_says_so():
    below = polyrank.HashStore()
    names = ("append", "queue_push", "queue_pop", "queue_len")
    forwarded = {name: lambda self, *given, n=name: getattr(below, n)(*given) for name in names}
    store = type("All", (DictStore,), forwarded)(Shared())
    assert store.has_extended_api() and Plain().has_extended_api()
    view = polyrank.PrefixStore("p", store)
    assert view.has_extended_api()
    view.queue_push("q", b"1")
    assert view.queue_len("q") == 1 and view.queue_pop("q") == b"1"


def test_what_a_class_lacks_is_named_once():
    store = polyrank.PrefixStore("p", DictStore(Shared()))
    with pytest.raises(polyrank.UnsupportedError) as caught:
        store.list_keys()
    assert str(caught.value).count("list_keys") == 1 and "DictStore" in str(caught.value)


@pytest.mark.parametrize(
    ("method", "given", "value", "message"),
    [
        ("get", ("k",), None, "must return bytes or str, not NoneType"),
        ("compare_set", ("k", b"", b"1"), 5, "must return bytes or str, not int"),
        ("add", ("k", 1), "many", "must return int, not str"),
        ("multi_get", (["k"],), 5, "must return a list of bytes or str, not int"),
        ("list_keys", (), 5, "must return a list of str, not int"),
    ],
)
def test_answers_of_a_wrong_type_say_what_is_expected(method, given, value, message):
    answers = {method: lambda self, *given: value}
    store = polyrank.PrefixStore("p", type("Wrong", (DictStore,), answers)(Shared()))
    with pytest.raises(polyrank.DistStoreError, match=rf"Wrong\.{method} {message}"):
        getattr(store, method)(*given)


def test_text_is_its_utf8():
    class Texts(DictStore):
        def get(self, key):
            return super().get(key).decode()

    store = Texts(Shared())
    store.set("k", "ä".encode())
    assert store.multi_get(["k"]) == ["ä".encode()]
    view = polyrank.PrefixStore("p", store)
    view.set("k", "ö")
    assert view.get("k") == "ö".encode()
    # What ranks write is not text: a class that decodes it says what became of that.
    store.set("p/k", b"\xff")
    with pytest.raises(polyrank.DistStoreError, match="UnicodeDecodeError"):
        view.get("k")


def test_what_is_overridden_is_what_others_are_made_of():
    class Shouting(polyrank.HashStore):
        def get(self, key):
            return super().get(key).upper()

    store = Shouting()
    store.set("k", "v")
    assert store.multi_get(["k"]) == [b"V"]
    store.queue_push("q", "raw")
    assert store.queue_pop("q") == b"raw" and store.has_extended_api()
