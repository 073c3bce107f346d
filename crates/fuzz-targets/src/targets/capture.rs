//! Packet captures as files: pcap and pcapng, packed or not.

use crate::{one_line, with_file};
use waykeeper_inputs::Capture;

/// Reads an input. Panics for a finding.
pub fn read(data: &[u8]) {
    with_file(data, |path| match Capture::read(path) {
        Ok(capture) => {
            let info = capture.info();
            assert_eq!(info.packets, capture.packets.len() as u64);
            assert_eq!(Capture::read(path).expect("the same file again").packets, capture.packets);
        }
        Err(why) => one_line(&why),
    });
}
