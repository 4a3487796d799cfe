"""Compares polyrank with Open MPI over TCP between hosts: network namespaces of this machine, which
a bridge joins and each of which may send so many gigabits a second; with `--delay`, `relay.py`
joins them, and packets take so long from one to the next. Ranks of one namespace share
memory, those of two do not, as on hosts. Needs Linux, root, `ip` and `tc`, and at most one such
comparison at a time; takes away what it made. Knows nothing of what is compared.

    sudo -E python tests/bench/network.py --hosts 2,4 --gbit 10,25 --openmpi PYTHON_WITH_MPI4PY

Time is that of the machine's few cores as well as that of the wire: a segment that the kernel
copies takes the same time at whatever rate. `--gbit 0` leaves the rate open and shows that limit.
"""

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile

import relay
from ranks import Job, add_turn_options, measure, rank_words

SIZES = [4, 1 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20]
#: Names of the bridge and, with a number, of the namespaces.
NAME = "prbench"
PORT = 29400


def main():
    """Parses the command line, and measures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--hosts", default="2", help="numbers of hosts")
    parser.add_argument("--ranks", default="1", help="numbers of ranks of each host")
    parser.add_argument("--gbit", default="10", help="rates of each host, Gbit/s; 0: not limited")
    parser.add_argument(
        "--delay", type=float, default=0, help="milliseconds that each packet takes"
    )
    parser.add_argument(
        "--congestion", default="reno", help="what the kernel allows in namespaces"
    )
    parser.add_argument("--operations", default="allreduce,allgather,reduce_scatter,broadcast")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="bytes of the tensor")
    parser.add_argument("--openmpi", help="a Python that has mpi4py, with mpiexec beside it")
    parser.add_argument(
        "--build",
        action="append",
        metavar="NAME=PYTHONPATH[,VARIABLE=VALUE]",
        help="polyrank as it is there, started so; may be repeated [default: this checkout]",
    )
    add_turn_options(parser, turns=7, seconds=0.2)
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("network namespaces are made by root only: run this with sudo -E")
    for gbit in map(float, options.gbit.split(",")):
        for hosts in map(int, options.hosts.split(",")):
            with network(hosts, gbit, options.congestion, options.delay / 1e3):
                for ranks in map(int, options.ranks.split(",")):
                    compare(hosts, ranks, gbit, options)


def compare(hosts, ranks, gbit, options):
    """Prints a table for each operation."""
    rate = f"{gbit:g} Gbit/s" if gbit else "no limit"
    rate += f", {options.delay:g} ms" if options.delay else ""
    jobs = {}
    try:
        for build in options.build or [f"polyrank={os.environ.get('PYTHONPATH', '')}"]:
            name, _, rest = build.partition("=")
            path, *variables = rest.split(",")
            environment = dict(it.split("=", 1) for it in variables)
            environment["PYTHONPATH"] = path
            jobs[name] = polyrank_job(hosts, ranks, PORT + len(jobs), environment)
        if options.openmpi:
            jobs["openmpi"] = openmpi_job(hosts, ranks, options.openmpi, options.delay > 0)
        for operation in options.operations.split(","):
            print(f"\n### {operation}, {hosts} hosts of {ranks} ranks, {rate}, µs\n")
            print(f"| bytes | {' | '.join(jobs)} | first / last |")
            print("|---|" + "---|" * (len(jobs) + 1), flush=True)
            for size in map(int, options.sizes.split(",")):
                results = measure(jobs, operation, size, options)
                walls = [statistics.median(it[0] for it in turns) for turns in results.values()]
                cells = [f"{wall * 1e6:.1f}" for wall in walls]
                print(f"| {size} | {' | '.join(cells)} | {walls[0] / walls[-1]:.2f} |", flush=True)
    finally:
        for job in jobs.values():
            job.end()


def polyrank_job(hosts, ranks, port, environment):
    """Ranks of polyrank; those of one host have numbers that follow one another."""
    world = hosts * ranks
    commands = [
        within(rank // ranks, *rank_words("polyrank", rank, world, address(0), port))
        for rank in range(world)
    ]
    return Job("polyrank", world, commands, environment)


def openmpi_job(hosts, ranks, python, is_relayed):
    """Ranks of Open MPI, over TCP between hosts and as it likes within one, as many to a host as
    there are cores or more."""
    agent = tempfile.NamedTemporaryFile("w", suffix=".sh", delete=False)
    with agent:
        # What PRRTE takes for ssh: it is given a host and a command.
        agent.write(
            "#!/bin/bash\n"
            'while [[ $1 == -* ]]; do shift; done; host=$(( ${1##*.} - 1 )); shift\n'
            f'exec ip netns exec {NAME}$host unshare -u bash -c "hostname {NAME}$host; $*"\n'
        )
    os.chmod(agent.name, 0o700)
    words = [os.path.join(os.path.dirname(python), "mpiexec")]
    words += ["--prtemca", "plm_ssh_agent", agent.name, "--map-by", ":OVERSUBSCRIBE"]
    words += ["--bind-to", "none"]
    if hosts * ranks + is_relayed > len(os.sched_getaffinity(0)):
        # The namespaces, and what joins them, share the cores, which mpiexec cannot know.
        words += ["--mca", "mpi_yield_when_idle", "1"]
    words += ["--host", ",".join(f"{address(host)}:{ranks}" for host in range(hosts))]
    words += ["--mca", "btl_tcp_if_include", "10.77.0.0/24", "-x", "RANKS_CONTROL"]
    words += ["-n", str(hosts * ranks)]
    words += rank_words("openmpi", 0, hosts * ranks, address(0), PORT, python)
    environment = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    try:
        return Job("openmpi", hosts * ranks, [within(0, *words)], environment)
    finally:
        os.unlink(agent.name)


@contextlib.contextmanager
def network(hosts, gbit, congestion, delay):
    """As many namespaces, joined; what is left of an earlier run goes first."""
    take_away()
    try:
        for host in range(hosts):
            ip("netns", "add", f"{NAME}{host}")
        with wire(hosts, delay):
            for host in range(hosts):
                ip("-n", f"{NAME}{host}", "addr", "add", f"{address(host)}/24", "dev", "eth0")
                ip("-n", f"{NAME}{host}", "link", "set", "eth0", "up")
                ip("-n", f"{NAME}{host}", "link", "set", "lo", "up")
                control = f"net.ipv4.tcp_congestion_control={congestion}"
                subprocess.run(within(host, "sysctl", "-q", "-w", control), check=True)
                if gbit:
                    shape = f"root tbf rate {gbit}gbit burst 256kb latency 50ms"
                    words = ["tc", "qdisc", "add", "dev", "eth0", *shape.split()]
                    subprocess.run(within(host, *words), check=True)
            yield
    finally:
        take_away()


@contextlib.contextmanager
def wire(hosts, delay):
    """The devices `eth0` of the namespaces, joined by a bridge, or with a delay by a relay."""
    names = [f"{NAME}-{host}" for host in range(hosts)]
    if delay:
        devices = [relay.open_device(name) for name in names]
        for host, name in enumerate(names):
            ip("link", "set", name, "netns", f"{NAME}{host}")
            ip("-n", f"{NAME}{host}", "link", "set", name, "name", "eth0", "mtu", str(relay.MTU))
        with relay.passing_on(devices, delay):
            yield
        return
    ip("link", "add", NAME, "type", "bridge")
    ip("link", "set", NAME, "up")
    for host, veth in enumerate(names):
        # The end of a namespace takes its half of the pair along, but later.
        subprocess.run(["ip", "link", "del", veth], stderr=subprocess.DEVNULL, check=False)
        peer = ["peer", "name", "eth0", "netns", f"{NAME}{host}"]
        ip("link", "add", veth, "type", "veth", *peer)
        ip("link", "set", veth, "master", NAME, "up")
    yield


def take_away():
    """Removes the namespaces and the bridge, if there are any."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    for line in listed.stdout.splitlines():
        if (name := line.split()[0]).startswith(NAME):
            ip("netns", "del", name)
    subprocess.run(["ip", "link", "del", NAME], stderr=subprocess.DEVNULL, check=False)


def within(host, *words):
    """The command that runs `words` at a host."""
    named = f'hostname {NAME}{host}; exec "$@"'
    namespace = ["ip", "netns", "exec", f"{NAME}{host}", "unshare", "--uts"]
    return [*namespace, "bash", "-c", named, "rank", *words]


def address(host):
    """The address of a host."""
    return f"10.77.0.{host + 1}"


def ip(*words):
    """Runs `ip`."""
    subprocess.run(["ip", *words], check=True)


if __name__ == "__main__":
    main()
