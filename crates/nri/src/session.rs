//! One connection to the runtime: bytes in, bytes out.
//!
//! It registers the plugin, answers the runtime's requests and keeps the pods. A peer that sends nonsense gets an answer
//! that says so where the protocol has one; else the connection ends. Must not know sockets or threads.

use crate::messages::{
    CONTAINER_RUNTIME, ConfigureCall, ConfigureReply, ContainerMessage, EventCall, PLUGIN_SERVICE,
    PodMessage, Registration, StateChangeCall, SynchronizeCall, SynchronizeReply, TtrpcCall, TtrpcReply,
};
use crate::mux::{self, MuxReader, write_frame};
use crate::plan::plan;
use crate::pod_host::{PodHost, PodTenants};
use crate::pods::{CONTAINERS_MOST, PODS_MOST, Pods};
use crate::ttrpc::{self, StreamNumbers, TtrpcMessage, TtrpcReader, code};
use crate::{NRI_VERSION, PluginConfig, WireError};
use prost::Message;
use std::collections::BTreeSet;
use std::time::Duration;
use waykeeper_units::{one_line, shown};

/// The part of the runtime's time limit that a wait may take.
const WAIT_SHARE: u32 = 4;

/// Number of the stream of the registration, the only request that the plugin sends.
const REGISTRATION: u32 = 1;

/// Events of pods and containers (api.proto, `enum Event`).
mod event {
    pub const RUN_POD: i32 = 1;
    pub const STOP_POD: i32 = 2;
    pub const REMOVE_POD: i32 = 3;
    pub const START_CONTAINER: i32 = 6;
    pub const STOP_CONTAINER: i32 = 10;
    pub const REMOVE_CONTAINER: i32 = 11;
    /// Those that change the pods. The others are answered, but not asked for.
    pub const WANTED: [i32; 6] =
        [RUN_POD, STOP_POD, REMOVE_POD, START_CONTAINER, STOP_CONTAINER, REMOVE_CONTAINER];
}

/// How far the connection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionStage {
    /// The runtime has not accepted the registration.
    Registering,
    /// It has, and has not sent its list of pods.
    Registered,
    /// The list of pods is complete.
    Synchronized,
}

/// One connection.
#[derive(Debug)]
pub struct Session<'p> {
    pods: &'p mut Pods,
    /// What was declared last.
    declared: Option<PodTenants>,
    frames: MuxReader,
    of_plugin: TtrpcReader,
    of_runtime: TtrpcReader,
    streams: StreamNumbers,
    stage: SessionStage,
    /// The list of pods, while parts of it are missing.
    list: Option<Pods>,
    /// Longest wait for the groups of a starting container.
    wait: Duration,
    /// The longest that the configuration allows.
    wait_most: Duration,
    /// Mistakes of the peer that were logged.
    logged: BTreeSet<String>,
}

/// What a request is answered with: a response, or a code and the reason.
type Answer = Result<Vec<u8>, (i32, String)>;

impl<'p> Session<'p> {
    /// A connection that begins with these pods, and the bytes that register the plugin.
    pub fn start(config: &PluginConfig, pods: &'p mut Pods) -> (Session<'p>, Vec<u8>) {
        let registration = Registration {
            name: config.name.clone(),
            index: format!("{:02}", config.index),
            version: NRI_VERSION.to_owned(),
        };
        let message = TtrpcMessage::request(REGISTRATION, CONTAINER_RUNTIME, "RegisterPlugin", &registration);
        let mut bytes = Vec::new();
        write_frame(mux::RUNTIME, &message.bytes(), &mut bytes);
        let session = Session {
            pods,
            declared: None,
            frames: MuxReader::default(),
            of_plugin: TtrpcReader::default(),
            of_runtime: TtrpcReader::default(),
            streams: StreamNumbers::default(),
            stage: SessionStage::Registering,
            list: None,
            wait: config.wait,
            wait_most: config.wait,
            logged: BTreeSet::new(),
        };
        (session, bytes)
    }

    /// How far it is.
    pub fn stage(&self) -> SessionStage {
        self.stage
    }

    /// Whether the peer has begun something and must send the rest: a frame, a message, the answer to the registration.
    pub fn is_waiting(&self) -> bool {
        self.stage == SessionStage::Registering
            || self.frames.is_within_frame()
            || self.of_plugin.is_within_message()
            || self.of_runtime.is_within_message()
    }

    /// Takes bytes from the runtime, and appends the answers to `out`.
    ///
    /// # Errors
    /// If the connection cannot be used any more.
    pub fn receive(
        &mut self,
        bytes: &[u8],
        host: &mut dyn PodHost,
        out: &mut Vec<u8>,
    ) -> Result<(), WireError> {
        self.frames.push(bytes);
        while let Some(frame) = self.frames.frame()? {
            match frame.connection {
                mux::PLUGIN => {
                    self.of_plugin.push(&frame.payload);
                    while let Some(message) = self.of_plugin.message()? {
                        if let Some(answer) = self.request(message, host) {
                            write_frame(mux::PLUGIN, &answer.bytes(), out);
                        }
                    }
                }
                mux::RUNTIME => {
                    self.of_runtime.push(&frame.payload);
                    while let Some(message) = self.of_runtime.message()? {
                        self.response(&message)?;
                    }
                }
                // As the runtime does with a connection that it did not open.
                other => self.note(&format!("a frame of the unknown connection {other}")),
            }
        }
        Ok(())
    }

    /// The answer to the registration.
    fn response(&mut self, message: &TtrpcMessage) -> Result<(), WireError> {
        if message.kind != ttrpc::RESPONSE
            || message.stream != REGISTRATION
            || self.stage != SessionStage::Registering
        {
            self.note("an answer to a request that was not sent");
            return Ok(());
        }
        let reply = TtrpcReply::decode(message.payload.as_slice())
            .map_err(|_| WireError::Registration { why: "the answer is not of the protocol".to_owned() })?;
        match reply.status {
            Some(status) if status.code != code::OK => {
                Err(WireError::Registration { why: shown(&status.message) })
            }
            _ => {
                self.stage = SessionStage::Registered;
                Ok(())
            }
        }
    }

    /// Carries out a request, and returns its answer.
    fn request(&mut self, message: TtrpcMessage, host: &mut dyn PodHost) -> Option<TtrpcMessage> {
        let stream = message.stream;
        if message.kind != ttrpc::REQUEST {
            self.note(&format!("a message of type {}, where requests are expected", message.kind));
            return None;
        }
        let refuse = |session: &mut Session, code: i32, why: &str| {
            session.note(why);
            Some(TtrpcMessage::refusal(stream, code, why))
        };
        if let Err(why) = self.streams.take(stream) {
            return refuse(self, code::INVALID_ARGUMENT, why);
        }
        if message.flags != 0 {
            return refuse(self, code::UNIMPLEMENTED, "streams of several messages are not served");
        }
        let Ok(call) = TtrpcCall::decode(message.payload.as_slice()) else {
            return refuse(self, code::INVALID_ARGUMENT, "the request is not of the protocol");
        };
        match self.carry_out(&call, host) {
            Ok(body) => Some(TtrpcMessage::answer(stream, body)),
            Err((code, why)) => refuse(self, code, &why),
        }
    }

    fn carry_out(&mut self, call: &TtrpcCall, host: &mut dyn PodHost) -> Answer {
        if call.service != PLUGIN_SERVICE {
            return Err((code::UNIMPLEMENTED, format!("there is no service `{}`", shown(&call.service))));
        }
        let body = call.payload.as_slice();
        let event = match call.method.as_str() {
            "Configure" => return self.configure(&decoded(body, &call.method)?),
            "Synchronize" => return self.synchronize(decoded(body, &call.method)?, host),
            "StateChange" => {
                let StateChangeCall { event, pod, container } = decoded(body, &call.method)?;
                self.happened(event, pod, container, host);
                return Ok(Vec::new());
            }
            "RunPodSandbox" => event::RUN_POD,
            "StopPodSandbox" => event::STOP_POD,
            "RemovePodSandbox" => event::REMOVE_POD,
            "StartContainer" => event::START_CONTAINER,
            "StopContainer" => event::STOP_CONTAINER,
            "RemoveContainer" => event::REMOVE_CONTAINER,
            "Shutdown" => {
                tracing::info!("the container runtime ends");
                return Ok(Vec::new());
            }
            // An empty answer changes nothing.
            "CreateContainer"
            | "PostCreateContainer"
            | "PostStartContainer"
            | "UpdateContainer"
            | "PostUpdateContainer"
            | "UpdatePodSandbox"
            | "PostUpdatePodSandbox"
            | "ValidateContainerAdjustment" => return Ok(Vec::new()),
            other => return Err((code::UNIMPLEMENTED, format!("there is no method `{}`", shown(other)))),
        };
        let EventCall { pod, container } = decoded(body, &call.method)?;
        self.happened(event, pod, container, host);
        Ok(Vec::new())
    }

    fn configure(&mut self, call: &ConfigureCall) -> Answer {
        let timeout = u64::try_from(call.request_timeout_ms).ok().filter(|ms| *ms > 0);
        self.wait =
            timeout.map_or(self.wait_most, |ms| self.wait_most.min(Duration::from_millis(ms) / WAIT_SHARE));
        tracing::info!("registered with {} {}", shown(&call.runtime), shown(&call.version));
        let events = event::WANTED.iter().fold(0, |events, event| events | 1 << (event - 1));
        Ok(ConfigureReply { events }.encode_to_vec())
    }

    /// The runtime's list of pods, possibly in several parts.
    fn synchronize(&mut self, call: SynchronizeCall, host: &mut dyn PodHost) -> Answer {
        let mut list = self.list.take().unwrap_or_default();
        let too_many = call.pods.len() > PODS_MOST || call.containers.len() > CONTAINERS_MOST;
        // What is left out is counted below; the bound on the list keeps a part of it from being decoded in vain.
        for pod in call.pods.iter().take(PODS_MOST + 1) {
            list.add(PodMessage::decode(pod.as_slice()).map_err(|_| malformed("Synchronize"))?);
        }
        for container in call.containers.iter().take(CONTAINERS_MOST + 1) {
            let container = ContainerMessage::decode(container.as_slice());
            list.add_container(container.map_err(|_| malformed("Synchronize"))?);
        }
        if too_many {
            self.note("a list of more pods or containers than a node can have");
        }
        if call.more {
            self.list = Some(list);
            return Ok(SynchronizeReply { more: true }.encode_to_vec());
        }
        let containers: usize = list.all().values().map(|pod| pod.containers.len()).sum();
        tracing::info!(pods = list.all().len(), containers, "the container runtime has listed its pods");
        self.pods.replace(list);
        self.stage = SessionStage::Synchronized;
        // These containers run already: nothing waits for their groups.
        self.declare(Duration::ZERO, false, host);
        Ok(SynchronizeReply { more: false }.encode_to_vec())
    }

    /// An event of a pod or a container.
    fn happened(
        &mut self,
        event: i32,
        pod: Option<PodMessage>,
        container: Option<ContainerMessage>,
        host: &mut dyn PodHost,
    ) {
        match (event, pod, container) {
            (event::RUN_POD, Some(pod), _) => self.pods.add(pod),
            (event::STOP_POD | event::REMOVE_POD, Some(pod), _) => {
                self.pods.remove(&pod.id);
                self.declare(Duration::ZERO, false, host);
            }
            (event::START_CONTAINER, pod, Some(container)) => {
                pod.into_iter().for_each(|pod| self.pods.add(pod));
                self.pods.start(container);
                self.declare(self.wait, true, host);
            }
            (event::STOP_CONTAINER | event::REMOVE_CONTAINER, _, Some(container)) => {
                self.pods.end(&container.id);
                self.declare(Duration::ZERO, false, host);
            }
            _ => {}
        }
    }

    /// Declares the tenants. `starts`: a container waits for its group, unless no tenant has it.
    fn declare(&mut self, wait: Duration, starts: bool, host: &mut dyn PodHost) {
        let tenants = plan(self.pods, host);
        if self.declared.as_ref() == Some(&tenants) {
            return;
        }
        let has_group_to_come =
            starts && self.declared.as_ref().is_none_or(|before| before.specs != tenants.specs);
        let wait = if has_group_to_come { wait } else { Duration::ZERO };
        self.declared = Some(tenants.clone());
        if !host.declare(tenants, wait) && has_group_to_come {
            tracing::warn!(
                "a container starts before its group is there: the control loop took longer than {wait:?}"
            );
        }
    }

    /// Logs a mistake of the peer, once for each kind and connection.
    fn note(&mut self, what: &str) {
        const KINDS: usize = 16;
        if self.logged.len() < KINDS && self.logged.insert(what.to_owned()) {
            tracing::warn!("the container runtime does not keep to NRI's protocol: {}", one_line(what));
        }
    }
}

fn malformed(method: &str) -> (i32, String) {
    (code::INVALID_ARGUMENT, format!("the request of {method} is not of the protocol"))
}

fn decoded<M: Message + Default>(body: &[u8], method: &str) -> Result<M, (i32, String)> {
    M::decode(body).map_err(|_| malformed(method))
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
