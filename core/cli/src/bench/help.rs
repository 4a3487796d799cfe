//! What `polyrank bench --help` says below its options: examples, and how times are taken.

pub(crate) const EXAMPLES: &str = "\
Examples:
  polyrank bench allreduce -b 4 -e 64M -f 4 -n 2,4
      Rust ranks, every size from 4 bytes to 64 MiB, with 2 ranks and then with 4.
  polyrank bench allreduce,broadcast --language rust,python,rust+node --sizes 4,1M
      Three contenders in turn: Rust ranks, Python ranks, and a group of both Rust and Node.
  polyrank bench allreduce --algorithm auto,ring,recursive_doubling -n 4
      What polyrank picks, next to two algorithms of its own.
  polyrank bench allreduce --language python --against gloo,openmpi,mpich --json r.json --svg r.svg
      The same calls in other libraries, in alternating turns; a ratio below 1 says that polyrank
      takes less time. --python gloo=PATH says where a library lives.
  polyrank bench all -d i8,f64 --sizes 3,65537,1000003 -r 1 --offset 1 --pin 0,1
      Odd sizes, a root other than 0, tensors at odd addresses, every rank on a core of its own.

How times are taken:
  --inputs rewritten, the default, is what programs see: before a call, every rank writes all of the
  buffers that the call reads (of a broadcast and a scatter: the root), with the fill of its
  language, so that the data have to travel. Then the ranks agree on a moment, through a small file
  and the clock that all processes of a host share, never through the library that is measured; all
  call at that moment, and the time is from there to the end of the last rank. Calls of little data
  come in bursts of up to 64, each with buffers of its own, all of them written before and few
  enough to stay in a quarter of the second-level cache; a call's time is its share. \"Common
  start\" below a table says what a burst without calls takes, which is not subtracted: ranks begin
  late by it, more so where they share cores. Writing is not part of the time; what it takes is
  shown as \"write\". The last results of each turn are compared with what they must be.
  --inputs untouched: the same buffers over and over, calls back to back and timed together. Where
  one rank copies straight out of another's memory, it finds in its own cache what it read before.
  A time is that of the slowest rank.

Columns: size is that of the larger buffer of a rank, count the elements of one block; time is the
median of the turns, of a turn the median of its calls (rewritten) or their mean (untouched); algbw
is size divided by time, busbw what every link carries, assuming an optimal algorithm (nccl-tests,
PERFORMANCE.md); #wrong counts wrong elements of the calls that were checked; median and p99 are of
calls that were timed one by one, or of bursts; ratio is the time of the first contender divided by
this one's. Sizes are rounded down to whole elements; other than 0, they are at least one element
per block.

Other libraries have their best public settings, which are shown above the first table: Open MPI and
MPICH bind each rank to a core if there are enough, and copy by cross-memory attach; Gloo's ranks
look up names in files alone where a mount namespace can be made (as root or with unshare -Ur),
since PyTorch's store asks for the name of every client.

Exit codes: 0, all was measured and right; 1, something failed, or results are wrong; 2, the command
line is wrong; 3, something that was requested is not installed, and the rest was measured; 130,
interrupted.";
