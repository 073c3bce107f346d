//! Small files for the tests, built byte by byte: a capture of each kind, a trace of each kind.
#![allow(dead_code, reason = "every test file uses its own part")]

use std::io::Write;
use waykeeper_inputs::{TouchKind, TraceRecord, TraceWriter};

/// A file with these bytes.
pub fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::Builder::new().prefix("wk-input-").tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}

/// An Ethernet frame: IPv4, UDP, 10.0.0.`host`:1000 -> 10.0.1.1:53, DSCP `dscp`, cut after 42 bytes.
pub fn frame(host: u8, dscp: u8) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend([0x08, 0x00]);
    frame.extend([0x45, dscp << 2, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, host, 10, 0, 1, 1]);
    frame.extend([0x03, 0xe8, 0x00, 0x35, 0, 26, 0, 0]);
    frame
}

/// Numbers in either byte order.
pub struct Bytes {
    pub big: bool,
    pub out: Vec<u8>,
}

impl Bytes {
    pub fn u16(&mut self, value: u16) {
        self.out.extend(if self.big { value.to_be_bytes() } else { value.to_le_bytes() });
    }

    pub fn u32(&mut self, value: u32) {
        self.out.extend(if self.big { value.to_be_bytes() } else { value.to_le_bytes() });
    }
}

/// A packet of a test capture: nanoseconds, original length, captured bytes.
pub type TestPacket = (u64, u32, Vec<u8>);

/// A pcap file.
pub fn pcap(big: bool, nanos: bool, link: u32, packets: &[TestPacket]) -> Vec<u8> {
    let mut bytes = Bytes { big, out: Vec::new() };
    bytes.u32(if nanos { 0xa1b2_3c4d } else { 0xa1b2_c3d4 });
    bytes.u16(2);
    bytes.u16(4);
    bytes.u32(0);
    bytes.u32(0);
    bytes.u32(65535);
    bytes.u32(link);
    for (ns, original, data) in packets {
        bytes.u32((ns / 1_000_000_000) as u32);
        bytes.u32((ns % 1_000_000_000 / if nanos { 1 } else { 1000 }) as u32);
        bytes.u32(data.len() as u32);
        bytes.u32(*original);
        bytes.out.extend(data);
    }
    bytes.out
}

/// A pcapng file with one Ethernet interface whose time stamps have the given if_tsresol; `units` converts nanoseconds
/// to it.
pub fn pcapng(big: bool, resolution: u8, units: impl Fn(u64) -> u64, packets: &[TestPacket]) -> Vec<u8> {
    let mut bytes = Bytes { big, out: Vec::new() };
    // Section header: no options, length unknown.
    for word in [0x0a0d_0d0a, 28, 0x1a2b_3c4d] {
        bytes.u32(word);
    }
    bytes.u16(1);
    bytes.u16(0);
    for word in [u32::MAX, u32::MAX, 28] {
        bytes.u32(word);
    }
    // Interface description with if_tsresol (9) and end of options.
    bytes.u32(1);
    bytes.u32(32);
    bytes.u16(1);
    bytes.u16(0);
    bytes.u32(0);
    bytes.u16(9);
    bytes.u16(1);
    bytes.out.extend([resolution, 0, 0, 0]);
    bytes.u32(0);
    bytes.u32(32);
    // A block of an unknown type.
    for word in [0x0bad_cafe & 0x7fff_ffff, 16, 7, 16] {
        bytes.u32(word);
    }
    for (ns, original, data) in packets {
        let stamp = units(*ns);
        let padded = data.len().next_multiple_of(4);
        let length = 32 + padded as u32;
        for word in [6, length, 0, (stamp >> 32) as u32, stamp as u32, data.len() as u32, *original] {
            bytes.u32(word);
        }
        bytes.out.extend(data);
        bytes.out.resize(bytes.out.len() + padded - data.len(), 0);
        bytes.u32(length);
    }
    bytes.out
}

/// Three packets of two flows, 1.5 us and 1 ms apart.
pub fn packets() -> Vec<TestPacket> {
    let start = 1_700_000_000_000_000_000;
    vec![(start, 60, frame(1, 46)), (start + 1_500, 1514, frame(2, 0)), (start + 1_001_500, 60, frame(1, 46))]
}

/// Records in some variety.
pub fn records(count: u64) -> Vec<TraceRecord> {
    let scatter = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..count)
        .map(|i| TraceRecord {
            line: if i % 7 == 0 { scatter(i) >> 6 } else { 0x40_0000 + i % 100 },
            instructions: scatter(i) >> 60,
            touches: if i % 5 == 0 { 1 + (i % 300) as u32 } else { 1 },
            kind: if i % 3 == 0 { TouchKind::Store } else { TouchKind::Load },
        })
        .collect()
}

/// A .wkt file.
pub fn wkt(records: &[TraceRecord], tail: u64) -> Vec<u8> {
    let mut writer = TraceWriter::new(Vec::new(), "a test", false).unwrap();
    for record in records {
        writer.push(*record).unwrap();
    }
    writer.finish(tail).unwrap().1
}

/// Lackey's text of a few hundred instructions.
pub fn lackey() -> Vec<u8> {
    let mut text = String::from("==1== Lackey, an example Valgrind tool\n");
    for i in 0..300u64 {
        text += &format!("I  {:08x},4\n", 0x40_0000 + 4 * i);
        match i % 4 {
            0 => text += &format!(" L {:x},8\n", 0x1f_fe00_0000 + i * 24),
            1 => text += &format!(" S {:x},16\n", 0x480_0000 + i * 8),
            2 => text += &format!(" M {:x},4\n", 0x1f_fe00_0000 + i * 4),
            _ => {}
        }
    }
    text.into_bytes()
}

/// Five instructions in Dinero's din format.
pub const DIN: &str =
    "2 400000\n2 400004\nread 1000 8\n2 400008\nwrite 103c 8\n2 40000c\nr,2000,8\n2 400010\n";

/// The same as Pin's pinatrace lists them.
pub const PIN: &str =
    "#\n0x400004: R 0x1000 8 0x1\n0x400008: W 0x103c 8 0x2\n0x40000c: R 0x2000 8 0x3\n#eof\n";

/// The same as DynamoRIO's view tool prints them.
pub const VIEW: &str = "\
hello
Output format:
<--record#-> <--instr#->: <---tid---> <record details>
------------------------------------------------------------
           1           0:     3264 <marker: version 6>
           2           1:     3264 ifetch       4 byte(s) @ 0x0000000000400000 90                   nop
           3           2:     3264 ifetch       4 byte(s) @ 0x0000000000400004 48 8b 03             mov    (%rbx) -> %rax
           4           2:     3264 read         8 byte(s) @ 0x0000000000001000 by PC 0x0000000000400004
           5           3:     3264 ifetch       4 byte(s) @ 0x0000000000400008 48 89 03             mov    %rax -> (%rbx)
           6           3:     3264 write        8 byte(s) @ 0x000000000000103c by PC 0x0000000000400008
           7           4:     3264 ifetch       4 byte(s) @ 0x000000000040000c 48 8b 03             mov    (%rbx) -> %rax
           8           4:     3264 read         8 byte(s) @ 0x0000000000002000 by PC 0x000000000040000c
           9           5:     3264 ifetch       4 byte(s) @ 0x0000000000400010 90                   nop
View tool results:
              5 : total instructions
";

/// A ChampSim trace.
pub fn champsim() -> Vec<u8> {
    let mut bytes = Vec::new();
    for i in 0..200u64 {
        bytes.extend((0x40_0000 + 4 * i).to_le_bytes());
        bytes.extend([u8::from(i % 5 == 0), 0, 1, 0, 2, 3, 0, 0]);
        let memory = [if i % 3 == 0 { 0x7fff_0000 + i * 8 } else { 0 }, 0, 0x60_0000 + i * 32, 0, 0, 0];
        bytes.extend(memory.into_iter().flat_map(u64::to_le_bytes));
    }
    bytes
}
