"""torchft's own servers and clients, for tests against ours: its native module alone, without
PyTorch.

What is found is written as one line of JSON; "error" is what a call raised.
"""

import importlib.util
import json
import sys
import sysconfig
import threading
from datetime import timedelta
from pathlib import Path

LIMIT = timedelta(seconds=60)


def load():
    """The native module. Importing the package would import torch."""
    folder = Path(sysconfig.get_paths()["purelib"], "torchft")
    path = next(folder.glob("_torchft*.so"))
    spec = importlib.util.spec_from_file_location("torchft._torchft", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def say(found):
    print(json.dumps(found), flush=True)


def fields(found):
    names = [name for name in dir(found) if not name.startswith("_")]
    return {name: getattr(found, name) for name in names}


def serve(torchft, min_replicas):
    """A lighthouse, until standard input ends."""
    server = torchft.LighthouseServer(bind="127.0.0.1:0", min_replicas=int(min_replicas))
    say({"port": int(server.address().rsplit(":", 1)[1])})
    sys.stdin.read()
    server.shutdown()


def quorum(torchft, address, replica_id, seconds):
    """One call of its client."""
    client = torchft.LighthouseClient(address, LIMIT)
    client.heartbeat(replica_id)
    try:
        found = client.quorum(
            replica_id,
            timedelta(seconds=float(seconds)),
            address=f"http://{replica_id}.example:1",
            store_address=f"{replica_id}.example:2",
            step=11,
            world_size=12,
            shrink_only=True,
            data={"name": replica_id},
        )
    except Exception as error:  # noqa: BLE001 - whatever it is, the test reads it
        say({"error": f"{type(error).__name__}: {error}"})
        return
    members = [fields(member) for member in found.participants]
    say({"quorum_id": found.quorum_id, "participants": members})


def managers(torchft, address, *steps):
    """A replica group of one rank for each step, as torchft's Manager makes it. They stay until
    standard input ends."""
    servers = [
        torchft.ManagerServer(
            replica_id=f"replica-{number}",
            lighthouse_addr=address,
            hostname="localhost",
            bind="[::]:0",
            store_addr=f"store-{number}",
            world_size=1,
            heartbeat_interval=timedelta(milliseconds=100),
            connect_timeout=LIMIT,
            quorum_retries=0,
        )
        for number in range(len(steps))
    ]
    clients = [torchft.ManagerClient(server.address(), LIMIT) for server in servers]
    results = [None] * len(steps)

    def ask(number):
        found = clients[number]._quorum(
            group_rank=0,
            step=int(steps[number]),
            checkpoint_metadata=f"checkpoint-{number}",
            shrink_only=False,
            timeout=LIMIT,
            commit_failures=0,
            init_sync=True,
        )
        results[number] = fields(found)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(steps))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    say(results)
    sys.stdin.read()


def rank(torchft, address, step):
    """What a rank asks its manager in a step, by torchft's client."""
    client = torchft.ManagerClient(address, LIMIT)
    found = client._quorum(
        group_rank=0,
        step=int(step),
        checkpoint_metadata="checkpoint",
        shrink_only=False,
        timeout=LIMIT,
        commit_failures=0,
        init_sync=True,
    )
    checkpoint = client._checkpoint_metadata(0, LIMIT)
    commits = [client.should_commit(0, int(step), wanted, LIMIT) for wanted in (True, False)]
    say({**fields(found), "checkpoint": checkpoint, "commits": commits})


if __name__ == "__main__":
    roles = {"serve": serve, "quorum": quorum, "managers": managers, "rank": rank}
    roles[sys.argv[1]](load(), *sys.argv[2:])
