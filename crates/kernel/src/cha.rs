//! Which device events each LLC slice (CHA, CBo) counts, and the factor by which its counts are multiplied.
//!
//! Where all events of a box share one filter (Haswell to Cascade Lake), full-line writes and reads cannot be counted
//! in the same slice. Addresses are hashed evenly over the slices, so even slices count writes, odd ones reads, and
//! each count is scaled up, about twofold: IAT's sampling method (hardware.md 3.2). Must not know registers or files.

use crate::counting::{DcaQuantity, SampledQuantity};
use crate::uncore::BoxEvent;
use waykeeper_generations::{IoRequestEvent, LlcCounterTable, Role, Terms};

/// The events of a slice, by its index and the number of slices.
pub type SliceEvents = fn(&LlcCounterTable, usize, usize) -> Vec<BoxEvent>;

/// The events of slice `index` of `slices`; empty if there is none for it.
pub fn slice_events(cache: &LlcCounterTable, index: usize, slices: usize) -> Vec<BoxEvent> {
    let write = cache.role(Role::FullWrite).next();
    let read = cache.role(Role::Read).next();
    if !cache.one_filter || slices < 2 || write.is_none() || read.is_none() {
        // With one filter and one slice only writes are counted: every policy decides by them.
        let read = read.filter(|_| !cache.one_filter || write.is_none());
        let both = write.map(|write| (WRITE, write)).into_iter().chain(read.map(|read| (READ, read)));
        return both.flat_map(|(names, request)| events(names, request, 1.0)).collect();
    }
    let writers = slices.div_ceil(2);
    let (names, request, share) =
        if index.is_multiple_of(2) { (WRITE, write, writers) } else { (READ, read, slices - writers) };
    let stands_for = slices as f64 / share as f64;
    request.into_iter().flat_map(|request| events(names, request, stands_for)).collect()
}

/// The events of slice `index` of `slices` where only devices are counted, with partial writes.
///
/// A slice has four counters; whole writes, reads and partial writes need at least two each. So the slices take turns
/// as above: one kind per slice where events share a filter; else whole writes and reads in every second slice and
/// partial writes in the others. With too few slices, the events of [`slice_events`] are counted.
pub fn device_events(cache: &LlcCounterTable, index: usize, slices: usize) -> Vec<BoxEvent> {
    let partial: Vec<&IoRequestEvent> = cache.role(Role::PartialWrite).collect();
    // Behind one filter a single opcode is counted: of two, the first, which devices use.
    let partial = if cache.one_filter { &partial[..partial.len().min(1)] } else { &partial[..] };
    let both: Vec<(Names, &IoRequestEvent)> = [(WRITE, Role::FullWrite), (READ, Role::Read)]
        .into_iter()
        .filter_map(|(names, role)| Some((names, cache.role(role).next()?)))
        .collect();
    let third: Vec<(Names, &IoRequestEvent)> = partial.iter().map(|request| (PARTIAL, *request)).collect();
    let turns: Vec<Vec<(Names, &IoRequestEvent)>> = match cache.one_filter {
        true => both.into_iter().map(|one| vec![one]).chain([third]).collect(),
        false => vec![both, third],
    };
    let turns: Vec<_> = turns.into_iter().filter(|turn| !turn.is_empty()).collect();
    if slices < turns.len() || turns.is_empty() {
        return slice_events(cache, index, slices);
    }
    let turn = index % turns.len();
    let share = (slices - turn).div_ceil(turns.len());
    let stands_for = slices as f64 / share as f64;
    turns[turn].iter().flat_map(|(names, request)| events(*names, request, stands_for)).collect()
}

/// True if writes and reads are counted in different slices.
pub fn is_split(cache: &LlcCounterTable, slices: usize) -> bool {
    cache.one_filter && slices > 1 && cache.role(Role::Read).next().is_some()
}

/// All requests, hits, misses.
type Names = [DcaQuantity; 3];
const WRITE: Names = [DcaQuantity::Writes, DcaQuantity::WriteHits, DcaQuantity::WriteMisses];
const PARTIAL: Names =
    [DcaQuantity::PartialWrites, DcaQuantity::PartialWriteHits, DcaQuantity::PartialWriteMisses];
const READ: Names = [DcaQuantity::Reads, DcaQuantity::ReadHits, DcaQuantity::ReadMisses];

/// The events of a request: hits if there is such an event, else all requests if there is one; then misses.
fn events([all, hits, misses]: Names, request: &IoRequestEvent, stands_for: f64) -> Vec<BoxEvent> {
    let event = |quantity, terms: &Terms| BoxEvent {
        quantity: SampledQuantity::Dca(quantity),
        terms: terms.clone(),
        stands_for,
    };
    let other = match (&request.hit, &request.all) {
        (Some(hit), _) => Some(event(hits, hit)),
        (None, Some(every)) => Some(event(all, every)),
        (None, None) => None,
    };
    other.into_iter().chain([event(misses, &request.miss)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use waykeeper_generations::Generation;

    fn cache(id: &str) -> &'static LlcCounterTable {
        Generation::by_id(id).unwrap().cache.as_ref().unwrap()
    }

    fn dca(event: BoxEvent) -> (DcaQuantity, f64) {
        let SampledQuantity::Dca(quantity) = event.quantity else { panic!("{:?}", event.quantity) };
        (quantity, event.stands_for)
    }

    fn quantities(id: &str, index: usize, slices: usize) -> Vec<(DcaQuantity, f64)> {
        slice_events(cache(id), index, slices).into_iter().map(dca).collect()
    }

    #[test]
    fn skylake_takes_turns_from_slice_to_slice() {
        use DcaQuantity as Q;
        assert_eq!(quantities("skx", 0, 18), [(Q::WriteHits, 2.0), (Q::WriteMisses, 2.0)]);
        assert_eq!(quantities("skx", 1, 18), [(Q::ReadHits, 2.0), (Q::ReadMisses, 2.0)]);
        // Of three slices, two count writes (factor 3/2) and one counts reads (factor 3).
        assert_eq!(quantities("skx", 2, 3), [(Q::WriteHits, 1.5), (Q::WriteMisses, 1.5)]);
        assert_eq!(quantities("skx", 1, 3), [(Q::ReadHits, 3.0), (Q::ReadMisses, 3.0)]);
        assert_eq!(quantities("skx", 0, 1), [(Q::WriteHits, 1.0), (Q::WriteMisses, 1.0)]);
        assert!(is_split(cache("skx"), 18) && !is_split(cache("skx"), 1));
    }

    #[test]
    fn ice_lake_counts_all_four_in_every_slice() {
        use DcaQuantity as Q;
        let all = [(Q::WriteHits, 1.0), (Q::WriteMisses, 1.0), (Q::ReadHits, 1.0), (Q::ReadMisses, 1.0)];
        for index in 0..3 {
            assert_eq!(quantities("icx", index, 40), all);
        }
        assert!(!is_split(cache("icx"), 40));
    }

    #[test]
    fn haswell_counts_all_and_misses() {
        use DcaQuantity as Q;
        assert_eq!(quantities("hsx", 4, 12), [(Q::Writes, 2.0), (Q::WriteMisses, 2.0)]);
        assert_eq!(quantities("hsx", 5, 12), [(Q::Reads, 2.0), (Q::ReadMisses, 2.0)]);
    }

    #[test]
    fn partial_writes_have_slices_of_their_own() {
        use DcaQuantity as Q;
        let of = |id: &str, index: usize, slices: usize| -> Vec<(DcaQuantity, f64)> {
            device_events(cache(id), index, slices).into_iter().map(dca).collect()
        };
        // Skylake, 18 slices: six for each kind.
        assert_eq!(of("skx", 3, 18), [(Q::WriteHits, 3.0), (Q::WriteMisses, 3.0)]);
        assert_eq!(of("skx", 4, 18), [(Q::ReadHits, 3.0), (Q::ReadMisses, 3.0)]);
        assert_eq!(of("skx", 5, 18), [(Q::PartialWriteHits, 3.0), (Q::PartialWriteMisses, 3.0)]);
        // Sapphire Rapids: two opcodes of partial writes fill a slice's four counters.
        let partial = [(Q::PartialWriteHits, 2.0), (Q::PartialWriteMisses, 2.0)];
        assert_eq!(of("spr", 1, 60), [partial, partial].concat());
        assert_eq!(of("spr", 0, 60).len(), 4);
        // Two slices are too few for three kinds.
        assert_eq!(of("hsx", 1, 2), [(Q::Reads, 2.0), (Q::ReadMisses, 2.0)]);
        for id in ["hsx", "bdx", "skx", "icx", "spr", "emr", "gnr"] {
            for slices in 3..30 {
                let most = cache(id).pmu.counters.into();
                for quantity in [Q::WriteMisses, Q::ReadMisses, Q::PartialWriteMisses] {
                    let of_slices = (0..slices).map(|index| device_events(cache(id), index, slices));
                    let mut sum = 0.0;
                    for events in of_slices {
                        assert!(events.len() <= most, "{id}: {} events in a slice", events.len());
                        // Two opcodes of one quantity are its parts; the slice's factor applies to both.
                        sum += events
                            .iter()
                            .find(|e| e.quantity == SampledQuantity::Dca(quantity))
                            .map_or(0.0, |e| e.stands_for);
                    }
                    assert!((sum - slices as f64).abs() < 1e-9, "{id} {slices} {quantity:?}: {sum}");
                }
            }
        }
    }

    #[test]
    fn the_slices_together_stand_for_all() {
        for id in ["hsx", "bdx", "skx", "icx", "spr", "emr", "gnr"] {
            for slices in 2..30 {
                for quantity in [DcaQuantity::WriteMisses, DcaQuantity::ReadMisses] {
                    let events = (0..slices).flat_map(|index| slice_events(cache(id), index, slices));
                    let sum: f64 = events
                        .map(dca)
                        .filter(|(own, _)| *own == quantity)
                        .map(|(_, stands_for)| stands_for)
                        .sum();
                    assert!((sum - slices as f64).abs() < 1e-9, "{id} {slices} {quantity:?}: {sum}");
                }
            }
        }
    }
}
