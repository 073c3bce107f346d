//! The token that allows to turn knobs: random for each start, compared in constant time.
//!
//! Must not know what is turned.

use std::fmt;
use subtle::ConstantTimeEq;

/// Random bytes of a token: 128 bits cannot be guessed over a network.
const BYTES: usize = 16;

/// The token of one start of the server.
#[derive(Clone)]
pub struct AccessToken(String);

impl AccessToken {
    /// A new random one.
    ///
    /// # Errors
    /// If the system gives no random numbers.
    pub fn random() -> Result<AccessToken, getrandom::Error> {
        let mut bytes = [0; BYTES];
        getrandom::fill(&mut bytes)?;
        Ok(AccessToken(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// The token as text, for the address that is printed.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Whether the value of a header `Authorization` has this token. The time that it takes does not depend on where a
    /// wrong token differs.
    pub fn allows(&self, authorization: &[u8]) -> bool {
        let Some(given) = authorization.strip_prefix(b"Bearer ") else { return false };
        self.0.as_bytes().ct_eq(given).into()
    }
}

/// A token is not written into logs.
impl fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccessToken(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_after_bearer_allows() {
        let token = AccessToken::random().unwrap();
        let text = token.text().to_owned();
        assert_eq!(text.len(), 2 * BYTES);
        assert!(token.allows(format!("Bearer {text}").as_bytes()));
        let other = AccessToken::random().unwrap();
        assert_ne!(text, other.text(), "two starts have two tokens");
        for wrong in [
            String::new(),
            text.clone(),
            "Bearer ".to_owned(),
            format!("bearer {text}"),
            format!("Bearer {text} "),
            format!("Bearer {}", &text[1..]),
            format!("Bearer {}", other.text()),
        ] {
            assert!(!token.allows(wrong.as_bytes()), "{wrong}");
        }
        assert_eq!(format!("{token:?}"), "AccessToken(..)");
    }
}
