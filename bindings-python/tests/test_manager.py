"""`Manager`: training that goes on when replicas come and go, with processes as replicas."""

import datetime
import gc
import os
import re
import signal
import threading
import time
import weakref

import numpy as np
import polyrank
import pytest
from polyrank import Manager, ManagerState, ReduceOp, WorldSizeMode
from replicas import PATIENCE_S, all_together, lighthouse, replicas

#: A wait that a signal ends is over by then, s.
SOON_S = 2


@pytest.fixture
def start():
    with replicas() as start:
        yield start


@pytest.fixture(scope="module")
def one():
    """A lighthouse for which one replica is enough."""
    with lighthouse(1) as url:
        yield url


@pytest.fixture(scope="module")
def two():
    """A lighthouse that waits for a second replica."""
    with lighthouse(2) as url:
        yield url


@pytest.fixture
def made():
    """Makes managers of this process, and has them leave."""
    all_made = []

    def make(url, **settings):
        settings = {"min_replica_size": 1, "timeout": 20, "quorum_timeout": 40} | settings
        all_made.append(Manager(lighthouse_addr=url, **settings))
        return all_made[-1]

    yield make
    for manager in all_made:
        manager.shutdown()


def commits(found):
    """The state after each step, by its number."""
    return {line["step"]: line["hash"] for line in found if "step" in line}


def agree(*all_found):
    """All have the same after each step, and there is one that all had."""
    wanted = {}
    for found in all_found:
        for step, state in commits(found).items():
            assert wanted.setdefault(step, state) == state, step
    common = set.intersection(*(set(commits(found)) for found in all_found))
    assert common


def settings(url, **more):
    return {"lighthouse_addr": url} | more


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_operations(start, size, is_async):
    with lighthouse(size) as url:
        options = settings(url, min_replica_size=size, use_async_quorum=is_async)
        all_started = [start("operations", size=size, settings=options) for _ in range(size)]
        for replica in all_started:
            replica.end()


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
def test_a_replica_is_killed_and_another_heals(start, is_async):
    with lighthouse(2) as url:
        options = settings(url, min_replica_size=2, use_async_quorum=is_async)
        first, killed, third = [start("train", settings=options) for _ in range(3)]
        at = killed.wait_for(lambda line: line.get("step", 0) > 5 and line["participants"] == 3)
        killed.kill()
        killed.line.reader.join(PATIENCE_S)
        for survivor in (first, third):
            survivor.wait_for(
                lambda line: line.get("step", 0) > at["step"] and line["participants"] == 2
            )
        anew = start("train", settings=options)
        anew.wait_for(lambda line: line.get("participants") == 3 and line["rank"] is not None)
        third.tell()
        ended = [replica.end() for replica in (first, third, anew)]
    agree(*ended)
    agree(ended[0], killed.found())
    assert len({max(commits(found)) for found in ended}) == 1
    ids = [found[0]["started"] for found in ended]
    assert len(set(ids)) == 3


def test_a_spare_takes_the_place_of_one_that_is_killed(start):
    with lighthouse(2) as url:
        mode = {"min_replica_size": 2, "world_size_mode": "FIXED_WITH_SPARES"}
        options = settings(url, use_async_quorum=False, **mode)
        all_started = [start("train", settings=options) for _ in range(3)]
        for replica in all_started:
            replica.wait_for(lambda line: line.get("step", 0) > 3)
        ids = {
            replica: replica.wait_for(lambda line: "started" in line)["started"]
            for replica in all_started
        }
        # By their ids, those of the lowest ranks contribute.
        spare = max(all_started, key=ids.get)
        spare.wait_for(lambda line: "step" in line and line["rank"] is None)
        killed = min(all_started, key=ids.get)
        killed.kill()
        seen = len(spare.found())
        spare.wait_for(
            lambda line: line in spare.line.found[seen:] and line.get("rank") is not None
        )
        spare.tell()
        ended = [replica.end() for replica in all_started if replica is not killed]
    agree(*ended)
    for found in ended:
        assert {line["participants"] for line in found if "step" in line} == {2}


def test_replicas_of_two_ranks(start):
    with lighthouse(2) as url:
        stores, all_started = [], []
        for number in range(2):
            store = polyrank.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
            stores.append(store)
            place = {"store_addr": f"127.0.0.1:{store.port}", "world_size": 2}
            for rank in range(2):
                # Only rank 0 needs the lighthouse.
                more = {"lighthouse_addr": url} if rank == 0 else {}
                options = {"min_replica_size": 2, "rank": rank} | place | more
                all_started.append(start("two_ranks", number=number, size=2, settings=options))
        for rank in all_started:
            rank.end()


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
@pytest.mark.parametrize("where", ["save", "load"])
def test_a_state_function_that_raises_costs_a_step(start, where, is_async):
    with lighthouse(1) as url:
        options = {"settings": settings(url, use_async_quorum=is_async)}
        faults = {where: 1}
        first = start("train", faults=faults if where == "save" else {}, **options)
        first.wait_for(lambda line: line.get("step", 0) > 2)
        other = start("train", faults=faults if where == "load" else {}, **options)
        faulty = first if where == "save" else other
        key = "saving" if where == "save" else "loading"
        lost = faulty.wait_for(lambda line: "lost" in line)["lost"]
        assert f"{key} \"model\": KeyError: 'no weights: {where}'" in lost
        other.wait_for(lambda line: line.get("participants") == 2 and line["rank"] is not None)
        first.tell()
        ended = [first.end(), other.end()]
    agree(*ended)


def test_what_does_not_travel_is_no_state(start, made):
    with lighthouse(2) as url:
        manager = made(url)
        manager.load_state_dict(ManagerState(step=5, batches_committed=5))
        manager.register_state_dict_fn("model", print, object)
        start("behind", settings=settings(url))
        manager.start_quorum()
        manager.wait_quorum()
        assert 'saving "model": TypeError: objects of type' in manager.errored()
        assert not manager.should_commit()


def test_one_that_cannot_take_a_state_stays_out(start, made):
    def refuse(state):
        raise ValueError("not for me")

    with lighthouse(2) as url:
        start("ahead_of_others", settings=settings(url))
        manager = made(url)
        manager.register_state_dict_fn("model", refuse, lambda: None)
        for _ in range(5):
            manager.start_quorum()
            assert not manager.should_commit()
            assert manager.errored().endswith('loading "model": ValueError: not for me')
        with pytest.raises(polyrank.ManagerFailedError, match=r"stays out now(.|\n)*not for me"):
            manager.start_quorum()
        assert manager.current_step() == 0


def test_one_leaves_after_another_was_killed(start, made):
    with lighthouse(2) as url:
        manager = made(url)
        manager.register_state_dict_fn("model", lambda state: None, dict)
        other = start("behind", settings=settings(url))
        while manager.current_step() < 3:
            manager.start_quorum()
            manager.should_commit()
        other.kill()
        manager.shutdown()


# Errors.


def test_no_lighthouse(monkeypatch):
    began = time.monotonic()
    with pytest.raises(polyrank.ManagerFailedError, match=r"lighthouse: .*http://127.0.0.1:1\b"):
        Manager(1, "http://127.0.0.1:1", connect_timeout=datetime.timedelta(seconds=0.5))
    assert time.monotonic() - began < PATIENCE_S
    monkeypatch.delenv("TORCHFT_LIGHTHOUSE", raising=False)
    with pytest.raises(polyrank.InvalidArgumentError, match="TORCHFT_LIGHTHOUSE"):
        Manager(1)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"min_replica_size": 0}, "min_replica_size must be more than 0"),
        ({"min_replica_size": -1}, "'min_replica_size' must be an integer from 0"),
        ({"rank": 2, "world_size": 2, "store_addr": "127.0.0.1:1"}, "rank is 2: .* of 2 has"),
        ({"world_size": 0}, "rank is 0: .* of 0"),
        ({"world_size": 2}, "needs a store"),
        ({"timeout": 0}, "timeout"),
        ({"quorum_timeout": -1}, "quorum_timeout"),
        ({"port": 65536}, "'port' must be an integer from 0 to 65535"),
        ({"token": "short"}, "a token has 8 to 1024 characters"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(one, wrong, text, monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(polyrank.InvalidArgumentError, match=text):
        Manager(**({"min_replica_size": 1, "lighthouse_addr": one} | wrong))


def test_calls_outside_a_step(one, made):
    manager = made(one)
    calls = {
        "should_commit": manager.should_commit,
        "wait": manager.wait_quorum,
        "operations": lambda: manager.allreduce(np.ones(2)),
        "operations of": lambda: manager.allreduce_coalesced([np.ones(2)]),
    }
    for call in calls.values():
        with pytest.raises(polyrank.InvalidArgumentError, match="call start_quorum before"):
            call()
    manager.report_error("nobody has asked")
    assert manager.errored() is None
    assert manager.num_participants() == 0 and manager.participating_rank() is None
    assert not manager.is_participating() and manager.replicas() == []
    all_together(manager, 1)
    with pytest.raises(polyrank.InvalidArgumentError, match="call start_quorum before"):
        manager.should_commit()


@pytest.mark.parametrize(
    ("tensor", "op", "error", "text"),
    [
        (np.ones(3, np.int32), ReduceOp.AVG, "InvalidArgument", "average of i32 .* with SUM"),
        (np.ones(3, np.bool_), ReduceOp.AVG, "InvalidArgument", "average of bool "),
        (np.ones(3, complex), ReduceOp.MAX, "UnsupportedDType", "MAX .* complex128"),
        (np.ones(3), ReduceOp.BAND, "UnsupportedDType", "BAND .* f64"),
        (np.ones(3), ReduceOp.custom(lambda a, b: None), "Unsupported", "CUSTOM"),
    ],
    ids=lambda it: None,
)
def test_an_operation_that_cannot_be_costs_the_step(one, made, tensor, op, error, text):
    manager = made(one)
    before = tensor.copy()
    kind = getattr(polyrank, f"{error}Error")
    for call in (manager.allreduce, lambda it, op: manager.allreduce_coalesced([it], op)):
        manager.start_quorum()
        with pytest.raises(kind, match=text):
            call(tensor, op)
        assert re.search(text, manager.errored())
        # Nothing is sent any longer, and what comes is as it is.
        assert manager.allreduce(np.ones(2)).wait()
        assert not manager.should_commit()
        assert np.array_equal(tensor, before)
    manager.start_quorum()
    assert manager.errored() is None
    assert manager.should_commit()


def test_a_call_of_the_wrong_kind(one, made):
    manager = made(one)
    manager.start_quorum()
    with pytest.raises(polyrank.InvalidTypeError, match="must be Tensor, not str"):
        manager.allreduce("abc")
    frozen = np.ones(2)
    frozen.flags.writeable = False
    with pytest.raises(polyrank.InvalidArgumentError, match="read-only"):
        manager.allreduce(frozen)
    with pytest.raises(polyrank.InvalidTypeError, match="must be Callable, not int"):
        manager.register_state_dict_fn("a", 1, lambda: None)
    with pytest.raises(polyrank.InvalidTypeError, match="'world_size_mode' must be 'DYNAMIC'"):
        Manager(1, one, world_size_mode="ALL")
    manager.should_commit()


def test_a_key_is_registered_once(one, made):
    manager = made(one)
    manager.register_state_dict_fn("model", print, dict)
    with pytest.raises(polyrank.InvalidArgumentError, match='"model" is registered already'):
        manager.register_state_dict_fn("model", print, dict)
    manager.register_state_dict_fn(key="other", load_state_dict=print, state_dict=dict)
    all_together(manager, 1)


def test_a_quorum_that_does_not_come(two, made):
    manager = made(two, quorum_timeout=0.5)
    manager.start_quorum()
    with pytest.raises(polyrank.QuorumError, match="waits for 1 more replica"):
        manager.wait_quorum()
    tensor = np.ones(3)
    assert manager.allreduce(tensor).wait() and list(tensor) == [1, 1, 1]
    assert manager.num_participants() == 0 and not manager.is_participating()
    assert not manager.should_commit()
    assert "no quorum" in manager.errored()
    waits = made(two, quorum_timeout=40, use_async_quorum=False)
    with pytest.raises(polyrank.QuorumError, match="no quorum"):
        waits.start_quorum(timeout=datetime.timedelta(seconds=0.3))
    assert not waits.should_commit()


def test_too_few_replicas_and_too_many_failures(one, made):
    manager = made(one, min_replica_size=2, max_retries=1)
    manager.start_quorum()
    assert not manager.should_commit()
    assert "1 of at least 2 replicas" in manager.errored()
    manager.start_quorum()
    with pytest.raises(polyrank.ManagerFailedError, match=r"2 steps in a row .*1 of at least 2"):
        manager.should_commit()
    assert manager.current_step() == 0


def test_what_the_program_reports(one, made):
    manager = made(one)
    manager.start_quorum()
    manager.report_error("the loss is not a number")
    manager.report_error("what comes later")
    assert manager.errored() == "the loss is not a number"
    assert not manager.should_commit(timeout=5)
    assert manager.current_step() == 0
    manager.start_quorum(allow_heal=False, shrink_only=False)
    assert manager.errored() is None
    assert manager.should_commit() and manager.current_step() == 1


def test_shutdown(two, made):
    """It ends what waits, and what comes after it says so."""
    manager = made(two)
    manager.start_quorum()
    raised = []

    def wait():
        try:
            manager.wait_quorum()
        except polyrank.PolyrankError as error:
            raised.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    manager.shutdown()
    waiting.join(PATIENCE_S)
    assert isinstance(raised[0], polyrank.ManagerFailedError)
    manager.shutdown()
    for call in (manager.start_quorum, manager.wait_quorum):
        with pytest.raises(polyrank.ManagerFailedError, match="was shut down"):
            call()
    assert manager.current_step() == 0 and repr(manager)


# Waits that a signal ends.


@pytest.mark.parametrize("call", ["wait_quorum", "num_participants", "allreduce", "should_commit"])
def test_ctrl_c_ends_a_wait_for_the_quorum(two, made, call):
    manager = made(two)
    manager.start_quorum()
    function = getattr(manager, call)
    press(lambda: function(np.ones(2)) if call == "allreduce" else function())
    # It is still waited for.
    press(manager.start_quorum)


def test_ctrl_c_ends_start_quorum(two, made):
    press(made(two, use_async_quorum=False).start_quorum)


def test_ctrl_c_ends_a_vote(one, made):
    store = polyrank.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    place = {"store_addr": f"127.0.0.1:{store.port}", "world_size": 2}
    press(lambda: made(None, rank=1, **place))
    ranks = [made(one, rank=0, **place)]
    ranks.append(made(None, rank=1, **place))
    for rank in ranks:
        rank.start_quorum()
    ranks[0].wait_quorum()
    press(ranks[0].should_commit)
    ranks[1].shutdown()


def test_ctrl_c_ends_the_wait_for_the_lighthouse():
    press(lambda: Manager(1, "http://127.0.0.1:1", connect_timeout=5))


def press(call):
    """Presses Ctrl-C in a call: whenever it comes, before the wait or in it, that must end."""
    pressed = []

    def press_it():
        pressed.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(0.1, press_it)
    with pytest.raises(KeyboardInterrupt):
        timer.start()
        call()
        timer.join()
        time.sleep(1)
    assert time.monotonic() - pressed[0] < SOON_S


def test_ctrl_c_ends_load_state_dict(start, two, made):
    start("ahead_of_others", settings=settings(two))
    manager = made(two)
    manager.register_state_dict_fn(
        "model", lambda state: signal.raise_signal(signal.SIGINT), lambda: None
    )
    manager.start_quorum()
    with pytest.raises(KeyboardInterrupt):
        manager.should_commit()


# The state of a manager, and its life.


def test_how_far_it_is_is_kept(one, made):
    manager = made(one)
    state = manager.state_dict()
    assert state == {"step": 0, "batches_committed": 0}
    manager.load_state_dict(ManagerState(step=7, batches_committed=20))
    all_together(manager, 1)
    state = manager.state_dict()
    assert state == {"step": 8, "batches_committed": 21}
    assert (manager.current_step(), manager.batches_committed()) == (8, 21)
    other = made(one)
    other.load_state_dict(ManagerState(**state))
    assert (other.current_step(), other.batches_committed()) == (8, 21)


def test_a_state_may_be_bytes_of_a_store(start, two, made):
    start("ahead_of_others", settings=settings(two))
    manager, store = made(two), polyrank.HashStore()
    manager.register_state_store("model", store)
    with pytest.raises(polyrank.InvalidArgumentError, match="registered already"):
        manager.register_state_store("model", store)
    manager.start_quorum()
    manager.should_commit()
    # What the other one gives is no state of a store, but these bytes: CBOR for nothing.
    assert store.get("model") == b"\xf6"


def test_modes_have_the_numbers_of_torchft():
    assert [WorldSizeMode(number).name for number in (0, 1)] == ["DYNAMIC", "FIXED_WITH_SPARES"]


def test_repr_and_names(one, made):
    manager = made(one, replica_id="trainer")
    name = manager.replica_id()
    assert re.fullmatch(r"trainer:[0-9a-f-]{36}", name)
    all_together(manager, 1)
    text = repr(manager)
    assert text.startswith("Manager") and name in text and "step: 1" in text
    assert manager.replicas() == [name]
    assert manager.group().size() == 1


@pytest.mark.parametrize("phase", ["before", "in a step", "after"])
@pytest.mark.parametrize("is_cycle", [True, False], ids=["cycle", "plain"])
def test_one_that_is_dropped_ends(two, one, phase, is_cycle):
    manager = Manager(1, two if phase == "in a step" else one, quorum_timeout=40)
    if is_cycle:
        manager.register_state_dict_fn("a", manager.load_state_dict, lambda: manager.state_dict())
    if phase == "in a step":
        manager.start_quorum()
    if phase == "after":
        all_together(manager, 1)
    known = weakref.ref(manager)
    del manager
    gc.collect()
    assert known() is None


@pytest.mark.parametrize("where", ["before", "quorum", "operation"])
def test_a_program_ends_without_shutdown(start, one, two, where):
    url = two if where == "quorum" else one
    start("forgets", where=where, settings=settings(url)).end()


def test_tensors_of_torch(one, made):
    torch = pytest.importorskip("torch")
    manager = made(one)
    manager.start_quorum()
    tensors = [torch.ones(3), torch.ones(2, 2, dtype=torch.bfloat16)]
    manager.allreduce(tensors[0]).wait()
    manager.allreduce_coalesced(tensors).wait()
    assert manager.should_commit()
    assert all(bool((tensor == 1).all()) for tensor in tensors)


def test_a_work_ends_well_whatever_another_replica_does(start):
    with lighthouse(2) as url:
        start("fails_each_step", settings=settings(url))
        start("waits_for_one_that_fails", settings=settings(url)).end()


def test_going_on_in_the_middle_of_a_step_does_not_hang(start):
    with lighthouse(2) as url:
        start("behind", settings=settings(url))
        start("goes_on_in_a_step", settings=settings(url)).end()


def test_a_manager_is_collected_by_its_own_thread(start):
    with lighthouse(2) as url:
        last = start("collects_on_its_thread", settings=settings(url))
        last.wait_for(lambda line: "ready" in line)
        start("behind", settings=settings(url))
        last.end()


def test_a_child_may_drop_the_manager_of_its_parent(start, one):
    start("forks", settings=settings(one)).end()
