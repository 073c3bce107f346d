//! The client of the control socket, for the command line and other programs.
//!
//! It does not trust the server: an answer has a maximum length and a deadline, and an invalid one is only an error.
//! Must not know the meaning of answers.

use crate::protocol::{Answer, AnswerOutcome, ControlCommand, LONGEST_ANSWER, ProtocolError, Request};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde::de::DeserializeOwned;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No program listens on the socket.
    #[error("no daemon at {path}: {why}; start one with `waykeeper daemon`, or name its configuration with --config, its socket with --socket or its root with --root", path = .path.display())]
    NoDaemon {
        /// The socket.
        path: PathBuf,
        /// The system's message.
        why: io::Error,
    },
    /// This user may not connect.
    #[error("{path}: only root and members of the daemon's group may connect", path = .0.display())]
    NotPermitted(PathBuf),
    /// The daemon answered with an error.
    #[error("{}", printable(&.0.text))]
    Fault(ProtocolError),
    /// No answer in time.
    #[error("{path}: no answer within {} s", .timeout.as_secs(), path = .path.display())]
    NoAnswer {
        /// The socket.
        path: PathBuf,
        /// How long the client waited.
        timeout: Duration,
    },
    /// The answer is invalid.
    #[error("{path}: the program that listens there is not a waykeeper daemon: {why}", path = .path.display())]
    NotADaemon {
        /// The socket.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The connection broke.
    #[error("{path}: {why}", path = .path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// The system's message.
        why: io::Error,
    },
}

/// A connection to a daemon.
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    stream: BufReader<UnixStream>,
    timeout: Duration,
}

impl Client {
    /// Time limit for a query. Assumption: a busy daemon answers within milliseconds.
    pub const TIMEOUT: Duration = Duration::from_secs(15);

    /// Time limit for an order: longer than the daemon waits for its control thread.
    pub const ORDER_TIMEOUT: Duration = Duration::from_secs(120);

    /// Connects to the socket at `path`, and waits at most `timeout` for this and for each answer.
    ///
    /// # Errors
    /// If no program listens there, or this user may not connect.
    pub fn connect(path: &Path, timeout: Duration) -> Result<Client, ClientError> {
        let path = path.to_owned();
        // The standard library's connect has no timeout: it would block while the server's queue is full.
        let connected = (|| {
            let address = SocketAddrUnix::new(&path)?;
            let socket = rustix::net::socket_with(
                AddressFamily::UNIX,
                SocketType::STREAM,
                SocketFlags::CLOEXEC,
                None,
            )?;
            set_socket_timeout(&socket, Timeout::Send, Some(timeout))?;
            rustix::net::connect(&socket, &address)?;
            Ok(socket)
        })();
        match connected.map_err(|why: rustix::io::Errno| io::Error::from(why)) {
            Ok(socket) => {
                let stream = BufReader::new(UnixStream::from(socket));
                Ok(Client { path, stream, timeout })
            }
            Err(why) => Err(match why.kind() {
                io::ErrorKind::PermissionDenied => ClientError::NotPermitted(path),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                    ClientError::NoDaemon { path, why }
                }
                io::ErrorKind::WouldBlock => ClientError::NoAnswer { path, timeout },
                _ => ClientError::Io { path, why },
            }),
        }
    }

    /// Sets the time limit for each further answer.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Sends a request and waits for the answer.
    ///
    /// # Errors
    /// The daemon's error, or why there is no answer.
    pub fn ask<T: DeserializeOwned>(&mut self, command: ControlCommand) -> Result<T, ClientError> {
        self.send(command)?;
        let hung_up = "it closed the connection without an answer";
        self.receive()?.ok_or_else(|| self.not_a_daemon(hung_up))
    }

    /// Sends a request.
    ///
    /// # Errors
    /// If the connection breaks.
    pub fn send(&mut self, command: ControlCommand) -> Result<(), ClientError> {
        let text = serde_json::to_string(&Request::new(command))
            .map_err(|why| self.not_a_daemon(&why.to_string()))?;
        match self.stream.get_mut().write_all(format!("{text}\n").as_bytes()) {
            // The daemon may have sent an error before it closed the connection.
            Err(why) if matches!(why.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {
                Ok(())
            }
            Err(why) => Err(self.failed(why)),
            Ok(()) => Ok(()),
        }
    }

    /// The next answer; `None` after the daemon closed the connection.
    ///
    /// # Errors
    /// The daemon's error, or why there is no answer.
    pub fn receive<T: DeserializeOwned>(&mut self) -> Result<Option<T>, ClientError> {
        let line = self.line()?;
        if line.is_empty() {
            return Ok(None);
        }
        let answer =
            serde_json::from_slice::<Answer<T>>(&line).map_err(|why| self.not_a_daemon(&why.to_string()))?;
        match answer.outcome {
            AnswerOutcome::Ok(value) => Ok(Some(value)),
            AnswerOutcome::Error(fault) => Err(ClientError::Fault(fault)),
        }
    }

    /// A line, empty at the end of the stream. The time limit is for the whole line.
    fn line(&mut self) -> Result<Vec<u8>, ClientError> {
        let deadline = Instant::now() + self.timeout;
        let mut line = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let no_answer = || ClientError::NoAnswer { path: self.path.clone(), timeout: self.timeout };
            if left.is_zero() {
                return Err(no_answer());
            }
            let timed = self.stream.get_ref().set_read_timeout(Some(left));
            let read = timed.and_then(|()| self.stream.fill_buf());
            let (used, is_whole) = match read {
                Ok([]) if line.is_empty() => return Ok(line),
                Ok([]) => {
                    return Err(self.not_a_daemon("it closed the connection in the middle of an answer"));
                }
                Ok(bytes) => {
                    let end = bytes.iter().position(|byte| *byte == b'\n');
                    let used = end.map_or(bytes.len(), |end| end + 1);
                    line.extend_from_slice(&bytes[..used]);
                    (used, end.is_some())
                }
                Err(why) => match why.kind() {
                    io::ErrorKind::Interrupted => continue,
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => return Err(no_answer()),
                    // The server closed the connection with a request unread.
                    io::ErrorKind::ConnectionReset if line.is_empty() => return Ok(line),
                    io::ErrorKind::ConnectionReset => {
                        return Err(self.not_a_daemon("it closed the connection in the middle of an answer"));
                    }
                    _ => return Err(self.failed(why)),
                },
            };
            self.stream.consume(used);
            if line.len() > LONGEST_ANSWER {
                return Err(self.not_a_daemon(&format!("its answer is longer than {LONGEST_ANSWER} bytes")));
            }
            if is_whole {
                return Ok(line);
            }
        }
    }

    fn not_a_daemon(&self, why: &str) -> ClientError {
        ClientError::NotADaemon { path: self.path.clone(), why: why.to_owned() }
    }

    fn failed(&self, why: io::Error) -> ClientError {
        match why.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                ClientError::NoAnswer { path: self.path.clone(), timeout: self.timeout }
            }
            _ => ClientError::Io { path: self.path.clone(), why },
        }
    }
}

/// A text of the server, made safe for a terminal: one line, no control characters, limited length.
pub fn printable(text: &str) -> String {
    // The longest text of our own is the list of all policies.
    const LONGEST: usize = 2_000;
    waykeeper_units::printable(text).chars().take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{OrderResult, ProtocolErrorKind};
    use std::os::unix::net::UnixListener;

    /// The client's result with a server that sends this and closes the connection.
    fn heard(says: &'static [u8]) -> Result<OrderResult, ClientError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // The client may close the connection before all is sent.
            let _ = stream.write_all(says);
        });
        let mut client = Client::connect(&path, Duration::from_secs(60)).unwrap();
        let done = client.ask(ControlCommand::Resume);
        drop(client);
        server.join().unwrap();
        done
    }

    #[test]
    fn a_foreign_servers_words_are_an_error_and_no_more() {
        let said = |says| heard(says).unwrap_err().to_string();
        assert!(said(b"").ends_with("it closed the connection without an answer"));
        assert!(said(b"{\"version\":1,").ends_with("it closed the connection in the middle of an answer"));
        assert!(said(b"220 mail.example ESMTP\n").contains("listens there is not a waykeeper daemon: "));
        assert!(said(b"{\"version\":1}\n").contains("is not a waykeeper daemon"));
        assert!(said(b"{\"version\":1,\"ok\":{\"text\":7}}\n").contains("invalid type"));
        assert!(said(b"\xff\xff\n").contains("is not a waykeeper daemon"));
        let long: &'static [u8] = Box::leak(vec![b'['; LONGEST_ANSWER + 10].into_boxed_slice());
        assert!(said(long).ends_with("its answer is longer than 4194304 bytes"));
        let deep: &'static [u8] = Box::leak([&[b'['; 200_000][..], b"\n"].concat().into_boxed_slice());
        assert!(said(deep).contains("is not a waykeeper daemon"));
        let fault =
            heard(b"{\"version\":1,\"error\":{\"kind\":\"busy\",\"text\":\"a\\u001b[2Jb\\u202ec\"}}\n");
        let Err(ClientError::Fault(fault)) = fault else { panic!("{fault:?}") };
        assert_eq!(fault.kind, ProtocolErrorKind::Busy);
        assert_eq!(ClientError::Fault(fault).to_string(), "a?[2Jb?c");
        assert_eq!(heard(b"{\"version\":1,\"ok\":{\"text\":\"x\"}}\n").unwrap().text, "x");
    }

    #[test]
    fn who_never_answers_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let (_listener, _place) = crate::socket::listen(&path, None).unwrap();
        let mut client = Client::connect(&path, Duration::from_millis(20)).unwrap();
        assert!(matches!(
            client.ask::<OrderResult>(ControlCommand::Resume),
            Err(ClientError::NoAnswer { .. })
        ));
        // Connecting to a socket with a full queue also times out.
        let mut waiting = Vec::new();
        let full = loop {
            match Client::connect(&path, Duration::from_millis(20)) {
                Ok(client) => waiting.push(client),
                Err(why) => break why,
            }
            assert!(waiting.len() < 100_000);
        };
        assert!(matches!(full, ClientError::NoAnswer { .. }), "{full}");
    }

    #[test]
    fn where_no_daemon_is_that_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let error = |path: &Path| Client::connect(path, Duration::from_secs(1)).unwrap_err();
        assert!(error(&path).to_string().starts_with(&format!("no daemon at {}: ", path.display())));
        drop(UnixListener::bind(&path).unwrap());
        assert!(matches!(error(&path), ClientError::NoDaemon { .. }));
        assert!(matches!(error(&folder.path().join("x".repeat(200))), ClientError::Io { .. }));
    }
}
