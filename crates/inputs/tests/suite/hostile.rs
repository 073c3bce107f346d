//! Hostile files: cut, flipped, spliced and random bytes through every reader. None may panic, every
//! error must name the file. Cases are few and fixed in number so that `cargo test` stays quick.

use crate::common;

use common::{champsim, file, lackey, packets, pcap, pcapng, records, wkt};
use proptest::prelude::*;
use waykeeper_inputs::{Capture, InputError, TraceReader};

/// Reads a file as a capture and as a trace to its end; errors must name the file.
fn read_as_anything(bytes: &[u8]) {
    let file = file(bytes);
    let check = |error: &InputError| {
        assert_eq!(error.path(), file.path());
        let text = error.to_string();
        assert!(text.contains(&file.path().display().to_string()), "{text} must name the file");
        assert!(text.len() < 1000, "{text} is too long");
    };
    if let Err(error) = Capture::read(file.path()).map(|capture| capture.info()) {
        check(&error);
    }
    match TraceReader::open(file.path()) {
        Err(error) => check(&error),
        Ok(reader) => reader.filter_map(Result::err).for_each(|error| check(&error)),
    }
}

fn good_files() -> Vec<Vec<u8>> {
    let plain = [
        pcap(false, true, 1, &packets()),
        pcap(true, false, 113, &packets()),
        pcapng(false, 9, |ns| ns, &packets()),
        pcapng(true, 6, |ns| ns / 1000, &packets()),
        wkt(&records(500), 9),
        lackey(),
        champsim(),
        common::DIN.as_bytes().to_vec(),
        common::PIN.as_bytes().to_vec(),
        common::VIEW.as_bytes().to_vec(),
    ];
    let packed = plain.iter().map(|bytes| zstd::encode_all(bytes.as_slice(), 1).unwrap());
    packed.chain(plain.iter().cloned()).collect()
}

#[test]
fn every_truncation_of_small_files() {
    for whole in good_files() {
        // All cuts of the first 300 bytes and of the last 60, some between.
        let cuts = (0..whole.len()).filter(|at| *at < 300 || whole.len() - at < 60 || at % 97 == 0);
        for at in cuts {
            read_as_anything(&whole[..at]);
        }
    }
}

#[test]
fn every_byte_of_the_first_blocks_at_its_extremes() {
    for whole in good_files() {
        for at in 0..whole.len().min(160) {
            for byte in [0, 0x7f, 0x80, 0xff, whole[at] ^ 1] {
                let mut bytes = whole.clone();
                bytes[at] = byte;
                read_as_anything(&bytes);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn flipped_bytes(
        which in any::<prop::sample::Index>(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let files = good_files();
        let mut bytes = files[which.index(files.len())].clone();
        for (at, byte) in flips {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        read_as_anything(&bytes);
    }

    #[test]
    fn spliced_files(
        which in any::<(prop::sample::Index, prop::sample::Index)>(),
        cut in any::<(prop::sample::Index, prop::sample::Index)>(),
    ) {
        let files = good_files();
        let (head, tail) = (&files[which.0.index(files.len())], &files[which.1.index(files.len())]);
        let bytes = [&head[..cut.0.index(head.len())], &tail[cut.1.index(tail.len())..]].concat();
        read_as_anything(&bytes);
    }

    #[test]
    fn random_bytes_behind_every_magic(which in any::<prop::sample::Index>(), noise in prop::collection::vec(any::<u8>(), 0..600)) {
        let files = good_files();
        let head = &files[which.index(files.len())];
        read_as_anything(&[&head[..head.len().min(8)], &noise].concat());
        read_as_anything(&noise);
    }
}
