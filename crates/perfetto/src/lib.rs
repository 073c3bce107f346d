//! Writes trace files of Perfetto (<https://ui.perfetto.dev>): tracks with slices, instants and counters.
//!
//! A trace is a sequence of packets, so it is written as it comes and needs no memory for what was written. It must not know
//! what is traced.

mod messages;

use messages::{
    Content, CounterDescriptor, DebugAnnotation, PerfettoTrace, TracePacket, TrackDescriptor, TrackEvent,
};
use prost::Message;
use std::io::{self, Write};

/// A track of a trace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Track(u64);

/// The unit of a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PerfettoUnit {
    /// A number of things.
    Count,
    /// Bytes.
    Bytes,
    /// Another unit, by its name.
    Named(&'static str),
}

/// A named value of a slice or an instant.
#[derive(Clone, PartialEq, Debug)]
pub enum NoteValue {
    /// A number.
    Number(f64),
    /// A text.
    Text(String),
}

/// Names and values, in this order.
pub type Notes = Vec<(String, NoteValue)>;

/// Writes a trace. Times are nanoseconds and may be in any order on different tracks.
#[derive(Debug)]
pub struct PerfettoWriter<W> {
    to: W,
    tracks: u64,
}

/// All packets are of one sequence.
const SEQUENCE: u32 = 1;
/// Tracks below a track are shown by their rank (`EXPLICIT`), which is the order of their making.
const BY_RANK: i32 = 3;
/// The first packet of a sequence says that nothing before it counts (`SEQ_INCREMENTAL_STATE_CLEARED`).
const CLEARED: u32 = 1;

impl<W: Write> PerfettoWriter<W> {
    /// A trace without tracks.
    pub fn new(to: W) -> PerfettoWriter<W> {
        PerfettoWriter { to, tracks: 0 }
    }

    /// A track for slices and instants, and for tracks below it, which are shown in the order of their making.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn track(&mut self, name: &str, below: Option<Track>) -> io::Result<Track> {
        self.describe(name, below, None)
    }

    /// A track for the values of a counter.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn counter(&mut self, name: &str, unit: PerfettoUnit, below: Track) -> io::Result<Track> {
        let counter = match unit {
            PerfettoUnit::Count => CounterDescriptor { unit: Some(2), unit_name: None },
            PerfettoUnit::Bytes => CounterDescriptor { unit: Some(3), unit_name: None },
            PerfettoUnit::Named(name) => CounterDescriptor { unit: None, unit_name: Some(name.to_owned()) },
        };
        self.describe(name, Some(below), Some(counter))
    }

    /// A slice begins; it lasts until [`PerfettoWriter::end`] on the same track.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn begin(&mut self, track: Track, at_ns: u64, name: &str, notes: Notes) -> io::Result<()> {
        self.event(track, at_ns, 1, Some(name), notes, None)
    }

    /// The last slice of the track that has not ended ends.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn end(&mut self, track: Track, at_ns: u64) -> io::Result<()> {
        self.event(track, at_ns, 2, None, Notes::new(), None)
    }

    /// Something happened.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn instant(&mut self, track: Track, at_ns: u64, name: &str, notes: Notes) -> io::Result<()> {
        self.event(track, at_ns, 3, Some(name), notes, None)
    }

    /// The value of a counter from this time on.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn count(&mut self, counter: Track, at_ns: u64, value: f64) -> io::Result<()> {
        self.event(counter, at_ns, 4, None, Notes::new(), Some(value))
    }

    /// Writes what is in buffers, and returns the destination.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        self.to.flush()?;
        Ok(self.to)
    }

    fn describe(
        &mut self,
        name: &str,
        below: Option<Track>,
        counter: Option<CounterDescriptor>,
    ) -> io::Result<Track> {
        self.tracks += 1;
        let track = Track(self.tracks);
        let described = TrackDescriptor {
            uuid: Some(track.0),
            name: Some(name.to_owned()),
            parent: below.map(|below| below.0),
            counter,
            child_ordering: Some(BY_RANK),
            rank: i32::try_from(track.0).ok(),
        };
        self.packet(None, Content::Track(described))?;
        Ok(track)
    }

    fn event(
        &mut self,
        track: Track,
        at_ns: u64,
        kind: i32,
        name: Option<&str>,
        notes: Notes,
        value: Option<f64>,
    ) -> io::Result<()> {
        let notes = notes.into_iter().map(|(name, value)| {
            let (number, text) = match value {
                NoteValue::Number(number) => (Some(number), None),
                NoteValue::Text(text) => (None, Some(text)),
            };
            DebugAnnotation { number, text, name: Some(name) }
        });
        let event = TrackEvent {
            notes: notes.collect(),
            kind: Some(kind),
            track: Some(track.0),
            name: name.map(str::to_owned),
            value,
        };
        self.packet(Some(at_ns), Content::Event(event))
    }

    fn packet(&mut self, timestamp: Option<u64>, content: Content) -> io::Result<()> {
        let first = self.tracks == 1 && timestamp.is_none();
        let packet = TracePacket {
            timestamp,
            sequence: Some(SEQUENCE),
            sequence_flags: first.then_some(CLEARED),
            content: Some(content),
        };
        // A trace with one packet is a part of the file: messages of one type follow one another.
        self.to.write_all(&PerfettoTrace { packets: vec![packet] }.encode_to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_small_trace_by_hand() {
        let mut writer = PerfettoWriter::new(Vec::new());
        let track = writer.track("a", None).unwrap();
        writer.count(track, 300, 1.5).unwrap();
        let bytes = writer.finish().unwrap();
        // A key is (field << 3 | type); type 0 is a varint, 1 eight bytes, 2 a length and so many bytes.
        let described = [
            0x0a, 16, // Trace.packet, 16 bytes
            0x50, 1, // trusted_packet_sequence_id = 1
            0xe2, 0x03, 9, // track_descriptor, field 60: 60 << 3 | 2 = 482; 9 bytes
            0x08, 1, // uuid
            0x12, 1, b'a', // name
            0x58, 3, // child_ordering: by rank
            0x60, 1, // sibling_order_rank
            0x68, 1, // sequence_flags: cleared; a field may be at any place
        ];
        let value = [
            0x0a, 21, // Trace.packet, 21 bytes
            0x40, 0xac, 0x02, // timestamp: 300 = 0x02 << 7 | 0x2c
            0x50, 1, // trusted_packet_sequence_id
            0x5a, 14, // track_event, field 11; 14 bytes
            0x48, 4, // a value of a counter
            0x58, 1, // track_uuid
            0xe1, 0x02, // double_counter_value, field 44: 44 << 3 | 1 = 353
            0, 0, 0, 0, 0, 0, 0xf8, 0x3f, // 1.5
        ];
        let wanted: Vec<u8> = described.into_iter().chain(value).collect();
        assert_eq!(bytes, wanted);
    }

    #[test]
    fn what_is_written_is_read_back() {
        let mut writer = PerfettoWriter::new(Vec::new());
        let top = writer.track("top", None).unwrap();
        let bytes = writer.counter("occupancy", PerfettoUnit::Bytes, top).unwrap();
        let ratio = writer.counter("hit ratio", PerfettoUnit::Named("ratio"), top).unwrap();
        let notes = vec![
            ("why".to_owned(), NoteValue::Text("misses".to_owned())),
            ("ratio".to_owned(), NoteValue::Number(0.25)),
        ];
        writer.begin(top, 1, "grow", notes).unwrap();
        writer.count(bytes, 1, 64.0).unwrap();
        writer.count(ratio, 2, 0.5).unwrap();
        writer.instant(top, 2, "problem", Notes::new()).unwrap();
        writer.end(top, 3).unwrap();
        let trace = PerfettoTrace::decode(writer.finish().unwrap().as_slice()).unwrap();
        let events: Vec<(Option<u64>, &TrackEvent)> = trace
            .packets
            .iter()
            .filter_map(|packet| match &packet.content {
                Some(Content::Event(event)) => Some((packet.timestamp, event)),
                _ => None,
            })
            .collect();
        let kinds: Vec<_> = events.iter().map(|(at, event)| (at.unwrap(), event.kind.unwrap())).collect();
        assert_eq!(kinds, [(1, 1), (1, 4), (2, 4), (2, 3), (3, 2)]);
        assert_eq!(events[0].1.notes[0].text.as_deref(), Some("misses"));
        assert_eq!(events[0].1.notes[1].number, Some(0.25));
        assert_eq!((events[1].1.track, events[1].1.value), (Some(bytes.0), Some(64.0)));
        let described = trace.packets.iter().filter_map(|packet| match &packet.content {
            Some(Content::Track(track)) => Some((track.uuid, track.parent, track.name.clone().unwrap())),
            _ => None,
        });
        let wanted = [(1, None, "top"), (2, Some(1), "occupancy"), (3, Some(1), "hit ratio")];
        let wanted = wanted.map(|(uuid, parent, name)| (Some(uuid), parent, name.to_owned()));
        assert!(described.eq(wanted));
        // One packet says that nothing before it counts.
        let cleared = trace.packets.iter().filter(|packet| packet.sequence_flags.is_some()).count();
        assert_eq!((cleared, trace.packets[0].sequence_flags), (1, Some(CLEARED)));
    }
}
