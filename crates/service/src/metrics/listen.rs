//! The address on which metrics are served: an address, or a socket in the file system.
//!
//! Must not know what is served.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use waykeeper_units::shown;

/// Where to listen. The default is loopback; another address must be configured.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Listen {
    /// An address with its port.
    Tcp(SocketAddr),
    /// A Unix socket; root and the readers' group may connect.
    Unix(PathBuf),
}

impl Listen {
    /// A port outside of 9100-9999, which other exporters use. ecosystem.md 3. Assumption: the number itself; no
    /// registry assigns it.
    pub const PORT: u16 = 19190;

    /// True if other machines can connect.
    pub fn is_public(&self) -> bool {
        matches!(self, Listen::Tcp(address) if !address.ip().is_loopback())
    }
}

impl Default for Listen {
    fn default() -> Listen {
        Listen::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, Listen::PORT)))
    }
}

/// The text is neither.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "`{}` is not a listen address; give an address with a port, for example `127.0.0.1:19190` or \
     `[::1]:19190`, or `unix:` and an absolute path", shown(.0)
)]
pub struct ListenError(String);

impl FromStr for Listen {
    type Err = ListenError;

    fn from_str(text: &str) -> Result<Listen, ListenError> {
        let refused = || ListenError(text.to_owned());
        match text.strip_prefix("unix:") {
            Some(path) if path.starts_with('/') => Ok(Listen::Unix(PathBuf::from(path))),
            Some(_) => Err(refused()),
            None => text.parse().map(Listen::Tcp).map_err(|_| refused()),
        }
    }
}

impl TryFrom<String> for Listen {
    type Error = ListenError;

    fn try_from(text: String) -> Result<Listen, ListenError> {
        text.parse()
    }
}

impl From<Listen> for String {
    fn from(listen: Listen) -> String {
        listen.to_string()
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::Tcp(address) => write!(f, "{address}"),
            Listen::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_read_as_they_are_written_and_the_default_is_loopback() {
        assert_eq!(Listen::default().to_string(), "127.0.0.1:19190");
        assert!(!Listen::default().is_public());
        for text in ["127.0.0.1:19190", "[::1]:80", "0.0.0.0:19190", "unix:/run/waykeeper/metrics.sock"] {
            assert_eq!(text.parse::<Listen>().unwrap().to_string(), text);
        }
        assert!("0.0.0.0:1".parse::<Listen>().unwrap().is_public());
        assert!("[::]:1".parse::<Listen>().unwrap().is_public());
        for text in ["", "localhost:19190", "19190", ":19190", "unix:metrics", "127.0.0.1", "127.0.0.1:99999"]
        {
            let why = text.parse::<Listen>().unwrap_err().to_string();
            assert!(why.starts_with(&format!("`{text}` is not a listen address")), "{why}");
        }
    }
}
