"""A rank that uses MPI through polyrank and through mpi4py, in the order that its argument says.

Prints "ok RANK" when both gave what they should. Knows nothing of how ranks are started.
"""

import sys

import numpy as np
import polyrank as pr


def both(mpi):
    """Sums by turns, with an operation of each in flight at once."""
    world = mpi.COMM_WORLD
    rank, size = pr.get_rank(), pr.get_world_size()
    assert (world.Get_rank(), world.Get_size()) == (rank, size)
    total = size * (size - 1) // 2
    for _ in range(20):
        ours, theirs = np.full(1000, rank, np.float64), np.full(1000, rank, np.float64)
        work = pr.all_reduce(ours, async_op=True)
        request = world.Iallreduce(mpi.IN_PLACE, theirs)
        request.Wait()
        work.wait()
        assert (ours == total).all() and (theirs == total).all()
    assert world.allreduce(rank) == total


def raises(kind, words, call, *arguments):
    """Asserts that the call raises an error of this kind that has these words."""
    try:
        call(*arguments)
    except kind as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"no {kind.__name__}")


def end_first(mpi):
    """Finalises MPI while the group is there, with nothing in flight: MPI_Finalize may not run
    beside another thread's call (MPI 4.1, "MPI and Threads", initialization and completion).
    """
    mpi.Finalize()
    raises(pr.BackendUnavailableError, "finalised already", pr.all_reduce, np.zeros(3))
    raises(pr.BackendUnavailableError, "finalised already", pr.recv, np.zeros(3))


def main():
    """The exit code is 0 if all went well."""
    if sys.argv[1] != "polyrank-first":
        from mpi4py import MPI

        pr.init_process_group("mpi")
    else:
        pr.init_process_group("mpi")
        from mpi4py import MPI
    both(MPI)
    rank = pr.get_rank()
    if sys.argv[1] == "mpi4py-ends-first":
        end_first(MPI)
    pr.destroy_process_group()
    if sys.argv[1] == "mpi4py-first":
        MPI.Finalize()
        raises(pr.BackendUnavailableError, "finalised already", pr.init_process_group, "mpi")
    print(f"\nREPORT {rank} ok", flush=True)


if __name__ == "__main__":
    main()
