//! Ctrl-C and SIGTERM: the first asks the command to end with what it has, the second ends the program at once. Must not
//! know what a command does then.

use crate::exit::{self, Failure};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A flag that the first signal sets. At the second the program ends: results are written atomically, so no file is left
/// incomplete.
pub fn listen() -> Result<Arc<AtomicBool>, Failure> {
    let heard = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order: at the first signal the flag is not set yet when the shutdown looks at it.
        flag::register_conditional_shutdown(signal, i32::from(exit::INTERRUPTED), heard.clone())
            .and_then(|_| flag::register(signal, heard.clone()))
            .map_err(|why| Failure::io("cannot listen for Ctrl-C", &why))?;
    }
    Ok(heard)
}
