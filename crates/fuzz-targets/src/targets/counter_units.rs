//! The descriptions of counter units and their events in sysfs (`/sys/bus/event_source`).

use crate::{host, one_line};
use waykeeper_kernel::event_source::{CounterUnit, names, units};

/// Reads an input. Panics for a finding.
pub fn read(data: &[u8]) {
    let root = host(data);
    for name in names(&root).unwrap_or_default() {
        match CounterUnit::read(&root, &name) {
            Ok(Some(unit)) => {
                for event in ["cas_count_read", "event"] {
                    match unit.event(&root, event) {
                        Ok(Some(event)) => _ = unit.encode(&event.terms).inspect_err(|why| one_line(why)),
                        Ok(None) => {}
                        Err(why) => one_line(&why),
                    }
                }
                if let Err(why) = unit.die_buses(&root) {
                    one_line(&why);
                }
            }
            Ok(None) => {}
            Err(why) => one_line(&why),
        }
    }
    for kind in ["uncore_cha", "uncore_iio", "uncore_imc"] {
        let _ = units(&root, kind);
    }
}
