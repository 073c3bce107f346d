//! A container runtime for tests: the other end of the plugin's socket, well-behaved or not.
//!
//! It listens at a path, accepts the plugin, and calls it as containerd does, one request at a time. A failure panics with
//! the reason. Must not know what the plugin does with what it hears.

use crate::messages::{
    CallStatus, ConfigureCall, ConfigureReply, ContainerLinux, ContainerMessage, EventCall, PLUGIN_SERVICE,
    PodLinux, PodMessage, Registration, SynchronizeCall, SynchronizeReply, TtrpcCall, TtrpcReply,
};
use crate::mux::{self, MuxReader, write_frame};
use crate::ttrpc::{TtrpcMessage, TtrpcReader};
use prost::Message;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest wait for the plugin, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Time limit of a request, ms. NRI's is 2000; with this one the plugin's own limits count.
const LIMIT_MS: i64 = 100_000;

/// A runtime that listens.
#[derive(Debug)]
pub struct FakeRuntime {
    listener: UnixListener,
    path: PathBuf,
}

impl FakeRuntime {
    /// Listens at a path, at which there may be a socket that is no longer used.
    ///
    /// # Panics
    /// If it cannot.
    pub fn listen(path: &Path) -> FakeRuntime {
        let _ = std::fs::remove_file(path);
        let listener = UnixListener::bind(path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        FakeRuntime { listener, path: path.to_owned() }
    }

    /// The path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits for the plugin to connect; it has sent nothing that was read yet.
    ///
    /// # Panics
    /// If the socket fails.
    pub fn accept(&self) -> FakeConnection {
        let (stream, _) = self.listener.accept().unwrap_or_else(|why| panic!("accept: {why}"));
        FakeConnection::over(stream)
    }

    /// Waits for the plugin, and takes it as containerd does: registration, configuration, the list of pods.
    ///
    /// # Panics
    /// If the plugin does not do its part.
    pub fn take(&self, pods: &[PodMessage], containers: &[ContainerMessage]) -> FakeConnection {
        let mut connection = self.accept();
        connection.register();
        connection.configure(LIMIT_MS);
        connection.synchronize(pods, containers, usize::MAX);
        connection
    }
}

/// A connection with the plugin.
#[derive(Debug)]
pub struct FakeConnection {
    stream: UnixStream,
    frames: MuxReader,
    of_plugin: TtrpcReader,
    of_runtime: TtrpcReader,
    next: u32,
}

impl FakeConnection {
    /// A connection over one end of a pair of sockets.
    ///
    /// # Panics
    /// If the socket fails.
    pub fn over(stream: UnixStream) -> FakeConnection {
        stream.set_read_timeout(Some(PATIENCE)).unwrap_or_else(|why| panic!("{why}"));
        FakeConnection {
            stream,
            frames: MuxReader::default(),
            of_plugin: TtrpcReader::default(),
            of_runtime: TtrpcReader::default(),
            next: 1,
        }
    }

    /// Takes the registration and accepts it.
    ///
    /// # Panics
    /// If it is not one.
    pub fn register(&mut self) -> Registration {
        let (stream, registration) = self.registration();
        self.send(mux::RUNTIME, &TtrpcMessage::answer(stream, Vec::new()).bytes());
        registration
    }

    /// Takes the registration and refuses it.
    ///
    /// # Panics
    /// If it is not one.
    pub fn refuse(&mut self, why: &str) {
        let (stream, _) = self.registration();
        self.send(mux::RUNTIME, &TtrpcMessage::refusal(stream, 2, why).bytes());
    }

    fn registration(&mut self) -> (u32, Registration) {
        let message = self.message(mux::RUNTIME);
        let call = TtrpcCall::decode(message.payload.as_slice()).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(call.method, "RegisterPlugin");
        let registration = Registration::decode(call.payload.as_slice());
        (message.stream, registration.unwrap_or_else(|why| panic!("{why}")))
    }

    /// Configures the plugin; returns the events that it asks for, a bit each.
    ///
    /// # Panics
    /// If it refuses.
    pub fn configure(&mut self, request_timeout_ms: i64) -> i32 {
        let call = ConfigureCall { runtime: "fake".to_owned(), version: "v1".to_owned(), request_timeout_ms };
        let body = self.call("Configure", &call).unwrap_or_else(|status| panic!("{status:?}"));
        ConfigureReply::decode(body.as_slice()).unwrap_or_else(|why| panic!("{why}")).events
    }

    /// Sends the list of pods, in requests of at most `at_once` pods and as many containers.
    ///
    /// # Panics
    /// If the plugin refuses a part.
    pub fn synchronize(&mut self, pods: &[PodMessage], containers: &[ContainerMessage], at_once: usize) {
        let (mut pods, mut containers) = (pods, containers);
        loop {
            let (now, later) = pods.split_at(at_once.min(pods.len()));
            let (also, others) = containers.split_at(at_once.min(containers.len()));
            (pods, containers) = (later, others);
            let more = !pods.is_empty() || !containers.is_empty();
            let call = SynchronizeCall {
                pods: now.iter().map(Message::encode_to_vec).collect(),
                containers: also.iter().map(Message::encode_to_vec).collect(),
                more,
            };
            let body = self.call("Synchronize", &call).unwrap_or_else(|status| panic!("{status:?}"));
            let reply = SynchronizeReply::decode(body.as_slice()).unwrap_or_else(|why| panic!("{why}"));
            assert_eq!(reply.more, more, "the plugin does not take a list in parts");
            if !more {
                return;
            }
        }
    }

    /// Sends an event of a pod or a container.
    ///
    /// # Panics
    /// If the plugin refuses it.
    pub fn event(&mut self, method: &str, pod: Option<&PodMessage>, container: Option<&ContainerMessage>) {
        let call = EventCall { pod: pod.cloned(), container: container.cloned() };
        self.call(method, &call).unwrap_or_else(|status| panic!("{method}: {status:?}"));
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// The plugin's refusal.
    ///
    /// # Panics
    /// If there is no answer.
    pub fn call(&mut self, method: &str, body: &impl Message) -> Result<Vec<u8>, CallStatus> {
        let stream = self.next;
        self.next += 2;
        let request = TtrpcMessage::request(stream, PLUGIN_SERVICE, method, body);
        self.send(mux::PLUGIN, &request.bytes());
        self.answer(stream)
    }

    /// Waits for the answer of a stream.
    ///
    /// # Errors
    /// The plugin's refusal.
    ///
    /// # Panics
    /// If another message comes.
    pub fn answer(&mut self, stream: u32) -> Result<Vec<u8>, CallStatus> {
        let message = self.message(mux::PLUGIN);
        assert_eq!(message.stream, stream, "an answer of another stream");
        let reply = TtrpcReply::decode(message.payload.as_slice()).unwrap_or_else(|why| panic!("{why}"));
        match reply.status {
            Some(status) if status.code != 0 => Err(status),
            _ => Ok(reply.payload),
        }
    }

    /// Sends a frame.
    ///
    /// # Panics
    /// If the plugin has closed the connection.
    pub fn send(&mut self, connection: u32, payload: &[u8]) {
        let mut bytes = Vec::new();
        write_frame(connection, payload, &mut bytes);
        self.send_bytes(&bytes);
    }

    /// Sends bytes as they are.
    ///
    /// # Panics
    /// If the plugin has closed the connection.
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap_or_else(|why| panic!("the plugin takes nothing: {why}"));
    }

    /// Waits until the plugin closes the connection; what it still sends is dropped.
    ///
    /// # Panics
    /// If it does not.
    pub fn closed(mut self) {
        let mut bytes = [0; 4096];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return,
                Ok(_) => {}
                Err(why) if why.kind() == std::io::ErrorKind::ConnectionReset => return,
                Err(why) => panic!("the plugin keeps the connection open: {why}"),
            }
        }
    }

    fn message(&mut self, connection: u32) -> TtrpcMessage {
        let mut bytes = [0; 4096];
        loop {
            while let Some(frame) = self.frames.frame().unwrap_or_else(|why| panic!("{why}")) {
                match frame.connection {
                    mux::PLUGIN => self.of_plugin.push(&frame.payload),
                    mux::RUNTIME => self.of_runtime.push(&frame.payload),
                    other => panic!("a frame of connection {other}"),
                }
            }
            let reader = if connection == mux::PLUGIN { &mut self.of_plugin } else { &mut self.of_runtime };
            if let Some(message) = reader.message().unwrap_or_else(|why| panic!("{why}")) {
                return message;
            }
            match self.stream.read(&mut bytes).unwrap_or_else(|why| panic!("no answer of the plugin: {why}"))
            {
                0 => panic!("the plugin closed the connection"),
                read => self.frames.push(bytes.get(..read).unwrap_or_default()),
            }
        }
    }
}

/// A pod in the namespace `default` whose sandbox and unique id are made from its name, below a control group.
pub fn pod(name: &str, cgroup_parent: &str) -> PodMessage {
    PodMessage {
        id: format!("sandbox-{name}"),
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        namespace: "default".to_owned(),
        annotations: Default::default(),
        linux: Some(PodLinux { cgroup_parent: cgroup_parent.to_owned() }),
    }
}

/// A container of a pod that runs as this process in this control group.
pub fn container(pod: &PodMessage, name: &str, pid: u32, cgroups_path: &str) -> ContainerMessage {
    ContainerMessage {
        id: format!("{}-{name}", pod.id),
        sandbox: pod.id.clone(),
        name: name.to_owned(),
        state: 3,
        pid,
        linux: Some(ContainerLinux { cgroups_path: cgroups_path.to_owned(), ..Default::default() }),
        ..Default::default()
    }
}
