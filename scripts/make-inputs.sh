#!/usr/bin/env bash
# Makes the inputs that ship in inputs/: a packet capture and a memory trace of a real redis-server under
# redis-benchmark. Installs nothing. Runs in a network namespace of its own, so that no other traffic gets
# into the capture and no port clashes; that and tcpdump need root.
#
#   scripts/make-inputs.sh [FOLDER]        FOLDER: where the files go, by default inputs/
#
# WAYKEEPER names the program that records traces, by default the workspace's own build. While that is not
# built: WAYKEEPER="cargo run -q --release -p waykeeper-inputs --example trace --" scripts/make-inputs.sh
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
out=$(mkdir -p "${1:-$root/inputs}" && cd "${1:-$root/inputs}" && pwd)
read -ra waykeeper <<<"${WAYKEEPER:-$root/target/release/waykeeper}"

# What is run. Values of 1000 bytes: two thirds of an MTU, 16 lines. 10000 keys make 10 MB of values,
# beyond any MLC. Headers fit in 96 bytes; 12000 packets make 1.3 MB.
keys=10000
value_bytes=1000
packets=12000
snap_bytes=96
# Start-up and loading the keys take some 55 million instructions; the trace starts well behind.
skip=80000000
limit=25000000

missing=()
need() { command -v "$1" >/dev/null || missing+=("$2 (for $1)"); }
need redis-server redis-server
need redis-benchmark redis-tools
need redis-cli redis-tools
need tcpdump tcpdump
need valgrind valgrind
need ip iproute2
need unshare util-linux
if ((${#missing[@]})); then
    printf 'missing Debian package: %s\n' "${missing[@]}" >&2
    exit 3
fi
if ! command -v "${waykeeper[0]}" >/dev/null; then
    echo "no ${waykeeper[0]}; build it with cargo build --release, or set WAYKEEPER (see the top of this script)" >&2
    exit 3
fi
if [[ $(id -u) != 0 ]]; then
    echo "must be root to capture packets; run it with sudo" >&2
    exit 4
fi
if [[ ${MAKE_INPUTS_INSIDE:-} != 1 ]]; then
    exec env MAKE_INPUTS_INSIDE=1 unshare --net "$0" "$out"
fi

# The loopback interface as a NIC would be: frames of an Ethernet MTU, not of 64 KiB.
ip link set lo mtu 1500 up

work=$(mktemp -d)
children=()
stop() {
    for child in "${children[@]}"; do kill "$child" 2>/dev/null || true; done
    wait
    children=()
}
trap 'stop; rm -rf "$work"' EXIT
cd "$work"

# Waits by the server's log: asking it would put the answers into the trace.
until_ready() {
    for _ in $(seq 1500); do
        grep -q 'Ready to accept connections' "$1" 2>/dev/null && return
        sleep 0.2
    done
    echo "redis-server does not answer" >&2
    exit 1
}

# Requests of both kinds at once, without end: GET and SET of random keys, half the clients each.
load() {
    for kind in get set; do
        redis-benchmark -q -t "$kind" -c "$1" -n 100000000 -r "$keys" -d "$value_bytes" >/dev/null 2>&1 &
        children+=($!)
    done
}

echo "1/3 the keys"
# Neither compressed nor checksummed: loading it under valgrind would take nearly twice as long.
redis-server --save '' --appendonly no --rdbcompression no --rdbchecksum no >keys.log &
children+=($!)
until_ready keys.log
redis-benchmark -q -t set -c 50 -n $((keys * 20)) -r "$keys" -d "$value_bytes" >/dev/null 2>&1
redis-cli save >/dev/null

echo "2/3 the capture: what the server receives"
tcpdump -i lo -n -Z root -s "$snap_bytes" -c "$packets" --time-stamp-precision=nano -w capture.pcap 'tcp dst port 6379' &
tcpdump=$!
sleep 2
load 25
wait "$tcpdump"
stop

echo "3/3 the trace: some minutes under valgrind"
# Large memset and memcpy as vector instructions: valgrind would make one access a byte of rep stos and movs.
export GLIBC_TUNABLES=glibc.cpu.x86_rep_stosb_threshold=1000000000:glibc.cpu.x86_rep_movsb_threshold=1000000000
"${waykeeper[@]}" trace record -o "$work/redis-server.wkt" --skip "$skip" --limit "$limit" -- \
    redis-server --save '' --appendonly no --rdbchecksum no --logfile trace.log &
recorder=$!
children+=($!)
until_ready trace.log
echo "redis-server is ready; the number above must lie well below $skip"
load 4
wait "$recorder"
stop

mv capture.pcap "$out/redis-benchmark.pcap"
mv redis-server.wkt "$out/redis-server.wkt"
cd "$out"
sha256sum redis-benchmark.pcap redis-server.wkt
