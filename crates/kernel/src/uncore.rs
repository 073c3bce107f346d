//! The events that count at the boxes of the uncore: memory channels, and the PCIe stacks of root ports. [`crate::cha`]
//! has those of the LLC slices.
//!
//! perf and the programming of registers encode the same list. Must not know registers or files.

use crate::counting::{SampledQuantity, TransferDirection};
use crate::iio::StackPart;
use std::collections::BTreeSet;
use waykeeper_generations::{FreeRunningSet, Iio, MemoryCounterTable, Terms};

/// One event of one box.
#[derive(Clone, PartialEq, Debug)]
pub struct BoxEvent {
    /// The event.
    pub terms: Terms,
    /// What it counts.
    pub quantity: SampledQuantity,
    /// The factor for its count: bytes per count, or the number of slices that this one represents.
    pub stands_for: f64,
}

/// Bytes at a memory channel.
pub fn memory_events(memory: &MemoryCounterTable) -> Vec<BoxEvent> {
    let both = [(TransferDirection::Read, &memory.reads), (TransferDirection::Write, &memory.writes)];
    let all =
        both.into_iter().flat_map(|(direction, events)| events.iter().map(move |event| (direction, event)));
    all.map(|(direction, event)| BoxEvent {
        terms: event.terms.clone(),
        quantity: SampledQuantity::Memory(direction),
        stands_for: memory.unit_bytes.into(),
    })
    .collect()
}

/// How the bytes of the root ports at one PCIe stack are counted.
#[derive(Clone, PartialEq, Debug)]
pub struct StackEvents<R> {
    /// Number of the stack.
    pub stack: u16,
    /// Free-running counters, what each counts, and its bytes per count.
    pub running: Vec<(R, SampledQuantity, f64)>,
    /// Events for the stack's other counters.
    pub programmed: Vec<BoxEvent>,
    /// What cannot be counted.
    pub missing: Vec<String>,
}

/// Bytes at the root ports in `parts`, by the port's index: from free-running counters where `running` finds one, else
/// from programmed ones while any is left and `may_program` allows it for the stack.
pub fn stack_events<R>(
    iio: &Iio,
    parts: &[(u8, StackPart)],
    running: impl Fn(StackPart, &FreeRunningSet) -> Option<R>,
    may_program: impl Fn(u16) -> bool,
) -> Vec<StackEvents<R>> {
    let free = iio.free_running.as_ref();
    let unit_bytes = free.map_or(0.0, |free| free.unit_bytes.into());
    let directions = [
        (TransferDirection::Write, "in", &iio.inbound, free.map(|free| &free.inbound)),
        (TransferDirection::Read, "out", &iio.outbound, free.and_then(|free| free.outbound.as_ref())),
    ];
    let stacks: BTreeSet<u16> = parts.iter().map(|(_, place)| place.stack).collect();
    let of_stack = |stack: u16| {
        let mut events =
            StackEvents { stack, running: Vec::new(), programmed: Vec::new(), missing: Vec::new() };
        for (port, place) in parts.iter().filter(|(_, place)| place.stack == stack) {
            for (direction, way, terms, set) in directions {
                let quantity = SampledQuantity::Port(*port, direction);
                if let Some(counter) = set.and_then(|set| running(*place, set)) {
                    events.running.push((counter, quantity, unit_bytes));
                } else if events.programmed.len() < iio.counters.len() && may_program(stack) {
                    let terms = iio.of_part(terms, place.part);
                    events.programmed.push(BoxEvent { terms, quantity, stands_for: iio.unit_bytes.into() });
                } else {
                    let part = place.part;
                    events.missing.push(format!(
                        "bytes {way} at part {part} of stack {stack}: no counter is free there"
                    ));
                }
            }
        }
        events
    };
    stacks.into_iter().map(of_stack).collect()
}
