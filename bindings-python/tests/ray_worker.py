"""The Ray actor that the tests of `polyrank.ray` make ranks of."""

import os

import numpy as np
import numpy.typing as npt
import ray

import polyrank
import polyrank.ray as collective


class Lent:
    """A tensor of a library that polyrank knows nothing of: it has DLPack, as PyTorch's have."""

    def __init__(self, array: npt.NDArray[np.float32]) -> None:
        self.array = array

    def __dlpack__(self, **keywords: object) -> object:
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


@ray.remote(num_cpus=0)
class Worker:
    """Does what it is told, in any group."""

    def join(self, world_size, rank, name, **keywords):
        collective.init_collective_group(world_size, rank, group_name=name, **keywords)

    def leave(self, name):
        collective.destroy_collective_group(name)

    def place(self, name):
        """What is known here of a group."""
        is_there = collective.is_group_initialized(name)
        return is_there, collective.get_rank(name), collective.get_collective_group_size(name)

    def total(self, name):
        """The sum of all ranks, counted from 1, by each of them."""
        tensor = np.full(3, collective.get_rank(name) + 1.0)
        collective.allreduce(tensor, name)
        return tensor.tolist()

    def call(self, function, *arguments):
        """Calls a function here."""
        return function(*arguments)

    def end(self):
        """The process ends as one that was killed does: nothing is left in order."""
        os._exit(1)


@ray.remote(num_cpus=0)
class AsyncWorker:
    """An actor whose methods are coroutines."""

    async def total(self, name):
        tensor = np.ones(2)
        collective.allreduce(tensor, name)
        return tensor.tolist()


def every_operation(name, op_of_ray):
    """Each function once; what it left in its tensors, by name."""
    rank, size = collective.get_rank(name), collective.get_collective_group_size(name)
    own = np.arange(4, dtype=np.float32) + 10 * rank
    left = {}

    def keep(what, tensor):
        left[what] = np.asarray(tensor).tolist()

    tensor = own.copy()
    collective.allreduce(tensor, name)
    keep("allreduce", tensor)
    lent = Lent(own.copy())
    collective.allreduce(lent, name, polyrank.ReduceOp.MAX)
    keep("allreduce of DLPack", lent.array)
    tensor = own.astype(np.int64) + 1
    collective.allreduce(tensor, name, op_of_ray)
    keep("allreduce by Ray's operator", tensor)
    tensor = own.copy()
    collective.reduce(tensor, size - 1, name)
    keep("reduce", tensor)
    tensor = own.copy()
    collective.broadcast(tensor, size - 1, name)
    keep("broadcast", tensor)
    outputs = [np.zeros(4, np.float32) for _ in range(size)]
    collective.allgather(outputs, own, name)
    keep("allgather", outputs)
    tensor = np.zeros(4, np.float32)
    collective.reducescatter(tensor, [own + 100 * part for part in range(size)], name)
    keep("reducescatter", tensor)
    tensor = own.copy()
    if size > 1 and rank == 0:
        collective.send(tensor, size - 1, name)
    elif size > 1 and rank == size - 1:
        collective.recv(tensor, 0, name)
    keep("send and recv", tensor)
    collective.barrier(name)
    handle = collective.get_group_handle(name)
    tensor = own.copy()
    handle.scan(tensor).wait()
    keep("a method of the group", tensor)
    return left
