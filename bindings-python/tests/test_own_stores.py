"""Stores that are written in Python: whatever takes a store takes them."""

import asyncio
import signal
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
        super().__init__()
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
        ("add", ("k", 1), True, "must return int, not bool"),
        ("add", ("k", 1), 2**63, "must return an integer of 64 bits, not 9223372036854775808"),
        ("get", ("k",), [1, 2], "must return bytes or str, not list"),
        ("get", ("k",), np.ones(2), "must return bytes or str, not ndarray"),
        ("compare_set", ("k", b"", b"1"), (1, 2), "must return bytes or str, not tuple"),
        ("check", (["k"],), None, "must return bool, not NoneType"),
        ("check", (["k"],), 1, "must return bool, not int"),
        ("delete_key", ("k",), "yes", "must return bool, not str"),
        ("multi_get", (["k"],), 5, "must return a list of bytes or str, not int"),
        ("multi_get", (["k"],), "v", "must return a list of bytes or str, not str"),
        ("multi_get", (["k", "l"],), [b"1"], "must return 2 values, one for each key, not 1"),
        ("multi_get", (["k"],), [7], "must return bytes or str in its list, not int"),
        ("list_keys", (), 5, "must return a list of str, not int"),
    ],
)
def test_answers_of_a_wrong_type_say_what_is_expected(method, given, value, message):
    answers = {method: lambda self, *given: value}
    store = polyrank.PrefixStore("p", type("Wrong", (DictStore,), answers)(Shared()))
    with pytest.raises(polyrank.DistStoreError, match=rf"Wrong\.{method} {message}"):
        getattr(store, method)(*given)


@pytest.mark.parametrize("value", [b"ab", "ab", bytearray(b"ab"), np.frombuffer(b"ab", np.uint8)])
def test_values_may_be_bytes_of_any_sort(value):
    answers = {
        "get": lambda self, key: value,
        "check": lambda self, keys: np.bool_(True),
        "multi_get": lambda self, keys: (value for _ in keys),
    }
    store = polyrank.PrefixStore("p", type("Right", (DictStore,), answers)(Shared()))
    assert store.get("k") == b"ab" and store.check(["k"]) is True
    assert store.multi_get(["k", "l"]) == [b"ab"] * 2
    strided = memoryview(b"a-b-")[::2]
    answers["get"] = lambda self, key: strided
    assert type("Strided", (DictStore,), answers)(Shared()).get("k") == strided
    assert polyrank.PrefixStore("p", type("S", (DictStore,), answers)(Shared())).get("k") == b"ab"


class Awaited(DictStore):
    async def set(self, key, value):
        super().set(key, value)

    async def check(self, keys):
        return super().check(keys)


def test_methods_that_are_async_are_refused_in_words():
    own, view = Awaited(Shared()), polyrank.PrefixStore("p", Awaited(Shared()))
    text = "is `async def`; a store's methods return their value"
    with pytest.raises(polyrank.DistStoreError, match=rf"Awaited\.set {text}"):
        view.set("k", "v")
    for call in (lambda: view.check(["k"]), lambda: view.wait(["k"]), lambda: own.wait(["k"])):
        with pytest.raises(polyrank.DistStoreError, match=rf"Awaited\.check {text}"):
            call()
    with pytest.raises(polyrank.DistStoreError, match=rf"Awaited\.set {text}"):
        own.multi_set(["k"], [b"v"])
    with pytest.raises(polyrank.PolyrankError, match=text):
        polyrank.init_process_group(store=Awaited(Shared()), rank=0, world_size=2, timeout=60)
    assert not polyrank.is_initialized()


class Ended(BaseException):
    pass


@pytest.mark.parametrize(
    "ending", [KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError, Ended]
)
def test_what_ends_a_program_ends_the_call(ending):
    """It is not a failure of a store, which `except Exception` would catch."""

    class Ending(DictStore):
        def check(self, keys):
            raise ending

        def get(self, key):
            raise ending

    def end_of(call):
        with pytest.raises(BaseException) as caught:
            call()
        assert type(caught.value) is ending

    store = Ending(Shared())
    end_of(lambda: polyrank.PrefixStore("p", store).get("k"))
    end_of(lambda: polyrank.PrefixStore("q", polyrank.PrefixStore("p", store)).wait(["k"]))
    end_of(lambda: store.multi_get(["k"]))
    end_of(lambda: polyrank.init_process_group(store=store, rank=0, world_size=2, timeout=60))
    assert not polyrank.is_initialized()
    # The next call knows nothing of it.
    polyrank.PrefixStore("p", store).set("k", "v")


def test_ctrl_c_in_a_method_is_a_keyboard_interrupt():
    class Interrupted(DictStore):
        def check(self, keys):
            signal.raise_signal(signal.SIGINT)
            return False

    with pytest.raises(KeyboardInterrupt):
        polyrank.init_process_group(
            store=Interrupted(Shared()), rank=0, world_size=2, timeout=60
        )
    assert not polyrank.is_initialized()


def test_a_timeout_of_a_method_is_the_cause():
    class Slow(DictStore):
        def get(self, key):
            raise TimeoutError("the disk sleeps")

        def compare_set(self, key, expected, desired):
            raise TimeoutError("the disk is slow")

    store = polyrank.PrefixStore("p", Slow(Shared()))
    with pytest.raises(polyrank.StoreTimeoutError, match="get") as caught:
        store.get("k")
    assert caught.value.operation == "get"
    assert str(caught.value.__cause__) == "the disk sleeps"
    with pytest.raises(polyrank.StoreTimeoutError, match="compare_set") as caught:
        polyrank.init_process_group(store=Slow(Shared()), rank=0, world_size=1, timeout=60)
    assert str(caught.value.__cause__) == "the disk is slow"
    assert "rank 0" not in str(caught.value)
    # A later timeout of another store has its own reason.
    other = polyrank.HashStore()
    with pytest.raises(polyrank.StoreTimeoutError) as caught:
        other.wait(["k"], timedelta(milliseconds=1))
    assert caught.value.__cause__ is None


def failure(call):
    """What a call raises: its class and its words."""
    with pytest.raises(Exception) as caught:
        call()
    return type(caught.value), str(caught.value)


@pytest.mark.parametrize(
    ("method", "given"),
    [
        ("wait", (["z"], -1)),
        ("wait", (["z"], float("nan"))),
        ("wait", (["z"], float("inf"))),
        ("wait", (["z"], "soon")),
        ("wait", ("miss",)),
        ("wait", ([1],)),
        ("multi_get", ("ab",)),
        ("multi_get", ([b"a"],)),
        ("multi_set", ("ab", [b"1", b"2"])),
        ("multi_set", (["x", "y"], [b"1"])),
        ("multi_set", (["x"], [1])),
        ("barrier", ("b", "2")),
        ("barrier", ("b", -1)),
        ("barrier", ("b", 2, -1)),
        ("add", ("k", True)),
    ],
)
def test_wrong_arguments_are_refused_as_by_a_store_of_the_package(method, given):
    """The package's own store is the oracle."""
    expected = failure(lambda: getattr(polyrank.HashStore(), method)(*given))
    shared = Shared()
    own, view = DictStore(shared), polyrank.PrefixStore("p", DictStore(shared))
    assert failure(lambda: getattr(view, method)(*given)) == expected
    if method != "add":
        assert failure(lambda: getattr(own, method)(*given)) == expected
    assert not shared.values, "nothing was done before it was refused"


def test_a_class_that_is_not_derived_is_told_what_to_derive_from():
    class Duck:
        set = get = add = check = compare_set = delete_key = lambda self, *given: None

    calls = (
        lambda: polyrank.init_process_group(store=Duck(), rank=0, world_size=1),
        lambda: polyrank.PrefixStore("p", Duck()),
        lambda: polyrank.ProcessGroup(Duck(), 0, 1),
    )
    for call in calls:
        with pytest.raises(TypeError, match="not Duck: derive it from polyrank.Store"):
            call()


def test_a_clone_is_of_the_same_class():
    class Both(Counted):
        def get(self, key):
            return b"<" + super().get(key) + b">"

    store = Both()
    store.set("k", "v")
    clone = store.clone()
    assert type(clone) is Both and clone is not store
    assert clone.get("k") == b"<v>"
    clone.set("l", "w")
    assert store.get("l") == b"<w>" and (store.sets, clone.sets) == (1, 2)
    assert type(clone.clone()) is Both and type(Plain().clone()) is Plain
    assert type(polyrank.HashStore().clone()) is polyrank.HashStore
    view = polyrank.PrefixStore("p", clone)
    view.set("a", "b")
    assert view.clone().get("a") == b"<b>" and view.underlying_store is clone


def test_a_clone_makes_what_a_constructor_would():
    class Named(polyrank.HashStore):
        def __new__(cls, name):
            return super().__new__(cls)

        def __init__(self, name):
            super().__init__()
            self.name = name

    store = Named("one")
    assert store.clone().name == "one"
    store.set("k", "v")
    assert not Named("two").check(["k"]), "an object that is made anew has a table of its own"


def test_a_store_that_asks_itself_without_end_is_an_error():
    class Endless(polyrank.Store):
        def get(self, key):
            return polyrank.PrefixStore("x", self).get(key)

    with pytest.raises(polyrank.DistStoreError, match="RecursionError"):
        Endless().get("k")


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


def test_a_rendezvous_handler_may_yield_one():
    shared = Shared()

    def handler(url, timeout, rank, world_size):
        yield DictStore(shared), rank, world_size

    polyrank.register_rendezvous_handler("own-dict", handler)
    polyrank.init_process_group(init_method="own-dict://here", rank=0, world_size=1)
    try:
        polyrank.barrier()
    finally:
        polyrank.destroy_process_group()
    assert shared.calls, "the store that it yielded was used"


def test_what_a_store_makes_up_is_quoted():
    class MadeUp(DictStore):
        def get(self, key):
            return b"text"

        def check(self, keys):
            return True

    class AllMadeUp(MadeUp):
        def compare_set(self, key, expected, desired):
            return b"text"

    for cls, said in ((MadeUp, '"text" under'), (AllMadeUp, "text")):
        with pytest.raises(polyrank.RendezvousError, match=said) as caught:
            polyrank.ProcessGroup(cls(Shared()), 0, 2, timeout=30, group_name=cls.__name__)
        assert not isinstance(caught.value, TimeoutError)


def test_what_a_class_does_not_define_is_said():
    class Bare(polyrank.Store):
        pass

    for store in (Bare(), polyrank.PrefixStore("under", Bare())):
        with pytest.raises(polyrank.UnsupportedError, match="class 'Bare', which defines no 'get'"):
            store.get("a")
