//! The tables as a whole: they parse, no CPU belongs to two generations, and numbers worked out by hand from
//! hardware.md 1 to 6.

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
        (free.inbound.address(2, 0), free.outbound.as_ref().unwrap().address(2, 0)),
        (Some(0xb20), Some(0xb24))
    );
    // Part 2 of a stack: 0x83, umask 1, ch_mask 1 << 2 at bit 36, fc_mask 7 at bit 44, enable bit 22.
    let event = iio.of_part(&iio.inbound, 2);
    assert_eq!(iio.pmu.program(&event).unwrap().control, 0x0000_7040_0040_0183);
}

#[test]
fn every_table_is_read_and_no_cpu_is_two_generations() {
    let ids: Vec<&str> = Generation::all().iter().map(|generation| generation.id.as_str()).collect();
    assert_eq!(ids, ["hsx", "bdx", "skx", "icx", "spr", "emr", "gnr", "zen4", "zen5"]);
    for vendor in [Vendor::Intel, Vendor::Amd] {
        for (family, model) in (0..32).flat_map(|family| (0..256).map(move |model| (family, model))) {
            for stepping in 0..16 {
                let signature = Signature { vendor, family, model, stepping };
                let owners = Generation::all().iter().filter(|generation| generation.vendor == vendor);
                let rules = owners.flat_map(|generation| &generation.signatures);
                assert!(rules.filter(|rule| rule.takes(&signature)).count() <= 1, "{signature}");
            }
        }
    }
    // hardware.md 0.2, decimal: one of each line.
    let amd = |family, model| Signature { vendor: Vendor::Amd, family, model, stepping: 1 };
    let found =
        [intel(63, 2), intel(86, 3), intel(106, 6), intel(143, 8), intel(207, 2), intel(174, 1), amd(25, 17)];
    let ids = found.map(|signature| Generation::find(&signature).unwrap().id.as_str());
    assert_eq!(ids, ["hsx", "bdx", "icx", "spr", "emr", "gnr", "zen4"]);
    assert!(Generation::find(&amd(25, 1)).is_none(), "Milan is not described");
    assert!(Generation::find(&intel(175, 3)).is_none(), "Sierra Forest's core events are others");
}

#[test]
fn every_value_names_its_source() {
    let rests_on = ["hardware.md ", "linux:", "SDM", "APM", "AMD PPR"];
    for generation in Generation::all() {
        let text = toml::to_string(generation).unwrap();
        let sources: Vec<&str> = text.lines().filter(|line| line.starts_with("source = ")).collect();
        assert!(sources.len() > 10, "{}", generation.id);
        for source in sources {
            assert!(rests_on.iter().any(|place| source.contains(place)), "{}: {source}", generation.id);
        }
    }
}

#[test]
fn every_quantity_is_made_of_events_that_fit_the_counters() {
    for generation in Generation::all() {
        let core = &generation.core;
        let mut names: Vec<&String> = Vec::new();
        for (what, quantity) in core.quantities.named() {
            for name in quantity.plus.iter().chain(&quantity.minus) {
                assert!(core.events.contains_key(name), "{}: {what} is made of {name}", generation.id);
                names.push(name);
            }
        }
        names.sort();
        names.dedup();
        let programmed = names.iter().filter(|name| core.events[**name].fixed.is_none()).count();
        assert!(programmed <= usize::from(core.counters), "{}: {programmed} events at once", generation.id);
    }
}

#[test]
fn format_strings_say_what_the_fields_say() {
    // The kernel puts Filter0 at config1 bits 0 to 31 and Filter1 at 32 to 63 (hardware.md 3.2).
    for generation in Generation::all() {
        let cache = generation.cache.iter().map(|cache| &cache.pmu);
        let shared = generation.shared_cache.iter().map(|cache| &cache.pmu);
        let pmus = cache.chain(shared).chain(generation.iio.iter().map(|iio| &iio.pmu));
        let fields =
            pmus.chain(generation.memory.iter().map(|memory| &memory.pmu)).flat_map(|pmu| &pmu.fields);
        for (name, field) in fields.chain(&generation.core.fields) {
            let (word, shift) = match field.register {
                FieldRegister::Control => ("config", 0),
                FieldRegister::Filter0 => ("config1", 0),
                FieldRegister::Filter1 => ("config1", 32),
            };
            let piece = |[low, high]: &[u8; 2]| match low == high {
                true => format!("{}", low + shift),
                false => format!("{}-{}", low + shift, high + shift),
            };
            let pieces: Vec<String> = field.bits.iter().map(piece).collect();
            assert_eq!(field.format, format!("{word}:{}", pieces.join(",")), "{} {name}", generation.id);
        }
    }
}

#[test]
fn no_counter_register_is_a_knob_or_another_boxs() {
    for generation in Generation::all() {
        let written = generation.counter_msrs();
        assert!(written.windows(2).all(|pair| pair[0] < pair[1]));
        // IIO_LLC_WAYS, PQR_ASSOC, QM_*, L3 and L2 masks, MBA: hardware.md 7.5.
        let knobs = 0xc81..=0xd7f;
        assert!(!knobs.into_iter().any(|knob| written.binary_search(&knob).is_ok()), "{}", generation.id);
        let pmus =
            [generation.cache.as_ref().map(|cache| &cache.pmu), generation.iio.as_ref().map(|iio| &iio.pmu)];
        let mut all = Vec::new();
        for pmu in pmus.into_iter().flatten() {
            let registers = pmu.registers.as_ref().unwrap();
            (0..registers.boxes()).for_each(|number| all.extend(registers.written(number, pmu.counters)));
        }
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count, "{}: two boxes share a register", generation.id);
    }
}

#[test]
fn addresses_of_ice_lake_jump_where_the_manual_jumps() {
    // hardware.md 3.3: 0xE00 + 0xE n for n up to 17, so the last is 0xEEE; then 0xF0A; from 34 on 0xB60.
    let registers = generation("icx").cache.as_ref().unwrap().pmu.registers.as_ref().unwrap();
    let boxes = [0, 17, 18, 33, 34, 39].map(|number| registers.box_control_of(number).unwrap());
    assert_eq!(boxes, [0xe00, 0xeee, 0xf0a, 0xf0a + 15 * 0xe, 0xb60, 0xb60 + 5 * 0xe]);
    assert_eq!(registers.address(40), None);
    // Counter 2 of CHA 18: 0xF0A + 8 + 2.
    assert_eq!(registers.counter_of(18, 2), Some(0xf14));
    let iio = generation("icx").iio.as_ref().unwrap();
    let iio = [0, 1, 2, 3, 4, 5].map(|n| iio.pmu.registers.as_ref().unwrap().address(n).unwrap());
    assert_eq!(iio, [0xa50, 0xa70, 0xa90, 0xae0, 0xb00, 0xb20]);
}

#[test]
fn words_of_the_newer_generations_are_the_published_ones() {
    // hardware.md 3.2: raw control 0x00CC43FE_00000435 for ItoM misses; the enable bit 22 is set up to Ice Lake and
    // reserved from Sapphire Rapids.
    let miss = |id: &str, opcode: &str| {
        let cache = generation(id).cache.as_ref().unwrap();
        let request = cache.requests.iter().find(|request| request.opcode == opcode).unwrap();
        cache.pmu.program(&request.miss).unwrap().control
    };
    assert_eq!(miss("icx", "ItoM"), 0x00cc_43fe_0040_0435);
    assert_eq!(miss("spr", "ItoM"), 0x00cc_43fe_0000_0435);
    assert_eq!(miss("gnr", "ItoMCacheNear"), 0x00cd_43fe_0000_0435);
    assert_eq!(miss("emr", "PCIRdCur"), 0x00c8_f3fe_0000_0435);
    // GNR's event list writes part 0 as extension 0x00070010 of the upper half, part 7 as 0x00070800 (hardware.md 4.1).
    let iio = generation("gnr").iio.as_ref().unwrap();
    let word = |part| iio.pmu.program(&iio.of_part(&iio.inbound, part)).unwrap().control >> 32;
    assert_eq!((word(0), word(7)), (0x0007_0010, 0x0007_0800));
    // GNR's free-running counters: 0x360E + 0x80 a stack + 0x10 a port.
    let free = iio.free_running.as_ref().unwrap();
    assert_eq!(free.inbound.address(2, 3), Some(0x360e + 0x100 + 0x30));
}

#[test]
fn filters_of_haswell_are_the_published_words() {
    // hardware.md 3.2: opcode in Filter1 bits 28:20, so ItoM is 0x1C8 << 20; TID enable is control bit 19, Filter0 0x3E.
    let cache = generation("hsx").cache.as_ref().unwrap();
    let itom = cache.pmu.program(&cache.requests[0].miss).unwrap();
    assert_eq!((itom.control, itom.filter0, itom.filter1), (0x48_0335, Some(0x3e), Some(0x1c80_0000)));
    let read = cache.pmu.program(&cache.requests[2].miss).unwrap();
    assert_eq!((read.control, read.filter0, read.filter1), (0x40_0335, None, Some(0x19e0_0000)));
}

#[test]
fn only_what_was_shown_to_act_may_be_turned() {
    let evidence = |id: &str| (generation(id).dca.ways.evidence, generation(id).dca.port.evidence);
    use Evidence::*;
    assert_eq!(evidence("hsx"), (Confirmed, Claimed));
    assert_eq!(evidence("bdx"), (Claimed, Claimed));
    assert_eq!(evidence("skx"), (Confirmed, Confirmed));
    assert_eq!(evidence("icx"), (AnswersWithoutEffect, Absent));
    for id in ["spr", "emr", "gnr"] {
        assert_eq!(evidence(id), (Unknown, Unknown));
    }
    assert_eq!(evidence("zen5"), (Absent, Absent));
    for generation in Generation::all() {
        let port = &generation.dca.port;
        assert!(
            port.allocating.is_some() == matches!(port.evidence, Confirmed | Claimed),
            "{}",
            generation.id
        );
    }
}

#[test]
fn way_masks_keep_the_rules_of_the_chip() {
    use waykeeper_units::WayMask;
    let mask = WayMask::from_bits;
    // hardware.md 1.2, DDIOTune: w ways are the top w bits; ddio-bench's 0x7F0 is seven ways of eleven.
    let skx = generation("skx").dca.ways.register.as_ref().unwrap();
    let on_skx = |count| skx.with_ways(count, 11, mask(0x600));
    assert_eq!(on_skx(2), Some(mask(0x600)));
    assert_eq!(on_skx(7), Some(mask(0x7f0)));
    assert_eq!(on_skx(11), Some(mask(0x7ff)));
    assert_eq!((on_skx(1), on_skx(0), on_skx(12)), (None, None, None));
    assert!(skx.takes(mask(0x700), 11) && !skx.takes(mask(0x680), 11) && !skx.takes(mask(0x300), 11));
    // Haswell: power-on is 0x60000 of 20 ways, so three ways that keep it and reach the top are 0xE0000.
    let hsx = generation("hsx").dca.ways.register.as_ref().unwrap();
    let on_hsx = |count| hsx.with_ways(count, 20, mask(0x60000));
    assert_eq!((on_hsx(2), on_hsx(3)), (Some(mask(0x60000)), Some(mask(0xe0000))));
    assert_eq!(on_hsx(1), None);
    assert!(hsx.takes(mask(0xc0000), 20) && hsx.takes(mask(0xa0000), 20) && !hsx.takes(mask(0x30000), 20));
}

/// Event and unit mask.
fn code(terms: &Terms) -> (u64, u64) {
    (terms.get("event").unwrap(), terms.get("umask").unwrap_or(0))
}

#[test]
fn core_events_are_those_of_the_reference() {
    // hardware.md 6.1, event and unit mask; differences between generations are checked below.
    for id in ["hsx", "bdx", "skx", "icx", "spr", "emr", "gnr"] {
        let core = &generation(id).core;
        let event = |name: &str| core.events.get(name).map(|event| (code(&event.terms), event.fixed));
        let loads = if matches!(id, "hsx" | "bdx") { "MEM_LOAD_UOPS_RETIRED" } else { "MEM_LOAD_RETIRED" };
        assert_eq!(event("INST_RETIRED.ANY"), Some(((0xc0, 0), Some(0))), "{id}");
        assert_eq!(event("CPU_CLK_UNHALTED.THREAD"), Some(((0x3c, 0), Some(1))), "{id}");
        assert_eq!(event("LONGEST_LAT_CACHE.REFERENCE"), Some(((0x2e, 0x4f), None)), "{id}");
        assert_eq!(event("LONGEST_LAT_CACHE.MISS"), Some(((0x2e, 0x41), None)), "{id}");
        assert_eq!(event("L2_RQSTS.ALL_DEMAND_MISS"), Some(((0x24, 0x27), None)), "{id}");
        assert_eq!(event(&format!("{loads}.L3_HIT")), Some(((0xd1, 0x04), None)), "{id}");
        assert_eq!(event(&format!("{loads}.L3_MISS")), Some(((0xd1, 0x20), None)), "{id}");
        assert_eq!(event(&format!("{loads}.L2_MISS")), Some(((0xd1, 0x10), None)), "{id}");
        // Not in Ice Lake's list.
        let all = (id != "icx").then_some(((0x24, 0xff), None));
        assert_eq!(event("L2_RQSTS.REFERENCES"), all, "{id}");
        let misses = (id != "icx").then_some(((0x24, 0x3f), None));
        assert_eq!(event("L2_RQSTS.MISS"), misses, "{id}");
        let fills = match id {
            "hsx" | "bdx" => (0xf1, 0x07),
            "skx" | "icx" => (0xf1, 0x1f),
            _ => (0x25, 0x1f),
        };
        assert_eq!(event("L2_LINES_IN.ALL"), Some((fills, None)), "{id}");
    }
}

#[test]
fn memory_events_are_those_of_the_reference() {
    // hardware.md 5: reads and writes; from Granite Rapids on two half-channels.
    for (id, reads, writes) in [
        ("hsx", &[(0x04, 0x03)][..], &[(0x04, 0x0c)][..]),
        ("bdx", &[(0x04, 0x03)], &[(0x04, 0x0c)]),
        ("skx", &[(0x04, 0x03)], &[(0x04, 0x0c)]),
        ("icx", &[(0x04, 0x0f)], &[(0x04, 0x30)]),
        ("spr", &[(0x05, 0xcf)], &[(0x05, 0xf0)]),
        ("emr", &[(0x05, 0xcf)], &[(0x05, 0xf0)]),
        ("gnr", &[(0x05, 0xcf), (0x06, 0xcf)], &[(0x05, 0xf0), (0x06, 0xf0)]),
    ] {
        let memory = generation(id).memory.as_ref().unwrap();
        let codes =
            |events: &[MemoryEvent]| events.iter().map(|event| code(&event.terms)).collect::<Vec<_>>();
        assert_eq!((codes(&memory.reads), codes(&memory.writes)), (reads.to_vec(), writes.to_vec()), "{id}");
        assert_eq!(memory.unit_bytes, 64, "{id}");
    }
}

#[test]
fn port_counters_that_always_run_lie_where_the_reference_says() {
    // hardware.md 4.2: width, bytes a count, and the registers of part 1 of stack 2, in and out.
    for (id, width, unit, inbound, outbound) in [
        ("skx", 36, 4, Some(0xb21), Some(0xb25)),
        ("icx", 48, 32, Some(0xac1), None),
        ("spr", 48, 32, Some(0x3821), Some(0x3829)),
        ("emr", 48, 32, Some(0x3821), Some(0x3829)),
        ("gnr", 48, 32, Some(0x360e + 0x100 + 0x10), Some(0x2e0e + 0x100 + 0x10)),
    ] {
        let free = generation(id).iio.as_ref().unwrap().free_running.as_ref().unwrap();
        assert_eq!((free.width, free.unit_bytes), (width, unit), "{id}");
        assert_eq!(free.inbound.address(2, 1), inbound, "{id}");
        assert_eq!(free.outbound.as_ref().and_then(|set| set.address(2, 1)), outbound, "{id}");
    }
}
