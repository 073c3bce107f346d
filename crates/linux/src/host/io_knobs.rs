//! The DCA knobs: the DCA ways, one register per package, and the DCA switch of each root port.
//!
//! Each is read at every sample. A value is accepted only if it is possible (hardware.md 1.4, 2.1): a mask within the
//! cache's ways, a port that answers. A knob is written only by the generation's rules, after its original is
//! journaled, and read back. If another program changes a knob after us, the journal drops its original until we write
//! it again. Must not know policies.

use crate::ddio::{self, Wanted};
use crate::journal::{Journal, Original, OwnershipCheck};
use crate::pci::{Config, PciAddress, Writable};
use crate::registers::RegisterFiles;
use crate::root::Root;
use std::cell::Cell;
use std::collections::BTreeMap;
use waykeeper_generations::{Generation, RegisterBit};
use waykeeper_host::{Knob, KnobOutcome, KnobValues, Support};
use waykeeper_units::{CoreId, PortId, WayMask};

/// Both knobs of one package.
#[derive(Debug)]
pub(super) struct IoKnobs {
    registers: RegisterFiles,
    generation: Option<&'static Generation>,
    llc: WayMask,
    socket: u16,
    /// CPU and MSR of the DCA ways, if they can be read.
    ways: Option<(CoreId, u32)>,
    ways_support: Support,
    /// Ports whose switch can be read.
    ports: BTreeMap<PortId, Port>,
    /// The last accepted value of the register of DCA ways.
    last_ways: Cell<Option<u64>>,
    /// Our writes to it.
    written_ways: Cell<Option<WrittenKnob>>,
    /// What can be done with each port's switch.
    supports: BTreeMap<PortId, Support>,
}

/// The switch of one port.
#[derive(Debug)]
struct Port {
    config: Config,
    bit: RegisterBit,
    /// The last accepted value of the byte with the switch.
    last: Cell<Option<u8>>,
    /// Our writes to its bit.
    written: Cell<Option<WrittenKnob>>,
}

/// A knob that we have written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct WrittenKnob {
    /// Its value before our first write.
    original: u64,
    /// What it read after our last write; `None` if it could not be read.
    read_back: Option<u64>,
    /// Another program has changed it since, and the journal has dropped its original.
    changed_externally: bool,
}

impl WrittenKnob {
    /// The state before a write, for a knob that reads `found`. A value of another program is the original from now on.
    fn about_to(before: Option<WrittenKnob>, found: u64) -> WrittenKnob {
        let ours = before.filter(|written| !written.changed_externally);
        WrittenKnob {
            original: ours.map_or(found, |written| written.original),
            read_back: None,
            changed_externally: false,
        }
    }
}

impl Port {
    fn byte(&self) -> Result<u8, String> {
        let byte = read_confirmed(&self.last, || byte(&self.config, self.bit));
        byte.map_err(|why| format!("root port {}: {why}", self.config.device()))
    }

    fn original(&self, value: u64) -> Original {
        Original::Pci {
            address: self.config.device().to_string(),
            offset: self.bit.offset,
            width: 1,
            mask: 1 << self.bit.bit,
            value: value as u32,
            // A single bit cannot show which program set it, so no values are recorded as ours.
            ownership: OwnershipCheck::default(),
        }
    }
}

impl IoKnobs {
    /// Looks at both knobs, through a CPU of the socket. `ports` has the root ports: id, address, and whether the
    /// managed package has it. Without `may_write` no file is opened for writing.
    pub fn open(
        registers: RegisterFiles,
        generation: Option<&'static Generation>,
        llc: WayMask,
        (socket, cpu): (u16, CoreId),
        ports: &[(PortId, PciAddress, bool)],
        root: &Root,
        may_write: bool,
    ) -> IoKnobs {
        let (ways, ways_support) = find_ways(&registers, generation, cpu);
        let mut knobs = IoKnobs {
            registers,
            generation,
            llc,
            socket,
            ways,
            ways_support,
            ports: BTreeMap::new(),
            last_ways: Cell::new(None),
            written_ways: Cell::new(None),
            supports: BTreeMap::new(),
        };
        for (port, address, is_local) in ports {
            let support = knobs.find_switch(*port, *address, *is_local, root, may_write);
            knobs.supports.insert(*port, support);
        }
        knobs
    }

    /// Whether the DCA ways can be changed.
    pub fn ways_support(&self) -> &Support {
        &self.ways_support
    }

    /// Whether a port's DCA can be switched.
    pub fn switch_support(&self, port: PortId) -> Support {
        self.supports.get(&port).cloned().unwrap_or_else(|| Support::No("there is no such port".to_owned()))
    }

    /// The register files, opened for the knobs.
    pub fn registers(&self) -> &RegisterFiles {
        &self.registers
    }

    fn find_switch(
        &mut self,
        port: PortId,
        address: PciAddress,
        is_local: bool,
        root: &Root,
        may_write: bool,
    ) -> Support {
        if !is_local {
            return Support::No("the device is on another socket".to_owned());
        }
        let Some(generation) = self.generation else {
            return Support::No(NO_TABLE.to_owned());
        };
        let switch = &generation.dca.port;
        let Some(bit) = switch.allocating.filter(|_| switch.evidence.may_read()) else {
            return Support::No(format!("{}: {}", ddio::words(switch.evidence), switch.note));
        };
        // Opened for writing only if the generation allows writes.
        let config = match may_write && switch.evidence.may_write() {
            true => Config::open_write(root, address),
            false => Config::open(root, address),
        };
        let config = config.and_then(|config| config.check_register(bit.offset).map(|()| config));
        match config {
            Err(why) => return Support::No(why.to_string()),
            Ok(config) => {
                self.ports.insert(port, Port { config, bit, last: Cell::new(None), written: Cell::new(None) })
            }
        };
        if switch.evidence.may_write() { Support::Yes } else { Support::ReadOnly }
    }

    /// The settings of all knobs of devices that can be read. A problem for each that cannot be read or makes no sense.
    pub fn read(&self, problems: &mut Vec<String>) -> KnobValues {
        let mut knobs = KnobValues::default();
        if let Some((cpu, address)) = self.ways {
            match self.ways_now(cpu, address) {
                Ok(mask) => knobs.insert(Knob::DcaWays, mask),
                Err(why) => problems.push(why),
            }
        }
        for (id, port) in &self.ports {
            match port.byte() {
                Ok(byte) => knobs.insert(Knob::Dca(*id), port.bit.of(byte)),
                Err(why) => problems.push(why),
            }
        }
        knobs
    }

    fn ways_now(&self, cpu: CoreId, address: u32) -> Result<WayMask, String> {
        let read = || self.registers.read_msr(cpu, address).map_err(|error| self.registers.told(&error));
        let mask = read_confirmed(&self.last_ways, read).and_then(|value| self.sensible(value));
        mask.map_err(|why| format!("MSR {address:#x} of CPU {}: {why}", cpu.0))
    }

    fn sensible(&self, value: u64) -> Result<WayMask, String> {
        let mask = u32::try_from(value).ok().map(WayMask::from_bits);
        let mask = mask.filter(|mask| !mask.is_empty() && mask.minus(self.llc).is_empty());
        mask.ok_or_else(|| format!("{value:#x} is not a mask of the cache, whose ways are {}", self.llc))
    }

    /// Detects external changes: if a knob reads another value than after our last write, the journal drops its
    /// original, so that it is not restored. If it reads our value again, the original returns to the journal.
    pub fn detect_external_changes(&self, journal: &mut Journal, problems: &mut Vec<String>) {
        if let (Some((cpu, address)), Some(written)) = (self.ways, self.written_ways.get()) {
            // A failed read is reported by the sample itself.
            let now = self.ways_now(cpu, address).ok().map(|now| u64::from(now.bits()));
            let original = |written: WrittenKnob| {
                self.ways_original(cpu, address, written.original, written.read_back.into_iter().collect())
            };
            self.written_ways.set(Some(detect_external(written, now, original, journal, problems)));
        }
        for port in self.ports.values() {
            let Some(written) = port.written.get() else { continue };
            let now = port.byte().ok().map(|byte| u64::from(byte) & 1 << port.bit.bit);
            let original = |written: WrittenKnob| port.original(written.original);
            port.written.set(Some(detect_external(written, now, original, journal, problems)));
        }
    }

    pub fn set_ways(&self, mask: WayMask, journal: &mut Journal) -> KnobOutcome {
        let (Some((cpu, address)), Some(generation)) = (self.ways, self.generation) else {
            let why = match &self.ways_support {
                Support::No(why) => why.clone(),
                _ => "the register cannot be read".to_owned(),
            };
            return KnobOutcome::Refused(why);
        };
        let now = match self.ways_now(cpu, address) {
            Err(why) => return KnobOutcome::Busy(why),
            Ok(now) => now,
        };
        if let Err(why) = ddio::plan(generation, self.llc.count(), now, Wanted::Mask(mask)) {
            return KnobOutcome::Refused(why.to_string());
        }
        let (before, found) = (self.written_ways.get(), u64::from(now.bits()));
        let written = WrittenKnob::about_to(before, found);
        // After a crash, the journal's values tell ours from another program's: the new mask, and the present value if
        // we wrote it.
        let is_ours = before.is_some_and(|before| {
            !before.changed_externally && before.read_back.is_none_or(|own| own == found)
        });
        let mut ours = vec![u64::from(mask.bits())];
        ours.extend(is_ours.then_some(found));
        if let Err(why) = journal.replace(&self.ways_original(cpu, address, written.original, ours.clone())) {
            return KnobOutcome::Busy(why.to_string());
        }
        self.written_ways.set(Some(written));
        let outcome = self.write_ways(cpu, address, mask);
        let read_back = self.ways_now(cpu, address).ok().map(|now| u64::from(now.bits()));
        self.written_ways.set(Some(WrittenKnob { read_back, ..written }));
        // If the register turned our mask into another value, that value is ours too.
        if let Some(own) = read_back.filter(|own| !ours.contains(own) && *own != found) {
            ours.push(own);
            if let Err(why) = journal.replace(&self.ways_original(cpu, address, written.original, ours)) {
                return KnobOutcome::ReadsBack(format!("{own:#x}; {why}"));
            }
        }
        outcome
    }

    /// The journal's record of the DCA ways.
    fn ways_original(&self, cpu: CoreId, register: u32, value: u64, ours: Vec<u64>) -> Original {
        let ownership = OwnershipCheck { ours, claims: Vec::new() };
        Original::Msr { cpu: cpu.0, package: Some(self.socket), register, mask: u64::MAX, value, ownership }
    }

    fn write_ways(&self, cpu: CoreId, address: u32, mask: WayMask) -> KnobOutcome {
        if let Err(error) = self.registers.write_msr(cpu, address, mask.bits().into()) {
            return KnobOutcome::Refused(self.registers.told(&error));
        }
        match self.registers.read_msr(cpu, address) {
            Ok(value) if value == u64::from(mask.bits()) => KnobOutcome::Applied,
            // The write succeeded. After one unexpected answer, read again.
            first => match self.ways_now(cpu, address) {
                Ok(now) if now == mask => KnobOutcome::Applied,
                Ok(now) => KnobOutcome::ReadsBack(now.to_string()),
                Err(why) => {
                    KnobOutcome::ReadsBack(first.map_or_else(|error| self.registers.told(&error), |_| why))
                }
            },
        }
    }

    /// Turns DCA of a root port on or off, for every device behind it.
    pub fn set_switch(&self, port: PortId, on: bool, journal: &mut Journal) -> KnobOutcome {
        let Some(switch) = self.ports.get(&port) else {
            return KnobOutcome::Refused(match self.switch_support(port) {
                Support::No(why) => why,
                _ => "the switch cannot be read".to_owned(),
            });
        };
        let Some(writable) = self.generation.and_then(Writable::dca_switch) else {
            return KnobOutcome::Refused(
                "the switch is only read: no test has confirmed that it acts".to_owned(),
            );
        };
        let bit = switch.bit;
        let found = match switch.byte() {
            Err(why) => return KnobOutcome::Busy(why),
            Ok(found) => u64::from(found) & 1 << bit.bit,
        };
        let written = WrittenKnob::about_to(switch.written.get(), found);
        if let Err(why) = journal.record(&[switch.original(written.original)]) {
            return KnobOutcome::Busy(why.to_string());
        }
        let outcome = Self::write_switch(switch, writable, on);
        let read_back = switch.byte().ok().map(|byte| u64::from(byte) & 1 << bit.bit);
        switch.written.set(Some(WrittenKnob { read_back, ..written }));
        outcome
    }

    fn write_switch(switch: &Port, writable: Writable, on: bool) -> KnobOutcome {
        let Port { config, bit, .. } = switch;
        match config.turn(writable, on) {
            Ok(now) if now == on => KnobOutcome::Applied,
            Ok(now) => KnobOutcome::ReadsBack(if now { "on" } else { "off" }.to_owned()),
            // The write may have failed before or after it took effect; the port's present state decides.
            Err(why) => match switch.byte() {
                Ok(now) if bit.of(now) == on => KnobOutcome::Applied,
                Ok(_) => KnobOutcome::Refused(why.to_string()),
                Err(_) => KnobOutcome::ReadsBack(why.to_string()),
            },
        }
    }
}

/// Updates a knob's state from its present value.
fn detect_external(
    written: WrittenKnob,
    now: Option<u64>,
    original: impl Fn(WrittenKnob) -> Original,
    journal: &mut Journal,
    problems: &mut Vec<String>,
) -> WrittenKnob {
    let (Some(now), Some(read_back)) = (now, written.read_back) else { return written };
    let changed_externally = now != read_back;
    if changed_externally == written.changed_externally {
        return written;
    }
    let noted = match changed_externally {
        true => journal.forget(&original(written)),
        false => journal.replace(&original(written)),
    };
    match noted {
        Ok(()) => WrittenKnob { changed_externally, ..written },
        Err(why) => {
            problems.push(why.to_string());
            written
        }
    }
}

/// Accepts a value that equals the last accepted one or that two reads agree on. So one bad read neither looks like a
/// change nor enters the journal as an original.
fn read_confirmed<T: Copy + PartialEq + std::fmt::LowerHex>(
    last: &Cell<Option<T>>,
    read: impl Fn() -> Result<T, String>,
) -> Result<T, String> {
    let value = read()?;
    if last.get() != Some(value) {
        let again = read()?;
        if again != value {
            return Err(format!("the register reads {value:#x} and then {again:#x}"));
        }
        last.set(Some(value));
    }
    Ok(value)
}

/// The byte with a switch, from its 32-bit word: a device that is gone reads as all ones.
fn byte(config: &Config, bit: RegisterBit) -> Result<u8, String> {
    let word = config.dword(bit.offset & !3).map_err(|error| error.to_string())?;
    if word == u32::MAX {
        return Err("the register reads all ones: the device does not answer".to_owned());
    }
    // A register may be zero, but a vendor and device ID may not.
    if word == 0 && matches!(config.dword(0).map_err(|error| error.to_string())?, 0 | u32::MAX) {
        return Err("its vendor and device ID read as zeros or ones: the device does not answer".to_owned());
    }
    Ok((word >> (8 * (bit.offset & 3))) as u8)
}

/// The reason why no knob is written on a CPU without a table.
const NO_TABLE: &str = "no built-in table describes this CPU, so Waykeeper sets none of its knobs";

fn find_ways(
    registers: &RegisterFiles,
    generation: Option<&'static Generation>,
    cpu: CoreId,
) -> (Option<(CoreId, u32)>, Support) {
    let Some(generation) = generation else {
        return (None, Support::No(NO_TABLE.to_owned()));
    };
    let switch = &generation.dca.ways;
    let Some(register) = switch.register.as_ref().filter(|_| switch.evidence.may_read()) else {
        return (None, Support::No(format!("{}: {}", ddio::words(switch.evidence), switch.note)));
    };
    match registers.read_msr(cpu, register.msr) {
        Err(error) => (None, Support::No(registers.told(&error))),
        Ok(_) if switch.evidence.may_write() => (Some((cpu, register.msr)), Support::Yes),
        Ok(_) => (Some((cpu, register.msr)), Support::ReadOnly),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_value_is_believed_when_two_reads_agree_on_it() {
        let last = Cell::new(None);
        let answers = Cell::new(0usize);
        let read = |all: &'static [u64]| {
            answers.set(0);
            read_confirmed(&last, || {
                answers.set(answers.get() + 1);
                Ok(all[answers.get() - 1])
            })
        };
        assert_eq!((read(&[0x600, 0x600]), answers.get()), (Ok(0x600), 2));
        assert_eq!(
            (read(&[0x600]), answers.get()),
            (Ok(0x600), 1),
            "one system call as long as nothing changes"
        );
        assert_eq!(read(&[0, 0x600]), Err("the register reads 0x0 and then 0x600".to_owned()));
        assert_eq!((read(&[0x600]), answers.get()), (Ok(0x600), 1));
        assert_eq!(read(&[0x7f0, 0x7f0]), Ok(0x7f0));
    }
}
