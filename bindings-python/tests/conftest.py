"""Pools of ranks that tests share."""

import signal

import polyrank
import pytest

from ranks import Pool

# A shell that starts a job in the background makes it ignore SIGINT, and Python then leaves it so;
# tests send themselves SIGINT and expect what a user at a terminal sees.
signal.signal(signal.SIGINT, signal.default_int_handler)

WORLDS = [1, 2, 3, 5, 8]


@pytest.fixture(scope="session")
def pools():
    """Pools by size, made when they are first asked for. Only one size runs at a time."""
    made: dict[int, Pool] = {}

    def pool(size: int) -> Pool:
        if size not in made:
            made[size] = Pool(size)
        return made[size]

    yield pool
    for pool_made in made.values():
        pool_made.close()


@pytest.fixture(params=WORLDS, ids=lambda size: f"world{size}")
def world(request, pools):
    """A pool of each size."""
    return pools(request.param)


@pytest.fixture
def trio(pools):
    """A pool of three ranks."""
    return pools(3)


@pytest.fixture
def pair(pools):
    """A pool of two ranks."""
    return pools(2)


@pytest.fixture
def made():
    """Makes managers of this process, each with a lighthouse of its own, and has them leave."""
    all_made, servers = [], []

    def make(url=None, **settings):
        if url is None:
            servers.append(polyrank.LighthouseServer(1, bind="127.0.0.1:0"))
            url = servers[-1].address()
        settings = {"min_replica_size": 1, "timeout": 20, "quorum_timeout": 40} | settings
        all_made.append(polyrank.Manager(lighthouse_addr=url, **settings))
        return all_made[-1]

    yield make
    for manager in all_made:
        manager.shutdown()
