"""Compares the stores' clients, each against each server: PyTorch's TCPStore and polyrank's, Python
processes of one host. Turns alternate, so that other load on the machine meets all alike. Knows
nothing of either library's inside.

    python tests/bench/store_clients.py --torch torch/bin/python --polyrank polyrank/bin/python
"""

import argparse
import json
import statistics
import subprocess
import sys
import time

LIBRARIES = ["torch", "polyrank"]
OPERATIONS = ["get", "add", "set", "set+get", "wait"]
VALUE = b"v" * 64


def main():
    """Parses the command line; the same file serves as the program of servers and clients."""
    if len(sys.argv) > 1 and sys.argv[1] in ("--server", "--client"):
        return {"--server": serve, "--client": ask}[sys.argv[1]](*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--torch", default="python3", help="a Python that has torch")
    parser.add_argument("--polyrank", default="python3", help="a Python that has polyrank")
    parser.add_argument("--clients", default="1,4", help="numbers of client processes")
    parser.add_argument("--turns", type=int, default=5, help="alternating turns of each pair")
    parser.add_argument("--seconds", type=float, default=0.2, help="length of a turn")
    options = parser.parse_args()
    pythons = {"torch": options.torch, "polyrank": options.polyrank}
    servers = {name: Process(pythons[name], "--server", name) for name in LIBRARIES}
    try:
        for clients in map(int, options.clients.split(",")):
            compare(pythons, servers, clients, options)
    finally:
        for server in servers.values():
            server.end()


def compare(pythons, servers, clients, options):
    """Prints, for so many clients, what each pair of client and server takes."""
    pairs = [(client, server) for server in LIBRARIES for client in LIBRARIES]
    teams = {}
    try:
        for client, server in pairs:
            port = servers[server].first
            words = ["--client", client, port]
            of_pair = [Process(pythons[client], *words, str(number)) for number in range(clients)]
            teams[client, server] = of_pair
        print(f"\n### {clients} client{'s' * (clients > 1)}\n")
        print("median µs of a call; calls a second of all clients; ratio of rates to the first\n")
        heads = [f"{client} client, {server} server" for client, server in pairs]
        print("| call | " + " | ".join(heads) + " |")
        print("|---" * (1 + len(pairs)) + "|")
        for operation in OPERATIONS:
            print(f"| {operation} | " + row(pairs, teams, operation, options) + " |", flush=True)
    finally:
        for team in teams.values():
            for process in team:
                process.end()


def row(pairs, teams, operation, options):
    """One call of all pairs, in alternating turns."""
    turns = {pair: [] for pair in pairs}
    for turn in range(options.turns):
        for pair in pairs if turn % 2 == 0 else reversed(pairs):
            for process in teams[pair]:
                process.say(json.dumps([operation, options.seconds]))
            turns[pair].append([json.loads(process.hear()) for process in teams[pair]])
    cells = []
    for pair in pairs:
        rate = statistics.median(sum(calls for _, calls in turn) for turn in turns[pair])
        median = statistics.median(us for turn in turns[pair] for us, _ in turn)
        first = rate if not cells else first
        cells.append(f"{median:.1f} µs, {rate / options.seconds:,.0f}/s ({rate / first:.2f})")
    return " | ".join(cells)


class Process:
    """A server or client that is told what to do line by line, and ends with its input."""

    def __init__(self, python, *words):
        self.process = subprocess.Popen(
            [python, __file__, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.first = self.hear().strip()

    def say(self, line):
        """Sends a line."""
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self):
        """The next line."""
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{' '.join(self.process.args)} ended")
        return line

    def end(self):
        """Ends it."""
        self.process.stdin.close()
        self.process.wait()


def store(library, port, is_server):
    """A store of that library."""
    if library == "torch":
        from torch.distributed import TCPStore
    else:
        from polyrank import TCPStore
    return TCPStore("127.0.0.1", port, is_master=is_server, wait_for_workers=False)


def serve(library):
    """The program of a server."""
    server = store(library, 0, True)
    print(server.port, flush=True)
    sys.stdin.read()


def ask(library, port, number):
    """The program of a client."""
    client = store(library, int(port), False)
    key, counter = f"key{number}", f"counter{number}"
    client.set(key, VALUE)
    calls = {
        "get": lambda: client.get(key),
        "add": lambda: client.add(counter, 1),
        "set": lambda: client.set(key, VALUE),
        "set+get": lambda: (client.set(key, VALUE), client.get(key)),
        "wait": lambda: client.wait([key]),
    }
    print("ready", flush=True)
    for line in sys.stdin:
        operation, seconds = json.loads(line)
        call, times, now = calls[operation], [], time.perf_counter
        end = now() + seconds
        while (begin := now()) < end:
            call()
            times.append(now() - begin)
        # What has no reply is over when something behind it has one.
        client.get(key)
        print(json.dumps([statistics.median(times) * 1e6, len(times)]), flush=True)


if __name__ == "__main__":
    main()
