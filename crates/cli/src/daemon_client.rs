//! The connection to the daemon: its socket, and the exit code for each error.
//!
//! Must not know the requests.

use crate::daemon::environment;
use crate::exit::{self, Failure};
use crate::restore;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;
use waykeeper_service::config::{Config, Inputs, usual_socket};
use waykeeper_service::protocol::ProtocolErrorKind;
use waykeeper_service::{Client, ClientError, ServersConfig};

/// Where the daemon listens.
#[derive(Args, Debug)]
pub struct SocketArgs {
    /// Control socket of the daemon [default: the one in the daemon's configuration, else
    /// /run/waykeeper/waykeeper.sock]
    #[arg(long, value_name = "PATH", conflicts_with = "root")]
    socket: Option<PathBuf>,
    /// Talk to the daemon that was started with this --root, at its usual socket
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Talk to the daemon with this configuration file [default: /etc/waykeeper/waykeeper.toml]
    #[arg(long, value_name = "FILE", env = "WAYKEEPER_CONFIG")]
    config: Option<PathBuf>,
}

impl SocketArgs {
    /// Connects; `timeout` is the timeout of each answer.
    pub fn connect(&self, timeout: Duration) -> Result<Client, Failure> {
        Ok(Client::connect(&self.path()?, timeout)?)
    }

    /// The socket.
    pub fn path(&self) -> Result<PathBuf, Failure> {
        if let Some(socket) = &self.socket {
            return Ok(socket.clone());
        }
        if let Some(root) = &self.root {
            return Ok(usual_socket(&restore::root_at(root)?));
        }
        match self.configured()? {
            None => Ok(PathBuf::from(ServersConfig::SOCKET)),
            Some(config) => config.socket_path().ok_or_else(|| {
                let why = "the daemon has no control socket: its configuration has socket.path = \"off\"";
                Failure::new(exit::UNSUPPORTED, why)
            }),
        }
    }

    /// The configuration file that was named.
    pub fn config(&self) -> Option<PathBuf> {
        self.config.clone()
    }

    /// The root of the host's files, if it was given or the daemon's configuration has one.
    pub fn root(&self) -> Result<Option<PathBuf>, Failure> {
        match &self.root {
            Some(root) => Ok(Some(restore::root_at(root)?.prefix().to_owned())),
            None => Ok(self.configured()?.map(|config| config.host_root().prefix().to_owned())),
        }
    }

    /// The daemon's configuration; `None` if the usual file cannot be used: a client may not be allowed to read it, or the
    /// daemon runs on with an earlier text of it.
    fn configured(&self) -> Result<Option<Config>, Failure> {
        let inputs = Inputs { file: self.config.clone(), environment: environment(), flags: Vec::new() };
        match Config::load(&inputs) {
            Ok(config) => Ok(Some(config)),
            Err(why) if self.config.is_some() => Err(why.into()),
            Err(_) => Ok(None),
        }
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
