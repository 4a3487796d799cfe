"""Starts the replicas of an example as processes of this host, with a lighthouse, and collects what
each has found: the program itself with `--replica N`, which prints its result as the last line.
"""

import json
import os
import subprocess
import sys
import threading

import polyrank as pr


def run(program, arguments, replicas):
    """The results of all replicas. What they print besides is passed on, with their numbers."""
    lighthouse = pr.LighthouseServer(replicas, bind="127.0.0.1:0", join_timeout=600)
    environment = os.environ | {
        "TORCHFT_LIGHTHOUSE": lighthouse.address(),
        # So that what is sent is counted, as between hosts.
        "POLYRANK_TRANSPORT": "tcp",
        # Each replica has a core, not all of them.
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }
    processes, results = [], [None] * replicas
    for number in range(replicas):
        command = [sys.executable, program, *arguments, "--replica", str(number)]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        processes.append(process)
    threads = [
        threading.Thread(target=pass_on, args=(number, process, results))
        for number, process in enumerate(processes)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    codes = [process.wait() for process in processes]
    lighthouse.shutdown()
    if any(codes) or None in results:
        sys.exit(f"replicas ended with {codes}")
    return results


def pass_on(number, process, results):
    """Prints what a replica prints, but for its result."""
    for line in process.stdout:
        if line.startswith("{"):
            results[number] = json.loads(line)
        else:
            print(f"[replica {number}] {line}", end="", flush=True)


def manager_of(replicas):
    """A replica's manager, of one rank, whatever the environment of the program says."""
    return pr.Manager(
        replicas, rank=0, world_size=1, replica_id="example", timeout=60, quorum_timeout=600,
        # They are sent by the process whose bytes are counted.
        heartbeat_interval=1,
    )


def same_everywhere(results):
    """Whether all replicas have ended with the same bits."""
    return len({result["hash"] for result in results}) == 1
