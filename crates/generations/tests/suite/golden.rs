//! Every encoding of every generation as register words and as perf writes it, stored as a snapshot: a changed table
//! shows as changed words. Numbers worked out by hand are in `tables.rs`.

use std::fmt::Write;
use waykeeper_generations::{Generation, Pmu, Terms};

fn event(out: &mut String, what: &str, pmu: &Pmu, terms: &Terms) {
    let words = pmu.program(terms).expect("every term has a field");
    let filter =
        |name: &str, word: Option<u64>| word.map(|word| format!(" {name} {word:#x}")).unwrap_or_default();
    let filters = filter("filter0", words.filter0) + &filter("filter1", words.filter1);
    writeln!(out, "  {what}: {}/{terms}/ control {:#x}{filters}", pmu.perf, words.control).unwrap();
}

fn place(out: &mut String, pmu: &Pmu) {
    writeln!(out, "  {}: {} counters of {} bits, {:?}", pmu.perf, pmu.counters, pmu.width, pmu.boxes)
        .unwrap();
    let Some(registers) = &pmu.registers else {
        writeln!(out, "    by perf only").unwrap();
        return;
    };
    for block in &registers.blocks {
        for number in [block.first, block.first + block.count - 1] {
            let addresses: Vec<String> = registers
                .written(number, pmu.counters)
                .iter()
                .map(|address| format!("{address:#x}"))
                .collect();
            writeln!(out, "    box {number} ({:?}): {}", registers.space, addresses.join(" ")).unwrap();
        }
    }
}

fn reported(generation: &Generation) -> String {
    let mut out = String::new();
    let core = &generation.core;
    writeln!(out, "{}: {}", generation.id, generation.name).unwrap();
    for rule in &generation.signatures {
        writeln!(
            out,
            "  {}: family {} models {:?} {:?}",
            rule.code, rule.family, rule.models, rule.steppings
        )
        .unwrap();
    }
    writeln!(out, "core").unwrap();
    for (name, event) in &core.events {
        let word = core.select(&event.terms).expect("every term has a field");
        writeln!(out, "  {name}: {}/{}/ select {word:#x} fixed {:?}", core.perf, event.terms, event.fixed)
            .unwrap();
    }
    for (name, quantity) in core.quantities.named() {
        writeln!(out, "  {name} = {} less {}", quantity.plus.join(" + "), quantity.minus.join(" + "))
            .unwrap();
    }
    if let Some(cache) = &generation.cache {
        writeln!(out, "cache").unwrap();
        for request in &cache.requests {
            let kinds = [("all", &request.all), ("hit", &request.hit), ("miss", &Some(request.miss.clone()))];
            for (kind, terms) in kinds {
                let name = format!("{} {:?} {kind}", request.opcode, request.role);
                terms.iter().for_each(|terms| event(&mut out, &name, &cache.pmu, terms));
            }
        }
        place(&mut out, &cache.pmu);
    }
    if let Some(shared) = &generation.shared_cache {
        writeln!(out, "shared cache").unwrap();
        event(&mut out, "hits", &shared.pmu, &shared.hits);
        event(&mut out, "misses", &shared.pmu, &shared.misses);
        place(&mut out, &shared.pmu);
    }
    if let Some(iio) = &generation.iio {
        writeln!(out, "iio").unwrap();
        for part in [0, iio.parts - 1] {
            event(&mut out, &format!("in, part {part}"), &iio.pmu, &iio.of_part(&iio.inbound, part));
            event(&mut out, &format!("out, part {part}"), &iio.pmu, &iio.of_part(&iio.outbound, part));
        }
        place(&mut out, &iio.pmu);
        if let Some(free) = &iio.free_running {
            let last = iio.pmu.registers.as_ref().map_or(0, |map| map.boxes() - 1);
            for (way, set) in [("in", Some(&free.inbound)), ("out", free.outbound.as_ref())] {
                let Some(set) = set else { continue };
                let at = |number, part| set.address(number, part).map(|address| format!("{address:#x}"));
                let ends = [at(0, 0), at(0, set.parts - 1), at(last, 0)];
                writeln!(
                    out,
                    "  free running {way}: {} bits, {} bytes, {ends:?}",
                    free.width, free.unit_bytes
                )
                .unwrap();
            }
        }
    }
    if let Some(memory) = &generation.memory {
        writeln!(out, "memory").unwrap();
        memory.reads.iter().for_each(|read| event(&mut out, "read", &memory.pmu, &read.terms));
        memory.writes.iter().for_each(|write| event(&mut out, "write", &memory.pmu, &write.terms));
        place(&mut out, &memory.pmu);
    }
    let dca = &generation.dca;
    writeln!(out, "dca ways {:?}, port {:?}", dca.ways.evidence, dca.port.evidence).unwrap();
    writeln!(out, "resctrl {:?}", generation.resctrl).unwrap();
    for erratum in &generation.errata {
        writeln!(out, "erratum {:?} of {}", erratum.kind, erratum.codes.join(", ")).unwrap();
    }
    out
}

#[test]
fn encodings_of_every_generation() {
    for generation in Generation::all() {
        insta::assert_snapshot!(generation.id.clone(), reported(generation));
    }
}
