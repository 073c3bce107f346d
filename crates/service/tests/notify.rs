//! The messages at systemd's end of the notification socket. The only test of its program, since it sets the
//! environment.

use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use waykeeper_control::StepRecord;
use waykeeper_host::{Inventory, LlcGeometry, Platform, Support};
use waykeeper_service::{DaemonMode, LifecycleEvent, Notifier, Published, PublishedState, PublishedTotals};

fn shown(step: u64) -> Published {
    let llc = LlcGeometry::plain(11, 1 << 20, 4);
    let inventory = Inventory {
        platform: Platform { chip: "x".to_owned(), host: "y".to_owned() },
        cores: Vec::new(),
        llc: Some(llc),
        dca_ways_default: None,
        dca_ways_switch: Support::No("none".to_owned()),
        devices: Vec::new(),
        ports: Vec::new(),
    };
    Published {
        step,
        at: SystemTime::UNIX_EPOCH,
        started: SystemTime::UNIX_EPOCH,
        at_clock: Duration::ZERO,
        started_clock: Duration::ZERO,
        mode: DaemonMode::Manage,
        paused: None,
        hands_over_until: None,
        policy: "a4".to_owned(),
        file_policy: None,
        settings: Arc::default(),
        period_ns: 10_000_000,
        inventory: Arc::new(inventory),
        groups: Vec::new(),
        groupings: Vec::new(),
        classes: Vec::new(),
        snapshot: None,
        seen: None,
        record: StepRecord { state: "Stable".to_owned(), ..StepRecord::default() },
        twin: None,
        advice: None,
        last_actions: Vec::new(),
        active_problems: Vec::new(),
        totals: PublishedTotals::default(),
    }
}

#[test]
fn systemd_hears_that_it_is_ready_moves_and_stops_and_nothing_from_a_loop_that_is_stuck() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("notify");
    let systemd = UnixDatagram::bind(&path).unwrap();
    // Longer than anything here takes, so that a missing message fails the test.
    systemd.set_read_timeout(Some(waykeeper_testbed::PATIENCE)).unwrap();
    // SAFETY: this program has one test, and no thread but its own has been started yet.
    unsafe {
        std::env::set_var("NOTIFY_SOCKET", &path);
        std::env::set_var("WATCHDOG_USEC", "200000");
        std::env::remove_var("WATCHDOG_PID");
    }
    let hear = || {
        let mut word = [0; 1024];
        let length = systemd.recv(&mut word).unwrap();
        String::from_utf8(word[..length].to_vec()).unwrap()
    };
    let published_state = Arc::new(PublishedState::new(shown(0)));
    let (tell, lifecycle_events) = crossbeam_channel::unbounded();
    let notifier = Notifier::start(published_state.clone(), lifecycle_events).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    tell.send(LifecycleEvent::Started).unwrap();
    // The first message: nothing was sent before the first knobs were set.
    assert_eq!(hear().trim_end(), "READY=1\nSTATUS=step 0: policy a4, state Stable, 0 tenants");
    // A reload as systemd expects it: its start with the time, and its end.
    tell.send(LifecycleEvent::Loading).unwrap();
    let word = std::iter::repeat_with(hear).take(100).find(|word| word.contains("RELOADING=1")).unwrap();
    let since = word.lines().find_map(|line| line.strip_prefix("MONOTONIC_USEC=")).unwrap();
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    assert!(since.parse::<i64>().unwrap() / 1_000_000 <= now.tv_sec && !word.contains("READY"), "{word}");
    tell.send(LifecycleEvent::Loaded).unwrap();
    assert!(std::iter::repeat_with(hear).take(20).any(|word| word.contains("READY=1")));
    // While steps come, there are pings.
    for step in 1..=5 {
        published_state.replace(shown(step));
        let wanted = format!("step {step}: policy a4");
        let word = std::iter::repeat_with(hear).take(100).find(|word| word.contains(&wanted)).unwrap();
        assert!(word.contains("WATCHDOG=1"), "{word}");
    }
    // When no steps come, the pings end.
    let first = std::iter::repeat_with(hear).take(100).position(|word| !word.contains("WATCHDOG")).unwrap();
    assert!(first < 20, "the loop is stuck, and still there were {first} pings");
    assert!((0..3).all(|_| !hear().contains("WATCHDOG")));
    published_state.replace(shown(6));
    assert!(std::iter::repeat_with(hear).take(20).any(|word| word.contains("WATCHDOG=1")), "it moves again");
    // The engine ends.
    drop(tell);
    assert!(std::iter::repeat_with(hear).take(20).any(|word| word.trim_end() == "STOPPING=1"));
    drop(notifier);
}
