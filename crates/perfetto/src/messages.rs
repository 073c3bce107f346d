//! The messages of a Perfetto trace that this crate writes, with the field numbers of Perfetto's `trace_packet.proto`,
//! `track_descriptor.proto`, `counter_descriptor.proto`, `track_event.proto` and `debug_annotation.proto` (release 59).
//!
//! Fields that are never written are left out: a reader takes them as absent. Must not know what is traced.

use prost::{Message, Oneof};

/// A trace: packets one after another.
#[derive(Message)]
pub struct PerfettoTrace {
    #[prost(message, repeated, tag = "1")]
    pub packets: Vec<TracePacket>,
}

/// A packet.
#[derive(Message)]
pub struct TracePacket {
    /// Nanoseconds.
    #[prost(uint64, optional, tag = "8")]
    pub timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "10")]
    pub sequence: Option<u32>,
    #[prost(uint32, optional, tag = "13")]
    pub sequence_flags: Option<u32>,
    #[prost(oneof = "Content", tags = "11, 60")]
    pub content: Option<Content>,
}

/// What a packet has.
#[derive(Oneof)]
pub enum Content {
    #[prost(message, tag = "11")]
    Event(TrackEvent),
    #[prost(message, tag = "60")]
    Track(TrackDescriptor),
}

/// A track and its place below another.
#[derive(Message)]
pub struct TrackDescriptor {
    #[prost(uint64, optional, tag = "1")]
    pub uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
    #[prost(uint64, optional, tag = "5")]
    pub parent: Option<u64>,
    #[prost(message, optional, tag = "8")]
    pub counter: Option<CounterDescriptor>,
    /// The order of the tracks below: 1 by name, 2 by their first event, 3 by rank.
    #[prost(int32, optional, tag = "11")]
    pub child_ordering: Option<i32>,
    /// Its place among those below the same track.
    #[prost(int32, optional, tag = "12")]
    pub rank: Option<i32>,
}

/// The unit of a counter.
#[derive(Message)]
pub struct CounterDescriptor {
    /// 2 is a count, 3 are bytes.
    #[prost(int32, optional, tag = "3")]
    pub unit: Option<i32>,
    #[prost(string, optional, tag = "6")]
    pub unit_name: Option<String>,
}

/// An event on a track.
#[derive(Message)]
pub struct TrackEvent {
    #[prost(message, repeated, tag = "4")]
    pub notes: Vec<DebugAnnotation>,
    /// 1 begins a slice, 2 ends it, 3 is an instant, 4 a value of a counter.
    #[prost(int32, optional, tag = "9")]
    pub kind: Option<i32>,
    #[prost(uint64, optional, tag = "11")]
    pub track: Option<u64>,
    #[prost(string, optional, tag = "23")]
    pub name: Option<String>,
    #[prost(double, optional, tag = "44")]
    pub value: Option<f64>,
}

/// A named value of an event.
#[derive(Message)]
pub struct DebugAnnotation {
    #[prost(double, optional, tag = "5")]
    pub number: Option<f64>,
    #[prost(string, optional, tag = "6")]
    pub text: Option<String>,
    #[prost(string, optional, tag = "10")]
    pub name: Option<String>,
}
