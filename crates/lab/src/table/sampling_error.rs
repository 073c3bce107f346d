//! The error of hit ratios by set sampling, in a line below a table.
//!
//! Must not compute an error: every number comes from a result.

use crate::results::{RunSummary, sampling_error};
use crate::show;

/// The hit ratios that the tables of a terminal show.
const SHOWN: [&str; 3] = ["llc_hit_ratio", "dca_write_hit_ratio", "dca_read_hit_ratio"];

/// `sampling error of hit ratios, points: LLC 0.41 (largest 1.10, parest), DCA write 0.20, DCA read 0.14`, over all runs;
/// nothing where all sets are simulated.
pub(super) fn line(runs: &[&RunSummary]) -> String {
    let errors = sampling_error::overall(runs);
    let items = SHOWN.iter().filter_map(|key| {
        let largest = sampling_error::largest(runs, key).map(|(name, points)| (show::name(name), points));
        Some(show::sampling_error(key, *errors.get(*key)?, largest))
    });
    show::listed("sampling error of hit ratios, points: ", items.collect())
}
