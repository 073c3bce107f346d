//! The MLCs and the LLC of one socket, for one size of a line's tag.
//!
//! Knows neither time nor programs. This file decides MLC hits; the LLC's rules decide the rest. Everything here is
//! compiled twice, for tags of 16 and of 32 bits (line.rs).

use crate::audit::{MlcResident, Resident};
use crate::directory::Holder;
use crate::inclusive::Inclusive;
use crate::line::{Line, LineTag};
use crate::mlc;
use crate::noninclusive::NonInclusive;
use crate::rules::Rules;
use crate::shared::Shared;
use crate::simd::prefetch;
use crate::spec::{ChipSpec, LlcKind};
use crate::steering::{self, Placement, Tag};
use crate::{Fill, Level, Sampling};
use waykeeper_units::WayMask;

/// Prefetch distance in a device's transfer, in lines. Assumption: changes the speed of a run, never its result; not
/// measured on its own.
const DMA_AHEAD: usize = 4;

/// Hints between the two of one access ([`Socket::prefetch`]). Changes the speed of a run, never its result.
const VICTIM_AFTER: usize = 2;

/// The lines of a device's transfer, each with the line to prefetch at its turn.
#[inline(always)]
pub(crate) fn with_ahead(lines: &[Line]) -> impl Iterator<Item = (Line, Option<Line>)> + '_ {
    lines.iter().enumerate().map(|(index, line)| (*line, lines.get(index + DMA_AHEAD).copied()))
}

/// The LLC of a socket. `L` ways are stored.
#[derive(Clone, Debug)]
enum Llc<T, const L: usize> {
    NonInclusive(NonInclusive<T, L>),
    Inclusive(Inclusive<T>),
}

/// A call that both kinds of LLC have.
macro_rules! of_llc {
    ($llc:expr, $one:ident => $value:expr) => {
        match $llc {
            Llc::NonInclusive($one) => $value,
            Llc::Inclusive($one) => $value,
        }
    };
}

/// MLCs, LLC, memory.
#[derive(Clone, Debug)]
pub(crate) struct Socket<T, const L: usize> {
    pub shared: Shared<T>,
    llc: Llc<T, L>,
    /// The last accesses that were hinted at, as a ring that begins at `oldest`.
    hinted: [Option<(usize, Line)>; VICTIM_AFTER],
    oldest: usize,
}

impl<T: LineTag, const L: usize> Socket<T, L> {
    pub(crate) fn new(spec: &ChipSpec, rules: Rules, sampling: Sampling, seed: u64) -> Socket<T, L> {
        let mut shared = Shared::new(spec, rules, sampling, seed);
        let llc = match spec.llc.kind {
            LlcKind::NonInclusive => Llc::NonInclusive(NonInclusive::new(spec, &mut shared)),
            LlcKind::Inclusive => Llc::Inclusive(Inclusive::new(spec, &shared)),
        };
        Socket { shared, llc, hinted: [None; VICTIM_AFTER], oldest: 0 }
    }

    #[inline(always)]
    fn count(&mut self, core: usize, line: Line, level: Level) -> Level {
        self.shared.served_at(core, line)[level as usize] += 1;
        level
    }

    /// A program on `core` reads a line. If its MLC does not have it, the error is the index of the MLC's set.
    #[inline(always)]
    pub(crate) fn read_in_mlc(&mut self, core: usize, line: Line) -> Result<Level, usize> {
        let index = self.shared.mlc_index(core, T::set(line));
        let mlc = self.shared.mlc_at(index);
        let Some(way) = mlc.find(T::of(line)) else { return Err(index) };
        mlc.touch(way);
        if mlc.is_pushed(way) {
            mlc.unmark(way, mlc::PUSHED);
            self.shared.steering.pushed_payload_hit(core);
        }
        Ok(self.count(core, line, Level::Mlc))
    }

    /// A program on `core` writes a line. If its MLC does not have it, the error is the index of the MLC's set. The
    /// marks are those for which [`Socket::marked_write`] must follow.
    #[inline(always)]
    pub(crate) fn write_in_mlc(&mut self, core: usize, line: Line) -> Result<u64, usize> {
        let index = self.shared.mlc_index(core, T::set(line));
        let mlc = self.shared.mlc_at(index);
        let Some(way) = mlc.find(T::of(line)) else { return Err(index) };
        mlc.touch(way);
        mlc.add_flags(way, mlc::DIRTY);
        let marks = mlc.marks(way) & !mlc::PAYLOAD;
        if marks != 0 {
            mlc.unmark(way, marks);
        }
        self.count(core, line, Level::Mlc);
        Ok(marks)
    }

    /// Whether the MLC lacks a line; then the index of its set.
    #[inline(always)]
    pub(crate) fn lacks(&mut self, core: usize, line: Line) -> Option<usize> {
        let index = self.shared.mlc_index(core, T::set(line));
        self.shared.mlc_at(index).find(T::of(line)).is_none().then_some(index)
    }

    /// A read that missed the MLC.
    #[inline(always)]
    pub(crate) fn read_miss(&mut self, core: usize, index: usize, line: Line, fill: Fill) -> Level {
        self.shared.evictions.by_core(core);
        let level = match &mut self.llc {
            Llc::NonInclusive(llc) => llc.read_miss(&mut self.shared, core, index, line, fill),
            Llc::Inclusive(llc) => llc.read_miss(&mut self.shared, core, line, fill),
        };
        self.count(core, line, level)
    }

    /// A write that missed the MLC.
    #[inline(always)]
    pub(crate) fn write_miss(&mut self, core: usize, index: usize, line: Line, fill: Fill) -> Level {
        self.shared.evictions.by_core(core);
        let level = match &mut self.llc {
            Llc::NonInclusive(llc) => llc.write_miss(&mut self.shared, core, index, line, fill),
            Llc::Inclusive(llc) => llc.write_miss(&mut self.shared, core, line, fill),
        };
        self.count(core, line, level)
    }

    /// A write that hit a line with these marks.
    pub(crate) fn marked_write(&mut self, core: usize, line: Line, marks: u64) {
        if marks & mlc::PUSHED != 0 {
            self.shared.steering.pushed_payload_hit(core);
        }
        let elsewhere = marks & mlc::ELSEWHERE;
        if elsewhere == 0 {
            return;
        }
        match &mut self.llc {
            Llc::NonInclusive(llc) => llc.own_exclusively(&mut self.shared, core, line, elsewhere),
            Llc::Inclusive(llc) => llc.own_exclusively(&mut self.shared, core, line),
        }
    }

    /// A device writes a full line. Returns whether it was cached before.
    pub(crate) fn dma_write(&mut self, device: usize, line: Line) -> bool {
        self.shared.evictions.by_device(device);
        of_llc!(&mut self.llc, llc => llc.dma_write(&mut self.shared, device, line))
    }

    /// A device writes a part of a line. Returns whether it was cached before.
    pub(crate) fn dma_write_partial(&mut self, device: usize, line: Line) -> bool {
        let before = *self.shared.dca_at(device, line);
        let uncached = self.shared.device[device].writes_uncached;
        let cached = self.dma_write(device, line);
        let full = std::mem::replace(self.shared.dca_at(device, line), before);
        if full.write_misses > before.write_misses {
            self.shared.memory_read(line);
        }
        let device = &mut self.shared.device[device];
        device.writes_uncached = uncached;
        device.partial_hits += u64::from(cached);
        device.partial_misses += u64::from(!cached);
        cached
    }

    /// A device reads a line. Returns whether the caches served it.
    pub(crate) fn dma_read(&mut self, device: usize, line: Line) -> bool {
        self.shared.evictions.by_device(device);
        of_llc!(&mut self.llc, llc => llc.dma_read(&mut self.shared, device, line))
    }

    /// A device writes full lines, one after the other.
    pub(crate) fn dma_write_all(&mut self, device: usize, lines: &[Line]) {
        self.shared.evictions.by_device(device);
        match &mut self.llc {
            Llc::NonInclusive(llc) => llc.dma_write_all(&mut self.shared, device, lines),
            Llc::Inclusive(llc) => {
                for (line, ahead) in with_ahead(lines) {
                    ahead.into_iter().for_each(|ahead| llc.prefetch(ahead));
                    llc.dma_write(&mut self.shared, device, line);
                }
            }
        }
    }

    /// A device reads lines, one after the other.
    pub(crate) fn dma_read_all(&mut self, device: usize, lines: &[Line]) {
        self.shared.evictions.by_device(device);
        match &mut self.llc {
            Llc::NonInclusive(llc) => llc.dma_read_all(&mut self.shared, device, lines),
            Llc::Inclusive(llc) => {
                for (line, ahead) in with_ahead(lines) {
                    ahead.into_iter().for_each(|ahead| llc.prefetch(ahead));
                    llc.dma_read(&mut self.shared, device, line);
                }
            }
        }
    }

    /// A device writes full lines of a packet ([`crate::Chip::steered_write_all`]).
    pub(crate) fn steered_write_all(
        &mut self,
        device: usize,
        lines: &[Line],
        header: bool,
        placement: Placement,
        tag: Tag,
    ) {
        let Socket { shared, llc, .. } = self;
        shared.evictions.by_device(device);
        for (index, line) in lines.iter().enumerate() {
            match llc {
                Llc::NonInclusive(llc) => {
                    let tag = Tag { header: header && index == 0, ..tag };
                    let to = steering::target(placement, tag, shared.steering.status(tag.core));
                    llc.steered_write(shared, device, *line, tag, to);
                }
                Llc::Inclusive(llc) => drop(llc.dma_write(shared, device, *line)),
            }
        }
    }

    /// A device reads lines of packets that were destined to `core`.
    pub(crate) fn steered_read_all(&mut self, device: usize, lines: &[Line], core: usize) {
        self.shared.evictions.by_device(device);
        for line in lines {
            match &mut self.llc {
                Llc::NonInclusive(llc) => drop(llc.steered_read(&mut self.shared, device, *line, core)),
                Llc::Inclusive(llc) => drop(llc.dma_read(&mut self.shared, device, *line)),
            }
        }
    }

    /// Consumed buffers are invalidated without being written back. An inclusive LLC cannot.
    pub(crate) fn discard_all(&mut self, lines: &[Line]) {
        if let Llc::NonInclusive(llc) = &mut self.llc {
            for line in lines {
                llc.discard(&mut self.shared, *line);
            }
        }
    }

    /// A line leaves all caches ([`crate::Chip::flush_all`]).
    pub(crate) fn flush(&mut self, line: Line) {
        of_llc!(&mut self.llc, llc => llc.flush(&mut self.shared, line));
    }

    /// Where a read would be served ([`crate::Chip::level_of`]).
    pub(crate) fn level_of(&self, core: usize, line: Line) -> Level {
        let holds = |core| self.shared.mlc_ref(core, T::set(line)).find(T::of(line)).is_some();
        if holds(core) {
            return Level::Mlc;
        }
        let is_dirty = |core| {
            let set = self.shared.mlc_ref(core, T::set(line));
            set.find(T::of(line)).is_some_and(|way| set.flags(way) & mlc::DIRTY != 0)
        };
        match (&self.llc, of_llc!(&self.llc, llc => llc.has(line))) {
            // The other MLC has the newest data.
            (Llc::Inclusive(_), true) if (0..self.shared.cores()).any(is_dirty) => Level::Peer,
            (_, true) => Level::Llc,
            (_, false) if (0..self.shared.cores()).any(holds) => Level::Peer,
            (_, false) => Level::Memory,
        }
    }

    /// Hints that `core` will access `line` soon.
    ///
    /// If its MLC does not have the line, the access evicts another, whose set of the LLC is read too. The MLC's set says
    /// which line that is, and a hint only begins to fetch it: the victim's set follows [`VICTIM_AFTER`] hints later.
    #[inline(always)]
    pub(crate) fn prefetch(&mut self, core: usize, line: Line) {
        prefetch(self.shared.mlc(core, T::set(line)));
        self.prefetch_llc(line);
        let earlier = self.hinted[self.oldest].replace((core, line));
        self.oldest = (self.oldest + 1) % VICTIM_AFTER;
        let (Some((core, line)), Llc::NonInclusive(llc)) = (earlier, &self.llc) else { return };
        let set = T::set(line);
        let index = self.shared.mlc_index(core, set);
        if self.shared.mlc_at(index).find(T::of(line)).is_none()
            && let (_, Some(victim)) = self.shared.mlc_victim(index, set)
        {
            llc.prefetch(victim.line);
        }
    }

    /// Hints that a device will access `line` soon.
    #[inline(always)]
    pub(crate) fn prefetch_llc(&self, line: Line) {
        of_llc!(&self.llc, llc => llc.prefetch(line));
    }

    pub(crate) fn set_core_mask(&mut self, core: usize, mask: WayMask) {
        of_llc!(&mut self.llc, llc => llc.set_core_mask(core, mask));
    }

    pub(crate) fn core_mask(&self, core: usize) -> WayMask {
        of_llc!(&self.llc, llc => llc.core_mask(core))
    }

    pub(crate) fn set_dca_ways(&mut self, mask: WayMask) {
        of_llc!(&mut self.llc, llc => llc.set_dca_ways(mask));
    }

    pub(crate) fn set_group(&mut self, core: usize, group: u8) {
        self.shared.group_of[core] = group;
        self.shared.evictions.set_group(core, group);
    }

    pub(crate) fn residents(&self) -> Vec<Resident> {
        of_llc!(&self.llc, llc => llc.residents().collect())
    }

    pub(crate) fn mlc_residents(&self) -> Vec<MlcResident> {
        let sets = (0..self.shared.cores()).flat_map(|c| (0..self.shared.mlc_sets()).map(move |s| (c, s)));
        sets.flat_map(|(core, set)| {
            let mlc = self.shared.mlc_ref(core, set);
            mlc.tags().map(move |(way, _)| {
                let held = mlc.occupant(way, set).expect("the way has a tag");
                let has = |flag| held.flags & flag != 0;
                let (dirty, reused) = (has(mlc::DIRTY), has(mlc::REUSED));
                MlcResident { line: held.line, core, dirty, reused, payload: held.marks & mlc::PAYLOAD != 0 }
            })
        })
        .collect()
    }

    /// Lines in the directory, with the core that holds them: `None` for several.
    pub(crate) fn tracked(&self) -> Vec<(Line, Option<usize>)> {
        let Llc::NonInclusive(llc) = &self.llc else { return Vec::new() };
        let core = |holder| match holder {
            Holder::One { core, .. } => Some(core),
            Holder::Several => None,
        };
        llc.tracked().map(|(line, holder)| (line, core(holder))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DcaMode;
    use crate::slices::Slices;
    use rand_core::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro128PlusPlus;

    /// What a run left: the level of each access, and each line of each cache with its state.
    type Left = (Vec<Level>, Vec<bool>, Vec<String>);

    fn read<T: LineTag, const L: usize>(
        socket: &mut Socket<T, L>,
        core: usize,
        line: Line,
        fill: Fill,
    ) -> Level {
        socket.read_in_mlc(core, line).unwrap_or_else(|index| socket.read_miss(core, index, line, fill))
    }

    fn write<T: LineTag, const L: usize>(socket: &mut Socket<T, L>, core: usize, line: Line) -> Level {
        match socket.write_in_mlc(core, line) {
            Ok(marks) => {
                socket.marked_write(core, line, marks);
                Level::Mlc
            }
            Err(index) => socket.write_miss(core, index, line, Fill::Ordinary),
        }
    }

    /// A mix of all accesses to 8000 lines of a few sets.
    fn run<T: LineTag, const L: usize>(chip: &str, rules: Rules) -> Left {
        let spec = ChipSpec::built_in(chip).unwrap();
        let slices = Slices::new(&spec);
        let sampling = Sampling::one_in(128).unwrap();
        let mut socket = Socket::<T, L>::new(&spec, rules, sampling, 7);
        let mut rng = Xoshiro128PlusPlus::seed_from_u64(11);
        let (mut levels, mut cached) = (Vec::new(), Vec::new());
        for step in 0..60_000 {
            let (draw, pick) = (rng.next_u32(), rng.next_u32());
            // A line's address determines its slice.
            let (address, set) = (pick % 2000 + 3, pick >> 12 & 3);
            let line = T::pack(address, set, slices.of(address, set));
            let (core, device) = (draw as usize >> 8 & 3, draw as usize >> 10 & 1);
            match draw % 8 {
                0..3 => levels.push(read(&mut socket, core, line, Fill::Ordinary)),
                3 => levels.push(read(&mut socket, core, line, Fill::Stream)),
                4 | 5 => levels.push(write(&mut socket, core, line)),
                6 => cached.push(socket.dma_write(device, line)),
                _ => cached.push(socket.dma_read(device, line)),
            }
            if step % 4096 == 0 {
                socket.set_core_mask(core, WayMask::span(draw >> 16 & 3, 4));
                socket.shared.dca[1] = [DcaMode::On, DcaMode::Off][step / 4096 % 2];
            }
        }
        let place = |line: Line| (line.set(), slices.of(line.tag(), line.set() as u32), line.tag());
        let llc = socket
            .residents()
            .into_iter()
            .map(|l| format!("{:?} {:?}", place(l.line), (l.way, l.dirty, l.age)));
        let mlc = socket
            .mlc_residents()
            .into_iter()
            .map(|l| format!("{:?} {:?}", place(l.line), (l.core, l.dirty)));
        let directory =
            socket.tracked().into_iter().map(|(line, core)| format!("{:?} {core:?}", place(line)));
        let mut left: Vec<String> = llc.chain(mlc).chain(directory).collect();
        left.sort_unstable();
        (levels, cached, left)
    }

    #[test]
    fn a_chip_does_the_same_with_tags_of_either_size() {
        for chip in ["gold-6140", "e5-2630v3"] {
            for (name, rules) in Rules::variants().into_iter().filter(|(_, rules)| !rules.are_later()) {
                let (narrow, wide) = (run::<u16, 16>(chip, rules), run::<u32, 32>(chip, rules));
                assert!(narrow.2.len() > 200, "{} lines", narrow.2.len());
                assert!(narrow == wide, "{name} on {chip}");
            }
        }
    }
}
