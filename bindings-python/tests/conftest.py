"""Pools of ranks that tests share."""

import signal

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
