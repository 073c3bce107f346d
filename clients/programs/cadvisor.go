// Collects resctrl's counters once with cAdvisor's collector, prints them as JSON and waits for the end of its standard input:
// `cadvisor CONTAINER PID...`. cAdvisor itself starts the same manager when it finds resctrl.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	info "github.com/google/cadvisor/info/v1"
	"github.com/google/cadvisor/resctrl"
	_ "github.com/google/cadvisor/resctrl/intel/install"
)

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	manager, err := resctrl.NewManager(0, "GenuineIntel", true)
	fail(err)
	pids := func() ([]string, error) { return os.Args[2:], nil }
	collector, err := manager.GetCollector(os.Args[1], pids, 1)
	fail(err)
	stats := &info.ContainerStats{}
	fail(collector.UpdateStats(stats))
	fail(json.NewEncoder(os.Stdout).Encode(stats.Resctrl))
	_, err = io.Copy(io.Discard, os.Stdin)
	fail(err)
	collector.Destroy()
}
