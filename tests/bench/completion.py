"""How late ranks hear of the end of an operation that no thread waits for: by a callback, or by an
`await`. Two builds of polyrank are measured in turns (A B, B A, ...), with ranks in Rust, in Python
and in Node, in one program for each language: this file, `completion.mjs`, and the example
`completion` of the core. Knows nothing of how a build finds out that an operation is over.

    cargo xtask python --release && cargo xtask node --release
    cargo build --release -p polyrank --example completion
    python tests/bench/completion.py --against base=/path/to/another/checkout

Cells, of 4 bytes each:

- together: all ranks issue as soon as the operation before is over; from a rank's own issue until
  it hears of the end.
- apart: one rank, each in its turn, issues late; from that issue until the others hear of the end.
- pending: one rank issues a second late; CPU time of the others meanwhile, in % of a core.
- idle: nothing is in flight; likewise.
"""

import argparse
import os
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WAYS = {"rust": ["callback", "future"], "python": ["callback", "await"], "node": ["await"]}


def main():
    """Parses the command line; the same file serves as the program of a rank."""
    if len(sys.argv) > 1 and sys.argv[1] == "--rank":
        return serve_rank(*map(int, sys.argv[2:]))
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--worlds", default="2", help="numbers of ranks")
    parser.add_argument("--languages", default=",".join(WAYS))
    parser.add_argument("--cells", default="together,apart,pending,idle")
    parser.add_argument("--turns", type=int, default=5, help="alternating turns of each build")
    parser.add_argument("--calls", type=int, default=1000, help="operations of a turn")
    parser.add_argument("--late", type=int, default=1000, help="microseconds, in the cell `apart`")
    parser.add_argument("--against", metavar="NAME=CHECKOUT", help="another checkout, built")
    options = parser.parse_args()
    builds = {"this": ROOT}
    if options.against:
        name, _, path = options.against.partition("=")
        builds = {name: Path(path).resolve(), **builds}
    print(f"{machine()}; median of {options.turns} turns; median and 9th decile of a turn, in µs\n")
    print("| ranks | language | how | cell | " + " | ".join(builds) + " |")
    print("|---|---|---|---|" + "---|" * len(builds), flush=True)
    for world in map(int, options.worlds.split(",")):
        for language in options.languages.split(","):
            jobs = {name: Job(root, language, world) for name, root in builds.items()}
            try:
                compare(jobs, language, world, options)
            finally:
                for job in jobs.values():
                    job.end()


def compare(jobs, language, world, options):
    """Measures and prints all cells of a language."""
    for way in WAYS[language]:
        for cell in options.cells.split(","):
            measure, show = CELLS[cell]
            results = {name: [] for name in jobs}
            for job in jobs.values():
                measure(job, way, options)
            for turn in range(options.turns if cell in ("together", "apart") else 1):
                for name in list(jobs)[:: 1 if turn % 2 else -1]:
                    results[name].append(measure(jobs[name], way, options))
            shown = " | ".join(show(turns) for turns in results.values())
            print(f"| {world} | {language} | {way} | {cell} | {shown} |", flush=True)


def measure_together(job, way, options):
    """Median, 9th decile and mean time of a turn, in microseconds."""
    calls = options.calls
    answers = job.run(f"{way} {calls} 0 -1")
    times = [end - start for answer in answers for start, end in answer.pairs]
    return (*deciles(times), max(answer.wall for answer in answers) / calls * 1e6)


def measure_apart(job, way, options):
    """Likewise, after the last rank's issue; not of the rank that issues last."""
    calls = max(job.world, options.calls // 5)
    answers = job.run(f"{way} {calls} {options.late} -1")
    times = []
    for call in range(calls):
        last = max(answer.pairs[call][0] for answer in answers)
        others = [it.pairs[call] for it in answers if it.pairs[call][0] != last]
        times += [end - last for _, end in others]
    return (*deciles(times), 0)


def measure_pending(job, way, _):
    """CPU time of the ranks other than the late one, as a share of a core."""
    answers = job.run(f"{way} 1 1000000 0")
    return max(answer.cpu / answer.wall for answer in answers[1:])


def measure_idle(job, _, __):
    """The same, while nothing is in flight."""
    return max(answer.cpu / answer.wall for answer in job.run("idle 1 0 -1"))


def deciles(times):
    """The median and the 9th decile of nanoseconds, in microseconds."""
    times.sort()
    return times[len(times) // 2] / 1e3, times[len(times) * 9 // 10] / 1e3


def show_times(turns):
    """Medians over the turns."""
    median, late, each = (statistics.median(column) for column in zip(*turns, strict=True))
    text = f"{median:.1f}, {late:.1f}"
    return f"{text} ({each:.1f} each)" if each else text


def show_share(turns):
    """A share in percent."""
    return f"{100 * statistics.median(turns):.1f} %"


CELLS = {
    "together": (measure_together, show_times),
    "apart": (measure_apart, show_times),
    "pending": (measure_pending, show_share),
    "idle": (measure_idle, show_share),
}


class Answer:
    """What a rank measured: when it issued each operation and heard of its end, in nanoseconds of
    the host's monotonic clock; its CPU time and the time, in seconds."""

    def __init__(self, line):
        words = line.split()
        self.cpu, self.wall = float(words[0]), float(words[1])
        times = list(map(int, words[2:]))
        self.pairs = list(zip(times[::2], times[1::2], strict=True))


class Job:
    """The ranks of one build in one language."""

    def __init__(self, root, language, world):
        self.world = world
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        target = Path(os.environ.get("POLYRANK_TARGET", ROOT / "target"))
        target = target if root == ROOT else root / "target"
        here = Path(__file__).resolve()
        program = {
            "rust": [target / "release/examples/completion"],
            "python": [sys.executable, here, "--rank"],
            "node": ["node", here.with_suffix(".mjs"), root / "bindings-node/js/index.js"],
        }[language]
        environment = {**os.environ, "PYTHONPATH": str(root / "bindings-python/python")}
        self.ranks = [
            subprocess.Popen(
                [*map(str, program), str(rank), str(world), str(port)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
                text=True,
            )
            for rank in range(world)
        ]
        self.answers()

    def answers(self):
        """A line of each rank."""
        lines = [rank.stdout.readline() for rank in self.ranks]
        if not all(lines):
            raise SystemExit("a rank ended early; its error is above")
        return lines

    def run(self, words):
        """What the ranks answer to a line."""
        for rank in self.ranks:
            rank.stdin.write(words + "\n")
            rank.stdin.flush()
        return [Answer(line) for line in self.answers()]

    def end(self):
        """Lets the ranks go, which end with their standard input; kills those that do not."""
        for rank in self.ranks:
            rank.stdin.close()
        for rank in self.ranks:
            try:
                rank.wait(timeout=20)
            except subprocess.TimeoutExpired:
                rank.kill()


def machine():
    """The processor, and how many cores may be used."""
    model = "unknown processor"
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        names = (line.split(":")[1].strip() for line in lines if line.startswith("model name"))
        model = next(names, model)
    return f"{model}, {len(os.sched_getaffinity(0))} cores"


def serve_rank(rank, world, port):
    """Runs what the parent asks for until it closes the pipe."""
    import polyrank as pr

    pr.init_process_group(
        "tcp", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world
    )
    print("ready", flush=True)
    for line in sys.stdin:
        way, *numbers = line.split()
        calls, late, which = map(int, numbers)
        pauses = [late / 1e6 if is_late(rank, world, call, which) else 0 for call in range(calls)]
        pr.barrier()
        cpu, start = time.process_time(), time.monotonic()
        times = LOOPS[way](pr, pauses)
        cpu, wall = time.process_time() - cpu, time.monotonic() - start
        pr.barrier()
        print(cpu, wall, *times, flush=True)
    pr.destroy_process_group()


def is_late(rank, world, call, which):
    """Whether the rank issues the call late: rank `which`, or each in its turn."""
    return rank == (which if which >= 0 else call % world)


def loop_of_callbacks(pr, pauses):
    """Times of issues and callbacks; the next operation is issued when the callback has run."""
    import threading

    import numpy

    tensor, times = numpy.ones(1, numpy.float32), []
    called = threading.Semaphore(0)

    def callback(_):
        times.append(time.monotonic_ns())
        called.release()

    for pause in pauses:
        if pause:
            time.sleep(pause)
        tensor[0] = 1
        times.append(time.monotonic_ns())
        pr.all_reduce(tensor, async_op=True).get_future().add_done_callback(callback)
        called.acquire()
        assert tensor[0] == pr.get_world_size()
    return times


def loop_of_awaits(pr, pauses):
    """The same with a task that awaits each operation."""
    import asyncio

    import numpy

    async def run():
        tensor, times = numpy.ones(1, numpy.float32), []
        for pause in pauses:
            if pause:
                time.sleep(pause)
            tensor[0] = 1
            times.append(time.monotonic_ns())
            await pr.all_reduce(tensor, async_op=True)
            times.append(time.monotonic_ns())
            assert tensor[0] == pr.get_world_size()
        return times

    return asyncio.run(run())


def sleep_for_a_second(_, __):
    """Nothing is issued."""
    time.sleep(1)
    return []


LOOPS = {"callback": loop_of_callbacks, "await": loop_of_awaits, "idle": sleep_for_a_second}


if __name__ == "__main__":
    main()
