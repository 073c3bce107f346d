//! IDIO's data path (algorithms.md 4.3), line by line on a small chip: the target of a device's line, and the counters.
//!
//! gem5 in small: no inclusive ways. Every probability 0. Drives the public interface.

use crate::common;

use common::{World, certain, skylake, spec};
use waykeeper_silicon::{DcaMode, Level, Line, PayloadTarget, Placement, SteeringCounters, Tag};

const MLC: Placement = Placement::Fixed(PayloadTarget::Mlc);
const LLC: Placement = Placement::Fixed(PayloadTarget::Llc);
const DRAM: Placement = Placement::Fixed(PayloadTarget::Dram);

/// 16 ways, DCA in the two leftmost; MLCs of 16 sets x 2 ways.
fn world() -> World {
    let llc = "kind = \"non-inclusive\"\nslices = 1\nsets = 16\nways = 16\ndca_ways = \"0xc000\"";
    World::new(&spec(llc), certain())
}

fn for_core(core: usize) -> Tag {
    Tag { core, header: false, latency_critical: false }
}

fn payload(w: &mut World, placement: Placement, line: Line) {
    w.chip.steered_write_all(0, &[line], false, placement, for_core(1));
}

fn header(w: &mut World, placement: Placement, line: Line) {
    w.chip.steered_write_all(0, &[line], true, placement, for_core(1));
}

fn counters(w: &World) -> SteeringCounters {
    w.chip.steering_counters(1).0
}

#[test]
fn a_line_for_the_llc_is_placed_in_the_dca_ways_as_by_ddio() {
    let mut w = world();
    let line = w.line();
    assert_eq!(w.memory(|w| payload(w, LLC, line)), (0, 0));
    let found = w.llc(line).unwrap();
    assert_eq!((found.way, found.dirty, found.io, found.age, found.payload), (15, true, true, 3, true));
    assert!(w.holders(line).is_empty());
    assert_eq!(counters(&w), SteeringCounters { received: 1, ..Default::default() });
}

#[test]
fn a_pushed_line_moves_on_to_the_mlc_of_its_core_and_leaves_the_llc() {
    let mut w = world();
    let line = w.line();
    assert_eq!(w.memory(|w| payload(w, MLC, line)), (0, 0));
    assert_eq!((w.llc(line), w.holders(line)), (None, vec![1]));
    let held = w.mlc(1, line).unwrap();
    assert!(held.dirty && held.payload && !held.reused);
    assert_eq!(counters(&w), SteeringCounters { received: 1, pushed: 1, ..Default::default() });
}

#[test]
fn a_pushed_line_serves_its_core_from_the_mlc_and_is_a_hit_once() {
    for write in [false, true] {
        let mut w = world();
        let line = w.line();
        payload(&mut w, MLC, line);
        for _ in 0..2 {
            assert_eq!(if write { w.write(1, line) } else { w.read(1, line) }, Level::Mlc);
        }
        let counted = counters(&w);
        assert_eq!((counted.pushed_hits, counted.core_misses, counted.untouched()), (1, 0, 0));
    }
}

#[test]
fn a_line_for_memory_leaves_no_copy_in_llc_or_mlc() {
    for before in [LLC, MLC] {
        let mut w = world();
        let line = w.line();
        payload(&mut w, before, line);
        assert_eq!(w.memory(|w| payload(w, DRAM, line)), (0, 1));
        assert_eq!((w.llc(line), w.holders(line)), (None, vec![]));
        assert_eq!((counters(&w).received, counters(&w).to_memory, counters(&w).cached()), (2, 1, 1));
        assert_eq!(w.read(1, line), Level::Memory);
    }
}

#[test]
fn with_idio_a_header_is_written_to_the_mlc_and_payload_where_the_status_says() {
    for (status, place) in [
        (PayloadTarget::Llc, Level::Llc),
        (PayloadTarget::Mlc, Level::Mlc),
        (PayloadTarget::Dram, Level::Memory),
    ] {
        let mut w = world();
        let [first, second] = [w.line(), w.line()];
        w.chip.set_steering_status(1, status);
        w.chip.steered_write_all(0, &[first, second], true, Placement::Dynamic, for_core(1));
        assert_eq!(w.read(1, first), Level::Mlc, "{status:?}");
        assert_eq!(w.read(1, second), place, "{status:?}");
    }
}

#[test]
fn a_critical_packet_is_written_to_the_llc_where_a_batch_packet_is_written_to_memory() {
    let mut w = world();
    let line = w.line();
    w.chip.set_steering_status(1, PayloadTarget::Dram);
    let tag = Tag { latency_critical: true, ..for_core(1) };
    assert_eq!(w.memory(|w| w.chip.steered_write_all(0, &[line], false, Placement::Dynamic, tag)), (0, 0));
    assert_eq!(w.llc(line).unwrap().way, 15);
    assert_eq!(counters(&w).to_memory, 0);
}

#[test]
fn the_status_of_a_flooded_core_falls_to_llc_in_the_middle_of_an_epoch() {
    // The MLC has 32 lines: 3 untouched are not more than 10 % (3.2), 4 are. All lines are of one set of two ways,
    // which does not matter: a line that was evicted untouched still counts as untouched.
    let mut w = world();
    w.chip.set_steering_status(1, PayloadTarget::Mlc);
    for expected in [PayloadTarget::Mlc, PayloadTarget::Mlc, PayloadTarget::Mlc, PayloadTarget::Llc] {
        let line = w.line();
        payload(&mut w, Placement::Dynamic, line);
        assert_eq!(w.chip.steering_status(1), expected);
    }
    let line = w.line();
    payload(&mut w, Placement::Dynamic, line);
    assert!(w.llc(line).is_some() && w.holders(line).is_empty());
}

#[test]
fn a_header_is_no_payload_and_counts_nowhere() {
    let mut w = world();
    let line = w.line();
    header(&mut w, MLC, line);
    assert!(!w.mlc(1, line).unwrap().payload);
    assert_eq!(w.read(1, line), Level::Mlc);
    assert_eq!(counters(&w), SteeringCounters::default());
}

#[test]
fn the_tag_travels_with_the_line_and_a_demand_from_the_llc_is_counted() {
    let mut w = world();
    let line = w.line();
    payload(&mut w, LLC, line);
    assert_eq!(w.read(1, line), Level::Llc); // demanded: 1
    assert!(w.mlc(1, line).unwrap().payload && w.llc(line).is_none());
    assert_eq!(w.read(1, line), Level::Mlc); // not pushed, hence no hit of a pushed line
    w.evict(1);
    assert!(w.llc(line).unwrap().payload, "dirty, and no device has written it again");
    assert_eq!(w.write(1, line), Level::Llc); // demanded: 2
    assert_eq!(counters(&w), SteeringCounters { received: 1, core_misses: 2, ..Default::default() });
}

#[test]
fn a_device_read_of_payload_is_counted_where_it_hits_the_llc_and_only_there() {
    let mut w = world();
    let [llc, mlc, memory] = [w.line(), w.line(), w.line()];
    payload(&mut w, LLC, llc);
    payload(&mut w, MLC, mlc);
    payload(&mut w, DRAM, memory);
    assert_eq!(w.memory(|w| w.chip.steered_read_all(0, &[llc, mlc, memory], 1)), (1, 0));
    assert_eq!(counters(&w).device_reads, 1);
    let device = w.chip.device_counters(0);
    assert_eq!((device.read_hits, device.read_misses), (2, 1));
    // Without inclusive ways the MLC's line cannot be copied.
    assert_eq!((w.llc(mlc), w.holders(mlc)), (None, vec![1]));
}

#[test]
fn a_dirty_line_without_room_in_its_mlc_is_one_write_back() {
    let mut w = world();
    let line = w.line();
    payload(&mut w, MLC, line);
    assert_eq!(w.chip.mlc_writebacks(1), 0);
    w.evict(1); // the line, and then two clean ones
    w.evict(1);
    assert_eq!((w.chip.mlc_writebacks(1), w.chip.mlc_writebacks(0)), (1, 0));
}

#[test]
fn a_discarded_buffer_is_written_back_nowhere() {
    for placement in [LLC, MLC] {
        let mut w = world();
        let line = w.line();
        payload(&mut w, placement, line);
        assert_eq!(w.memory(|w| w.chip.discard_all(&[line])), (0, 0));
        assert_eq!((w.llc(line), w.holders(line), w.chip.tracked()), (None, vec![], vec![]));
    }
}

#[test]
fn a_port_without_dca_cannot_steer() {
    let mut w = world();
    let line = w.line();
    w.dca(DcaMode::Off);
    assert_eq!(w.memory(|w| payload(w, MLC, line)), (0, 1));
    assert_eq!((w.llc(line), w.holders(line), counters(&w).pushed), (None, vec![], 0));
}

#[test]
fn with_inclusive_ways_a_pushed_line_migrates_as_any_line_that_is_read() {
    // algorithms.md 4.3: on the A4 model it would move to an inclusive way.
    let mut w = World::new(&skylake(), certain());
    let line = w.line();
    payload(&mut w, MLC, line);
    let copy = w.llc(line).unwrap();
    assert!(copy.way < 2 && copy.copied && !copy.dirty);
    assert!(w.mlc(1, line).unwrap().dirty);
    assert_eq!(w.chip.counters().migrations, 1);
}

#[test]
fn without_inclusive_ways_a_line_is_in_the_llc_or_in_an_mlc() {
    let mut w = world();
    let line = w.line();
    w.chip.dma_write(0, line);
    assert_eq!((w.read(0, line), w.llc(line)), (Level::Llc, None));
    assert!(w.chip.dma_read(0, line));
    assert_eq!((w.llc(line), w.holders(line)), (None, vec![0]));
    w.evict(0);
    assert!(w.llc(line).is_some() && w.holders(line).is_empty());
}

#[test]
fn whatever_is_steered_a_line_is_in_one_place_and_the_counts_add_up() {
    use rand_core::{Rng, SeedableRng};
    let mut rng = rand_xoshiro::Xoshiro128PlusPlus::seed_from_u64(5);
    let mut w = world();
    let lines: Vec<Line> = (0..60).map(|_| w.line()).collect();
    let (mut pushed, mut hits, mut written) = (0, 0, 0);
    for step in 0..20_000 {
        let draw = rng.next_u32();
        let line = lines[(draw >> 8) as usize % lines.len()];
        let core = (draw >> 4) as usize % 4;
        let tag = Tag { core, header: false, latency_critical: draw & 0x8000_0000 != 0 };
        let placement = [LLC, MLC, DRAM, Placement::Headers, Placement::Dynamic][(draw >> 20) as usize % 5];
        match draw % 8 {
            0..3 => {
                w.chip.steered_write_all(0, &[line], draw & 8 != 0, placement, tag);
                written += 1;
            }
            3..5 => drop(w.read(core, line)),
            5 => drop(w.write(core, line)),
            6 => w.chip.steered_read_all(0, &[line], core),
            _ => w.chip.discard_all(&[line]),
        }
        w.chip.set_steering_status(
            core,
            [PayloadTarget::Llc, PayloadTarget::Mlc, PayloadTarget::Dram][step % 3],
        );
        if step % 100 == 0 {
            for line in &lines {
                assert!(w.llc(*line).is_none() || w.holders(*line).is_empty(), "in the LLC and in an MLC");
            }
            let mut tracked: Vec<Line> = w.chip.tracked().into_iter().map(|(line, _)| line).collect();
            let mut held: Vec<Line> = w.chip.mlc_residents().into_iter().map(|held| held.line).collect();
            tracked.sort_unstable();
            held.sort_unstable();
            held.dedup();
            assert_eq!(tracked, held, "the directory knows what MLCs hold");
        }
        for core in 0..4 {
            let (counters, _) = w.chip.steering_counters(core);
            assert!(counters.pushed + counters.to_memory <= counters.received);
        }
    }
    for core in 0..4 {
        let (counters, _) = w.chip.steering_counters(core);
        (pushed, hits) = (pushed + counters.pushed, hits + counters.pushed_hits);
    }
    assert!(hits > 0 && hits <= pushed && pushed < written, "{hits} {pushed} {written}");
}
