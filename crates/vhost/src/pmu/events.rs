//! Maps events to the machine's counters with the generation's tables.
//!
//! An event in no table counts 0, like an event that never happens. It must not know registers' addresses.

use super::boxes::EventSelect;
use super::core::CountedCoreEvent;
use waykeeper_generations::{
    CoreCounterTable, FieldRegister, Generation, Iio, LlcCounterTable, MemoryCounterTable, Pmu, Role,
    SharedCache, Terms,
};
use waykeeper_machine::{CoreCounts, DcaCounts, MemoryBytes};

type OfCore = fn(&CoreCounts) -> u64;

/// The machine's count for a core's event, by the vendor's name; `None` for an event that the model does not have.
fn of_core(name: &str) -> Option<OfCore> {
    Some(match name {
        "INST_RETIRED.ANY" | "ex_ret_instr" => |c| c.instructions,
        "CPU_CLK_UNHALTED.THREAD" | "CPU_CLK_UNHALTED.REF_TSC" | "ls_not_halted_cyc" => |c| c.cycles,
        "LONGEST_LAT_CACHE.REFERENCE" => |c| c.llc_hits + c.llc_misses,
        "LONGEST_LAT_CACHE.MISS" => |c| c.llc_misses,
        "L2_RQSTS.REFERENCES" | "L2_REQUEST.ALL" | "L2_RQSTS.ALL_DEMAND_REFERENCES" => {
            |c| c.mlc_hits + c.mlc_misses
        }
        // Programs of the model make only demand accesses, and each miss fills one line.
        "L2_RQSTS.MISS" | "L2_REQUEST.MISS" | "L2_RQSTS.ALL_DEMAND_MISS" | "L2_LINES_IN.ALL" => {
            |c| c.mlc_misses
        }
        "l2_cache_req_stat.ic_dc_hit_in_l2" => |c| c.mlc_hits,
        "l2_cache_req_stat.ic_dc_miss_in_l2" => |c| c.mlc_misses,
        // The model fills lines only for demand accesses, so a fill's source is where the access was served.
        "ls_any_fills_from_sys.local_ccx" => |c| c.llc_hits,
        "ls_any_fills_from_sys.beyond_ccx" => |c| c.llc_misses,
        _ if name.ends_with(".L3_HIT") => |c| c.llc_hits,
        _ if name.ends_with(".L3_MISS") => |c| c.llc_misses,
        _ if name.ends_with(".L2_HIT") => |c| c.mlc_hits,
        _ if name.ends_with(".L2_MISS") => |c| c.mlc_misses,
        _ => return None,
    })
}

/// The events of a core.
#[derive(Clone, Debug)]
pub struct KnownCoreEvents {
    /// Bits of a select register that distinguish events.
    compared: u64,
    known: Vec<(u64, OfCore)>,
    fixed: Vec<(u8, OfCore)>,
}

impl KnownCoreEvents {
    /// The events of a table.
    pub fn new(core: &CoreCounterTable) -> KnownCoreEvents {
        let all_ones = |width: u32| if width >= 64 { u64::MAX } else { (1 << width) - 1 };
        let fields = core.fields.values();
        let compared = fields.filter_map(|field| field.place(all_ones(field.width()))).fold(0, |a, b| a | b);
        let mut events = KnownCoreEvents { compared, known: Vec::new(), fixed: Vec::new() };
        for (name, event) in &core.events {
            let Some(of) = of_core(name) else { continue };
            events.known.extend(core.select(&event.terms).map(|word| (word & compared, of)));
            events.fixed.extend(event.fixed.map(|index| (index, of)));
        }
        // Reference cycles (hardware.md 6.1: fixed 2 on every generation); turbo is off, so they are the cycles.
        if events.fixed.iter().all(|(index, _)| *index != 2) {
            events.fixed.push((2, |counts| counts.cycles));
        }
        events
    }

    /// The present count of an event on a core with these counts.
    pub fn count(&self, event: CountedCoreEvent, counts: &CoreCounts) -> u64 {
        let of = match event {
            CountedCoreEvent::Select(select) => {
                self.known.iter().find(|(word, _)| *word == select & self.compared).map(|(_, of)| of)
            }
            CountedCoreEvent::Fixed(index) => {
                self.fixed.iter().find(|(known, _)| *known == index).map(|(_, of)| of)
            }
        };
        of.map_or(0, |of| of(counts))
    }
}

/// Whether a counter counts this event. Filters with two opcodes count both (Skylake's OPC0 and OPC1).
fn selects(pmu: &Pmu, event: EventSelect, terms: &Terms) -> bool {
    let holds = |name: &str| {
        let field = pmu.fields.get(name)?;
        let word = match field.register {
            FieldRegister::Control => event.select,
            FieldRegister::Filter0 => event.filters[0],
            FieldRegister::Filter1 => event.filters[1],
        };
        Some(field.take(word))
    };
    let wanted = |(name, value): (&str, u64)| {
        holds(name) == Some(value) || (name == "filter_opc0" && holds("filter_opc1") == Some(value))
    };
    // With edge detection, inversion or a threshold it is another event.
    let plain = ["edge", "inv", "thresh"]
        .iter()
        .all(|name| terms.get(name).is_some() || holds(name).is_none_or(|value| value == 0));
    plain && terms.iter().all(wanted)
}

/// The events of device requests at the LLC's slices.
#[derive(Clone, Copy, Debug)]
pub struct CacheEvents<'a>(pub &'a LlcCounterTable);

impl CacheEvents<'_> {
    /// The present count of an event, all slices together.
    pub fn count(self, event: EventSelect, dca: &DcaCounts) -> u64 {
        let mut seen = Vec::new();
        let mut sum = 0;
        for request in &self.0.requests {
            // Where two opcodes mean the same kind of request, the model's devices send the first.
            let first = !seen.contains(&request.role);
            seen.push(request.role);
            let (hits, misses) = match request.role {
                _ if !first => (0, 0),
                Role::FullWrite => (dca.write_hits, dca.write_misses),
                Role::PartialWrite => (dca.partial_hits, dca.partial_misses),
                Role::Read => (dca.read_hits, dca.read_misses),
            };
            let is = |terms: &Option<Terms>| {
                terms.as_ref().is_some_and(|terms| selects(&self.0.pmu, event, terms))
            };
            if selects(&self.0.pmu, event, &request.miss) {
                sum += misses;
            } else if is(&request.hit) {
                sum += hits;
            } else if is(&request.all) {
                sum += hits + misses;
            }
        }
        sum
    }
}

/// The events of a PCIe stack.
#[derive(Clone, Copy, Debug)]
pub struct IioEvents<'a>(pub &'a Iio);

impl IioEvents<'_> {
    /// The present count of an event on a stack whose parts moved these bytes, inbound and outbound.
    pub fn count(self, event: EventSelect, parts: impl Iterator<Item = (u8, u64, u64)>) -> u64 {
        let iio = self.0;
        if !iio.counters.contains(&event.index) {
            return 0;
        }
        let chosen = iio.pmu.fields.get(&iio.part_term).map_or(0, |field| field.take(event.select));
        let (into, out) = (selects(&iio.pmu, event, &iio.inbound), selects(&iio.pmu, event, &iio.outbound));
        let bytes = |(part, inbound, outbound): (u8, u64, u64)| match chosen >> part & 1 {
            0 => 0,
            _ if into => inbound,
            _ if out => outbound,
            _ => 0,
        };
        parts.map(bytes).sum::<u64>() / u64::from(iio.unit_bytes)
    }
}

/// The events of a memory channel.
#[derive(Clone, Copy, Debug)]
pub struct MemoryEvents<'a>(pub &'a MemoryCounterTable);

impl MemoryEvents<'_> {
    /// The present count of an event, all channels together.
    pub fn count(self, event: EventSelect, bytes: &MemoryBytes) -> u64 {
        let memory = self.0;
        let is = |terms: &Terms| selects(&memory.pmu, event, terms);
        // If several events share the traffic (two half-channels), each counts its part.
        let part = |events: &[waykeeper_generations::MemoryEvent], bytes: u64| {
            let index = events.iter().position(|event| is(&event.terms));
            let lines = bytes / u64::from(memory.unit_bytes);
            index.map_or(0, |index| share(lines, index, events.len()))
        };
        part(&memory.reads, bytes.read) + part(&memory.writes, bytes.written)
    }
}

/// The events of a shared LLC that count requests of all cores.
#[derive(Clone, Copy, Debug)]
pub struct SharedEvents<'a>(pub &'a SharedCache);

impl SharedEvents<'_> {
    /// The present count of an event on an LLC whose cores have these counts together.
    pub fn count(self, event: EventSelect, cores: &CoreCounts) -> u64 {
        let is = |terms: &Terms| selects(&self.0.pmu, event, terms);
        match (is(&self.0.hits), is(&self.0.misses)) {
            (true, _) => cores.llc_hits,
            (_, true) => cores.llc_misses,
            _ => 0,
        }
    }
}

/// The share of a count in box `index` of `count`: addresses are hashed evenly over boxes (hardware.md 3.2). The shares
/// add up to the total, and none ever decreases.
pub fn share(total: u64, index: usize, count: usize) -> u64 {
    let (index, count) = (index as u64, count as u64);
    if index >= count { 0 } else { (total + count - 1 - index) / count }
}

/// The generation's events, where its tables have them.
#[derive(Clone, Debug)]
pub struct GenerationEvents {
    /// Events of its cores.
    pub core: KnownCoreEvents,
    generation: &'static Generation,
}

impl GenerationEvents {
    /// The events of a generation.
    pub fn new(generation: &'static Generation) -> GenerationEvents {
        GenerationEvents { core: KnownCoreEvents::new(&generation.core), generation }
    }

    /// Events of the LLC's slices.
    pub fn cache(&self) -> Option<CacheEvents<'static>> {
        self.generation.cache.as_ref().map(CacheEvents)
    }

    /// Events of the PCIe stacks.
    pub fn iio(&self) -> Option<IioEvents<'static>> {
        self.generation.iio.as_ref().map(IioEvents)
    }

    /// Events of the whole LLC.
    pub fn shared(&self) -> Option<SharedEvents<'static>> {
        self.generation.shared_cache.as_ref().map(SharedEvents)
    }

    /// Events of the memory channels.
    pub fn memory(&self) -> Option<MemoryEvents<'static>> {
        self.generation.memory.as_ref().map(MemoryEvents)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skylake() -> GenerationEvents {
        GenerationEvents::new(Generation::by_id("skx").unwrap())
    }

    #[test]
    fn a_cores_events_count_what_they_are_called() {
        let counts = CoreCounts {
            instructions: 1000,
            cycles: 500,
            mlc_hits: 70,
            mlc_misses: 30,
            llc_hits: 20,
            llc_misses: 10,
        };
        let events = skylake().core;
        let select = |word| events.count(CountedCoreEvent::Select(word), &counts);
        // hardware.md 6.1 and 6.2, with user, kernel and enable bits.
        assert_eq!((select(0x43_00c0), select(0x43_003c)), (1000, 500));
        assert_eq!((select(0x43_4f2e), select(0x43_412e)), (30, 10));
        assert_eq!((select(0x43_ff24), select(0x43_3f24)), (100, 30));
        assert_eq!((select(0x41_04d1), select(0x41_20d1)), (20, 10));
        assert_eq!(select(0x0143_412e), 0, "cycles with at least one miss are another event");
        assert_eq!(select(0x43_1234), 0, "no generation has this event");
        let fixed = |index| events.count(CountedCoreEvent::Fixed(index), &counts);
        assert_eq!((fixed(0), fixed(1), fixed(2), fixed(3)), (1000, 500, 500, 0));
    }

    #[test]
    fn a_slices_events_follow_umask_and_filter() {
        let dca = DcaCounts {
            write_hits: 100,
            write_misses: 20,
            partial_hits: 7,
            partial_misses: 3,
            read_hits: 50,
            read_misses: 5,
        };
        let events = skylake();
        let count = |select, filter1| {
            let event = EventSelect { index: 0, select, filters: [0, filter1] };
            events.cache().unwrap().count(event, &dca)
        };
        // hardware.md 3.2: hit, miss and both of ItoM, RFO and PCIRdCur.
        assert_eq!([count(0x40_1435, 0x49033), count(0x40_2435, 0x49033)], [100, 20]);
        assert_eq!(count(0x40_3435, 0x49033), 120);
        assert_eq!([count(0x40_1435, 0x40033), count(0x40_2435, 0x43c33)], [7, 5]);
        // Both opcodes at once, as intel-cmt-cat sets them.
        assert_eq!([count(0x40_1435, 0x1004_9033), count(0x40_2435, 0x1004_9033)], [107, 23]);
        assert_eq!([count(0x40_1436, 0x49033), count(0x40_1435, 0)], [0, 0]);
        assert_eq!(count(0x44_1435, 0x49033), 0, "edges of it are another event");
    }

    #[test]
    fn a_stack_counts_the_parts_it_is_asked_for_on_the_counters_that_can() {
        let events = skylake();
        let parts = [(0, 4000, 400), (2, 800, 8)];
        let count = |index, select| {
            let event = EventSelect { index, select, filters: [0; 2] };
            events.iio().unwrap().count(event, parts.into_iter())
        };
        // hardware.md 4.1: 0x83, umask 1 or 4, ch_mask in bits 36 to 43, fc_mask 7 in 44 to 46, four bytes a count.
        let word = |umask: u64, parts: u64| 0x40_0083 | umask << 8 | parts << 36 | 7 << 44;
        assert_eq!([count(0, word(1, 1)), count(1, word(1, 4))], [1000, 200]);
        assert_eq!([count(0, word(1, 0xf)), count(0, word(4, 0xf))], [1200, 102]);
        assert_eq!([count(2, word(1, 1)), count(0, word(2, 1)), count(0, word(1, 2))], [0, 0, 0]);
    }

    #[test]
    fn the_boxes_parts_add_up_and_never_go_back() {
        for total in 0..100 {
            assert_eq!((0..7).map(|index| share(total, index, 7)).sum::<u64>(), total);
            assert!((0..7).all(|index| share(total + 1, index, 7) >= share(total, index, 7)));
        }
        assert_eq!((share(9, 9, 7), share(9, 0, 0)), (0, 0));
    }
}
