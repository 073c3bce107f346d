//! Packed captures and traces. The first byte chooses the packing and the second what is damaged in it, so that the fuzzer
//! reaches the formats behind each packing.

use crate::{one_line, with_file};
use std::io::Write;
use waykeeper_inputs::{Capture, TraceInfo};

/// Reads an input. Panics for a finding.
pub fn read(data: &[u8]) {
    let [packing, damage, content @ ..] = data else { return };
    let mut packed = match packing % 3 {
        0 => {
            let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            packer.write_all(content).and_then(|()| packer.finish())
        }
        1 => {
            let mut packer = liblzma::write::XzEncoder::new(Vec::new(), 0);
            packer.write_all(content).and_then(|()| packer.finish())
        }
        _ => zstd::bulk::compress(content, 1),
    }
    .expect("packing in memory");
    // Half of the inputs are whole; the others lose their end or have one byte changed.
    let at = usize::from(*damage) % packed.len().max(1);
    match packing >> 6 {
        2 => packed.truncate(at),
        3 => packed[at] ^= 0x11,
        _ => {}
    }
    with_file(&packed, |path| {
        if let Err(why) = Capture::read(path) {
            one_line(&why);
        }
        if let Err(why) = TraceInfo::read(path) {
            one_line(&why);
        }
    });
}
