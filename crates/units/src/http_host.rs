//! Whether the header `Host` of an HTTP request names this machine.
//!
//! A page of another site can have a name that leads to this machine (DNS rebinding); the browser then sends that name, and
//! takes the answers for those of the page's own site. Must not know requests.

use std::net::IpAddr;

/// Whether a host, with or without a port, is `localhost` or an address: one of loopback, or any if `is_remote`. The port
/// may be any: a tunnel has its own.
pub fn names_this_machine(host: &str, is_remote: bool) -> bool {
    let Some(name) = without_port(host) else { return false };
    match name.parse::<IpAddr>() {
        Ok(address) => is_remote || address.is_loopback(),
        Err(_) => name.eq_ignore_ascii_case("localhost"),
    }
}

/// Whether a host, with or without a port, is the name of this machine, alone or with a domain.
pub fn is_name_of(host: &str, own_name: &str) -> bool {
    let first = |name: &str| name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    let own = first(own_name);
    without_port(host).is_some_and(|name| !own.is_empty() && first(name) == own)
}

/// The name or the address of a host; none if what follows it is no port.
fn without_port(host: &str) -> Option<&str> {
    let (name, rest) = match host.strip_prefix('[') {
        Some(inside) => inside.split_once(']')?,
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let is_port = |port: &str| port.parse::<u16>().is_ok();
    (rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_loopback_name_it_and_names_that_lead_there_do_not() {
        for host in [
            "127.0.0.1:8642",
            "127.0.0.1",
            "localhost:9000",
            "LOCALHOST",
            "[::1]:8642",
            "[::1]",
            "127.1.2.3:1",
        ] {
            assert!(names_this_machine(host, false), "{host}");
        }
        for host in [
            "attacker.example",
            "attacker.example:8642",
            "localhost.attacker.example",
            "127.0.0.1.attacker.example",
            "",
            "192.168.1.5:8642",
            "[fe80::1",
            "[::1]x",
            "localhost:x",
            "localhost:99999",
            "0x7f000001",
            "localhost@x",
        ] {
            assert!(!names_this_machine(host, false), "{host}");
        }
        assert!(names_this_machine("192.168.1.5:8642", true));
        assert!(!names_this_machine("attacker.example", true));
    }

    #[test]
    fn the_own_name_may_have_a_domain_and_another_name_may_not_begin_like_it() {
        for host in ["node1", "node1:19190", "NODE1.cluster.example:19190"] {
            assert!(is_name_of(host, "node1"), "{host}");
            assert!(is_name_of(host, "node1.other.example"), "{host}");
        }
        for host in ["node12", "attacker.example", "attacker.node1", "", "node1:x"] {
            assert!(!is_name_of(host, "node1"), "{host}");
        }
        // A machine without a name has no name that could be sent.
        assert!(!is_name_of("", "") && !is_name_of(".example", ""));
    }
}
