//! perf_event_open on the machine that runs the tests: the kernel's software clocks replace PMU registers, which a
//! virtual machine does not have. Needs root or kernel.perf_event_paranoid of 0 or less.

use waykeeper_host::Reading;
use waykeeper_kernel::counting::{Counting, SampledQuantity, TransferDirection};
use waykeeper_kernel::perf::{EncodedEvent, PerfCounting, PerfGroup, PlannedEvent, PlannedGroup, Where};
use waykeeper_units::CoreId;

/// PERF_TYPE_SOFTWARE, and of it PERF_COUNT_SW_CPU_CLOCK (ns) and PERF_COUNT_SW_DUMMY (perf_event_open(2)).
const CLOCK: EncodedEvent = EncodedEvent { pmu: 1, config: [0, 0, 0] };
const DUMMY: EncodedEvent = EncodedEvent { pmu: 1, config: [9, 0, 0] };

fn group(place: Where, events: &[(EncodedEvent, SampledQuantity, f64)]) -> PlannedGroup {
    let members = events.iter().map(|(event, quantity, stands_for)| PlannedEvent {
        name: format!("{quantity:?}"),
        event: *event,
        quantity: *quantity,
        stands_for: *stands_for,
    });
    PlannedGroup { place, cpu: 0, members: members.collect() }
}

const CYCLES: SampledQuantity = SampledQuantity::Core(CoreId(0), 0);
const INSTRUCTIONS: SampledQuantity = SampledQuantity::Core(CoreId(0), 1);
const MEMORY: SampledQuantity = SampledQuantity::Memory(TransferDirection::Read);

fn value(reading: Reading<u64>) -> u64 {
    reading.value().unwrap_or_else(|| panic!("{reading:?} is no value"))
}

#[test]
fn a_group_is_read_by_one_call_from_here_and_from_the_pinned_thread() {
    let plan = vec![
        group(Where::Core, &[(CLOCK, CYCLES, 1.0), (DUMMY, INSTRUCTIONS, 1.0)]),
        group(Where::Uncore, &[(CLOCK, MEMORY, 64.0)]),
    ];
    let mut counting = PerfCounting::open(plan).expect("not run: needs perf_event_open");
    assert_eq!(counting.reads_per_sample(), 2);
    let mut last = (0, 0);
    for _ in 0..5 {
        std::thread::sleep(std::time::Duration::from_millis(2));
        let counts = counting.count();
        assert_eq!(counts.problems(), [""; 0]);
        let now = (value(counts.get(CYCLES)), value(counts.get(MEMORY)));
        assert!(now.0 > last.0 && now.1 > last.1, "a clock goes on: {last:?} to {now:?}");
        assert_eq!(
            counts.get(INSTRUCTIONS),
            Reading::Value(0),
            "a dummy counts nothing, which is not no answer"
        );
        last = now;
    }
    counting.close();
    assert_eq!(counting.count().get(CYCLES), Reading::Unsupported, "closed");
}

#[test]
fn an_uncore_event_the_kernel_does_not_know_is_noted_and_one_of_a_core_ends_it() {
    // No PMU has this number.
    let unknown = EncodedEvent { pmu: 0xffff_fff0, config: [0, 0, 0] };
    let plan =
        |place| vec![group(Where::Core, &[(CLOCK, CYCLES, 1.0)]), group(place, &[(unknown, MEMORY, 64.0)])];
    let mut counting = PerfCounting::open(plan(Where::Uncore))
        .expect("not run: needs perf_event_open: the core's event is good");
    assert_eq!(counting.notes().len(), 1);
    assert!(
        counting.notes()[0].starts_with("perf event Memory(Read) on CPU 0: No such"),
        "{}",
        counting.notes()[0]
    );
    assert_eq!(counting.count().get(MEMORY), Reading::Unsupported);
    let error = PerfCounting::open(plan(Where::Core)).unwrap_err().to_string();
    assert!(error.contains("this kernel does not count it on this CPU"), "{error}");
}

#[test]
fn an_empty_group_has_no_answer() {
    let mut empty = PerfGroup::open(&[], 0).expect("nothing is opened");
    assert!(empty.read().is_err());
}
