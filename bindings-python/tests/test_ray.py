"""Groups of Ray actors, with the real Ray on this machine."""

import importlib.util
import inspect
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import polyrank
from ranks import PATIENCE_S
from test_examples import program

IS_MISSING = importlib.util.find_spec("ray") is None
needs_ray = pytest.mark.skipif(IS_MISSING, reason="Ray is missing; cargo xtask setup installs it")
# For what is never to last so long.
TIMEOUT_S = 30.0


@pytest.fixture(scope="module")
def ray(tmp_path_factory):
    """Ray, with a cluster of this machine alone, which ends with the tests."""
    settings = {
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        # It would write a secret into the user's home otherwise.
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        import ray

        ray.init(
            num_cpus=3,
            include_dashboard=False,
            log_to_driver=False,
            object_store_memory=80 << 20,
            _temp_dir=str(tmp_path_factory.mktemp("ray")),
        )
        try:
            yield ray
        finally:
            ray.shutdown()


@pytest.fixture(scope="module")
def workers(ray):
    """Five actors, which tests leave as they found them."""
    from ray_worker import Worker

    return [Worker.remote() for _ in range(5)]


def joined(ray, workers, name, **keywords):
    calls = [
        worker.join.remote(len(workers), rank, name, timeout=TIMEOUT_S, **keywords)
        for rank, worker in enumerate(workers)
    ]
    ray.get(calls, timeout=PATIENCE_S)


def of_all(ray, workers, method, *arguments):
    calls = [getattr(worker, method).remote(*arguments) for worker in workers]
    return ray.get(calls, timeout=PATIENCE_S)


def wait_for_rank_0(ray, name):
    """Until others may find it."""
    from polyrank._ray_rendezvous import Notice

    deadline = time.monotonic() + PATIENCE_S
    while Notice(ray, name).get() is None:
        assert time.monotonic() < deadline


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@needs_ray
def test_every_operation(ray, workers, size):
    from ray.util.collective.types import ReduceOp
    from ray_worker import every_operation

    some = workers[:size]
    joined(ray, some, "all", backend="gloo")
    assert of_all(ray, some, "place", "all") == [(True, rank, size) for rank in range(size)]
    left = of_all(ray, some, "call", every_operation, "all", ReduceOp.PRODUCT)
    of_all(ray, some, "leave", "all")
    assert of_all(ray, some, "place", "all") == [(False, -1, -1)] * size
    owns = np.arange(4.0) + 10.0 * np.arange(size)[:, None]
    for rank, found in enumerate(left):
        own, last = owns[rank], rank == size - 1
        assert found == {
            "allreduce": owns.sum(0).tolist(),
            "allreduce of DLPack": owns.max(0).tolist(),
            "allreduce by Ray's operator": (owns + 1).prod(0).tolist(),
            "reduce": (owns.sum(0) if last else own).tolist(),
            "broadcast": owns[-1].tolist(),
            "allgather": owns.tolist(),
            "reducescatter": (owns + 100 * rank).sum(0).tolist(),
            "send and recv": (owns[0] if last else own).tolist(),
            "a method of the group": owns[: rank + 1].sum(0).tolist(),
        }


@needs_ray
def test_the_driver_makes_ranks_of_actors(ray, workers):
    import polyrank.ray as collective

    ranks = [2, 0, 1]
    collective.create_collective_group(workers[:3], 3, ranks, group_name="made")
    assert of_all(ray, workers[:3], "place", "made") == [(True, rank, 3) for rank in ranks]
    assert of_all(ray, workers[:3], "total", "made") == [[6.0] * 3] * 3
    with pytest.raises(polyrank.AlreadyInitializedError, match="'made' already"):
        collective.create_collective_group(workers[1:3], 2, [0, 1], group_name="made")
    assert of_all(ray, workers[:3], "total", "made") == [[6.0] * 3] * 3
    of_all(ray, workers[:3], "leave", "made")
    wrong = [(workers[:2], [0, 0]), (workers[:2], [0, 1, 2]), (workers[:3], [0, 1]), ([], [])]
    for actors, ranks in wrong:
        with pytest.raises(polyrank.InvalidArgumentError, match="needs one actor"):
            collective.create_collective_group(actors, len(ranks), ranks)


@needs_ray
def test_none_becomes_a_rank_where_one_cannot(ray, workers):
    import polyrank.ray as collective
    from ray_worker import Worker

    dead = Worker.remote()
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(dead.end.remote(), timeout=PATIENCE_S)
    for ranks in [[0, 1, 2], [2, 1, 0]]:
        actors = [workers[0], workers[1], dead]
        with pytest.raises(ray.exceptions.RayActorError):
            collective.create_collective_group(actors, 3, ranks, group_name="dead")
        assert of_all(ray, workers[:2], "place", "dead") == [(False, -1, -1)] * 2
    joined(ray, workers[:1], "taken")
    for ranks in [[0, 1], [1, 0]]:
        with pytest.raises(polyrank.AlreadyInitializedError):
            collective.create_collective_group(workers[:2], 2, ranks, group_name="taken")
        assert of_all(ray, workers[:2], "place", "taken") == [(True, 0, 1), (False, -1, -1)]
    of_all(ray, workers[:1], "leave", "taken")


@needs_ray
def test_the_driver_and_actors_with_coroutines_are_ranks(ray, workers):
    import polyrank.ray as collective
    from ray_worker import AsyncWorker

    call = workers[0].join.remote(2, 1, "driver", timeout=TIMEOUT_S)
    collective.init_collective_group(2, 0, group_name="driver", gloo_timeout=30_000)
    ray.get(call, timeout=PATIENCE_S)
    assert collective.get_group_handle("driver").timeout.total_seconds() == 30
    total = workers[0].total.remote("driver")
    tensor = np.ones(3)
    collective.allreduce(tensor, "driver")
    assert ray.get(total, timeout=PATIENCE_S) == tensor.tolist() == [3.0] * 3
    call = workers[0].leave.remote("driver")
    collective.destroy_collective_group("driver")
    ray.get(call, timeout=PATIENCE_S)
    actors = [AsyncWorker.remote() for _ in range(2)]
    collective.create_collective_group(actors, 2, [0, 1], group_name="coroutines")
    assert of_all(ray, actors, "total", "coroutines") == [[2.0, 2.0]] * 2


@needs_ray
def test_a_name_serves_one_group_after_another(ray, workers):
    # Nobody waits between them: one rank makes the next group while others leave the last.
    calls = []
    for turn in range(10):
        for worker in workers[:3]:
            rank = (workers.index(worker) + turn) % 3
            worker.join.remote(3, rank, "turns", timeout=TIMEOUT_S)
            calls.append(worker.total.remote("turns"))
            worker.leave.remote("turns")
    assert ray.get(calls, timeout=PATIENCE_S) == [[6.0] * 3] * len(calls)


@needs_ray
def test_a_rank_may_be_in_several_groups(ray, workers):
    joined(ray, workers[:4], "four")
    joined(ray, workers[3:1:-1], "two")
    assert of_all(ray, workers[2:4], "place", "two") == [(True, 1, 2), (True, 0, 2)]
    assert of_all(ray, workers[:4], "total", "four") == [[10.0] * 3] * 4
    assert of_all(ray, workers[2:4], "total", "two") == [[3.0] * 3] * 2
    of_all(ray, workers[2:4], "leave", "two")
    of_all(ray, workers[:4], "leave", "four")


@needs_ray
@pytest.mark.parametrize("dying", [0, 2])
def test_a_killed_actor_is_named_and_replaced(ray, workers, dying):
    from ray_worker import Worker

    name = f"killed {dying}"
    actors = [*workers[:2], Worker.remote()]
    if dying == 0:
        actors.reverse()
    joined(ray, actors, name)
    calls = [worker.total.remote(name) for rank, worker in enumerate(actors) if rank != dying]
    ray.kill(actors[dying])
    for call in calls:
        with pytest.raises(polyrank.RankFailedError) as caught:
            ray.get(call, timeout=PATIENCE_S)
        assert caught.value.cause.rank == dying
    of_all(ray, workers[:2], "leave", name)
    actors[dying] = Worker.remote()
    joined(ray, actors, name)
    assert of_all(ray, actors, "total", name) == [[6.0] * 3] * 3
    of_all(ray, actors, "leave", name)


@needs_ray
def test_a_rank_0_that_dies_before_the_others_come_is_replaced(ray, workers):
    from ray_worker import Worker

    early = Worker.remote()
    early.join.remote(3, 0, "early", timeout=TIMEOUT_S)
    second = workers[1].join.remote(3, 1, "early", timeout=TIMEOUT_S)
    wait_for_rank_0(ray, "early")
    ray.kill(early)
    calls = [worker.join.remote(3, rank, "early", timeout=TIMEOUT_S)
             for rank, worker in ((0, workers[0]), (2, workers[2]))]
    ray.get([second, *calls], timeout=PATIENCE_S)
    assert of_all(ray, workers[:3], "total", "early") == [[6.0] * 3] * 3
    of_all(ray, workers[:3], "leave", "early")


@needs_ray
def test_who_does_not_come_is_named(ray, workers):
    late = [workers[0].join.remote(3, 0, "late", timeout=5),
            workers[1].join.remote(3, 1, "late", timeout=TIMEOUT_S),
            workers[2].join.remote(2, 1, "alone", timeout=0.2)]
    for call, missing in zip(late, [2, 2, 0]):
        said = f"rank {missing} is missing"
        with pytest.raises(polyrank.RendezvousTimeoutError, match=said) as caught:
            ray.get(call, timeout=PATIENCE_S)
        cause = caught.value.cause
        assert (cause.rank, cause.missing_ranks) == (missing, [missing])


@needs_ray
def test_who_waits_says_for_whom(ray, workers, monkeypatch, caplog):
    import polyrank.ray as collective

    monkeypatch.setenv("POLYRANK_STALL_REPORT", "0.2")
    place = {"group_name": "watched", "timeout": TIMEOUT_S}
    waiting = threading.Thread(target=collective.init_collective_group, args=(2, 0), kwargs=place)
    waiting.start()
    deadline = time.monotonic() + PATIENCE_S
    while not caplog.messages:
        assert time.monotonic() < deadline
    call = workers[0].join.remote(2, 1, "watched", timeout=TIMEOUT_S)
    waiting.join()
    ray.get(call, timeout=PATIENCE_S)
    said = [message for name, _, message in caplog.record_tuples if name == "polyrank.ray"]
    first, last = said[0], said[-1]
    missing = "group 'watched': rank 1 of 2 has not come to the rendezvous; waited for "
    assert first.startswith(missing)
    assert last.startswith("the rendezvous waits no longer, after ")
    call = workers[0].leave.remote("watched")
    collective.destroy_collective_group("watched")
    ray.get(call, timeout=PATIENCE_S)


@needs_ray
def test_ranks_that_were_told_different_sizes_do_not_meet(ray, workers):
    calls = [worker.join.remote(size, rank, "sizes", timeout=TIMEOUT_S)
             for rank, (worker, size) in enumerate(zip(workers, [3, 2]))]
    for call in calls:
        with pytest.raises(polyrank.RendezvousError, match="told of 2 ranks, and rank 0 of 3"):
            ray.get(call, timeout=PATIENCE_S)


@needs_ray
def test_wrong_calls(ray, caplog):
    import polyrank.ray as collective

    collective.init_collective_group(1, 0, group_name="one")
    with pytest.raises(polyrank.AlreadyInitializedError, match="'one' already"):
        collective.init_collective_group(1, 0, group_name="one")
    with pytest.raises(polyrank.InvalidArgumentError, match="expected a ReduceOp, got 'SUM!'"):
        collective.allreduce(np.ones(1), "one", "SUM!")
    collective.destroy_collective_group("one")
    with pytest.raises(polyrank.NotInitializedError, match="'one' is not initialized"):
        collective.barrier("one")
    with pytest.raises(polyrank.InvalidArgumentError, match="rank 2 is not one of 2"):
        collective.init_collective_group(2, 2)
    with pytest.raises(polyrank.InvalidArgumentError, match="group_name must not be empty"):
        collective.init_collective_group(1, 0, group_name="")
    with pytest.raises(polyrank.UnknownBackendError):
        collective.init_collective_group(1, 0, "smoke signals")
    assert not collective.is_group_initialized("default")
    collective.destroy_collective_group("nobody's")
    assert [record.getMessage() for record in caplog.records] == [
        "The group 'nobody's' does not exist."
    ]


@needs_ray
def test_calls_for_rays_own_module_fit(ray):
    import ray.util.collective as theirs

    import polyrank.ray as ours

    for name in set(ours.__all__) - {"ReduceOp"}:
        wanted = inspect.signature(getattr(theirs, name)).parameters
        found = inspect.signature(getattr(ours, name)).parameters
        positional = [it for it in found if found[it].kind != inspect.Parameter.KEYWORD_ONLY]
        assert positional == list(wanted), name
        for parameter, there in wanted.items():
            if parameter not in ("backend", "op", "gloo_timeout"):
                here = found[parameter].default
                assert there.default in (here, inspect.Parameter.empty), name


@needs_ray
def test_the_pages_example_runs(ray):
    address = ray.get_runtime_context().gcs_address
    printed = subprocess.run(
        [sys.executable, "-c", program("site/start/launch.md")],
        env={**os.environ, "RAY_ADDRESS": address},
        capture_output=True,
        timeout=PATIENCE_S * 2,
    )
    assert printed.stdout.decode() == "[3.0, 3.0, 3.0]\n", printed.stderr.decode()


def test_without_ray_it_is_said_what_to_install():
    code = "import sys; sys.modules['ray'] = None; import polyrank.ray"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=PATIENCE_S)
    assert b"ImportError: polyrank.ray needs Ray: pip install ray" in run.stderr
