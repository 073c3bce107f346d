//! A status on terminals of two sizes, as golden texts, and on any size: no line is too long, and there are not too many.

use super::*;
use std::collections::BTreeMap;
use waykeeper_host::{DeviceKind, WorkloadKind};
use waykeeper_service::ActiveProblem;
use waykeeper_service::protocol::{
    DaemonTotals, HostInfo, IoStatus, Polluter, PolluterKind, Sufferer, WorthStatus,
};
use waykeeper_units::WayMask;

const NAMES: [&str; 11] = [
    "fastclick",
    "redis-server",
    "redis-client",
    "x264",
    "parest",
    "xalancbmk",
    "lbm",
    "ffsb-heavy",
    "omnetpp",
    "exchange2",
    "bwaves",
];

fn ratio(percent: f64) -> WorthRatio {
    WorthRatio { ratio: 1.0 + percent / 100.0, error: 0.012 }
}

/// A4's mix of eleven tenants after two hours.
fn mix() -> DaemonStatus {
    let tenant = |(index, name): (usize, &&str)| TenantStatus {
        name: (*name).to_owned(),
        id: index as u32,
        priority: if index < 7 { Priority::High } else { Priority::Low },
        kind: WorkloadKind::NonIo,
        cores: if index == 0 { "0-3".parse().unwrap() } else { format!("{}", index + 3).parse().unwrap() },
        devices: if index == 0 { vec!["0000:3b:00.0".to_owned()] } else { Vec::new() },
        mask: Some(WayMask::from_bits(if index < 7 { 0x7fc } else { 0x003 })),
        ways: Some(if index < 7 { 9 } else { 2 }),
        ipc: Some(0.4 + 0.15 * index as f64),
        llc_hit_ratio: (index != 6).then_some(0.9 - 0.08 * index as f64),
        llc_references_per_s: None,
        llc_occupancy_bytes: Some(1_500_000 * (index as u64 + 1)),
        shares_mask_with: Vec::new(),
        grouped_with: Vec::new(),
        grouped_why: None,
    };
    let action = |second: u32, action: &str, text: &str| ActionLine {
        step: u64::from(second),
        at: format!("2026-11-25T15:02:{second:02}Z"),
        policy: "waykeeper".to_owned(),
        action: action.to_owned(),
        text: text.to_owned(),
    };
    let port = |address: &str, device: &str, dca| PortStatus {
        address: address.to_owned(),
        devices: vec![device.to_owned()],
        kinds: vec![DeviceKind::Network],
        dca: Some(dca),
        inbound_bytes_per_s: Some(12.1e9),
        outbound_bytes_per_s: None,
    };
    DaemonStatus {
        waykeeper: "0.1.0".to_owned(),
        mode: DaemonMode::Manage,
        policy: "waykeeper".to_owned(),
        state: "Steady".to_owned(),
        paused: None,
        hands_over_within_s: None,
        step: 7201,
        at: "2026-11-25T15:02:12Z".to_owned(),
        age_s: 0.25,
        uptime_s: 7201.5,
        period_s: 1.0,
        host: HostInfo {
            chip: "Intel(R) Xeon(R) Gold 6140 CPU @ 2.30GHz".to_owned(),
            host: "Linux 6.12".to_owned(),
            cores: "0-17".parse().unwrap(),
            llc_bytes: Some(25_952_256),
            llc_ways: Some(11),
            classes: Some(16),
        },
        io: IoStatus {
            dca_ways: Some(WayMask::from_bits(0x600)),
            dca_ways_default: Some(WayMask::from_bits(0x600)),
            dca_write_miss_ratio: Some(0.213),
            dca_read_miss_ratio: None,
            memory_read_bytes_per_s: Some(21.37e9),
            memory_write_bytes_per_s: Some(9.2e9),
        },
        worth: WorthStatus {
            from: Some(WorthSource::Look),
            unknown: None,
            age_s: Some(42.0),
            hpw: Some(ratio(12.0)),
            lpw: Some(ratio(-4.0)),
            tenants: NAMES
                .iter()
                .zip(-3..)
                .map(|(name, by)| ((*name).to_owned(), ratio(f64::from(by))))
                .collect(),
        },
        worst: Worst {
            sufferer: Some(Sufferer { tenant: "fastclick".to_owned(), ratio: 0.97, error: 0.012 }),
            no_sufferer: None,
            polluter: Some(Polluter {
                kind: PolluterKind::Tenant,
                name: "lbm".to_owned(),
                lines_per_s: 31.25e6,
                into: "fastclick".to_owned(),
            }),
            no_polluter: None,
        },
        tenants: NAMES.iter().enumerate().map(tenant).collect(),
        ports: vec![port("0000:3a:00.0", "nic0", true), port("0000:5d:00.0", "raid0", false)],
        recent: Vec::new(),
        actions: vec![
            action(
                1,
                "layout-tried",
                "the layout that was foreseen best is tried: HPWs +12 +- 4 %, LPWs -3 +- 2 %",
            ),
            action(6, "layout-kept", "HPWs gained 11 %"),
            action(11, "look-back", "the layout as found is put back, to measure what the policy is worth"),
        ],
        twin: None,
        advice: None,
        active_problems: vec![ActiveProblem {
            kind: "counter".to_owned(),
            text: "MBM is not available: the kernel was booted with rdt=!mbmtotal,!mbmlocal".to_owned(),
        }],
        totals: DaemonTotals { actions: BTreeMap::new(), ..DaemonTotals::default() },
    }
}

const PLAIN: Ink = Ink::Plain;

fn checked(status: &DaemonStatus, note: Option<&str>, columns: usize, rows: usize) -> String {
    let text = view(status, note, Screen { columns, rows, ink: PLAIN });
    assert!(
        text.lines().count() < rows.max(1) && text.is_empty() == (rows <= 1),
        "{columns}x{rows}:\n{text}"
    );
    for line in text.lines() {
        assert!(measure_text_width(line) <= columns, "{columns}x{rows}: {line}");
    }
    text
}

#[test]
fn a_small_terminal_has_what_matters_most() {
    insta::assert_snapshot!(checked(&mix(), None, 80, 24));
}

#[test]
fn a_larger_terminal_has_the_ports_too() {
    insta::assert_snapshot!(checked(&mix(), Some("the daemon is back, after 1.2 s"), 100, 30));
}

#[test]
fn no_size_and_no_name_breaks_a_line() {
    let mut status = mix();
    status.tenants[1].name = "\u{1f600}\u{754c}".repeat(30);
    status.tenants[2].name = "\x1b[31m\u{202e}evil".to_owned();
    status.ports[0].devices = vec!["nic".repeat(30)];
    status.active_problems = (0..9).map(|_| status.active_problems[0].clone()).collect();
    for columns in [1, 2, 10, 37, 79, 80, 81, 100, 132, 300] {
        for rows in [1, 2, 5, 12, 23, 24, 25, 30, 43, 100] {
            checked(&status, Some("a note"), columns, rows);
        }
    }
    // Nothing is left out where there is room.
    let all = checked(&status, None, 200, 60);
    assert!(
        !all.contains("and ") && all.matches("counter: ").count() == 9 && all.contains("0000:5d:00.0"),
        "{all}"
    );
    let few = checked(&mix(), None, 80, 18);
    assert!(few.contains("more: `waykeeper tenants`") && few.contains("layout-kept"), "{few}");
}

#[test]
fn what_is_not_known_has_its_reason() {
    let mut status = mix();
    status.worth =
        WorthStatus { unknown: Some("too few intervals were measured".to_owned()), ..WorthStatus::default() };
    status.worst = Worst {
        no_sufferer: Some("cannot tell: too few intervals were measured".to_owned()),
        no_polluter: Some("cannot tell: no counter could be read".to_owned()),
        ..Worst::default()
    };
    status.actions.clear();
    status.age_s = 12.0;
    let text = checked(&status, None, 80, 24);
    for line in [
        "worth: unknown, too few intervals were measured",
        "sufferer: cannot tell: too few intervals were measured",
        "polluter: cannot tell: no counter could be read",
        "no knob was turned yet",
        "the control thread is late: last step 12.0 s ago",
    ] {
        assert!(text.lines().any(|there| there == line), "{line}\n{text}");
    }
}

#[test]
fn gains_are_green_and_losses_red_only_where_colour_is_allowed() {
    let coloured = view(&mix(), None, Screen { columns: 80, rows: 24, ink: Ink::Colour });
    assert!(coloured.contains("\x1b[32mHPWs +12.0 +- 1.2 %\x1b[0m"), "{coloured:?}");
    assert!(coloured.contains("\x1b[31mLPWs -4.0 +- 1.2 %\x1b[0m"), "{coloured:?}");
    let plain = checked(&mix(), None, 80, 24);
    assert!(!plain.contains('\x1b'));
    assert_eq!(console::strip_ansi_codes(&coloured), plain);
}
