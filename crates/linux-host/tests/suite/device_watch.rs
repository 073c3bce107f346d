//! A device watch on the virtual host: its counts match those of the machine. It must not need groups or tenants.

use crate::host::{near, value};
use waykeeper_kernel::journal::Journal;
use waykeeper_linux_host::DeviceWatch;
use waykeeper_testbed::{MS, MountedHost, assert_same_state, manual_clock, scenario};

/// Haswell's slices count whole writes, reads and partial writes in turn; Sapphire Rapids counts the latter in every
/// second slice. Either way the three counts match the machine, and the registers are restored.
#[test]
fn a_device_watch_counts_completions_too() {
    const LOAD: &str = "name = \"load\"\nduration_s = 1\nwarmup_s = 0.1\nmeasure_s = 0.1\ntime_factor = 1\n\
        [[storage]]\nname = \"ssd\"\ndrives = 1\nflash_us = 0\nflash_spread = 0\ncommand_us = 12\n\
        [[workload]]\nname = \"load\"\nprogram = \"memload\"\ncores = \"0\"\npattern = \"single\"\ndepth = 4\n\
        resident = true\n";
    for chip in ["e5-2630v3", "gold-6430"] {
        let machine = MountedHost::with(scenario(chip, LOAD), manual_clock(1));
        let found = machine.state();
        let mut journal = Journal::open(&machine.journal(), &machine.root()).unwrap();
        let mut watch = DeviceWatch::open(&machine.root(), &[], Some(&mut journal)).unwrap();
        let (before, _) = watch.read();
        let did = machine.with_model(|server| server.bare().dca());
        machine.run(5 * MS);
        let (after, problems) = watch.read();
        let seen = after.since(&before);
        assert!(problems.is_empty(), "{chip}: {problems:?}");
        let does = machine.with_model(|server| server.bare().dca());
        let wanted = [
            (seen.writes.hits, does.write_hits - did.write_hits),
            (seen.writes.misses, does.write_misses - did.write_misses),
            (seen.reads.hits, does.read_hits - did.read_hits),
            (seen.reads.misses, does.read_misses - did.read_misses),
            (seen.partial_writes.hits, does.partial_hits - did.partial_hits),
            (seen.partial_writes.misses, does.partial_misses - did.partial_misses),
        ];
        // Each slice has whole counts of its part, and a third or half of the slices is scaled up to all.
        for (found, expected) in wanted {
            near(value(found), expected, 240);
        }
        let completions = value(seen.partial_writes.all());
        assert!(completions > 500, "{chip}: {completions}");
        near(value(seen.writes.all()), 64 * completions, 64 * 8 + 480);
        drop((watch, journal));
        machine.restore().unwrap();
        assert_same_state(&machine.state(), &found, chip);
    }
}
