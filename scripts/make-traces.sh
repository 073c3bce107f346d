#!/usr/bin/env bash
# Makes the memory traces of eleven programs that ship in inputs/, each 20 million instructions (grep: 4) behind the program's
# start-up, through the L1 filter. Installs nothing. Needs no root.
#
#   scripts/make-traces.sh [FOLDER [PROGRAM...]]    FOLDER: where the traces go, by default inputs/
#
# WAYKEEPER names the program that records traces, by default the workspace's own build; JOBS the number of recordings at a
# time, by default one a core. A recording takes some two minutes.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
out=$(mkdir -p "${1:-$root/inputs}" && cd "${1:-$root/inputs}" && pwd)
shift $(($# > 0))
programs=("$@")
((${#programs[@]})) || programs=(cc1 python3 sqlite3 xz flac sort bfs spmv grep perl zstd)
read -ra waykeeper <<<"${WAYKEEPER:-$root/target/release/waykeeper}"
parts=$root/scripts/traces
limit=20M

missing=()
need() { command -v "$1" >/dev/null || missing+=("$2 (for $1)"); }
need valgrind valgrind
need /usr/bin/python3 python3
need gcc gcc
need sqlite3 sqlite3
need xz xz-utils
need flac flac
need sort coreutils
need grep grep
need perl perl
need zstd zstd
[[ -f /usr/include/stdlib.h ]] || missing+=("libc6-dev (for stdlib.h)")
if ((${#missing[@]})); then
    printf 'missing Debian package: %s\n' "${missing[@]}" >&2
    exit 3
fi
if ! command -v "${waykeeper[0]}" >/dev/null; then
    echo "no ${waykeeper[0]}; build it with cargo build --release, or set WAYKEEPER (see the top of this script)" >&2
    exit 3
fi

work=$(mktemp -d)
# Each recording is a process group of its own, so that the recorder ends with it and valgrind with the recorder.
set -m
stop() {
    for child in $(jobs -p); do kill -- "-$child" 2>/dev/null || true; done
    wait
    rm -rf "$work"
}
trap stop EXIT
cd "$work"
export LC_ALL=C
/usr/bin/python3 "$parts/inputs.py" "$work"
gcc -O2 -o bfs "$parts/bfs.c"
gcc -O2 -o spmv "$parts/spmv.c"
cp "$parts/lookups.py" "$parts/words.pl" .

# Large memset and memcpy as vector instructions: valgrind would make one access a byte of rep stos and movs.
export GLIBC_TUNABLES=glibc.cpu.x86_rep_stosb_threshold=1000000000:glibc.cpu.x86_rep_movsb_threshold=1000000000

# What is skipped: start-up, loading of the data, and the first part of the work.
record() {
    local skip=$1
    shift
    "${waykeeper[@]}" trace record --l1 -o "$work/$program.wkt" --skip "$skip" --limit "$limit" -- "$@" \
        >/dev/null 2>"$program.log" </dev/null || { cat "$program.log" >&2; return 1; }
    mv "$program.wkt" "$out/"
}
make() {
    case $program in
    # The parser ends after 92 million instructions; the passes of the optimisation follow, function by function.
    cc1) record 105M "$(gcc -print-prog-name=cc1)" -quiet -O2 functions.c -o functions.s ;;
    # The dictionary is ready after 67 million instructions.
    python3) record 70M /usr/bin/python3 -I -S lookups.py ;;
    # The database is mapped, so that the trace contains the reads of its pages, which the kernel would do otherwise.
    sqlite3) record 15M sqlite3 -cmd "PRAGMA mmap_size=268435456" orders.db \
        "SELECT region, sum(quantity * price) FROM orders CROSS JOIN customers USING (email)
         CROSS JOIN products ON products.id = orders.product GROUP BY region" ;;
    # The dictionary of level 1 is 1 MiB.
    xz) record 70M xz -1 -k -c -T1 words.txt ;;
    flac) record 15M flac -s -8 -f -o tones.flac tones.wav ;;
    # Most of the skipped instructions read the lines.
    sort) record 60M sort --parallel=1 -S 64M -o sorted.txt lines.txt ;;
    # Making the graph takes 18 million instructions.
    bfs) record 30M ./bfs ;;
    spmv) record 20M ./spmv ;;
    # Its automaton of 20000 keys is ready after 58 million instructions. It misses the L1 often, so a shorter trace is kept.
    grep) limit=4M && record 66M grep -c -F -f keys.txt lines.txt ;;
    perl) record 60M perl words.pl words.txt ;;
    # The window and the tables of level 12 are several MiB.
    zstd) record 100M zstd -12 -q --single-thread -c words.txt ;;
    *) echo "no program $program; there are cc1 python3 sqlite3 xz flac sort bfs spmv grep perl zstd" >&2; return 2 ;;
    esac
}

jobs=${JOBS:-$(nproc)}
failed=0
for program in "${programs[@]}"; do
    while (($(jobs -rp | wc -l) >= jobs)); do wait -n || failed=1; done
    echo "recording $program"
    make &
done
while [[ -n $(jobs -rp) ]]; do wait -n || failed=1; done
((failed == 0)) || exit 1
cd "$out"
sha256sum "${programs[@]/%/.wkt}"
