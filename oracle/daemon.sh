#!/bin/busybox sh
# `waykeeper daemon` on the guest's resctrl: one tenant with a mask, while another program unmounts and mounts it. Prints
# `ok CASE` or `FAILED CASE: log of the daemon`, and the counts, as resctrl_suite does.
bb=/bin/busybox
mount=/sys/fs/resctrl
passed=0
failed=0

# Runs a command until it succeeds, for a minute.
comes() {
	tries=0
	until "$@" 2>/dev/null; do
		tries=$((tries + 1))
		[ $tries -lt 300 ] || return 1
		$bb sleep 0.2
	done
}

# Takes the status of the command before as a case.
case_of() {
	if [ $? = 0 ]; then
		echo "ok $1"
		passed=$((passed + 1))
	else
		echo "FAILED $1: $($bb tail -n 5 /tmp/log | $bb tr '\n' ' ')"
		failed=$((failed + 1))
	fi
}

has_mask() { $bb grep -q '=0*3\b' $mount/waykeeper-*/schemata && [ "$($bb cat $mount/waykeeper-*/cpus_list)" = 3 ]; }
has_no_group() { ! $bb ls -d $mount/waykeeper-* >/dev/null; }

./waykeeper daemon --config daemon.toml --observe >/tmp/log 2>&1 &
daemon=$!
# It has files open only while it reads them, which may be at the time of one unmount.
comes $bb grep -q 'tenant own appeared' /tmp/log && comes $bb umount $mount
case_of 'resctrl can be unmounted while a daemon observes'
kill -TERM $daemon && wait $daemon && $bb mount -t resctrl resctrl $mount
case_of 'it ends with status 0'

./waykeeper daemon --config daemon.toml >/tmp/log 2>&1 &
daemon=$!
comes has_mask
case_of 'the daemon sets the mask of a tenant'
echo 0 >/sys/devices/system/cpu/cpu3/online && $bb sleep 3 && echo 1 >/sys/devices/system/cpu/cpu3/online
comes has_mask && ! $bb grep -q 'changed to' /tmp/log
case_of 'its CPU goes off and on, and with it the L3 where it has no other CPU: no program is blamed'
# The daemon's open files refuse any other unmount.
$bb umount -l $mount && comes $bb mount -t resctrl resctrl $mount
case_of 'resctrl can be mounted again after a lazy unmount'
comes has_mask
case_of 'the daemon makes its group again in a new mount'
kill -TERM $daemon && wait $daemon
case_of 'it ends with status 0 too'
has_no_group && ! [ -e /tmp/journal ]
case_of 'it leaves no group and no journal'
echo "$passed passed, $failed failed"
