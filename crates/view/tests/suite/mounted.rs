//! A real daemon on a mounted virtual host: its socket and its recording give the same pictures, and an observed host writes
//! nothing.

use crate::common::{Viewer, event};
use std::fmt::Write as _;
use std::path::Path;
use std::time::{Instant, SystemTime};
use waykeeper_service::DaemonMode;
use waykeeper_service::config::{Config, Inputs};
use waykeeper_service::daemon::RunningDaemon;
use waykeeper_service::engine::SignalRequest;
use waykeeper_testbed::{MountedHost, PATIENCE, SCENARIO, scenario, wall_clock};
use waykeeper_units::WayMask;
use waykeeper_view::{
    DaemonSource, ObservedSource, Picture, RecordingSource, Source, SourceEvent, Turn, ViewModel,
};

/// A host whose clock runs, with so little traffic that the model keeps up on a busy machine.
fn machine() -> MountedHost {
    let light = SCENARIO.replace("time_factor = 5", "time_factor = 500");
    MountedHost::with(scenario("gold-6140", &light), wall_clock(256))
}

/// A daemon's configuration with the machine's tenants.
fn configured(machine: &MountedHost, folder: &Path, mode: &str) -> (Config, Inputs) {
    let mut text = format!(
        "[daemon]\nperiod_s = 0.1\nmode = {mode:?}\nroot = {:?}\njournal = {:?}\n[policy]\nname = \"default\"\n",
        machine.root().prefix(),
        machine.journal(),
    );
    let _ = match mode {
        "observe" => write!(text, "[socket]\npath = \"off\"\n[recorder]\ndir = \"off\"\n"),
        _ => write!(
            text,
            "[socket]\npath = {:?}\n[recorder]\ndir = {:?}\n",
            folder.join("socket"),
            folder.join("recording")
        ),
    };
    for tenant in machine.tenants.iter().filter(|_| mode != "observe") {
        let _ =
            write!(text, "[[tenant]]\nname = {:?}\ncores = {:?}\n", tenant.name, tenant.cores.to_string());
    }
    let file = folder.join("waykeeper.toml");
    std::fs::write(&file, text).unwrap();
    let inputs = Inputs { file: Some(file), ..Inputs::default() };
    (Config::load(&inputs).unwrap(), inputs)
}

fn start(config: &Config, inputs: &Inputs) -> RunningDaemon {
    RunningDaemon::start(config.clone(), inputs.clone(), Box::new(|| 0), || {}).unwrap()
}

#[test]
fn the_socket_and_the_recording_of_a_daemon_give_the_same_pictures() {
    let (machine, folder) = (machine(), tempfile::tempdir().unwrap());
    let (config, inputs) = configured(&machine, folder.path(), "manage");
    let found = machine.state();
    let daemon = start(&config, &inputs);
    let mut source = DaemonSource::connect(&folder.path().join("socket")).unwrap();
    let (mut model, mut live) = (ViewModel::new(), Vec::new());
    let mut follow = |source: &mut DaemonSource, live: &mut Vec<Picture>, so: &dyn Fn(&Picture) -> bool| {
        let start = Instant::now();
        loop {
            assert!(start.elapsed() < PATIENCE, "{:?}", live.last());
            let event = event(source);
            let is_step = matches!(event, SourceEvent::Step(_));
            model.take(event);
            let Some(picture) = model.picture(source.info()).filter(|_| is_step) else { continue };
            live.push(picture);
            if live.last().is_some_and(so) {
                return;
            }
        }
    };
    follow(&mut source, &mut live, &|picture| picture.step > 2);
    let turn = Turn::Mask { tenant: "scan".to_owned(), mask: WayMask::from_bits(0x3) };
    let said = source.turn(turn).unwrap();
    assert!(said.contains("policy fixed replaces default"), "{said}");
    follow(&mut source, &mut live, &|picture| {
        picture.tenants.iter().any(|tenant| tenant.mask == Some(WayMask::from_bits(0x3)))
    });
    source.turn(Turn::Pause { release: true }).unwrap();
    follow(&mut source, &mut live, &|picture| picture.paused.is_some());
    let last = live.last().unwrap().step;
    follow(&mut source, &mut live, &|picture| picture.step > last + 2);
    assert!(
        matches!(source.turn(Turn::Speed { factor: 2.0 }), Err(why) if why.to_string().contains("daemon"))
    );
    daemon.request(SignalRequest::Stop);
    daemon.wait().unwrap();
    waykeeper_testbed::assert_same_state(&machine.state(), &found, "after a mask turned by hand");

    // The recording has all steps. The socket's reader misses some on a busy machine, and a step without counters shows the
    // interval of the step that was taken before. So both models take the same steps.
    let mut recorded = RecordingSource::open(&folder.path().join("recording"), 1000.0).unwrap();
    let (mut model, mut compared) = (ViewModel::new(), 0);
    loop {
        let event = event(&mut recorded);
        let live = match &event {
            SourceEvent::End => break,
            SourceEvent::Step(step) => {
                let at_s = step.at.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64();
                let same = live.iter().find(|live| (live.at_s, live.paused) == (at_s, step.paused));
                let Some(same) = same else { continue };
                Some(same)
            }
            SourceEvent::Begin(_) | SourceEvent::Lost { .. } => None,
        };
        model.take(event);
        if let Some(live) = live {
            let picture = model.picture(recorded.info()).unwrap();
            assert_eq!((picture.step, &picture.policy), (live.step, &live.policy));
            assert_eq!((&picture.tenants, &picture.devices), (&live.tenants, &live.devices));
            assert_eq!(
                (&picture.socket, &picture.worth, &picture.llc),
                (&live.socket, &live.worth, &live.llc)
            );
            compared += 1;
        }
    }
    // What the daemon shows before its policy has started is no step.
    let steps = live.iter().filter(|picture| !picture.state.is_empty()).count();
    assert_eq!(compared, steps, "each picture of the socket has its step in the recording");
}

#[test]
fn a_daemon_that_is_gone_is_reported_and_found_again() {
    let (machine, folder) = (machine(), tempfile::tempdir().unwrap());
    let (config, inputs) = configured(&machine, folder.path(), "manage");
    let socket = folder.path().join("socket");
    assert!(DaemonSource::connect(&socket).unwrap_err().to_string().starts_with("no daemon at "));
    let daemon = start(&config, &inputs);
    let mut source = DaemonSource::connect(&socket).unwrap();
    let mut viewer = Viewer::new(&mut source);
    viewer.until("a step", |picture| picture.step > 1);
    drop(daemon);
    let lost = viewer.until("the end of the daemon", |picture| picture.lost.is_some());
    assert!(lost.step > 1, "the last picture stays");
    assert!(viewer.source.turn(Turn::Resume).is_err());
    let daemon = start(&config, &inputs);
    let back = viewer.until("the daemon again", |picture| picture.lost.is_none());
    assert!(back.step <= lost.step + 1, "{} {}", back.step, lost.step);
    drop(daemon);
}

#[test]
fn a_host_that_is_observed_shows_its_counters_and_nothing_is_written() {
    let (machine, folder) = (machine(), tempfile::tempdir().unwrap());
    let (config, inputs) = configured(&machine, folder.path(), "observe");
    assert_eq!(config.mode, DaemonMode::Observe);
    let found = machine.state();
    let before = std::fs::read_dir(folder.path()).unwrap().count();
    let mut source = ObservedSource::start(config, inputs).unwrap();
    let picture = Viewer::new(&mut source).until("counters", |picture| {
        picture.step > 2 && picture.devices.iter().any(|port| port.inbound_bytes_per_s.is_some())
    });
    assert_eq!((picture.mode, picture.knobs_turned), (DaemonMode::Observe, 0));
    assert!(source.turn(Turn::Resume).is_err());
    drop(source);
    waykeeper_testbed::assert_same_state(&machine.state(), &found, "after an observation");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), before);
    assert!(!machine.journal().exists(), "a journal was written");
}
