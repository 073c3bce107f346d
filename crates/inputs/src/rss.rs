//! Receive-side scaling: the NIC's queue for each flow.
//!
//! The hash is the Toeplitz hash of Microsoft's RSS specification ("RSS hashing types", "Verifying the RSS hash
//! calculation"), which every server NIC implements; a test checks the specification's verification vectors. The low
//! bits of the hash index an indirection table, whose entry is the queue. Must not know packet formats or NICs.

/// The 40-byte key that Microsoft's specification gives for verification, many drivers' default.
pub const MICROSOFT_KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0,
    0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42,
    0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];

/// Entries of an indirection table: 128, as in the RSS specification and in Intel's ixgbe and i40e.
pub const RSS_TABLE_ENTRIES: usize = 128;

/// The Toeplitz hash of `data` under `key`: for each set bit of the data, from the left, the 32 bits of
/// the key that start at the same place, all XORed together.
///
/// # Panics
/// If `data` is longer than 36 bytes (two IPv6 addresses and two ports), for which the key has no bits.
pub fn toeplitz(key: &[u8; 40], data: &[u8]) -> u32 {
    assert!(data.len() <= key.len() - 4, "a 40-byte key hashes at most 36 bytes, got {}", data.len());
    let mut hash = 0;
    let mut window = u32::from_be_bytes([key[0], key[1], key[2], key[3]]);
    for (index, byte) in data.iter().enumerate() {
        for bit in (0..8).rev() {
            if byte >> bit & 1 == 1 {
                hash ^= window;
            }
            window = window << 1 | u32::from(key[index + 4] >> bit & 1);
        }
    }
    hash
}

/// A NIC's indirection table: the hash's low seven bits select an entry, which contains the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndirectionTable([u16; RSS_TABLE_ENTRIES]);

impl IndirectionTable {
    /// The table as `ethtool -X ethN equal N` sets it: queues 0..N in turn. `queues` = 0 counts as 1.
    pub fn equal(queues: u16) -> IndirectionTable {
        let queues = usize::from(queues.max(1));
        // The remainder is below `queues`, which came from a u16.
        IndirectionTable(std::array::from_fn(|entry| (entry % queues) as u16))
    }

    /// A table with the given entries.
    pub fn new(entries: [u16; RSS_TABLE_ENTRIES]) -> IndirectionTable {
        IndirectionTable(entries)
    }

    /// The queue of packets with this hash. Packets that are not IP have hash 0.
    pub fn queue(&self, hash: u32) -> u16 {
        self.0[hash as usize % RSS_TABLE_ENTRIES]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    fn input(source: &str, destination: &str, ports: Option<(u16, u16)>) -> Vec<u8> {
        let mut data = Vec::new();
        for address in [source, destination] {
            match address.parse().unwrap() {
                IpAddr::V4(address) => data.extend(address.octets()),
                IpAddr::V6(address) => data.extend(address.octets()),
            }
        }
        if let Some((source, destination)) = ports {
            data.extend(source.to_be_bytes());
            data.extend(destination.to_be_bytes());
        }
        data
    }

    /// The tables of Microsoft's "Verifying the RSS Hash Calculation": source, its port, destination,
    /// its port, hash over addresses, hash over addresses and ports.
    #[test]
    fn the_published_verification_vectors_come_out() {
        for (source, sport, destination, dport, addresses, all) in [
            ("66.9.149.187", 2794, "161.142.100.80", 1766, 0x323e_8fc2, 0x51cc_c178),
            ("199.92.111.2", 14230, "65.69.140.83", 4739, 0xd718_262a, 0xc626_b0ea),
            ("24.19.198.95", 12898, "12.22.207.184", 38024, 0xd2d0_a5de, 0x5c2b_394a),
            ("38.27.205.30", 48228, "209.142.163.6", 2217, 0x8298_9176, 0xafc7_327f),
            ("153.39.163.191", 44251, "202.188.127.2", 1303, 0x5d18_09c5, 0x10e8_28a2),
            ("3ffe:2501:200:1fff::7", 2794, "3ffe:2501:200:3::1", 1766, 0x2cc1_8cd5, 0x4020_7d3d),
            ("3ffe:501:8::260:97ff:fe40:efab", 14230, "ff02::1", 4739, 0x0f0c_461c, 0xdde5_1bbf),
            (
                "3ffe:1900:4545:3:200:f8ff:fe21:67cf",
                44251,
                "fe80::200:f8ff:fe21:67cf",
                38024,
                0x4b61_e985,
                0x02d1_feef,
            ),
        ] {
            assert_eq!(toeplitz(&MICROSOFT_KEY, &input(source, destination, None)), addresses, "{source}");
            assert_eq!(
                toeplitz(&MICROSOFT_KEY, &input(source, destination, Some((sport, dport)))),
                all,
                "{source}"
            );
        }
    }

    #[test]
    fn the_table_spreads_and_looks_at_seven_bits() {
        let table = IndirectionTable::equal(4);
        assert_eq!((0..8).map(|hash| table.queue(hash)).collect::<Vec<_>>(), [0, 1, 2, 3, 0, 1, 2, 3]);
        // 0x51ccc178 & 0x7f = 0x78 = 120; 120 mod 4 = 0.  0x51ccc178 + 1 -> 121 -> 1.
        assert_eq!(table.queue(0x51cc_c178), 0);
        assert_eq!(table.queue(0x51cc_c179), 1);
        assert_eq!(IndirectionTable::equal(0), IndirectionTable::equal(1));
        let mut entries = [3; RSS_TABLE_ENTRIES];
        entries[5] = 9;
        assert_eq!(IndirectionTable::new(entries).queue(128 + 5), 9);
    }
}
