//! The connection to the daemon: its socket, and the exit code for each error.
//!
//! Must not know the requests.

use crate::exit::{self, Failure};
use crate::restore;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;
use waykeeper_service::config::usual_socket;
use waykeeper_service::protocol::ProtocolErrorKind;
use waykeeper_service::{Client, ClientError, ServersConfig};

/// Where the daemon listens.
#[derive(Args, Debug)]
pub struct SocketArgs {
    /// Control socket of the daemon
    #[arg(long, value_name = "PATH", default_value = ServersConfig::SOCKET, conflicts_with = "root")]
    socket: PathBuf,
    /// Talk to the daemon that was started with this --root, at its usual socket
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
}

impl SocketArgs {
    /// Connects; `timeout` is the timeout of each answer.
    pub fn connect(&self, timeout: Duration) -> Result<Client, Failure> {
        Ok(Client::connect(&self.path()?, timeout)?)
    }

    /// The socket.
    pub fn path(&self) -> Result<PathBuf, Failure> {
        Ok(match &self.root {
            Some(root) => usual_socket(&restore::root_at(root)?),
            None => self.socket.clone(),
        })
    }

    /// The root of the host's files, if it was given.
    pub fn root(&self) -> Result<Option<PathBuf>, Failure> {
        self.root.as_ref().map(|root| Ok(restore::root_at(root)?.prefix().to_owned())).transpose()
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        let code = match &error {
            ClientError::NoDaemon { .. } => exit::UNSUPPORTED,
            ClientError::NotPermitted(_) => exit::NOT_PERMITTED,
            ClientError::Fault(fault) => match fault.kind {
                ProtocolErrorKind::NotPermitted => exit::NOT_PERMITTED,
                ProtocolErrorKind::Busy => exit::CONFLICT,
                ProtocolErrorKind::Refused | ProtocolErrorKind::BadRequest => exit::BAD_INPUT,
                _ => exit::FAILED,
            },
            ClientError::NoAnswer { .. } | ClientError::NotADaemon { .. } | ClientError::Io { .. } => {
                exit::FAILED
            }
        };
        Failure::new(code, error)
    }
}
