//! `dev/cpu/N/msr`: the registers by address, with the behaviour of the kernel's msr device.
//!
//! Source: linux arch/x86/kernel/msr.c (offset = address; a length that is no multiple of 8 is EINVAL; a longer read
//! repeats the same register; what the CPU faults on is EIO), hardware.md 3.3, 4, 6, 7.5 and the generation's tables.
//! It must not know a register's effect.

use crate::layout::Layout;
use crate::machine_clock::MachineClock;
use crate::node::{Caller, File, OpenAccess};
use crate::package::{Server, UNCORE, Uncore};
use crate::pmu::boxes::BoxRegister;
use crate::pmu::core::CoreRegister;
use crate::pmu::most;
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::Arc;
use waykeeper_generations::{AddressSpace, BoxCount, FreeRunningSet, Generation, Pmu};
use waykeeper_silicon::ChipSpec;

/// The register at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Register {
    /// A constant. Writes fault.
    Constant(u64),
    /// A command without effect in the model: reads 0, accepts any value.
    Ignored,
    /// Time stamp counter.
    Tsc,
    /// Cycles not halted (IA32_MPERF and IA32_APERF: turbo is off, so they are the same).
    Cycles,
    /// IIO_LLC_WAYS.
    Ways,
    /// MSR_MISC_FEATURE_CONTROL: which prefetchers of a core are off.
    Prefetchers,
    /// IA32_L3_QOS_CFG.
    Cdp,
    /// IA32_L3_QOS_MASK_n.
    Mask(usize),
    /// IA32_L2_QOS_EXT_BW_THRTL_n.
    Delay(usize),
    /// IA32_PQR_ASSOC.
    Class,
    /// IA32_QM_EVTSEL.
    Monitored,
    /// IA32_QM_CTR.
    Monitor,
    /// A register of the core's counters.
    Core(CoreRegister),
    /// A register of an uncore box.
    Box(Uncore, usize, BoxRegister),
    /// A free-running counter of a stack's part: stack, part, whether it counts inbound traffic, bytes per count, bits.
    FreeRunning(u16, u8, bool, u32, u8),
    /// The root bus of each IIO stack.
    Buses,
}

/// All registers of the server by address.
pub struct MsrMap(HashMap<u32, Register>);

impl MsrMap {
    /// The registers of a server.
    pub fn new(server: &Server) -> MsrMap {
        let mut map = MsrMap(HashMap::new());
        let (layout, spec) = (server.layout(), server.bare().spec());
        map.architectural(layout, spec);
        map.resources(server);
        if let Some(generation) = layout.generation {
            map.core(generation);
            map.uncore(server, generation);
        }
        map
    }

    fn add(&mut self, address: u32, register: Register) {
        self.0.insert(address, register);
    }

    /// Registers that kernels and tools expect (SDM vol. 4, table 2-2; APM vol. 2, appendix A).
    fn architectural(&mut self, layout: &Layout, spec: &ChipSpec) {
        self.add(0x10, Register::Tsc);
        self.add(0xe7, Register::Cycles);
        self.add(0xe8, Register::Cycles);
        // EFER: SCE, LME, LMA, NXE, as any 64-bit kernel sets it.
        self.add(0xc000_0080, Register::Constant(0xd01));
        // A microcode revision: in the upper half on Intel, the lower on AMD. The value has no meaning here.
        self.add(0x8b, Register::Constant(if layout.is_amd() { 0x0a10_1148 } else { 0x0200_6e05 << 32 }));
        if layout.is_amd() {
            // The first P-state, enabled, at the base clock: its frequency number counts 25 MHz with a divisor of 8, and
            // 5 MHz without one from family 1Ah on (hardware.md 6.4).
            let mhz = (spec.ghz * 1000.0).round() as u64;
            let newer =
                layout.generation.is_some_and(|own| own.signatures.iter().any(|rule| rule.family >= 0x1a));
            let frequency = if newer { mhz / 5 } else { (8 << 8) | (mhz / 25) };
            self.add(0xc001_0064, Register::Constant(1 << 63 | frequency));
            return;
        }
        self.add(0x1a4, Register::Prefetchers);
        let ratio = (spec.ghz * 10.0).round() as u64;
        let cores = u64::from(spec.cores);
        self.add(0x17, Register::Constant(0));
        // MSR_CORE_THREAD_COUNT: cores in bits 31:16, threads in 15:0.
        self.add(0x35, Register::Constant(cores << 16 | cores));
        // MSR_PLATFORM_INFO: the ratio without turbo in bits 15:8, to 100 MHz.
        self.add(0xce, Register::Constant(ratio << 8));
        self.add(0x198, Register::Constant(ratio << 8));
        // IA32_MISC_ENABLE: fast strings, performance monitoring, turbo disabled (bit 38).
        self.add(0x1a0, Register::Constant(1 << 38 | 0x81));
    }

    /// Resource director technology (hardware.md 7.5) and IIO_LLC_WAYS (1.1).
    fn resources(&mut self, server: &Server) {
        let count =
            |last: fn(&Server, usize) -> Option<u64>| (0..).take_while(move |n| last(server, *n).is_some());
        for number in count(|server, number| server.mask(0, number)) {
            self.add(0xc90 + number as u32, Register::Mask(number));
        }
        // AMD has bandwidth limits at other addresses (APM vol. 2, 19.4: L3QOS_BW_CONTROL).
        let delays = if server.layout().is_amd() { 0xc000_0200 } else { 0xd50 };
        for number in count(|server, number| server.delay(0, number)) {
            self.add(delays + number as u32, Register::Delay(number));
        }
        if server.mask(0, 0).is_none() {
            return; // no CAT, and no monitoring on such chips either
        }
        self.add(0xc81, Register::Cdp);
        self.add(0xc8d, Register::Monitored);
        self.add(0xc8e, Register::Monitor);
        self.add(0xc8f, Register::Class);
        if server.ways(0).is_some() {
            self.add(0xc8b, Register::Ways);
        }
    }

    fn core(&mut self, generation: &Generation) {
        let core = &generation.core;
        let registers = &core.registers;
        for index in 0..core.counters_alone {
            let place = u32::from(index) * registers.step;
            self.add(registers.select + place, Register::Core(CoreRegister::Select(index)));
            self.add(registers.counter + place, Register::Core(CoreRegister::Count(index)));
        }
        self.add(registers.global_control, Register::Core(CoreRegister::GlobalControl));
        if let Some(fixed) = core.fixed {
            self.add(fixed.control, Register::Core(CoreRegister::FixedControl));
            for index in 0..fixed.counters {
                self.add(fixed.counter + u32::from(index), Register::Core(CoreRegister::Fixed(index)));
            }
            // IA32_PERF_GLOBAL_STATUS and IA32_PERF_GLOBAL_OVF_CTRL: counters cause no interrupts here.
            self.add(0x38e, Register::Constant(0));
            self.add(0x390, Register::Ignored);
        }
    }

    fn uncore(&mut self, server: &Server, generation: &Generation) {
        for kind in UNCORE {
            let Some(pmu) = kind.pmu(generation) else { continue };
            self.boxes(kind, pmu, server.boxes(0, kind));
            if let BoxCount::Msr { address, bits: [low, _] } = pmu.boxes {
                self.add(address, Register::Constant((server.boxes(0, kind) as u64) << low));
            }
        }
        // Freezes the whole uncore (hardware.md 3.3). None of our sources says which bit does it, so no bit does.
        match generation.id.as_str() {
            "hsx" | "bdx" | "skx" | "icx" => self.add(0x700, Register::Ignored),
            "spr" | "emr" => self.add(0x2ff0, Register::Ignored),
            _ => {}
        }
        if generation.id == "skx" {
            self.add(0x300, Register::Buses);
        }
        let iio = generation.iio.as_ref();
        let Some(counters) = iio.and_then(|iio| iio.free_running.as_ref()) else { return };
        let mut running = |set: &FreeRunningSet, inbound| {
            for stack in 0..server.boxes(0, Uncore::Iio) as u16 {
                for part in 0..set.parts {
                    let Some(address) = set.address(stack, part) else { continue };
                    let (unit, width) = (counters.unit_bytes, counters.width);
                    self.add(address, Register::FreeRunning(stack, part, inbound, unit, width));
                }
            }
        };
        running(&counters.inbound, true);
        if let Some(outbound) = &counters.outbound {
            running(outbound, false);
        }
    }

    fn boxes(&mut self, kind: Uncore, pmu: &Pmu, count: usize) {
        let Some(registers) = pmu.registers.as_ref().filter(|registers| registers.space == AddressSpace::Msr)
        else {
            return;
        };
        for index in 0..count {
            let number = index as u16;
            let Some(base) = registers.address(number) else { continue };
            let mut add = |address, register| self.add(address, Register::Box(kind, index, register));
            if let Some(address) = registers.box_control_of(number) {
                add(address, BoxRegister::Control);
            }
            for (filter, offset) in (0..).zip([registers.filter0, registers.filter1]) {
                if let Some(offset) = offset {
                    add(base + offset, BoxRegister::Filter(filter));
                }
            }
            for counter in 0..pmu.counters {
                let addresses =
                    (registers.control_of(number, counter), registers.counter_of(number, counter));
                if let (Some(control), Some(count)) = addresses {
                    add(control, BoxRegister::Select(counter));
                    add(count, BoxRegister::Count(counter));
                }
            }
        }
    }

    /// The value of a register on a CPU; `None` if the read faults.
    pub fn read(&self, server: &Server, cpu: usize, address: u32) -> Option<u64> {
        let package = server.layout().package_of(cpu);
        Some(match *self.0.get(&address)? {
            Register::Constant(value) => value,
            Register::Ignored => 0,
            Register::Tsc => (server.now_ns() as f64 * server.bare().spec().ghz) as u64,
            Register::Cycles => server.cycles(cpu),
            Register::Ways => server.ways(package)?,
            Register::Prefetchers => server.prefetchers_off(cpu),
            Register::Cdp => u64::from(server.cdp(package)),
            Register::Mask(number) => server.mask(package, number)?,
            Register::Delay(number) => server.delay(package, number)?,
            Register::Class => {
                let (class, rmid) = server.class(cpu);
                u64::from(class) << 32 | u64::from(rmid)
            }
            Register::Monitored => server.monitored(cpu),
            Register::Monitor => server.monitor(cpu),
            Register::Core(register) => server.read_core(cpu, register)?,
            Register::Box(kind, index, register) => server.read_box(package, kind, index, register)?,
            Register::FreeRunning(stack, part, inbound, unit, width) => {
                let parts = server.parts(package, stack).into_iter().filter(|(own, ..)| *own == part);
                let bytes: u64 = parts.map(|(_, into, out)| if inbound { into } else { out }).sum();
                (bytes / u64::from(unit)) & most(width)
            }
            Register::Buses => buses(&server.layout().stacks[package]),
        })
    }

    /// Writes a register on a CPU; `None` if the write faults.
    pub fn write(&self, server: &mut Server, cpu: usize, address: u32, value: u64) -> Option<()> {
        let package = server.layout().package_of(cpu);
        match *self.0.get(&address)? {
            Register::Ignored => Some(()),
            Register::Ways => server.set_ways(package, value),
            Register::Prefetchers if value <= 0xf => {
                server.set_prefetchers_off(cpu, value);
                Some(())
            }
            Register::Cdp if value <= 1 => {
                server.set_cdp(package, value == 1);
                Some(())
            }
            Register::Mask(number) => server.set_mask(package, number, value),
            Register::Delay(number) => server.set_delay(package, number, value),
            Register::Class => server.set_class(cpu, (value >> 32) as u32, value as u32),
            Register::Monitored => {
                server.set_monitored(cpu, value);
                Some(())
            }
            Register::Core(register) => server.write_core(cpu, register, value),
            Register::Box(kind, index, register) => server.write_box(package, kind, index, register, value),
            Register::Tsc
            | Register::Cycles
            | Register::Prefetchers
            | Register::Cdp
            | Register::Monitor
            | Register::Constant(_)
            | Register::FreeRunning(..)
            | Register::Buses => None,
        }
    }
}

/// Skylake's MSR 0x300: one byte per stack, bit 63 marks them valid (hardware.md 4.4).
fn buses(stacks: &[(u16, u8)]) -> u64 {
    let bytes = stacks.iter().filter(|(stack, _)| *stack < 7);
    bytes.fold(1 << 63, |word, (stack, bus)| word | u64::from(*bus) << (8 * stack))
}

/// The device of one CPU.
pub struct VirtualMsr {
    clock: MachineClock,
    map: Arc<MsrMap>,
    cpu: usize,
}

impl VirtualMsr {
    /// The device of a CPU.
    pub fn new(clock: MachineClock, map: Arc<MsrMap>, cpu: usize) -> VirtualMsr {
        VirtualMsr { clock, map, cpu }
    }
}

impl File for VirtualMsr {
    fn read(&self, offset: u64, len: usize, _: Caller) -> Result<Vec<u8>, Errno> {
        if !len.is_multiple_of(8) {
            return Err(Errno::INVAL);
        }
        // The kernel uses the lower 32 bits of the offset.
        let address = offset as u32;
        let value = self.clock.with(|server| self.map.read(server, self.cpu, address))?;
        let value = value.ok_or(Errno::IO)?;
        Ok(value.to_le_bytes().repeat(len / 8))
    }

    fn write(&self, offset: u64, data: &[u8], _: Caller) -> Result<usize, Errno> {
        if !data.len().is_multiple_of(8) {
            return Err(Errno::INVAL);
        }
        for (done, word) in data.chunks_exact(8).enumerate() {
            let value = u64::from_le_bytes(word.try_into().map_err(|_| Errno::INVAL)?);
            let written = self.clock.with(|server| self.map.write(server, self.cpu, offset as u32, value))?;
            if written.is_none() {
                return if done == 0 { Err(Errno::IO) } else { Ok(8 * done) };
            }
        }
        Ok(data.len())
    }

    /// Requires CAP_SYS_RAWIO, as the kernel does.
    fn open(&self, _: OpenAccess, caller: Caller) -> Result<(), Errno> {
        if caller.is_privileged() { Ok(()) } else { Err(Errno::PERM) }
    }

    fn mode(&self) -> u32 {
        0o600
    }
}
