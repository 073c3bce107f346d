#!/bin/sh
# Runs a command and shows the seconds since its start, every second, if stderr is a terminal. Cargo's progress bar does not
# move while one crate compiles, for example C code. The seconds take the four columns that cargo leaves free before its bar.
# Must not know what the command does. The exit status is the command's.

if ! [ -t 2 ]; then
	exec "$@"
fi

(
	# The shell ends with the terminal or with the command, whatever is first.
	seconds=0
	while sleep 1 && kill -0 $$ 2>/dev/null; do
		seconds=$((seconds + 1))
		printf '\r%3ss\r' "$seconds" >&2
	done
) &
ticker=$!
trap 'kill "$ticker" 2>/dev/null' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

"$@"
