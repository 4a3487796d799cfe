"""Polyrank in the harness that measures Gloo, Open MPI and MPICH: the adapter for collectives, and
the one for the store. Knows nothing of the harness but its contract: one class, one method an
operation, every call blocking with its result in the NumPy memory."""


class Adapter:
    """The collectives, through the free functions on the default group."""

    name = "polyrank"

    def init(self, rank, world, host, port, timeout_s=60):
        """Joins the group; rank 0 serves the rendezvous on host:port."""
        import polyrank as pr

        self.pr = pr
        pr.init_process_group(
            "tcp",
            init_method=f"tcp://{host}:{port}",
            rank=rank,
            world_size=world,
            timeout=timeout_s,
        )
        self.allreduce = pr.all_reduce
        self.broadcast = pr.broadcast
        self.allgather = pr.all_gather_into_tensor
        self.reduce_scatter = pr.reduce_scatter_tensor
        self.all_to_all = pr.all_to_all_single
        self.barrier = pr.barrier
        self.send = pr.send
        self.recv = pr.recv

    def info(self):
        """What goes into the results besides figures."""
        return {"polyrank": self.pr.__version__, "backend": self.pr.get_backend()}

    def wrap(self, array):
        """NumPy arrays are tensors as they are."""
        return array

    allreduce = broadcast = allgather = reduce_scatter = all_to_all = None
    barrier = send = recv = None

    def poll(self):
        """Nothing to do: the library makes progress by itself."""

    def finalize(self):
        """Leaves the group."""
        self.pr.destroy_process_group()


class StoreAdapter:
    """TCPStore, server and clients."""

    name = "polyrank-tcpstore"

    def prepare(self):
        """The import, which is not timed."""
        import polyrank  # noqa: F401

    def serve(self, host, port):
        """Starts the server; it lives as long as what is returned."""
        from polyrank import TCPStore

        self.store = TCPStore(host, port, is_master=True, wait_for_workers=False, timeout=60)
        return self.store

    def connect(self, host, port):
        """Connects a client."""
        from polyrank import TCPStore

        self.store = TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=60)
        self.set, self.get, self.add = self.store.set, self.store.get, self.store.add

    def info(self):
        """What goes into the results besides figures."""
        import polyrank

        return {"polyrank": polyrank.__version__}
