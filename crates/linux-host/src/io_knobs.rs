//! The DCA knobs: the DCA ways, one register per package, and the DCA switch of each root port.
//!
//! Each is read at every sample. A value is accepted only if it is possible (hardware.md 1.4, 2.1): a mask within the
//! cache's ways, a port that answers. A knob is written only by the generation's rules, after its original is
//! journaled, and read back. If another program changes a knob after us, the journal drops its original until we write
//! it again. Must not know policies.

use std::cell::Cell;
use std::collections::BTreeMap;
use waykeeper_generations::Generation;
use waykeeper_host::{Knob, KnobOutcome, KnobValues, Plan, Setting, Support};
use waykeeper_kernel::dca_ways::{self, Wanted};
use waykeeper_kernel::journal::{Journal, Original, OriginalBits, OwnershipCheck};
use waykeeper_kernel::pci::{PciAddress, PciConfigSpace, Writable};
use waykeeper_kernel::registers::{RegisterAddress, RegisterFiles, RegisterIo};
use waykeeper_kernel::root::Root;
use waykeeper_units::{CoreId, PortId, WayMask};

/// Both knobs of one package.
#[derive(Debug)]
pub(super) struct IoKnobs {
    registers: RegisterFiles,
    generation: Option<&'static Generation>,
    llc: WayMask,
    /// Knobs that can be read.
    knobs: BTreeMap<Knob, KnobRegister>,
    /// What can be done with each knob.
    supports: BTreeMap<Knob, Support>,
}

/// The register of a knob.
#[derive(Debug)]
struct KnobRegister {
    address: RegisterAddress,
    /// The package, if all of its CPUs share the register.
    package: Option<u16>,
    /// The knob's bits.
    mask: u64,
    /// The last accepted value of the register.
    last: Cell<Option<u64>>,
    /// Our writes to the bits.
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

/// The answer to a write of a knob that has another value than at the last look. The next look detects the change, and
/// the control loop reacts as configured.
const CHANGED_SINCE: &str = "another program has changed it since it was last read; it is read again first";

impl WrittenKnob {
    /// Whether a knob that reads `found` was changed by another program since the last look.
    fn is_changed_since(&self, found: u64) -> bool {
        !self.changed_externally && self.read_back.is_some_and(|own| own != found)
    }

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

impl KnobRegister {
    fn new(address: RegisterAddress, package: Option<u16>, mask: u64) -> KnobRegister {
        KnobRegister { address, package, mask, last: Cell::new(None), written: Cell::new(None) }
    }

    /// Whether the value shows which program wrote it. A single bit does not.
    fn tells_writer(&self) -> bool {
        self.mask.count_ones() > 1
    }

    /// The journal's record of the knob; `ours` are the values that we write.
    fn original(&self, value: u64, ours: Vec<u64>) -> Original {
        let ours = if self.tells_writer() { ours } else { Vec::new() };
        let ownership = OwnershipCheck { ours, claims: Vec::new() };
        Original::of_register(&self.address, self.package, self.mask, value, ownership)
    }

    /// The value of the bits at a setting.
    fn bits(&self, setting: Setting) -> u64 {
        match setting {
            Setting::Ways(ways) => ways.bits().into(),
            Setting::Switch(true) => self.mask,
            Setting::Switch(false) | Setting::Count(_) => 0,
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
        let (knobs, supports) = (BTreeMap::new(), BTreeMap::new());
        let mut found = IoKnobs { registers, generation, llc, knobs, supports };
        let ways = found.find_ways(socket, cpu);
        found.supports.insert(Knob::DcaWays, ways.unwrap_or_else(Support::No));
        for (port, address, is_local) in ports {
            let switch = match is_local {
                true => found.find_switch(*port, *address, root, may_write),
                false => Err("the device is on another socket".to_owned()),
            };
            found.supports.insert(Knob::Dca(*port), switch.unwrap_or_else(Support::No));
        }
        found
    }

    /// Whether a knob can be changed.
    pub fn support(&self, knob: Knob) -> Support {
        self.supports.get(&knob).cloned().unwrap_or_else(|| Support::No("there is no such port".to_owned()))
    }

    /// The register files, opened for the knobs.
    pub fn registers(&self) -> &RegisterFiles {
        &self.registers
    }

    fn find_ways(&mut self, socket: u16, cpu: CoreId) -> Result<Support, String> {
        let switch = &self.generation.ok_or(NO_TABLE)?.dca.ways;
        let register = switch.register.as_ref().filter(|_| switch.evidence.may_read());
        let unknown = || format!("{}: {}", dca_ways::words(switch.evidence), switch.note);
        let address = RegisterAddress::Msr { cpu, address: register.ok_or_else(unknown)?.msr };
        // A read that is refused for a moment must not take the knob away until the next start.
        self.registers.read(&address).or_else(|_| self.registers.read(&address))?;
        self.knobs.insert(Knob::DcaWays, KnobRegister::new(address, Some(socket), u64::MAX));
        Ok(if switch.evidence.may_write() { Support::Yes } else { Support::ReadOnly })
    }

    fn find_switch(
        &mut self,
        port: PortId,
        device: PciAddress,
        root: &Root,
        may_write: bool,
    ) -> Result<Support, String> {
        let switch = &self.generation.ok_or(NO_TABLE)?.dca.port;
        let bit = switch.allocating.filter(|_| switch.evidence.may_read());
        let unknown = || format!("{}: {}", dca_ways::words(switch.evidence), switch.note);
        let bit = bit.ok_or_else(unknown)?;
        // Opened for writing only if the generation allows writes.
        let config = match may_write && switch.evidence.may_write() {
            true => PciConfigSpace::open_write(root, device),
            false => PciConfigSpace::open(root, device),
        };
        config.and_then(|config| config.check_register(bit.offset)).map_err(|why| why.to_string())?;
        let address = RegisterAddress::Pci { device: device.to_string(), offset: bit.offset, bytes: 1 };
        self.knobs.insert(Knob::Dca(port), KnobRegister::new(address, None, 1 << bit.bit));
        Ok(if switch.evidence.may_write() { Support::Yes } else { Support::ReadOnly })
    }

    /// The settings of all knobs of devices that can be read. A problem for each that cannot be read or makes no sense.
    pub fn read(&self, problems: &mut Vec<String>) -> KnobValues {
        let mut values = KnobValues::default();
        for (knob, register) in &self.knobs {
            match self.now(register) {
                Ok(now) => values.insert(*knob, setting(*knob, now & register.mask)),
                Err(why) => problems.push(why),
            }
        }
        values
    }

    /// The value of a knob's register, if it is possible.
    fn now(&self, register: &KnobRegister) -> Result<u64, String> {
        let value = read_confirmed(&register.last, || self.registers.read(&register.address));
        let place = match &register.address {
            RegisterAddress::Pci { device, .. } => format!("root port {device}"),
            msr => msr.to_string(),
        };
        let possible = value.and_then(|value| match register.package {
            Some(_) => self.sensible(value),
            None => Ok(value),
        });
        possible.map_err(|why| format!("{place}: {why}"))
    }

    /// A value of the DCA ways, if it is a mask of the cache.
    fn sensible(&self, value: u64) -> Result<u64, String> {
        let mask = u32::try_from(value).ok().map(WayMask::from_bits);
        match mask.filter(|mask| !mask.is_empty() && mask.minus(self.llc).is_empty()) {
            Some(_) => Ok(value),
            None => Err(format!("{value:#x} is not a mask of the cache, whose ways are {}", self.llc)),
        }
    }

    /// Detects external changes: if a knob reads another value than after our last write, the journal drops its
    /// original, so that it is not restored. If it reads our value again, the original returns to the journal.
    pub fn detect_external_changes(&self, journal: &mut Journal, problems: &mut Vec<String>) {
        for register in self.knobs.values() {
            let Some(written) = register.written.get() else { continue };
            // A failed read is reported by the sample itself.
            let now = self.now(register).ok().map(|now| now & register.mask);
            let original = |written: WrittenKnob| {
                register.original(written.original, written.read_back.into_iter().collect())
            };
            register.written.set(Some(detect_external(written, now, original, journal, problems)));
        }
    }

    /// Takes over the knobs that the daemon before left: those in the journal that still have its value and may be set.
    /// Returns their records; all others are to be restored.
    pub fn take_over(&self, journal: &Journal, may_set: impl Fn(Knob) -> bool) -> Vec<Original> {
        let mut taken = Vec::new();
        for (_, register) in self.knobs.iter().filter(|(knob, _)| may_set(**knob)) {
            let Some((record, bits)) = self.record_of(register, journal) else { continue };
            // A register that cannot be read is restored, or the restore says why it cannot be.
            let Ok(now) = self.now(register).map(|now| now & register.mask) else { continue };
            let is_ours = bits.ownership.ours.is_empty() || bits.ownership.ours.contains(&now);
            if is_ours && now != bits.value {
                let (original, read_back) = (bits.value, Some(now));
                register.written.set(Some(WrittenKnob { original, read_back, changed_externally: false }));
                taken.push(record.clone());
            }
        }
        taken
    }

    /// The journal's record of a knob, with its bits.
    fn record_of<'j>(
        &self,
        register: &KnobRegister,
        journal: &'j Journal,
    ) -> Option<(&'j Original, OriginalBits<'j>)> {
        let knob = register.original(0, Vec::new());
        let record = journal.originals().iter().find(|own| own.is_same_knob(&knob))?;
        Some((record, record.register()?))
    }

    /// Whether a record in the journal is that of a knob.
    pub fn has(&self, record: &Original) -> bool {
        self.knobs.values().any(|register| register.original(0, Vec::new()).is_same_knob(record))
    }

    /// The values before our first write of the knobs that still have a value of ours.
    pub fn originals(&self) -> Plan {
        let mut originals = Plan::default();
        for (knob, register) in &self.knobs {
            if let Some(written) = register.written.get().filter(|written| !written.changed_externally) {
                originals.insert(*knob, setting(*knob, written.original));
            }
        }
        originals
    }

    /// Sets a knob, for a root port for every device behind it.
    pub fn set(&self, knob: Knob, setting: Setting, journal: &mut Journal) -> KnobOutcome {
        let Some(register) = self.knobs.get(&knob) else {
            return KnobOutcome::Refused(match self.support(knob) {
                Support::No(why) => why,
                _ => "the register cannot be read".to_owned(),
            });
        };
        let Some(generation) = self.generation else { return KnobOutcome::Refused(NO_TABLE.to_owned()) };
        if setting.switch().is_some() && Writable::dca_switch(generation).is_none() {
            let why = "the switch is only read: no test has confirmed that it acts";
            return KnobOutcome::Refused(why.to_owned());
        }
        let now = match self.now(register) {
            Err(why) => return KnobOutcome::Busy(why),
            Ok(now) => now,
        };
        if let Setting::Ways(mask) = setting {
            let held = WayMask::from_bits(now as u32);
            if let Err(why) = dca_ways::plan(generation, self.llc.count(), held, Wanted::Mask(mask)) {
                return KnobOutcome::Refused(why.to_string());
            }
        }
        let (before, found, wanted) = (register.written.get(), now & register.mask, register.bits(setting));
        if before.is_some_and(|before| before.is_changed_since(found)) {
            return KnobOutcome::Busy(CHANGED_SINCE.to_owned());
        }
        let written = WrittenKnob::about_to(before, found);
        // After a crash, the journal's values tell ours from another program's: the new value, and the present one if
        // we wrote it.
        let is_ours = before.is_some_and(|before| {
            !before.changed_externally && before.read_back.is_none_or(|own| own == found)
        });
        let mut ours = vec![wanted];
        ours.extend(is_ours.then_some(found));
        let original = register.original(written.original, ours.clone());
        let noted = match register.tells_writer() {
            true => journal.replace(&original),
            false => journal.record(&[original]),
        };
        if let Err(why) = noted {
            return KnobOutcome::Busy(why.to_string());
        }
        register.written.set(Some(written));
        let outcome = self.write(knob, register, now & !register.mask | wanted);
        let read_back = match outcome {
            // A later read may show another program's value.
            KnobOutcome::Applied => Some(wanted),
            _ => self.now(register).ok().map(|now| now & register.mask),
        };
        register.written.set(Some(WrittenKnob { read_back, ..written }));
        // If the register turned our value into another one, that value is ours too.
        let turned = read_back.filter(|own| register.tells_writer() && !ours.contains(own) && *own != found);
        if let Some(own) = turned {
            ours.push(own);
            if let Err(why) = journal.replace(&register.original(written.original, ours)) {
                return KnobOutcome::ReadsBack(format!("{own:#x}; {why}"));
            }
        }
        outcome
    }

    /// Writes a knob's register and reads it back.
    fn write(&self, knob: Knob, register: &KnobRegister, value: u64) -> KnobOutcome {
        let holds = |now: u64| (now ^ value) & register.mask == 0;
        let done = self.registers.write(&register.address, value);
        if done.is_ok() && self.registers.read(&register.address).is_ok_and(holds) {
            return KnobOutcome::Applied;
        }
        // A failed write may have taken effect, and one answer may be wrong: the value that is confirmed decides.
        match (self.now(register), done) {
            (Ok(now), _) if holds(now) => KnobOutcome::Applied,
            (Ok(_), Err(why)) => KnobOutcome::Refused(why),
            (Ok(now), Ok(())) => KnobOutcome::ReadsBack(match setting(knob, now & register.mask) {
                Setting::Switch(on) => if on { "on" } else { "off" }.to_owned(),
                Setting::Ways(mask) => mask.to_string(),
                Setting::Count(count) => count.to_string(),
            }),
            (Err(_), Err(why)) | (Err(why), Ok(())) => KnobOutcome::ReadsBack(why),
        }
    }
}

/// The setting of a knob, from the value of its bits.
fn setting(knob: Knob, bits: u64) -> Setting {
    match knob {
        Knob::Dca(_) => Setting::Switch(bits != 0),
        Knob::Mask(_) | Knob::DcaWays => Setting::Ways(WayMask::from_bits(bits as u32)),
        Knob::RxRing(_) | Knob::RxBurst(_) => Setting::Count(bits as u32),
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
fn read_confirmed(last: &Cell<Option<u64>>, read: impl Fn() -> Result<u64, String>) -> Result<u64, String> {
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

/// The reason why no knob is written on a CPU without a table.
const NO_TABLE: &str = "no built-in table describes this CPU, so Waykeeper sets none of its knobs";

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
