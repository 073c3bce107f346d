//! Who may ask what: pages of other sites may not read or turn anything, and a turn needs the token.
//!
//! A page of another site can send requests to loopback from the user's browser. Three rules refuse them: `Host` must
//! be an address or `localhost` (a name of an attacker's that leads to loopback, DNS rebinding, is neither), `Origin` must
//! be this server, and `Sec-Fetch-Site` must not say that another site asks. Must not know the answers.

use axum::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderMap, HeaderName,
    HeaderValue, ORIGIN, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use waykeeper_units::names_this_machine;

use crate::AccessToken;

/// Paths below which pictures are read and knobs are turned.
pub const API: &str = "/api/";

/// What a browser may do with our pages: run and show only our files, send only to us, be in no frame.
const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A request that is refused, with one line for its sender.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The status.
    pub status: StatusCode,
    /// Why.
    pub why: String,
}

impl Refusal {
    /// A refusal.
    pub fn new(status: StatusCode, why: impl Into<String>) -> Refusal {
        Refusal { status, why: why.into() }
    }
}

/// Refuses requests that a page of another site may have sent. `is_remote`: other machines may ask by this one's address.
///
/// # Errors
/// The refusal.
pub fn check_sender(request: &Parts, is_remote: bool) -> Result<(), Refusal> {
    let host = one(&request.headers, &HOST)?.ok_or_else(|| bad("a request needs the header `Host`"))?;
    let named = request.uri.authority().map(|authority| authority.as_str());
    for name in [Some(host), named].into_iter().flatten() {
        if !names_this_machine(name, is_remote) {
            let way = if is_remote { "this machine's address" } else { "127.0.0.1 or localhost" };
            let why = format!("the host `{}` is refused; open the page by {way}", shown(name));
            return Err(Refusal::new(StatusCode::MISDIRECTED_REQUEST, why));
        }
    }
    if !request.uri.path().starts_with(API) {
        return Ok(());
    }
    let other_site = || Refusal::new(StatusCode::FORBIDDEN, "requests of other sites are refused");
    if let Some(origin) = one(&request.headers, &ORIGIN)?
        && origin.strip_prefix("http://") != Some(host)
    {
        return Err(other_site());
    }
    match one(&request.headers, &HeaderName::from_static("sec-fetch-site"))? {
        None | Some("same-origin" | "none") => Ok(()),
        Some(_) => Err(other_site()),
    }
}

/// Refuses a request without the token, and a body that is not JSON: a form of another site cannot send JSON.
///
/// # Errors
/// The refusal.
pub fn check_turn(request: &Parts, token: &AccessToken) -> Result<(), Refusal> {
    if !has_token(&request.headers, token) {
        let why = "this needs the token; open the address that `waykeeper serve` printed last";
        return Err(Refusal::new(StatusCode::UNAUTHORIZED, why));
    }
    let is_json =
        request.headers.get(CONTENT_TYPE).is_some_and(|media_type| media_type == "application/json");
    if request.method == Method::POST && !is_json {
        return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the body must be application/json"));
    }
    Ok(())
}

/// Whether a request has the token.
pub fn has_token(headers: &HeaderMap, token: &AccessToken) -> bool {
    headers.get(AUTHORIZATION).is_some_and(|given| token.allows(given.as_bytes()))
}

/// Headers of every answer.
pub fn protect(headers: &mut HeaderMap) {
    let fixed = [
        (CONTENT_SECURITY_POLICY, CONTENT_POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    // The files belong to the program: after an update a browser must not keep the old ones.
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}

fn bad(why: &str) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, why)
}

/// The only value of a header; none if it is absent.
fn one<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Refusal> {
    let mut values = headers.get_all(name).iter();
    let first = values.next();
    if values.next().is_some() {
        return Err(bad(&format!("the header `{name}` is there twice")));
    }
    first
        .map(|value| value.to_str().map_err(|_| bad(&format!("the header `{name}` is not text"))))
        .transpose()
}

/// The begin of a text that a stranger sent, without control characters.
fn shown(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;

    fn check(path: &str, headers: &[(&str, &str)], is_remote: bool) -> Result<(), StatusCode> {
        let mut request = Request::builder().uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        check_sender(&parts, is_remote).map_err(|refusal| refusal.status)
    }

    #[test]
    fn names_that_lead_to_loopback_are_refused_and_addresses_are_not() {
        assert_eq!(check("/", &[("host", "127.0.0.1:8642")], false), Ok(()));
        assert_eq!(check("/", &[("host", "localhost:9000")], false), Ok(()));
        let misdirected = Err(StatusCode::MISDIRECTED_REQUEST);
        assert_eq!(check("/", &[("host", "192.168.1.5:8642")], false), misdirected);
        assert_eq!(check("/", &[("host", "attacker.example")], false), misdirected);
        assert_eq!(check("/", &[("host", "192.168.1.5:8642")], true), Ok(()));
        assert_eq!(check("/", &[("host", "attacker.example")], true), misdirected);
        assert_eq!(check("/", &[], false), Err(StatusCode::BAD_REQUEST));
        let twice = [("host", "127.0.0.1"), ("host", "127.0.0.1")];
        assert_eq!(check("/", &twice, false), Err(StatusCode::BAD_REQUEST));
        let absolute = check("http://attacker.example/api/catalogue", &[("host", "127.0.0.1")], false);
        assert_eq!(absolute, misdirected);
    }

    #[test]
    fn other_sites_may_link_to_the_page_but_not_ask_the_api() {
        let host = ("host", "127.0.0.1:8642");
        let ask = |path, header| check(path, &[host, header], false);
        let forbidden = Err(StatusCode::FORBIDDEN);
        assert_eq!(ask("/", ("sec-fetch-site", "cross-site")), Ok(()));
        assert_eq!(ask("/api/catalogue", ("sec-fetch-site", "cross-site")), forbidden);
        assert_eq!(ask("/api/catalogue", ("sec-fetch-site", "same-site")), forbidden);
        assert_eq!(ask("/api/catalogue", ("sec-fetch-site", "same-origin")), Ok(()));
        assert_eq!(ask("/api/catalogue", ("origin", "http://127.0.0.1:8642")), Ok(()));
        for origin in
            ["http://attacker.example", "http://127.0.0.1:9999", "https://127.0.0.1:8642", "null", ""]
        {
            assert_eq!(ask("/api/catalogue", ("origin", origin)), forbidden, "{origin}");
        }
    }
}
