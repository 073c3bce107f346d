//! The messages that the plugin and the runtime exchange, with the field numbers of ttrpc's `request.proto` (v1.2.10),
//! `google/rpc/status.proto` and NRI's `pkg/api/api.proto` (v0.12.5).
//!
//! Only fields that are used are here; others are skipped. What is repeated without bound stays encoded (`Vec<u8>`) until it
//! is counted. Must not know what a message causes.

use prost::Message;
use std::collections::BTreeMap;

/// The runtime's service (api.proto, `service Runtime`).
pub const CONTAINER_RUNTIME: &str = "nri.pkg.api.v1alpha1.Runtime";
/// The plugin's service (api.proto, `service Plugin`).
pub const PLUGIN_SERVICE: &str = "nri.pkg.api.v1alpha1.Plugin";

/// A request (`ttrpc.Request`).
#[derive(Clone, PartialEq, Message)]
pub struct TtrpcCall {
    /// The service.
    #[prost(string, tag = "1")]
    pub service: String,
    /// The method.
    #[prost(string, tag = "2")]
    pub method: String,
    /// The method's request.
    #[prost(bytes = "vec", tag = "3")]
    pub payload: Vec<u8>,
    /// How long its sender waits, ns; 0 if it does not say.
    #[prost(int64, tag = "4")]
    pub timeout_ns: i64,
}

/// A response (`ttrpc.Response`).
#[derive(Clone, PartialEq, Message)]
pub struct TtrpcReply {
    /// Whether the request was carried out.
    #[prost(message, optional, tag = "1")]
    pub status: Option<CallStatus>,
    /// The method's response.
    #[prost(bytes = "vec", tag = "2")]
    pub payload: Vec<u8>,
}

/// An outcome (`google.rpc.Status`).
#[derive(Clone, PartialEq, Message)]
pub struct CallStatus {
    /// 0 is success.
    #[prost(int32, tag = "1")]
    pub code: i32,
    /// Why it failed.
    #[prost(string, tag = "2")]
    pub message: String,
}

/// `RegisterPluginRequest`.
#[derive(Clone, PartialEq, Message)]
pub struct Registration {
    /// The plugin's name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Two digits: the runtime calls plugins in this order.
    #[prost(string, tag = "2")]
    pub index: String,
    /// The version of NRI that the plugin was written for.
    #[prost(string, tag = "3")]
    pub version: String,
}

/// `ConfigureRequest`.
#[derive(Clone, PartialEq, Message)]
pub struct ConfigureCall {
    /// Name of the runtime.
    #[prost(string, tag = "2")]
    pub runtime: String,
    /// Version of the runtime.
    #[prost(string, tag = "3")]
    pub version: String,
    /// How long the runtime waits for an answer, ms.
    #[prost(int64, tag = "5")]
    pub request_timeout_ms: i64,
}

/// `ConfigureResponse`.
#[derive(Clone, PartialEq, Message)]
pub struct ConfigureReply {
    /// A bit for each event that is wanted: bit 0 is event 1.
    #[prost(int32, tag = "2")]
    pub events: i32,
}

/// `SynchronizeRequest`.
#[derive(Clone, PartialEq, Message)]
pub struct SynchronizeCall {
    /// A [`PodMessage`] each.
    #[prost(bytes = "vec", repeated, tag = "1")]
    pub pods: Vec<Vec<u8>>,
    /// A [`ContainerMessage`] each.
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub containers: Vec<Vec<u8>>,
    /// Another request with further ones follows.
    #[prost(bool, tag = "3")]
    pub more: bool,
}

/// `SynchronizeResponse`.
#[derive(Clone, PartialEq, Message)]
pub struct SynchronizeReply {
    /// The plugin takes further ones.
    #[prost(bool, tag = "2")]
    pub more: bool,
}

/// The requests of pods and containers: `RunPodSandboxRequest`, `StopPodSandboxRequest`, `StartContainerRequest` and so on
/// have these fields.
#[derive(Clone, PartialEq, Message)]
pub struct EventCall {
    /// The pod; absent if the runtime no longer knows it.
    #[prost(message, optional, tag = "1")]
    pub pod: Option<PodMessage>,
    /// The container.
    #[prost(message, optional, tag = "2")]
    pub container: Option<ContainerMessage>,
}

/// `StateChangeEvent`: NRI before version 0.12 sends most events in it.
#[derive(Clone, PartialEq, Message)]
pub struct StateChangeCall {
    /// The event.
    #[prost(int32, tag = "1")]
    pub event: i32,
    /// The pod.
    #[prost(message, optional, tag = "2")]
    pub pod: Option<PodMessage>,
    /// The container.
    #[prost(message, optional, tag = "3")]
    pub container: Option<ContainerMessage>,
}

/// `PodSandbox`.
#[derive(Clone, PartialEq, Message)]
pub struct PodMessage {
    /// The sandbox.
    #[prost(string, tag = "1")]
    pub id: String,
    /// The pod's name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// The pod's unique id; a pod may have several sandboxes one after another.
    #[prost(string, tag = "3")]
    pub uid: String,
    /// Its namespace.
    #[prost(string, tag = "4")]
    pub namespace: String,
    /// Its annotations.
    #[prost(btree_map = "string, string", tag = "6")]
    pub annotations: BTreeMap<String, String>,
    /// What is particular to Linux.
    #[prost(message, optional, tag = "8")]
    pub linux: Option<PodLinux>,
}

/// `LinuxPodSandbox`.
#[derive(Clone, PartialEq, Message)]
pub struct PodLinux {
    /// The control group above those of its containers.
    #[prost(string, tag = "3")]
    pub cgroup_parent: String,
}

/// `Container`.
#[derive(Clone, PartialEq, Message)]
pub struct ContainerMessage {
    /// The container.
    #[prost(string, tag = "1")]
    pub id: String,
    /// Its pod's sandbox.
    #[prost(string, tag = "2")]
    pub sandbox: String,
    /// Its name in the pod.
    #[prost(string, tag = "3")]
    pub name: String,
    /// 1 created, 2 paused, 3 running, 4 stopped.
    #[prost(int32, tag = "4")]
    pub state: i32,
    /// Its annotations.
    #[prost(btree_map = "string, string", tag = "6")]
    pub annotations: BTreeMap<String, String>,
    /// Its environment, `NAME=VALUE`.
    #[prost(string, repeated, tag = "8")]
    pub environment: Vec<String>,
    /// What is particular to Linux.
    #[prost(message, optional, tag = "11")]
    pub linux: Option<ContainerLinux>,
    /// Its first process.
    #[prost(uint32, tag = "12")]
    pub pid: u32,
}

/// `LinuxContainer`.
#[derive(Clone, PartialEq, Message)]
pub struct ContainerLinux {
    /// Device files.
    #[prost(message, repeated, tag = "2")]
    pub devices: Vec<DeviceFile>,
    /// Its resources.
    #[prost(message, optional, tag = "3")]
    pub resources: Option<ContainerResources>,
    /// Its control group, as the runtime writes it.
    #[prost(string, tag = "5")]
    pub cgroups_path: String,
    /// Its class of service.
    #[prost(message, optional, tag = "12")]
    pub rdt: Option<ContainerRdt>,
}

/// `LinuxDevice`.
#[derive(Clone, PartialEq, Message)]
pub struct DeviceFile {
    /// Its path in the container.
    #[prost(string, tag = "1")]
    pub path: String,
}

/// `LinuxResources`.
#[derive(Clone, PartialEq, Message)]
pub struct ContainerResources {
    /// A class that a plugin or the runtime's configuration chose.
    #[prost(message, optional, tag = "5")]
    pub rdt_class: Option<OptionalText>,
}

/// `LinuxRdt`.
#[derive(Clone, PartialEq, Message)]
pub struct ContainerRdt {
    /// The name of a group in resctrl.
    #[prost(message, optional, tag = "1")]
    pub class: Option<OptionalText>,
}

/// `OptionalString`.
#[derive(Clone, PartialEq, Message)]
pub struct OptionalText {
    /// The text.
    #[prost(string, tag = "1")]
    pub value: String,
}
