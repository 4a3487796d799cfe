"""A backend that is written in Python: its ranks exchange everything over the store of their group.
And groups over it, or over another backend."""

import asyncio
import concurrent.futures

import numpy as np
import polyrank as dist

LIMIT = 30.0


class OverStore:
    """Its ranks exchange everything through the store of their group."""

    def __init__(self, store, rank, size, timeout):
        assert timeout.total_seconds() > 0
        self.store, self.rank, self.size = store, rank, size
        self.number, self.messages = 0, {}

    def exchange(self, blocks):
        """The blocks of all ranks."""
        number, self.number = self.number, self.number + 1
        own = {f"{number}/{self.rank}/{index}": bytes(block) for index, block in enumerate(blocks)}
        self.store.multi_set(list(own), list(own.values()))
        self.store.set(f"{number}/{self.rank}", str(len(blocks)))
        counts = [int(self.store.get(f"{number}/{rank}")) for rank in range(self.size)]
        return [
            [
                np.frombuffer(self.store.get(f"{number}/{rank}/{index}"), blocks[0].dtype)
                if blocks
                else self.store.get(f"{number}/{rank}/{index}")
                for index in range(count)
            ]
            for rank, count in enumerate(counts)
        ]

    def allreduce(self, tensors, opts):
        every = self.exchange(tensors)
        tensors[0][:] = reduced([blocks[0] for blocks in every], opts.reduce_op)

    def reduce(self, tensors, opts):
        every = self.exchange(tensors)
        if self.rank == opts.root_rank:
            tensors[0][:] = reduced([blocks[0] for blocks in every], opts.reduce_op)

    def broadcast(self, tensors, opts):
        tensors[0][:] = self.exchange(tensors)[opts.root_rank][0]

    # What waits need not hold up others: these are awaited.
    async def allgather(self, output_tensors, input_tensors, opts):
        await asyncio.sleep(0)
        for output, blocks in zip(output_tensors[0], self.exchange(input_tensors), strict=True):
            output[:] = blocks[0]

    def gather(self, output_tensors, input_tensors, opts):
        every = self.exchange(input_tensors)
        assert len(output_tensors) == (self.rank == opts.root_rank)
        for outputs in output_tensors:
            for output, blocks in zip(outputs, every, strict=True):
                output[:] = blocks[0]

    def scatter(self, output_tensors, input_tensors, opts):
        inputs = input_tensors[0] if input_tensors else []
        every = self.exchange(inputs)
        block = every[opts.root_rank][self.rank]
        output_tensors[0][:] = np.frombuffer(bytes(block), output_tensors[0].dtype)

    def reduce_scatter(self, output_tensors, input_tensors, opts):
        every = self.exchange(input_tensors[0])
        parts = [blocks[self.rank] for blocks in every]
        output_tensors[0][:] = reduced(parts, opts.reduce_op)

    def alltoall(self, output_tensors, input_tensors, opts):
        for output, blocks in zip(output_tensors, self.exchange(input_tensors), strict=True):
            output[:] = blocks[self.rank]

    def barrier(self, opts):
        self.exchange([])

    def key(self, way, *ends):
        """The key of the next message from a rank to another, with a tag, which each counts."""
        self.messages[way, ends] = self.messages.get((way, ends), 0) + 1
        return "message/" + "/".join(map(str, (*ends, self.messages[way, ends])))

    def send(self, tensors, dst, tag):
        self.store.set(self.key("sent", self.rank, dst, tag), bytes(tensors[0]))

    def recv(self, tensors, src, tag):
        key = self.key("received", src, self.rank, tag)
        # A request that waits holds up others of its connection.
        store = self.store.clone()

        def receive():
            tensors[0][:] = np.frombuffer(store.get(key), tensors[0].dtype)

        return POOL.submit(receive)


POOL = concurrent.futures.ThreadPoolExecutor(4)


def reduced(parts, op):
    functions = {
        "SUM": np.add,
        "PRODUCT": np.multiply,
        "MIN": np.minimum,
        "MAX": np.maximum,
        "BAND": np.bitwise_and,
        "BOR": np.bitwise_or,
        "BXOR": np.bitwise_xor,
    }
    total = parts[0].copy()
    for part in parts[1:]:
        total = functions[op.name](total, part)
    return total


dist.register_backend("Over_Store", OverStore)


def over(here, name, backend="over_store", timeout=LIMIT):
    """A group of all ranks over this backend."""
    store = dist.PrefixStore(name, here.store)
    return dist.ProcessGroup(store, here.rank, here.size, backend=backend, timeout=timeout)


def alone(backend, timeout=LIMIT):
    return dist.ProcessGroup(dist.HashStore(), 0, 1, backend=backend, timeout=timeout)
