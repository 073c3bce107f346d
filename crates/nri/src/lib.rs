//! Kubernetes' pods as tenants: a plugin of the container runtime's Node Resource Interface (NRI).
//!
//! containerd and CRI-O call a plugin over a UNIX socket at each step of a pod's life. The plugin registers itself, takes
//! the list of pods that are there, and follows the events. From pods, their annotations and facts about the machine it
//! makes the tenants of all pods ([`plan`]), each time all of them, and passes them to a [`PodHost`]. Must not know what a
//! tenant's group is, nor how often the control loop steps.
//!
//! Layers, from the socket inwards: [`mux`], [`ttrpc`], [`messages`], [`Session`], [`Plugin`].

mod annotations;
mod cgroup;
#[cfg(any(test, feature = "fake-runtime"))]
pub mod fake_runtime;
pub mod messages;
pub mod mux;
mod plan;
mod plugin;
mod pod_host;
mod pods;
mod session;
pub mod ttrpc;

pub use plan::plan;
pub use plugin::{Plugin, PluginLink};
pub use pod_host::{PodHost, PodTenants};
pub use pods::{CONTAINERS_MOST, PODS_MOST, Pod, PodContainer, Pods};
pub use session::{Session, SessionStage};

use std::path::PathBuf;
use std::time::Duration;

/// The version of NRI whose messages [`messages`] has.
pub const NRI_VERSION: &str = "v0.12.5";

/// How the plugin reaches the runtime, and what it calls itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PluginConfig {
    /// The runtime's socket.
    pub socket: PathBuf,
    /// The plugin's name: letters, digits, `-`, `_`, `.` and `+`.
    pub name: String,
    /// 0 to 99: the runtime calls plugins in this order.
    pub index: u32,
    /// Longest wait for the groups of a starting container.
    pub wait: Duration,
    /// How long the runtime may take for the rest of what it has begun to send, and for taking an answer.
    pub stall: Duration,
}

impl PluginConfig {
    /// Socket of containerd and CRI-O (pkg/api/plugin.go, DefaultSocketPath).
    pub const SOCKET: &'static str = "/var/run/nri/nri.sock";
    /// Name of the plugin.
    pub const NAME: &'static str = "waykeeper";
    /// Late: other plugins choose CPUs, devices and classes of a container before.
    pub const INDEX: u32 = 90;
    /// NRI gives up after 2 s by default (pkg/api/timeouts.go) and then disconnects the plugin; a control step takes some
    /// 10 ms. Assumption: a quarter is left for other plugins.
    pub const WAIT: Duration = Duration::from_millis(500);
    /// As long as the runtime itself waits for a registration (pkg/api/timeouts.go).
    pub const STALL: Duration = Duration::from_secs(5);
}

/// Why a connection cannot be used any more.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WireError {
    /// A frame is longer than the protocol allows; what follows it cannot be found.
    #[error(
        "a frame of connection {connection} has {length} bytes, and the longest that NRI sends has {}",
        mux::PAYLOAD_MOST
    )]
    LongFrame {
        /// Its connection.
        connection: u32,
        /// Its length.
        length: usize,
    },
    /// So is a message.
    #[error(
        "a message of stream {stream} has {length} bytes, and the longest of ttrpc has {}",
        ttrpc::MESSAGE_MOST
    )]
    LongMessage {
        /// Its stream.
        stream: u32,
        /// Its length.
        length: usize,
    },
    /// The runtime does not accept the plugin.
    #[error("the container runtime refuses the plugin: {why}")]
    Registration {
        /// Its reason.
        why: String,
    },
}
