"""Collectives whose elements travel compressed, against what the formats say, in NumPy."""

import numpy as np
import polyrank
import pytest
from polyrank import ReduceOp

FORMATS = ("bf16", "f16", "int8")
COUNTS = (0, 1, 5, 256, 257, 1030)


def kept(name, numbers):
    """What is left of numbers that travel, in float32."""
    numbers = numbers.astype(np.float32)
    if name == "f16":
        return numbers.astype(np.float16).astype(np.float32)
    if name == "bf16":
        bits = numbers.view(np.uint32)
        bits = (bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)
        return np.where(np.isnan(numbers), np.float32(np.nan), bits.view(np.float32))
    left = np.empty_like(numbers)
    for start in range(0, len(numbers), 256):
        block = numbers[start:start + 256]
        scale = np.float32(np.abs(block).max() / np.float32(127))
        if not np.isfinite(block).all():
            left[start:start + 256] = np.nan
        elif scale == 0:
            left[start:start + 256] = 0
        else:
            left[start:start + 256] = np.clip(np.rint(block / scale), -127, 127) * scale
    return left


def parts(count, size):
    """Where the part of each rank begins and ends."""
    each, more = divmod(count, size)
    starts = [rank * each + min(rank, more) for rank in range(size + 1)]
    return list(zip(starts[:-1], starts[1:], strict=True))


def given(seed, rank, count, dtype):
    random = np.random.default_rng([seed, rank, count])
    numbers = random.standard_normal(count) * 10.0 ** random.integers(-3, 3, count)
    return numbers.astype(dtype)


def reduced(name, op, numbers, size):
    """What one rank makes of what all gave for its part, before it travels again."""
    total = np.zeros(len(numbers[0]), np.float32)
    for one in numbers:
        total = total + kept(name, one)
    return total / np.float32(size) if op == ReduceOp.AVG else total


def check_error(work, pairs):
    """Whether the work says what was lost between the first and the second of each pair."""
    errors = [np.abs(exact.astype(np.float64) - left) for exact, left in pairs]
    errors = np.concatenate(errors) if errors else np.zeros(0)
    lost = work.compression_error
    assert lost["max_abs"] == (errors.max() if len(errors) else 0)
    mean = np.sqrt(np.mean(errors**2)) if len(errors) else 0
    np.testing.assert_allclose(lost["root_mean_square"], mean, rtol=1e-9)


def allreduces(here, seed):
    group, size = here.make_group(f"compressed {here.size} {seed}"), here.size
    cases = [(name, op, dtype) for name in FORMATS for op in (ReduceOp.SUM, ReduceOp.AVG)
             for dtype in (np.float32, np.float64)]
    for number, (name, op, dtype) in enumerate(cases):
        for count in COUNTS:
            every = [given(seed + number, rank, count, dtype) for rank in range(size)]
            expected, own = np.empty(count, np.float32), None
            for rank, (start, end) in enumerate(parts(count, size)):
                total = reduced(name, op, [one[start:end] for one in every], size)
                expected[start:end] = kept(name, total)
                own = (total, expected[start:end].copy()) if rank == here.rank else own
            tensor = every[here.rank].copy()
            options = polyrank.AllreduceOptions()
            options.reduce_op, options.compress = op, name
            work = group.allreduce([tensor], options)
            work.wait()
            # Bit for bit, and so the same on all ranks.
            np.testing.assert_array_equal(tensor, expected.astype(dtype))
            mine = every[here.rank]
            chunks = [mine[start:end] for start, end in parts(count, size)]
            check_error(work, [(chunk, kept(name, chunk)) for chunk in chunks] + [own])


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
def test_allreduces_are_summed_in_full_precision(pools, size):
    seed = int(np.random.default_rng().integers(1000))
    print("seed", seed)
    pools(size).run(allreduces, seed)


def others(here, seed):
    group, size = here.make_group(f"compressed others {here.size} {seed}"), here.size
    for name in FORMATS:
        lengths = [(3 * rank + seed) % 300 for rank in range(size)]
        every = [[given(seed + owner, rank, lengths[owner], np.float32) for owner in range(size)]
                 for rank in range(size)]
        output = np.empty(lengths[here.rank], np.float32)
        options = polyrank.ReduceScatterOptions()
        options.compress = name
        work = group.reduce_scatter([output], [every[here.rank]], options)
        work.wait()
        expected = reduced(name, ReduceOp.SUM, [one[here.rank] for one in every], size)
        np.testing.assert_array_equal(output, expected)
        check_error(work, [(one, kept(name, one)) for one in every[here.rank]])
        outputs = [np.empty(length, np.float64) for length in lengths]
        inputs = [given(seed, rank, lengths[rank], np.float64) for rank in range(size)]
        options = polyrank.AllgatherOptions()
        options.compress = name
        work = group.allgather([outputs], [inputs[here.rank]], options)
        work.wait()
        for found, exact in zip(outputs, inputs, strict=True):
            np.testing.assert_array_equal(found, kept(name, exact).astype(np.float64))
        check_error(work, [(inputs[here.rank], kept(name, inputs[here.rank]))])


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_reduce_scatters_and_allgathers(pools, size):
    seed = int(np.random.default_rng().integers(1000))
    print("seed", seed)
    pools(size).run(others, seed)


def in_flight(here):
    """Several at once, with others between them, waited for in another order."""
    group, size = here.make_group("compressed in flight"), here.size
    compressed = [np.full(1000 + number, 1.0, np.float32) for number in range(4)]
    plain = [np.full(7, number, np.int32) for number in range(4)]
    works = []
    for one, other in zip(compressed, plain, strict=True):
        options = polyrank.AllreduceOptions()
        options.compress = "int8"
        works.append(group.allreduce([one], options))
        works.append(group.allreduce([other]))
    for work in reversed(works):
        work.wait()
    assert all((one == size).all() for one in compressed)
    assert all((other == number * size).all() for number, other in enumerate(plain))
    assert works[1].compression_error is None
    lost = works[0].compression_error
    assert lost["max_abs"] < 1e-6 and lost["root_mean_square"] <= lost["max_abs"]
    # Not contiguous.
    spread = np.arange(600, dtype=np.float32)
    tensor = np.asfortranarray(spread.reshape(30, 20))[::2].T
    options = polyrank.AllreduceOptions()
    options.compress = "bf16"
    before = tensor.copy()
    group.allreduce([tensor], options).wait()
    np.testing.assert_allclose(tensor, before * size, rtol=0.01)
    assert (spread.reshape(30, 20)[1] == np.arange(20, 40)).all()
    # Each tensor of a list for itself.
    options = polyrank.AllreduceCoalescedOptions()
    options.compress = "f16"
    tensors = [np.full(length, 0.5, np.float32) for length in (3, 0, 300)]
    group.allreduce_coalesced(tensors, options).wait()
    assert all((tensor == size / 2).all() for tensor in tensors)


def test_several_are_in_flight(trio):
    trio.run(in_flight)


def unlike_memory(here):
    """How a rank's tensors lie, and how many it gives, is its own affair."""
    group = here.make_group("compressed, unlike memory")
    for count in (0, 1, 777, (1 << 18) * here.size + 4099):
        numbers = (np.arange(count) % 61).astype(np.float32)
        for strided in range(here.size):
            tensor = numbers.copy()
            if here.rank == strided:
                tensor = np.repeat(numbers[:, None], 3, axis=1)[:, 1]
            options = polyrank.AllreduceOptions(compress="f16")
            group.allreduce([tensor], options).wait()
            np.testing.assert_array_equal(tensor, numbers * here.size)
        # The tensors of a list are one contribution, and all get the result.
        tensors = [numbers.copy() for _ in range(3 if here.rank == here.size - 1 else 1)]
        tensors[-1] = np.ascontiguousarray(tensors[-1][::-1])[::-1]
        group.allreduce(tensors, polyrank.AllreduceOptions(compress="bf16")).wait()
        for tensor in tensors:
            exact = numbers * np.float32(here.size + 2)
            np.testing.assert_allclose(tensor, exact, rtol=1 / 256)
            np.testing.assert_array_equal(tensor, tensors[0])
        average = [np.full(5, 3.0)] * 2
        options = polyrank.AllreduceOptions(reduce_op=ReduceOp.AVG, compress="f16")
        group.allreduce(average, options).wait()
        assert average[0].tolist() == [3.0] * 5


def test_memory_is_each_ranks_own_affair(trio):
    trio.run(unlike_memory)


def not_finite(here):
    group = here.make_group("compressed not finite")
    for name, odd in [(name, odd) for name in FORMATS for odd in (np.nan, np.inf, -np.inf)]:
        tensor = np.ones(1200, np.float32)
        if here.rank == 1:
            tensor[700] = odd
        options = polyrank.AllreduceOptions()
        options.compress = name
        work = group.allreduce([tensor], options)
        work.wait()
        assert not np.isfinite(tensor[700])
        blocks = np.flatnonzero(~np.isfinite(tensor))
        # The block, of int8, in the part of the rank that reduces it.
        assert blocks[-1] - blocks[0] + 1 == len(blocks) <= (256 if name == "int8" else 1)
        lost = work.compression_error["max_abs"]
        assert np.isinf(lost) == (name == "int8" and here.rank == 1)
        # Where nothing is finite, nothing that is gets lost.
        options = polyrank.AllreduceOptions(compress=name)
        work = group.allreduce([np.full(3, np.nan, np.float32)], options)
        work.wait()
        assert work.compression_error["max_abs"] == 0


def test_what_is_not_finite_does_not_vanish(trio):
    trio.run(not_finite)


def refusals(here):
    group = here.make_group("compressed refusals")
    polyrank.init_process_group(store=polyrank.PrefixStore("refusing", here.store),
                                rank=here.rank, world_size=here.size)
    try:
        for tensor, op, name, said in [
            (np.ones(3), ReduceOp.SUM, "int4", "'int8' or 'none', not 'int4'"),
            (np.ones(3), ReduceOp.MAX, "int8", "compress='int8' reduces by SUM or AVG, not by MAX"),
            (np.ones(3, int), ReduceOp.SUM, "bf16", "takes tensors of f32 or f64, not of i64"),
            (np.ones(3, np.float16), ReduceOp.SUM, "int8", "of f32 or f64, not of f16"),
        ]:
            with pytest.raises(polyrank.InvalidArgumentError, match=said):
                polyrank.all_reduce(tensor, op, compress=name)
        with pytest.raises(polyrank.InvalidTypeError):
            polyrank.all_reduce(np.ones(3), compress=8)
        options = polyrank.AllgatherOptions()
        options.compress = "int8"
        rooms = [[np.zeros(3) for _ in range(2 * here.size)] for _ in range(2)]
        with pytest.raises(polyrank.UnsupportedError, match="of several tensors at once"):
            group.allgather(rooms, [np.ones(3), np.ones(3)], options)
        # Nothing was issued.
        tensor = np.ones(3, np.float32)
        assert polyrank.all_reduce(tensor, compress="bf16") is None
        work = polyrank.all_reduce(tensor, async_op=True, compress="f16")
        work.wait()
        assert (tensor == here.size**2).all() and work.compression_error["max_abs"] == 0
        output = np.empty(1)
        polyrank.reduce_scatter_tensor(output, np.arange(float(here.size)), compress="bf16")
        assert output == here.rank * here.size
        every = np.empty((here.size, 2))
        polyrank.all_gather_into_tensor(every, np.full(2, here.rank + 0.5), compress="f16")
        assert (every == np.arange(here.size)[:, None] + 0.5).all()
        several = [np.empty(2) for _ in range(here.size)]
        polyrank.all_gather(several, np.full(2, float(here.rank)), compress="int8")
        assert (np.round(several) == np.arange(here.size)[:, None]).all()
        polyrank.reduce_scatter(output, [np.full(1, 2.0)] * here.size, compress="f16")
        assert output == 2 * here.size
        polyrank.all_reduce_coalesced([np.ones(2), np.ones(1)], compress="bf16")
    finally:
        polyrank.destroy_process_group()


def test_what_cannot_be_compressed_is_refused(trio):
    trio.run(refusals)


def disagreements(here, number):
    group = here.make_group(f"compressed disagreements {number}")
    names = [(None, "bf16"), ("bf16", "int8"), ("f16", None)][number]
    options = polyrank.AllreduceOptions()
    options.compress = names[here.rank == 1]
    with pytest.raises(polyrank.CollectiveMismatchError) as raised:
        group.allreduce([np.ones(5000, np.float32)], options).wait()
    for name in names:
        assert name is None or f"compressed to {name}" in str(raised.value), raised.value


@pytest.mark.parametrize("number", [0, 1, 2])
def test_ranks_that_disagree_are_told(pair, number):
    pair.run(disagreements, number)
