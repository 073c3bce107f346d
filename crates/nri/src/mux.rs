//! The multiplexer of NRI: several connections over one socket.
//!
//! A frame is the number of its connection, the length of its payload (both u32, big endian), and the payload
//! (containerd/nri v0.12.5, pkg/net/multiplex/mux.go). The peer chooses the frames' bounds: a message may be in several
//! frames, and a frame may have several messages. Must not know what a payload is.

use crate::WireError;

/// The connection on which the runtime sends requests to the plugin (pkg/net/multiplex/ttrpc.go).
pub const PLUGIN: u32 = 1;
/// The connection on which the plugin sends requests to the runtime.
pub const RUNTIME: u32 = 2;

/// Bytes of a frame's header.
const HEADER: usize = 8;

/// Longest payload of a frame: a ttrpc message with its header (pkg/net/multiplex/mux.go, maxPayloadSize).
pub const PAYLOAD_MOST: usize = 10 + (4 << 20);

/// One frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MuxFrame {
    /// Its connection.
    pub connection: u32,
    /// What it carries.
    pub payload: Vec<u8>,
}

/// Puts bytes together to frames. It holds at most one incomplete frame and what was pushed last.
#[derive(Clone, Debug, Default)]
pub struct MuxReader {
    bytes: Vec<u8>,
}

impl MuxReader {
    /// Adds bytes from the socket.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Whether a frame has begun and is not complete.
    pub fn is_within_frame(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// The next complete frame.
    ///
    /// # Errors
    /// If its length is beyond [`PAYLOAD_MOST`]: no later frame can be found then.
    pub fn frame(&mut self) -> Result<Option<MuxFrame>, WireError> {
        let Some((header, rest)) = self.bytes.split_first_chunk::<HEADER>() else { return Ok(None) };
        let [c0, c1, c2, c3, l0, l1, l2, l3] = *header;
        let connection = u32::from_be_bytes([c0, c1, c2, c3]);
        let length = u32::from_be_bytes([l0, l1, l2, l3]) as usize;
        if length > PAYLOAD_MOST {
            return Err(WireError::LongFrame { connection, length });
        }
        let Some(payload) = rest.get(..length) else { return Ok(None) };
        let payload = payload.to_vec();
        self.bytes.drain(..HEADER + length);
        Ok(Some(MuxFrame { connection, payload }))
    }
}

/// Appends a frame with this payload, which the caller keeps within [`PAYLOAD_MOST`].
pub fn write_frame(connection: u32, payload: &[u8], to: &mut Vec<u8>) {
    to.extend_from_slice(&connection.to_be_bytes());
    to.extend_from_slice(&(payload.len() as u32).to_be_bytes());
    to.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn frames_are_found_wherever_the_socket_cuts_them() {
        // Connection 1 with two bytes, then connection 2 with none.
        let bytes = [0, 0, 0, 1, 0, 0, 0, 2, 0xaa, 0xbb, 0, 0, 0, 2, 0, 0, 0, 0];
        let mut reader = MuxReader::default();
        let mut found = Vec::new();
        for byte in bytes {
            reader.push(&[byte]);
            found.extend(reader.frame().unwrap());
        }
        let frame = |connection, payload: &[u8]| MuxFrame { connection, payload: payload.to_vec() };
        assert_eq!(found, [frame(PLUGIN, &[0xaa, 0xbb]), frame(RUNTIME, &[])]);
        assert!(!reader.is_within_frame());
        let mut written = Vec::new();
        found.iter().for_each(|frame| write_frame(frame.connection, &frame.payload, &mut written));
        assert_eq!(written, bytes);
    }

    #[test]
    fn a_frame_at_the_bound_is_read_and_a_longer_one_is_refused() {
        // 10 + 4 MiB = 0x0040000a.
        let mut reader = MuxReader::default();
        reader.push(&[0, 0, 0, 1, 0x00, 0x40, 0x00, 0x0a]);
        reader.push(&vec![7; PAYLOAD_MOST]);
        assert_eq!(reader.frame().unwrap().unwrap().payload.len(), 4_194_314);
        reader.push(&[0, 0, 0, 9, 0x00, 0x40, 0x00, 0x0b]);
        let refused = reader.frame().unwrap_err().to_string();
        assert_eq!(
            refused,
            "a frame of connection 9 has 4194315 bytes, and the longest that NRI sends has 4194314"
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn what_is_written_is_read(payloads in prop::collection::vec((0u32..4, prop::collection::vec(any::<u8>(), 0..50)), 0..8), cut in 1usize..40) {
            let mut bytes = Vec::new();
            payloads.iter().for_each(|(connection, payload)| write_frame(*connection, payload, &mut bytes));
            let mut reader = MuxReader::default();
            let mut found = Vec::new();
            for part in bytes.chunks(cut) {
                reader.push(part);
                while let Some(frame) = reader.frame().unwrap() {
                    found.push((frame.connection, frame.payload));
                }
            }
            prop_assert_eq!(found, payloads);
        }
    }
}
