//! Every built-in chip runs A4's mix of devices and programs, or as much of it as it has cores for.

use crate::common::{run, scenario};
use std::sync::Arc;
use waykeeper_silicon::{ChipSpec, Sampling};

/// Cores of the mix.
const CORES: u32 = 16;

#[test]
fn every_chip_runs_the_flagship_or_a_part_of_it() {
    let sampling = Sampling::COARSEST;
    for name in ChipSpec::built_in_names() {
        let chip = ChipSpec::built_in(name).unwrap();
        let sets = format!("chip=\"{name}\"");
        let mix = match chip.cores {
            CORES.. => scenario("a4-hpw-heavy", &format!("{sets};duration_s=0.8;warmup_s=0.4;measure_s=0.4")),
            // The smallest chip has two cores.
            cores => scenario(
                "ddio-fig5",
                &format!("{sets};workload.l2fwd.cores=\"0-{}\";sweep=[]", cores.min(4) - 1),
            ),
        };
        let measured = run(&Arc::new(mix), 1, 1, sampling);
        for (number, workload) in measured.workloads.iter().enumerate() {
            assert!(workload.operations_per_s > 0.0 || workload.ipc > Some(0.0), "{name}: workload {number}");
        }
        if let Some(hits) = measured.system.dca_write_hit_ratio {
            assert_eq!(chip.llc.dca_ways.is_some(), hits > 0.0, "{name}: {hits}");
        }
    }
}
