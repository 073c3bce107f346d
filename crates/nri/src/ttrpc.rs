//! Messages of ttrpc on one connection: a header of 10 bytes and a payload.
//!
//! Length and stream (u32, big endian), type, flags (containerd/ttrpc v1.2.10, PROTOCOL.md). A client numbers its streams
//! with odd, increasing numbers. Streams with more than one message are not used by NRI and are refused. Must not know which
//! methods there are.

use crate::WireError;
use crate::messages::{CallStatus, TtrpcCall, TtrpcReply};
use prost::Message;

/// Bytes of a message's header.
const HEADER: usize = 10;
/// Longest payload (channel.go, messageLengthMax).
pub const MESSAGE_MOST: usize = 4 << 20;

/// Type of a request.
pub const REQUEST: u8 = 1;
/// Type of a response.
pub const RESPONSE: u8 = 2;

/// Codes of gRPC (google/rpc/code.proto), as far as answers have them.
pub mod code {
    /// The request was carried out.
    pub const OK: i32 = 0;
    /// The request is malformed.
    pub const INVALID_ARGUMENT: i32 = 3;
    /// There is no such method.
    pub const UNIMPLEMENTED: i32 = 12;
}

/// One message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TtrpcMessage {
    /// Its stream.
    pub stream: u32,
    /// Request, response or data.
    pub kind: u8,
    /// Empty for a request with one answer.
    pub flags: u8,
    /// A message of protobuf.
    pub payload: Vec<u8>,
}

/// Puts the payloads of a connection's frames together to messages. It holds at most one incomplete message and the frame
/// that was pushed last.
#[derive(Clone, Debug, Default)]
pub struct TtrpcReader {
    bytes: Vec<u8>,
}

impl TtrpcReader {
    /// Adds the payload of a frame.
    pub fn push(&mut self, payload: &[u8]) {
        self.bytes.extend_from_slice(payload);
    }

    /// Whether a message has begun and is not complete.
    pub fn is_within_message(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// The next complete message.
    ///
    /// # Errors
    /// If its length is beyond [`MESSAGE_MOST`].
    pub fn message(&mut self) -> Result<Option<TtrpcMessage>, WireError> {
        let Some((header, rest)) = self.bytes.split_first_chunk::<HEADER>() else { return Ok(None) };
        let [l0, l1, l2, l3, s0, s1, s2, s3, kind, flags] = *header;
        let length = u32::from_be_bytes([l0, l1, l2, l3]) as usize;
        let stream = u32::from_be_bytes([s0, s1, s2, s3]);
        if length > MESSAGE_MOST {
            return Err(WireError::LongMessage { stream, length });
        }
        let Some(payload) = rest.get(..length) else { return Ok(None) };
        let payload = payload.to_vec();
        self.bytes.drain(..HEADER + length);
        Ok(Some(TtrpcMessage { stream, kind, flags, payload }))
    }
}

impl TtrpcMessage {
    /// The message's bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER + self.payload.len());
        bytes.extend_from_slice(&(self.payload.len() as u32).to_be_bytes());
        bytes.extend_from_slice(&self.stream.to_be_bytes());
        bytes.extend_from_slice(&[self.kind, self.flags]);
        bytes.extend_from_slice(&self.payload);
        bytes
    }

    /// A request.
    pub fn request(stream: u32, service: &str, method: &str, body: &impl Message) -> TtrpcMessage {
        let call = TtrpcCall {
            service: service.to_owned(),
            method: method.to_owned(),
            payload: body.encode_to_vec(),
            timeout_ns: 0,
        };
        TtrpcMessage { stream, kind: REQUEST, flags: 0, payload: call.encode_to_vec() }
    }

    /// The answer to a request that was carried out.
    pub fn answer(stream: u32, body: Vec<u8>) -> TtrpcMessage {
        let status = CallStatus { code: code::OK, message: String::new() };
        let reply = TtrpcReply { status: Some(status), payload: body };
        TtrpcMessage { stream, kind: RESPONSE, flags: 0, payload: reply.encode_to_vec() }
    }

    /// The answer to a request that was not.
    pub fn refusal(stream: u32, code: i32, why: &str) -> TtrpcMessage {
        let reply =
            TtrpcReply { status: Some(CallStatus { code, message: why.to_owned() }), payload: Vec::new() };
        TtrpcMessage { stream, kind: RESPONSE, flags: 0, payload: reply.encode_to_vec() }
    }
}

/// Checks the numbers of a client's streams.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamNumbers {
    last: u32,
}

impl StreamNumbers {
    /// Takes the stream of a request.
    ///
    /// # Errors
    /// Why the number is not accepted.
    pub fn take(&mut self, stream: u32) -> Result<(), &'static str> {
        if stream.is_multiple_of(2) {
            return Err("the stream of a client's request has an odd number");
        }
        if stream <= self.last {
            return Err("the number of a stream is larger than those before it");
        }
        self.last = stream;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{CONTAINER_RUNTIME, Registration};

    #[test]
    fn a_registration_has_the_bytes_of_the_protocol() {
        let body = Registration { name: "wk".to_owned(), index: "90".to_owned(), version: String::new() };
        let bytes = TtrpcMessage::request(1, CONTAINER_RUNTIME, "RegisterPlugin", &body).bytes();
        // Field 1 (key 0x0a): 28 bytes, field 2 (0x12): 14 bytes, field 3 (0x1a): the body of 8 bytes, in which field 1 has
        // 2 bytes and field 2 has 2. 30 + 16 + 10 = 56 bytes.
        let mut expected = vec![0, 0, 0, 56, 0, 0, 0, 1, 1, 0];
        expected.extend_from_slice(b"\x0a\x1cnri.pkg.api.v1alpha1.Runtime");
        expected.extend_from_slice(b"\x12\x0eRegisterPlugin");
        expected.extend_from_slice(b"\x1a\x08\x0a\x02wk\x12\x0290");
        assert_eq!(bytes, expected);
    }

    #[test]
    fn a_message_that_two_frames_carry_is_read_once_it_is_complete() {
        let mut reader = TtrpcReader::default();
        // A response (type 2) on stream 3 with an empty status (field 1, length 0).
        reader.push(&[0, 0, 0, 2, 0, 0, 0, 3, 2]);
        assert_eq!(reader.message().unwrap(), None);
        assert!(reader.is_within_message());
        reader.push(&[0, 0x0a, 0x00]);
        let message = reader.message().unwrap().unwrap();
        assert_eq!((message.stream, message.kind, message.flags), (3, RESPONSE, 0));
        let reply = TtrpcReply::decode(message.payload.as_slice()).unwrap();
        assert_eq!(reply.status, Some(CallStatus::default()));
        assert!(!reader.is_within_message());
    }

    #[test]
    fn a_length_beyond_the_bound_is_refused() {
        let mut reader = TtrpcReader::default();
        reader.push(&[0, 0x40, 0, 1, 0, 0, 0, 5, 1, 0]);
        assert_eq!(
            reader.message().unwrap_err().to_string(),
            "a message of stream 5 has 4194305 bytes, and the longest of ttrpc has 4194304"
        );
    }

    #[test]
    fn numbers_of_streams_are_odd_and_increase() {
        let mut numbers = StreamNumbers::default();
        assert!(numbers.take(1).is_ok() && numbers.take(5).is_ok());
        assert!(numbers.take(6).unwrap_err().contains("odd"));
        assert!(numbers.take(5).unwrap_err().contains("larger"));
        assert!(numbers.take(7).is_ok());
    }
}
