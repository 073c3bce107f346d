//! A connection to the container runtime: the bytes that it sends, in pieces whose size the first byte says.

use crate::one_line;
use std::time::Duration;
use waykeeper_nri::messages::TtrpcReply;
use waykeeper_nri::mux::{self, MuxReader};
use waykeeper_nri::ttrpc::{self, TtrpcReader};
use waykeeper_nri::{PluginConfig, PodHost, PodTenants, Pods, Session};
use waykeeper_tenants::DeviceName;
use waykeeper_units::WayMask;

/// A machine with 11 ways, on which every name means a device and `gold` is another agent's class.
struct Machine;

impl PodHost for Machine {
    fn check_mask(&self, text: &str) -> Result<(), String> {
        let mask = WayMask::parse(text, 11).map_err(|why| why.to_string())?;
        mask.check(11, 1).map(drop).map_err(|why| why.to_string())
    }

    fn ways(&self) -> Option<u32> {
        Some(11)
    }

    fn has_class(&self, class: &str) -> bool {
        class == "gold"
    }

    fn has_cgroup(&self, path: &str) -> bool {
        path.len().is_multiple_of(2)
    }

    fn devices_of_file(&self, path: &str) -> Vec<DeviceName> {
        path.strip_prefix("/dev/").and_then(|name| name.parse().ok()).into_iter().collect()
    }

    fn functions(&self, name: &DeviceName) -> Result<Vec<String>, String> {
        Ok(vec![name.to_string()])
    }

    fn declare(&mut self, pods: PodTenants, _: Duration) -> bool {
        pods.problems.iter().for_each(|line| one_line(line));
        for spec in &pods.specs {
            assert!(!spec.selectors.is_empty() || !spec.pids.is_empty(), "{spec:?} selects nothing");
            assert!(spec.name.len() <= 64 && !spec.name.contains('/'), "{spec:?}");
        }
        true
    }
}

/// Reads an input. Panics for a finding.
pub fn read(data: &[u8]) {
    let Some((piece, bytes)) = data.split_first() else { return };
    let config = PluginConfig {
        socket: PluginConfig::SOCKET.into(),
        name: PluginConfig::NAME.to_owned(),
        index: PluginConfig::INDEX,
        wait: PluginConfig::WAIT,
        stall: PluginConfig::STALL,
    };
    let mut pods = Pods::default();
    let (mut session, _) = Session::start(&config, &mut pods);
    let mut out = Vec::new();
    for part in bytes.chunks(usize::from(*piece) + 1) {
        if let Err(why) = session.receive(part, &mut Machine, &mut out) {
            one_line(&why);
            break;
        }
    }
    let (mut frames, mut answers) = (MuxReader::default(), TtrpcReader::default());
    frames.push(&out);
    while let Some(frame) = frames.frame().expect("our frames are in bounds") {
        assert_eq!(frame.connection, mux::PLUGIN);
        answers.push(&frame.payload);
        while let Some(answer) = answers.message().expect("our messages are in bounds") {
            assert_eq!(answer.kind, ttrpc::RESPONSE);
            let reply = <TtrpcReply as prost::Message>::decode(answer.payload.as_slice())
                .expect("our answers are messages");
            assert!(reply.status.is_some());
        }
    }
    assert!(!frames.is_within_frame() && !answers.is_within_message());
}
