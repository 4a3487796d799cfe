"""LocalSGD and DiLoCo against NumPy, with processes as replicas that come and go."""

import array
import pathlib
import threading

import ml_dtypes
import numpy as np
import polyrank
import pytest
from polyrank.local_sgd import DiLoCo, LocalSGD, OuterSGD

from local_sgd_replicas import Optimizer, change, initial, names_of_fragments
from replicas import PATIENCE_S, dtype_of, lighthouse, replicas

PROGRAM = str(pathlib.Path(__file__).with_name("local_sgd_replicas.py"))
STREAMING = {"fragment_sync_delay": 1, "fragment_update_alpha": 0.25}


@pytest.fixture
def start():
    with replicas() as start:
        yield lambda function, **options: start(function, program=PROGRAM, **options)


def found_of(start, size, **options):
    """What `size` replicas print that run `oracle`, all from the first step on."""
    with lighthouse(size) as url:
        more = options.pop("settings", {})
        settings = {"lighthouse_addr": url, "min_replica_size": size} | more
        started = [
            start("oracle", number=number, settings=settings, **options) for number in range(size)
        ]
        return [replica.end() for replica in started]


def last(found, key):
    return next(line[key] for line in reversed(found) if key in line)


def near(found, wanted, dtype, much=1.0):
    """Within some roundings of what is wanted."""
    limit = 40 * float(ml_dtypes.finfo(dtype).eps) * much
    for name, values in wanted.items():
        values = np.asarray(values)
        np.testing.assert_allclose(np.reshape(found[name], values.shape), values, limit, limit)


def same_hashes(all_found):
    hashes = [[line["hash"] for line in found if "at" in line] for found in all_found]
    assert hashes[0] and all(one == hashes[0] for one in hashes)


# Against NumPy.


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_local_sgd_is_a_mean(start, size, dtype):
    options = {"kind": "LocalSGD", "sync_every": 3, "steps": 10, "dtype": dtype}
    all_found = found_of(start, size, settings={"use_async_quorum": size == 2}, **options)
    same_hashes(all_found)
    kept = {name: it.astype(np.complex128) for name, it in initial(dtype_of(dtype)).items()}
    for begin in (1, 4, 7):
        for name, before in kept.items():
            ends = [
                before - sum(change(number, begin + step, name) for step in range(3))
                for number in range(size)
            ]
            kept[name] = np.mean(ends, axis=0)
    real = np.zeros(1, dtype_of(dtype)).real.dtype
    for number, found in enumerate(all_found):
        near(last(found, "kept"), {name: it.real for name, it in kept.items()}, real)
        # The tenth inner step is one of its own.
        local = {name: it.real - change(number, 10, name) for name, it in kept.items()}
        near(last(found, "model"), local, real)


def diloco_of_numpy(size, steps, interval, fragments=1, delay=0, alpha=0.0, spare=None):
    """The shared parameters and those of each replica, in 64 bits."""
    kept = {name: it.copy() for name, it in initial(np.float64).items()}
    local = [{name: it.copy() for name, it in kept.items()} for _ in range(size)]
    counted = [model for number, model in enumerate(local) if number != spare]
    velocity, gradient = dict.fromkeys(kept, 0.0), {}
    parts = names_of_fragments(fragments)
    for step in range(1, steps + 1):
        for number, model in enumerate(local):
            for name in model:
                model[name] = model[name] - change(number, step, name)
        # The replicas joined in the manager's first step.
        names, place = parts[((step - 1) // interval + 1) % fragments], (step - 1) % interval + 1
        if place == interval - delay:
            for name in names:
                gradient[name] = np.mean([kept[name] - it[name] for it in counted], axis=0)
        if place == interval:
            for name in names:
                velocity[name] = 0.9 * velocity[name] + gradient[name]
                kept[name] = kept[name] - 0.7 * (gradient[name] + 0.9 * velocity[name])
                for model in local:
                    model[name] = (1 - alpha) * kept[name] + alpha * model[name]
    return kept, local


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_diloco_is_an_outer_step(start, size, dtype):
    options = {"kind": "DiLoCo", "sync_every": 4, "steps": 13, "dtype": dtype}
    all_found = found_of(start, size, settings={"use_async_quorum": size == 2}, **options)
    same_hashes(all_found)
    kept, local = diloco_of_numpy(size, 13, 4)
    for number, found in enumerate(all_found):
        near(last(found, "kept"), kept, dtype_of(dtype))
        near(last(found, "model"), local[number], dtype_of(dtype))


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
@pytest.mark.parametrize(("delay", "alpha"), [(0, 0.0), (1, 0.25), (2, 1.0)])
def test_fragments_one_after_the_other(start, delay, alpha, is_async):
    more = {"fragment_sync_delay": delay, "fragment_update_alpha": alpha}
    # An inner step that is in no outer one, unless one begins with it.
    steps = 21 if delay == 2 else 22
    options = {"kind": "DiLoCo", "sync_every": 6, "steps": steps, "dtype": "float64", "more": more}
    options |= {"fragments": 2, "outer": "each" if is_async else "one"}
    all_found = found_of(start, 2, settings={"use_async_quorum": is_async}, **options)
    same_hashes(all_found)
    kept, local = diloco_of_numpy(2, steps, 3, 2, delay, alpha)
    for number, found in enumerate(all_found):
        near(last(found, "kept"), kept, np.float64)
        near(last(found, "model"), local[number], np.float64)


def test_a_spare_has_what_the_others_average(start):
    mode = {"min_replica_size": 2, "world_size_mode": "FIXED_WITH_SPARES"}
    options = {"kind": "DiLoCo", "sync_every": 2, "steps": 9, "dtype": "float64"}
    all_found = found_of(start, 3, settings=mode | {"use_async_quorum": False}, **options)
    same_hashes(all_found)
    fits = []
    for spare in range(3):
        kept, local = diloco_of_numpy(3, 9, 2, spare=spare)
        weight = np.reshape(last(all_found[0], "kept")["weight"], (7, 3))
        if np.allclose(weight, kept["weight"], rtol=0, atol=1e-12):
            fits.append(spare)
            for number, found in enumerate(all_found):
                near(last(found, "kept"), kept, np.float64)
                near(last(found, "model"), local[number], np.float64)
    assert len(fits) == 1, fits


def test_what_is_quantized_is_within_bounds_and_the_same_everywhere(start):
    more = {"should_quantize": True}
    options = {"kind": "DiLoCo", "sync_every": 4, "steps": 12, "dtype": "float32", "more": more}
    all_found = found_of(start, 3, **options)
    same_hashes(all_found)
    kept, _ = diloco_of_numpy(3, 12, 4)
    # A change of up to 2, in 127 steps, of which half is lost twice in each of three outer steps.
    found = last(all_found[0], "kept")
    off = max(
        np.abs(np.reshape(found[name], it.shape) - it).max(initial=0) for name, it in kept.items()
    )
    assert 1e-6 < off < 0.2, off


def test_bytes_on_the_way(start):
    sent = {}
    for is_quantized in (False, True):
        with lighthouse(2) as url:
            settings = {"lighthouse_addr": url, "min_replica_size": 2}
            options = {"settings": settings, "more": {"should_quantize": is_quantized}}
            options["environment"] = {"POLYRANK_TRANSPORT": "tcp"}
            both = [start("bytes_on_the_way", number=it, **options) for it in range(2)]
            found = [replica.end() for replica in both]
        assert last(found[0], "hash") == last(found[1], "hash")
        sent[is_quantized] = last(found[0], "bytes")
        off, largest = last(found[0], "off"), last(found[0], "largest")
        limit = 2 * largest / 127 if is_quantized else 1e-6
        assert off < limit
    # Of a million elements of 4 bytes, and of 1 byte and a scale for each 256; and heartbeats.
    assert 4_000_000 <= sent[False] < 4_500_000
    assert 1_000_000 <= sent[True] < 1_500_000


def test_all_begin_with_what_one_has(start):
    with lighthouse(2) as url:
        settings = {"lighthouse_addr": url, "min_replica_size": 2}
        options = {"settings": settings, "dtype": "float32", "sync_every": 2, "steps": 4}
        options |= {"kind": "DiLoCo", "fragments": 2}
        both = [start("oracle", number=it, seed=it, **options) for it in range(2)]
        found = [replica.end() for replica in both]
    same_hashes(found)
    joined = [last(lines, "joined") for lines in found]
    assert joined[0] == joined[1]
    firsts = [initial(np.float32, seed)["weight"].tolist() for seed in range(2)]
    assert joined[0]["weight"] in firsts


# Replicas that come and go.


def commits(found):
    return {line["step"]: line["hash"] for line in found if "step" in line}


KINDS = {
    "LocalSGD": {"kind": "LocalSGD", "sync_every": 5},
    "DiLoCo": {"kind": "DiLoCo", "sync_every": 5},
    "streaming": {
        "kind": "DiLoCo", "sync_every": 6, "fragments": 2,
        "more": STREAMING | {"should_quantize": True},
    },
}


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
@pytest.mark.parametrize("where", ["inner", "outer"])
@pytest.mark.parametrize("kind", list(KINDS))
def test_a_replica_is_killed_and_another_takes_its_place(start, kind, where, is_async):
    with lighthouse(2) as url:
        settings = {"lighthouse_addr": url, "min_replica_size": 2, "use_async_quorum": is_async}
        options = {"settings": settings} | KINDS[kind]
        # It may be at any place of its inner steps, or it dies where the others wait for it.
        own = {"rounds": 5} if where == "outer" else {}
        first, third = [start("train", **options) for _ in range(2)]
        for survivor in (first, third):
            survivor.wait_for(lambda line: line.get("count") == 2)
        killed = start("train", **options, **own)
        if where == "inner":
            killed.wait_for(lambda line: line.get("count") == 3)
            killed.kill()
        killed.process.wait(PATIENCE_S)
        killed.line.reader.join(PATIENCE_S)
        dead_at = max(commits(killed.found()), default=0)
        for survivor in (first, third):
            survivor.wait_for(
                lambda line: line.get("step", 0) > dead_at + 1 and line["count"] == 2
            )
        anew = start("train", **options)
        anew.wait_for(lambda line: line.get("count") == 3)
        first.wait_for(lambda line: line.get("step", 0) > dead_at + 1 and line["count"] == 3)
        anew.tell()
        ended = [replica.end() for replica in (first, third, anew)]
    wanted = {}
    for found in [*ended, killed.found()]:
        for step, state in commits(found).items():
            assert wanted.setdefault(step, state) == state, step
    assert set.intersection(*(set(commits(found)) for found in ended))
    assert len({max(commits(found)) for found in ended}) == 1
    for found in ended[:2]:
        lost = [line for line in found if "lost" in line]
        # One that dies costs an outer step; none if it was in none.
        assert len(lost) == 1 if where == "outer" else len(lost) <= 1, lost
    assert not [line for line in ended[2] if "lost" in line]


# In one process.


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
@pytest.mark.parametrize("kind", [LocalSGD, DiLoCo])
def test_who_takes_a_state_does_not_count(made, kind, is_async):
    models, raised = [np.zeros(3), np.full(3, 900.0)], []

    def layer_of(manager, model):
        if kind is LocalSGD:
            return LocalSGD(manager, [model])
        return DiLoCo(manager, [[model]], outer_optimizer=OuterSGD(1.0, 0.0, False))

    def join_and_fall_behind(url):
        try:
            late = made(url, use_async_quorum=is_async)
            with layer_of(late, models[1]) as layer:
                models[1] += 500
                # It takes the state again in its first round.
                late.load_state_dict(polyrank.ManagerState(step=0, batches_committed=0))
                assert layer.step() is True
            late.shutdown()
        except BaseException as error:
            raised.append(error)

    with lighthouse(1) as url:
        first = made(url, use_async_quorum=is_async)
        thread = threading.Thread(target=join_and_fall_behind, args=(url,))
        rounds, together = 0, 0
        with layer_of(first, models[0]) as layer:
            thread.start()
            while together < 2:
                models[0] += 1
                assert layer.step() is True, first.errored()
                rounds += 1
                together += len(first.replicas()) == 2
        first.shutdown()
        thread.join(PATIENCE_S)
    assert not raised
    assert [model.tolist() for model in models] == [[rounds] * 3] * 2


def test_what_is_lost_by_an_error_of_the_program(made):
    manager = made()
    model, other = {"a": np.zeros(3)}, {"b": np.zeros(2)}
    layer = DiLoCo(manager, [model, other], sync_every=6, fragment_sync_delay=1)
    with layer:
        model["a"] += 1
        other["b"] += 1
        assert layer.step() is None and layer.step() is None
        manager.report_error("the loss is not a number")
        assert layer.step() is False
        assert "not a number" in manager.errored() and manager.current_step() == 1
        # The second fragment, whose turn it was, and is again.
        assert other["b"].tolist() == [0, 0] and model["a"].tolist() == [1, 1, 1]
        other["b"] += 1
        assert [layer.step() for _ in range(3)] == [None, None, True]
        # 0.7 of the change, and of 0.9 of its momentum, which is the change.
        np.testing.assert_allclose(other["b"], [1.33] * 2)
        assert [layer.step() for _ in range(3)] == [None, None, True]
        np.testing.assert_allclose(model["a"], [1.33] * 3)
    assert manager.current_step() == 3


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
def test_without_a_quorum_a_round_is_lost(made, is_async):
    server = polyrank.LighthouseServer(1, bind="127.0.0.1:0")
    settings = {"quorum_timeout": 0.5, "max_retries": 2, "use_async_quorum": is_async}
    manager = made(server.address(), **settings)
    local = {"a": np.zeros(2)}
    with LocalSGD(manager, local, sync_every=1) as sgd:
        local["a"] += 1
        assert sgd.step() is True
        server.shutdown()
        local["a"] += 1
        assert sgd.step() is False and sgd.step() is False
        assert "no quorum" in manager.errored()
        assert local["a"].tolist() == [2, 2]
        with pytest.raises(polyrank.ManagerFailedError, match="3 steps in a row"):
            sgd.step()


def test_what_was_trained_in_a_lost_round_is_taken_back(made):
    server = polyrank.LighthouseServer(1, bind="127.0.0.1:0")
    shared = {"a": np.zeros(2)}
    with DiLoCo(made(server.address(), quorum_timeout=0.5), [shared]) as diloco:
        server.shutdown()
        shared["a"] += 1
        assert diloco.step() is False
        assert shared["a"].tolist() == [0, 0]


def test_joining_waits_for_a_quorum(made):
    with lighthouse(2) as url:
        manager = made(url, quorum_timeout=0.3, use_async_quorum=False)
        layer = LocalSGD(manager, [np.zeros(2)])
        with pytest.raises(polyrank.QuorumError, match="waits for 1 more replica"):
            with layer:
                raise AssertionError("nobody is there")
        with pytest.raises(polyrank.InvalidArgumentError, match="in its with block"):
            layer.step()


def test_what_is_averaged_at_the_end_is_not_lost(made):
    model = {"a": np.zeros(2)}
    with DiLoCo(made(), [model], sync_every=3, fragment_sync_delay=2) as layer:
        model["a"] += 1
        layer.step()
    np.testing.assert_allclose(model["a"], [1.33, 1.33])
    assert layer.state_dict()["parameters"][0]["a"].tolist() == model["a"].tolist()


def test_what_16_bits_lose_is_no_change(made):
    model = [np.ones(1, np.float16)]
    with DiLoCo(made(), [model], outer_optimizer=OuterSGD(0.3, 0.0, False)) as layer:
        model[0] -= np.float16(0.3)
        seen = [layer.step() and layer.state_dict()["parameters"][0]["0"][0] for _ in range(3)]
    assert seen[0] == seen[1] == seen[2] != np.float16(seen[0]), seen


def test_the_optimizer_calls_it(made):
    manager, weights = made(), np.zeros(2, np.float32)
    optimizer = Optimizer([weights])

    class Module:
        def named_parameters(self):
            yield "weights", weights

    with DiLoCo(manager, [Module()], optimizer, sync_every=2) as layer:
        optimizer.step()
        assert weights.tolist() == [1, 1]
        optimizer.step()
        np.testing.assert_allclose(weights, [2.66, 2.66], rtol=1e-6)
    assert not optimizer.hooks and manager.current_step() == 2
    assert layer.state_dict()["parameters"][0].keys() == {"weights"}


def test_models_of_every_kind(made):
    manager = made()
    numbers, buffer = np.zeros(3), array.array("f", [0, 0])
    named = [("b", np.zeros(1)), ("a", buffer)]
    dictionary = {"a": np.zeros(2)}
    models = [[numbers, np.zeros(())], named, dictionary]
    with DiLoCo(manager, models, sync_every=3, outer_optimizer=OuterSGD(1.0, 0.0, False)) as layer:
        numbers += 1
        buffer[0] = 5
        # Another array in its place.
        dictionary["a"] = dictionary["a"] + 2
        assert all(layer.step() for _ in range(3))
        state = layer.state_dict()["parameters"]
        # By their names, as replicas may have made them in another order.
        assert [list(part) for part in state] == [["0", "1"], ["a", "b"], ["a"]]
        assert state[0]["0"].tolist() == [1, 1, 1] and state[1]["a"].tolist() == [5, 0]
        assert state[2]["a"].tolist() == [2, 2]
        dictionary["a"] = np.zeros(3)
        assert layer.step()
        with pytest.raises(polyrank.InvalidArgumentError, match="not those that there were at"):
            layer.step()


def test_a_checkpoint_goes_on(made):
    def trained(manager, state, steps):
        model = {"a": np.zeros(3, np.float32)}
        layer = DiLoCo(manager, [model], sync_every=1)
        if state is not None:
            layer.load_state_dict(state)
        with layer:
            for step in steps:
                model["a"] -= np.float32(step)
                assert layer.step()
        return layer.state_dict(), model["a"].tolist()

    saved, _ = trained(made(), None, [1, 2])
    at_once = trained(made(), None, [1, 2, 3])
    later = trained(made(), saved, [3])
    assert at_once[1] == later[1]
    assert saved["parameters"][0]["a"].tolist() != at_once[1]
    with pytest.raises(polyrank.InvalidArgumentError, match=r"fragment 0: .* of shape \(3,\)"):
        DiLoCo(made(), [{"a": np.zeros(4, np.float32)}]).load_state_dict(saved)
    with pytest.raises(polyrank.InvalidArgumentError, match=r"the parameters \['a'\]"):
        DiLoCo(made(), [{"b": np.zeros(3, np.float32)}]).load_state_dict(saved)
    with pytest.raises(polyrank.InvalidTypeError, match="no 'outer'"):
        DiLoCo(made(), [[np.zeros(3)]]).load_state_dict({"parameters": []})


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"sync_every": 0}, "InvalidArgument", "sync_every must be at least 1, not 0"),
        ({"sync_every": 2.5}, "InvalidType", "sync_every must be int, not float"),
        ({"sync_every": 3}, "InvalidArgument", "a multiple of the number of fragments, 2"),
        ({"sync_every": 1}, "InvalidArgument", "a multiple of the number of fragments, 2"),
        ({"fragment_sync_delay": 2}, "InvalidArgument", "delay must be less than 2"),
        ({"fragment_sync_delay": -1}, "InvalidArgument", "delay must be at least 0"),
        ({"fragment_update_alpha": 1.5}, "InvalidArgument", "alpha must be from 0 to 1"),
        ({"fragment_update_alpha": float("nan")}, "InvalidArgument", "alpha must be from 0 to 1"),
        ({"outer_optimizer": [OuterSGD()] * 3}, "InvalidArgument", "3 outer optimizers for 2"),
        ({"outer_optimizer": 0.7}, "InvalidType", "outer_optimizer must have step.*not float"),
        ({"inner_optimizer": object()}, "InvalidType", "pass None, and call step"),
        ({"backup_device": "cuda"}, "InvalidArgument", "must be None or 'cpu', not 'cuda'"),
        ({"model_fragments": []}, "InvalidArgument", "model_fragments is empty"),
        ({"model_fragments": {"a": np.zeros(2)}}, "InvalidType", "must be a list of models"),
        ({"model_fragments": [np.zeros(2)]}, "InvalidType", "not list of arrays"),
        ({"model_fragments": [{"a": 1.0}] * 2}, "InvalidType", "'a' must be an array, not float"),
        ({"model_fragments": [{1: np.zeros(2)}] * 2}, "InvalidType", "names .* must be str"),
        ({"model_fragments": ["a", "b"]}, "InvalidType", "a model is a mapping .* not str"),
        (
            {"model_fragments": [{"a": np.zeros(2, int)}] * 2},
            "InvalidArgument",
            "cannot be averaged",
        ),
        (
            {"model_fragments": [[("a", np.zeros(2)), ("a", np.ones(2))]] * 2},
            "InvalidArgument", "two parameters are called 'a'",
        ),
        (
            {"model_fragments": [{"a": np.zeros(2).view()}] * 2},
            "InvalidArgument", "'a' of fragment 0 and 'a' of fragment 1 are the same parameter",
        ),
        (
            {"model_fragments": [[np.zeros(2, complex)], [np.ones(2)]], "should_quantize": True},
            "InvalidArgument", "fragment 0 has complex parameters",
        ),
    ],
    ids=lambda it: next(iter(it)) if isinstance(it, dict) else None,
)
def test_what_cannot_be_is_refused(made, arguments, error, text):
    given = {"model_fragments": [[np.zeros(2)], [np.zeros(2)]], "sync_every": 4} | arguments
    with pytest.raises(getattr(polyrank, f"{error}Error"), match=text):
        DiLoCo(made(), **given)


def test_misuse(made):
    manager, model = made(), [np.zeros(2)]
    with pytest.raises(polyrank.InvalidTypeError, match="manager must be a polyrank.Manager"):
        LocalSGD("manager", model)
    frozen = np.zeros(2)
    frozen.flags.writeable = False
    with pytest.raises(polyrank.InvalidArgumentError, match="'0' is read-only"):
        LocalSGD(manager, [frozen])
    with pytest.raises(polyrank.InvalidTypeError, match="not ndarray"):
        LocalSGD(manager, np.zeros(2))
    for wrong in ({"lr": -1}, {"lr": np.nan}, {"lr": np.inf}, {"momentum": 1.0}, {"momentum": 0.0}):
        with pytest.raises(polyrank.InvalidArgumentError, match="OuterSGD"):
            OuterSGD(**wrong)
    layer = LocalSGD(manager, model)
    for method in (layer.sync, layer.step):
        with pytest.raises(polyrank.InvalidArgumentError, match="is called in its with block"):
            method()
    with pytest.raises(polyrank.InvalidArgumentError, match='"local_sgd" is registered already'):
        LocalSGD(manager, model)
    # Who joins would land in the average of the other one.
    with pytest.raises(polyrank.InvalidArgumentError, match='"local_sgd" is registered already'):
        DiLoCo(manager, [model])
    with layer, pytest.raises(polyrank.InvalidArgumentError, match="entered already"):
        layer.__enter__()


def test_an_error_of_the_program_is_its_own(made):
    manager, model = made(), [np.zeros(2)]
    with pytest.raises(KeyError):
        with DiLoCo(manager, [model], sync_every=2, fragment_sync_delay=1) as layer:
            layer.step()
            raise KeyError("of the program")
    assert manager.current_step() == 1


# With PyTorch, where it is installed.


@pytest.mark.parametrize("is_streaming", [False, True])
def test_modules_and_optimizers_of_torch(made, is_streaming):
    """As many inner and outer steps as torch makes by itself."""
    torch = pytest.importorskip("torch")

    def model_of(dtype):
        torch.manual_seed(3)
        return torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Linear(4, 2)).to(dtype)

    def trained(dtype, outer_of):
        model = model_of(dtype)
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        parts = list(model) if is_streaming else [model]
        outer = outer_of(model)
        with DiLoCo(made(), parts, inner, outer, sync_every=4) as layer:
            for step in range(8):
                inner.zero_grad()
                data = torch.full((3, 5), float(step), dtype=dtype)
                model(data).sum().backward()
                inner.step()
        state = layer.state_dict()
        again = DiLoCo(made(), parts, None, outer_of(model), sync_every=4)
        again.load_state_dict(state)
        assert str(again.state_dict()) == str(state)
        return [parameter.detach().double().numpy() for parameter in model.parameters()]

    def of_torch(model):
        return torch.optim.SGD(model.parameters(), lr=0.7, momentum=0.9, nesterov=True)

    for dtype, limit in ((torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 0.05)):
        theirs, ours = trained(dtype, of_torch), trained(dtype, lambda model: OuterSGD())
        for one_of, other in zip(theirs, ours, strict=True):
            np.testing.assert_allclose(one_of, other, rtol=limit, atol=limit)
