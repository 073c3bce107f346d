//! Tests of a connection, byte by byte and without a socket.

use super::*;
use crate::messages::CallStatus;
use proptest::prelude::*;
use waykeeper_tenants::DeviceName;

/// A machine on which everything is possible; it keeps what was declared.
#[derive(Default)]
struct Recorder {
    declared: Vec<(usize, Duration)>,
}

impl PodHost for Recorder {
    fn check_mask(&self, _: &str) -> Result<(), String> {
        Ok(())
    }

    fn ways(&self) -> Option<u32> {
        Some(11)
    }

    fn has_class(&self, _: &str) -> bool {
        false
    }

    fn has_cgroup(&self, _: &str) -> bool {
        false
    }

    fn devices_of_file(&self, _: &str) -> Vec<DeviceName> {
        Vec::new()
    }

    fn functions(&self, name: &DeviceName) -> Result<Vec<String>, String> {
        Ok(vec![name.to_string()])
    }

    fn declare(&mut self, pods: PodTenants, at_most: Duration) -> bool {
        self.declared.push((pods.specs.len(), at_most));
        true
    }
}

fn config() -> PluginConfig {
    PluginConfig {
        socket: "unused".into(),
        name: "waykeeper".to_owned(),
        index: 7,
        wait: PluginConfig::WAIT,
        stall: PluginConfig::STALL,
    }
}

fn pod(name: &str) -> PodMessage {
    PodMessage { id: name.to_owned(), name: name.to_owned(), uid: name.to_owned(), ..Default::default() }
}

fn container(sandbox: &str, id: &str, state: i32) -> ContainerMessage {
    ContainerMessage { id: id.to_owned(), sandbox: sandbox.to_owned(), state, pid: 50, ..Default::default() }
}

/// The frame of a request.
fn request(stream: u32, method: &str, body: &impl Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_frame(
        mux::PLUGIN,
        &TtrpcMessage::request(stream, PLUGIN_SERVICE, method, body).bytes(),
        &mut bytes,
    );
    bytes
}

/// The answers in some bytes: stream, code and body.
fn answers(bytes: &[u8]) -> Vec<(u32, i32, Vec<u8>)> {
    let (mut frames, mut reader) = (MuxReader::default(), TtrpcReader::default());
    frames.push(bytes);
    while let Some(frame) = frames.frame().unwrap() {
        assert_eq!(frame.connection, mux::PLUGIN);
        reader.push(&frame.payload);
    }
    let mut all = Vec::new();
    while let Some(message) = reader.message().unwrap() {
        let TtrpcReply { status, payload } = TtrpcReply::decode(message.payload.as_slice()).unwrap();
        all.push((message.stream, status.map_or(-1, |CallStatus { code, .. }| code), payload));
    }
    all
}

/// Sends bytes, and returns the answers.
fn receive(session: &mut Session, host: &mut Recorder, bytes: &[u8]) -> Vec<(u32, i32, Vec<u8>)> {
    let mut out = Vec::new();
    session.receive(bytes, host, &mut out).unwrap();
    answers(&out)
}

#[test]
fn a_connection_registers_configures_and_synchronizes() {
    let (mut pods, mut host) = (Pods::default(), Recorder::default());
    let (mut session, bytes) = Session::start(&config(), &mut pods);
    // Connection 2; the message has 10 bytes of header.
    assert_eq!(bytes[..4], [0, 0, 0, 2]);
    assert!(session.is_waiting());
    let mut accepted = Vec::new();
    write_frame(mux::RUNTIME, &TtrpcMessage::answer(1, Vec::new()).bytes(), &mut accepted);
    assert_eq!(receive(&mut session, &mut host, &accepted), []);
    assert_eq!((session.stage(), session.is_waiting()), (SessionStage::Registered, false));
    let call = ConfigureCall { request_timeout_ms: 1000, ..Default::default() };
    let configured = receive(&mut session, &mut host, &request(1, "Configure", &call));
    // Events 1, 2, 3, 6, 10 and 11: bits 0, 1, 2, 5, 9 and 10 are 0b110_0010_0111 = 1575; field 2, a varint.
    let expected = ConfigureReply { events: 1575 }.encode_to_vec();
    assert_eq!(expected, [0x10, 0xa7, 0x0c]);
    assert_eq!(configured, [(1, 0, expected)]);
    let part = |pods: &[PodMessage], containers: &[ContainerMessage], more| SynchronizeCall {
        pods: pods.iter().map(Message::encode_to_vec).collect(),
        containers: containers.iter().map(Message::encode_to_vec).collect(),
        more,
    };
    let first = part(&[pod("a"), pod("b")], &[], true);
    let more = SynchronizeReply { more: true }.encode_to_vec();
    assert_eq!(receive(&mut session, &mut host, &request(3, "Synchronize", &first)), [(3, 0, more)]);
    assert!(host.declared.is_empty(), "a part of the list declares nothing");
    let rest = part(&[], &[container("a", "a1", 3), container("b", "b1", 4)], false);
    assert_eq!(receive(&mut session, &mut host, &request(5, "Synchronize", &rest)), [(5, 0, Vec::new())]);
    assert_eq!(session.stage(), SessionStage::Synchronized);
    // One runs; the runtime gives 1000 ms, of which a start may take a quarter.
    let start = EventCall { pod: Some(pod("b")), container: Some(container("b", "b2", 1)) };
    receive(&mut session, &mut host, &request(7, "StartContainer", &start));
    let stop = EventCall { pod: None, container: Some(container("", "a1", 4)) };
    receive(&mut session, &mut host, &request(9, "StopContainer", &stop));
    receive(&mut session, &mut host, &request(11, "RemoveContainer", &stop));
    let zero = Duration::ZERO;
    assert_eq!(host.declared, [(1, zero), (2, Duration::from_millis(250)), (1, zero)]);
}

#[test]
fn only_a_container_that_gets_a_group_waits() {
    let (mut pods, mut host) = (Pods::default(), Recorder::default());
    let (mut session, _) = Session::start(&config(), &mut pods);
    receive(&mut session, &mut host, &request(1, "Synchronize", &SynchronizeCall::default()));
    let unmanaged = [(3, "alone", "manage", "false"), (5, "mistake", "priority", "top")];
    let managed = [(7, "good", "priority", "high")];
    for (stream, name, key, value) in unmanaged.into_iter().chain(managed) {
        let annotations = [(format!("waykeeper.io/{key}"), value.to_owned())].into_iter().collect();
        let own = PodMessage { annotations, ..pod(name) };
        let start = EventCall { pod: Some(own), container: Some(container(name, name, 1)) };
        let answered = receive(&mut session, &mut host, &request(stream, "StartContainer", &start));
        assert_eq!(answered, [(stream, 0, Vec::new())]);
    }
    // The list, then the mistake: a problem without a tenant. The pod that is left alone declares nothing.
    assert_eq!(host.declared, [(0, Duration::ZERO), (0, Duration::ZERO), (1, PluginConfig::WAIT)]);
}

#[test]
fn older_runtimes_send_events_as_changes_of_state() {
    let (mut pods, mut host) = (Pods::default(), Recorder::default());
    let (mut session, _) = Session::start(&config(), &mut pods);
    let change = |event, container: Option<ContainerMessage>| StateChangeCall {
        event,
        pod: Some(pod("a")),
        container,
    };
    for (stream, event, own) in
        [(1, 1, None), (3, 6, Some(container("a", "a1", 1))), (5, 7, None), (7, 2, None)]
    {
        let answered = receive(&mut session, &mut host, &request(stream, "StateChange", &change(event, own)));
        assert_eq!(answered, [(stream, 0, Vec::new())]);
    }
    assert_eq!(host.declared, [(1, PluginConfig::WAIT), (0, Duration::ZERO)]);
    assert!(pods.all().is_empty());
}

#[test]
fn lies_are_answered_and_change_nothing() {
    let (mut pods, mut host) = (Pods::default(), Recorder::default());
    pods.add(pod("a"));
    pods.start(container("a", "a1", 1));
    let before = pods.clone();
    {
        let (mut session, _) = Session::start(&config(), &mut pods);
        let empty = EventCall::default();
        let mut garbage = Vec::new();
        let message =
            TtrpcMessage { stream: 9, kind: ttrpc::REQUEST, flags: 0, payload: vec![0xff, 0xff, 0xff] };
        write_frame(mux::PLUGIN, &message.bytes(), &mut garbage);
        let mut elsewhere = Vec::new();
        let other = TtrpcMessage::request(13, "another.Service", "RunPodSandbox", &empty);
        write_frame(mux::PLUGIN, &other.bytes(), &mut elsewhere);
        let mut streaming = Vec::new();
        let open = TtrpcMessage { flags: 2, ..TtrpcMessage::request(15, PLUGIN_SERVICE, "Shutdown", &empty) };
        write_frame(mux::PLUGIN, &open.bytes(), &mut streaming);
        let body_of_a_call = TtrpcCall { service: "x".to_owned(), ..Default::default() };
        for (bytes, stream, code) in [
            (request(2, "RunPodSandbox", &empty), 2, 3),
            (request(5, "Explode", &empty), 5, 12),
            (request(3, "RunPodSandbox", &empty), 3, 3),
            (garbage, 9, 3),
            // Field 1 of an event is a message: the text "x" is none.
            (request(11, "RunPodSandbox", &body_of_a_call), 11, 3),
            (elsewhere, 13, 12),
            (streaming, 15, 12),
            (request(17, "StartContainer", &empty), 17, 0),
            (request(19, "RemovePodSandbox", &empty), 19, 0),
        ] {
            let answered = receive(&mut session, &mut host, &bytes);
            assert_eq!(answered, [(stream, code, Vec::new())]);
        }
        // Answers that nothing asked for, data, frames of other connections: no answer.
        let mut silent = Vec::new();
        write_frame(mux::RUNTIME, &TtrpcMessage::answer(3, Vec::new()).bytes(), &mut silent);
        write_frame(mux::PLUGIN, &TtrpcMessage { kind: 3, ..message }.bytes(), &mut silent);
        write_frame(77, b"?", &mut silent);
        assert_eq!(receive(&mut session, &mut host, &silent), []);
        assert_eq!(session.stage(), SessionStage::Registering);
    }
    assert_eq!(pods, before);
    assert!(host.declared.is_empty());
}

#[test]
fn a_refused_registration_and_a_length_that_lies_end_the_connection() {
    let (mut pods, mut host) = (Pods::default(), Recorder::default());
    let (mut session, _) = Session::start(&config(), &mut pods);
    let mut refused = Vec::new();
    write_frame(mux::RUNTIME, &TtrpcMessage::refusal(1, 2, "invalid plugin\nname").bytes(), &mut refused);
    let why = session.receive(&refused, &mut host, &mut Vec::new()).unwrap_err();
    assert_eq!(why.to_string(), "the container runtime refuses the plugin: invalid plugin\\nname");
    let (mut session, _) = Session::start(&config(), &mut pods);
    let long = [0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff];
    assert!(matches!(session.receive(&long, &mut host, &mut Vec::new()), Err(WireError::LongFrame { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Whatever arrives in whatever pieces, the answers are well-formed.
    #[test]
    fn no_bytes_make_it_panic(noise in prop::collection::vec(any::<u8>(), 0..60), at in 0usize..200, cut in 1usize..50) {
        let (mut pods, mut host) = (Pods::default(), Recorder::default());
        let (mut session, _) = Session::start(&config(), &mut pods);
        let start = EventCall { pod: Some(pod("a")), container: Some(container("a", "a1", 1)) };
        let mut bytes = request(1, "StartContainer", &start);
        bytes.extend(request(3, "Synchronize", &SynchronizeCall::default()));
        let at = at.min(bytes.len());
        bytes.splice(at..at, noise);
        let mut out = Vec::new();
        for part in bytes.chunks(cut) {
            if session.receive(part, &mut host, &mut out).is_err() {
                break;
            }
        }
        answers(&out);
    }
}
