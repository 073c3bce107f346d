//! Patterns calculated by hand, and whole runs compared with arithmetic.

use super::*;
use crate::host::VirtualServer;
use crate::scenario::ScenarioSource;
use crate::server::RunOptions;
use waykeeper_host::Host;
use waykeeper_silicon::Sampling;
use waykeeper_units::DeviceId;

#[test]
fn workers_are_dealt_to_the_cores_in_turn() {
    let on = |workers, cores| -> Vec<u32> {
        let spec = Memload {
            shape: Shape::new(Pattern::Random, 1000, 32, 1, true).unwrap(),
            direction: BlockDirection::Read,
            workers,
            touch: Touch::None,
            resident: false,
            huge: false,
            filled: false,
            thesis: true,
            limits: LoadLimits::NONE,
            pages: 1,
            depth: 1,
            end: End::default(),
        };
        (0..cores).map(|thread| spec.workers_of(thread, cores)).collect()
    };
    assert_eq!(on(None, 3), [1, 1, 1]);
    assert_eq!(on(Some(5), 4), [2, 1, 1, 1]);
    assert_eq!(on(Some(2), 4), [1, 1, 0, 0]);
    assert_eq!(on(Some(8), 1), [8]);
}

/// One drive whose command takes 10 us and whose link moves 4.096 GB/s: 1 us a block.
fn run(program: &str, storage: &str) -> VirtualServer {
    run_at(program, storage, 1.0)
}

/// The same at a load of the drive.
fn run_at(program: &str, storage: &str, load: f64) -> VirtualServer {
    let text = format!(
        "name = \"m\"\nchip = \"e5-2630v3\"\nduration_s = 0.03\nwarmup_s = 0.01\nmeasure_s = 0.01\ntime_factor = 1\n\
         [model]\nquantum_ns = 500\n\
         [[storage]]\nname = \"s\"\ndrives = 1\nflash_us = 0\nflash_spread = 0\ncompletion_us = 2\n\
         drive_gb_per_s = 8\nlink_gb_per_s = 4.096\ncommand_us = 10\n{storage}\n\
         [[workload]]\nname = \"w\"\nprogram = \"memload\"\ncores = \"0\"\n{program}\n"
    );
    let scenario = ScenarioSource::parse("m.toml", &text, None).unwrap().read();
    let scenario = Arc::new(scenario.unwrap_or_else(|error| panic!("{error}")));
    let options = RunOptions { seed: 1, sample_seed: 1, sampling: Sampling::EXACT };
    let mut server = VirtualServer::new(scenario, options).unwrap();
    assert!(server.set_load(DeviceId(0), load));
    server.begin_stretch_at(20_000_000);
    server.wait_until(30_000_000).unwrap();
    server
}

#[track_caller]
fn near(ours: f64, wanted: f64, part: f64) {
    assert!((ours / wanted - 1.0).abs() < part, "{ours} for {wanted}");
}

#[test]
fn one_worker_takes_a_command_at_a_time() {
    // 10 us + 1 block of 1 us + 2 us + 3.65 us on the core: 16.65 us, 60060 commands/s.
    let commands = run("pattern = \"single\"", "").commands(0).unwrap();
    near(commands.commands_per_s, 1e9 / 16_650.0, 0.01);
    near(commands.blocks_per_s, 1e9 / 16_650.0, 0.01);
    near(commands.bytes_per_s, (4096.0 + 80.0) * 1e9 / 16_650.0, 0.01);
    // The published program moves two blocks and counts one: 17.65 us.
    let thesis = run("pattern = \"single\"\nprofile = \"thesis\"", "").commands(0).unwrap();
    near(thesis.blocks_per_s, 1e9 / 17_650.0, 0.01);
    // A flush moves nothing: 15.65 us.
    let flush = run("pattern = \"flush\"", "").commands(0).unwrap();
    near(flush.bytes_per_s, 80.0 * 1e9 / 15_650.0, 0.01);
    // A load without commands reports zero commands, not an absent value.
    assert_eq!(run("pattern = \"noop\"", "").commands(0).unwrap().commands_per_s, 0.0);
}

#[test]
fn a_load_of_the_drive_scales_commands_in_flight_and_rates() {
    let commands = |program: &str, load| run_at(program, "", load).commands(0).unwrap().commands_per_s;
    // A command of 16.65 us: one of two workers takes 60060 a second.
    near(commands("pattern = \"single\"\nworkers = 2", 0.5), 1e9 / 16_650.0, 0.02);
    assert_eq!(commands("pattern = \"single\"", 0.0), 0.0);
    let limited = "pattern = \"single\"\ncommands_per_s = 20000\nslots_per_s = 10000";
    near(commands(limited, 1.0), 20_000.0, 0.01);
    near(commands(limited, 0.25), 5000.0, 0.03);
}

#[test]
fn the_link_the_drive_and_the_controller_limit_workers() {
    // 31 blocks of 1 us: four workers fill the link, 1e6 blocks/s.
    let link = run("workers = 4", "").commands(0).unwrap();
    near(link.blocks_per_s, 1e6, 0.01);
    // The drive takes writes at 1.024 GB/s: 4 us a block.
    let drive = run("workers = 4\noperation = \"read\"", "write_gb_per_s = 1.024").commands(0).unwrap();
    near(drive.blocks_per_s, 0.25e6, 0.01);
    // The controller begins 100000 commands/s at most; without that, four workers bring 4 / 16.65 us.
    let slow = run("pattern = \"single\"\nworkers = 4", "commands_per_s = 100000").commands(0).unwrap();
    near(slow.commands_per_s, 1e5, 0.01);
    // A server of 10 us a command: 26.65 us for one worker, and 100000 commands/s for four. A flush does not pass it: 5
    // us of its own, 2 us and 3.65 us.
    let served = |workers: u32| {
        let load = format!("pattern = \"single\"\nresident = true\nworkers = {workers}");
        run(&load, "service_us = 10").commands(0).unwrap().commands_per_s
    };
    near(served(1), 1e9 / 26_650.0, 0.01);
    near(served(4), 1e5, 0.01);
    let flush = run("pattern = \"flush\"", "service_us = 10\nflush_us = 5").commands(0).unwrap();
    near(flush.commands_per_s, 1e9 / 10_650.0, 0.01);
    // The program's own limit: 5000 a second in slots of 1 ms; as published one more each.
    let limited = "pattern = \"single\"\ncommands_per_s = 5000\nslots_per_s = 1000";
    near(run(limited, "").commands(0).unwrap().commands_per_s, 5000.0, 0.03);
    let thesis = run(&format!("{limited}\nprofile = \"thesis\""), "");
    near(thesis.commands(0).unwrap().commands_per_s, 6000.0, 0.03);
}

#[test]
fn opcodes_count_commands_data_and_completions() {
    let server = run("pattern = \"single\"\nprofile = \"thesis\"\nworkers = 4", "");
    let (rate, opcodes) = (server.commands(0).unwrap().commands_per_s, server.opcodes().unwrap());
    let (itom, rfo, rdcur) = (opcodes.itom.unwrap(), opcodes.rfo.unwrap(), opcodes.pcie_rdcur.unwrap());
    // Two blocks of 64 lines a command, one completion; the command and one line of pages, for 8 KiB that begin
    // inside a page lie on three. On this chip hits are all accesses.
    near(itom.hits_per_s, 128.0 * rate, 0.01);
    near(rfo.hits_per_s, rate, 0.01);
    near(rdcur.hits_per_s, 2.0 * rate, 0.01);
    // The buffer of 1000 blocks was zeroed by the core and fits the LLC: nothing misses.
    assert!(itom.misses_per_s < 0.01 * itom.hits_per_s, "{itom:?}");
    let read = run("operation = \"read\"", "");
    let (rate, opcodes) = (read.commands(0).unwrap().commands_per_s, read.opcodes().unwrap());
    // 31 blocks on 31 pages: 30 entries of 8 B are four lines.
    near(opcodes.pcie_rdcur.unwrap().hits_per_s, (31.0 * 64.0 + 1.0 + 4.0) * rate, 0.01);
    assert_eq!(opcodes.itom.unwrap().hits_per_s, 0.0);
}

#[test]
fn a_buffer_beyond_the_cache_misses_unless_it_is_read_before() {
    let share = |program: &str| {
        let itom = run(&format!("workers = 4\nbuffer_blocks = 65536\nresident = true\n{program}"), "");
        let itom = itom.opcodes().unwrap().itom.unwrap();
        itom.misses_per_s / itom.hits_per_s
    };
    // 256 MiB: at most 20 of them are cached.
    assert!(share("") > 0.9);
    assert!(share("touch = \"always\"") < 0.1);
}
