//! The tables as a whole: they parse, no CPU is two generations, and numbers worked out by hand from hardware.md.

use waykeeper_generations::*;

fn intel(model: u16, stepping: u8) -> Signature {
    Signature { vendor: Vendor::Intel, family: 6, model, stepping }
}

fn generation(id: &str) -> &'static Generation {
    Generation::by_id(id).unwrap()
}

#[test]
fn unknown_hardware_is_no_generation() {
    assert!(Generation::find(&intel(42, 7)).is_none(), "Sandy Bridge is not described");
    let amd = Signature { vendor: Vendor::Amd, ..intel(85, 4) };
    assert!(Generation::find(&amd).is_none(), "the vendor counts");
    assert!(Generation::find(&Signature { family: 7, ..intel(85, 4) }).is_none());
}

#[test]
fn steppings_tell_skylake_cascade_lake_and_cooper_lake_apart() {
    let code = |stepping| Generation::find(&intel(85, stepping)).and_then(|g| g.code(&intel(85, stepping)));
    assert_eq!([code(4), code(7), code(11)], [Some("SKX"), Some("CLX"), Some("CPX")]);
    let skx = generation("skx");
    let quirk = ErratumKind::MonitoringNeedsBootOption;
    assert!(skx.erratum(quirk, &intel(85, 4)).is_some());
    assert!(skx.erratum(quirk, &intel(85, 7)).is_none(), "hardware.md 7.2: only up to stepping 4");
}

#[test]
fn filters_of_skylake_are_the_published_words() {
    // hardware.md 3.2: PCIRdCur 0x43C33, RFO 0x40033, ItoM 0x49033; I/O hit 0x14, miss 0x24, both 0x34.
    let cache = generation("skx").cache.as_ref().unwrap();
    let words = |opcode: &str| {
        let request = cache.requests.iter().find(|request| request.opcode == opcode).unwrap();
        let hit = cache.pmu.program(request.hit.as_ref().unwrap()).unwrap();
        let miss = cache.pmu.program(&request.miss).unwrap();
        let all = cache.pmu.program(request.all.as_ref().unwrap()).unwrap();
        assert_eq!((hit.filter0, hit.filter1), (None, miss.filter1));
        assert_eq!(all.filter1, hit.filter1);
        (hit.control, miss.control, all.control, hit.filter1.unwrap())
    };
    assert_eq!(words("ItoM"), (0x401435, 0x402435, 0x403435, 0x49033));
    assert_eq!(words("RFO").3, 0x40033);
    assert_eq!(words("PCIRdCur").3, 0x43c33);
}

#[test]
fn registers_of_skylake_lie_where_the_manual_says() {
    let skx = generation("skx");
    let cha = skx.cache.as_ref().unwrap().pmu.registers.as_ref().unwrap();
    // CHA 27: 0xE00 + 0x10 * 27 = 0xFB0.
    assert_eq!(cha.box_control_of(27), Some(0xfb0));
    assert_eq!((cha.control_of(1, 3), cha.counter_of(1, 3)), (Some(0xe14), Some(0xe1b)));
    assert_eq!(cha.address(28), None);
    let iio = skx.iio.as_ref().unwrap();
    let registers = iio.pmu.registers.as_ref().unwrap();
    assert_eq!((registers.control_of(2, 0), registers.counter_of(2, 1)), (Some(0xa88), Some(0xa82)));
    // hostCC's Cascade Lake parameters use 0xB20 and 0xB24 for stack 2.
    let free = iio.free_running.as_ref().unwrap();
    assert_eq!(
        (free.inbound.address(2, 0), free.outbound.unwrap().address(2, 0)),
        (Some(0xb20), Some(0xb24))
    );
    // Part 2 of a stack: 0x83, umask 1, ch_mask 1 << 2 at bit 36, fc_mask 7 at bit 44, enable bit 22.
    let event = iio.of_part(&iio.inbound, 2);
    assert_eq!(iio.pmu.program(&event).unwrap().control, 0x0000_7040_0040_0183);
}
