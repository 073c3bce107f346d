//! Playgrounds: virtual servers of a page, bounded in number, that take turns and answer in pictures.

use crate::common::{ask, order, read_until, serve, view};
use std::time::{Duration, Instant};
use waykeeper_web::{PLAYGROUNDS_MOST, WebLimits, WebServer};

fn start(server: &WebServer, body: &str) -> String {
    let reply = order(server, "POST", "/api/playgrounds", body);
    assert_eq!(reply.status, 200, "{body}: {reply:?}");
    let id = reply.body.strip_prefix("{\"id\":\"").and_then(|rest| rest.strip_suffix("\"}"));
    id.unwrap_or_else(|| panic!("no id in {}", reply.body)).to_owned()
}

fn wish(server: &WebServer) -> String {
    let catalogue: serde_json::Value =
        serde_json::from_str(&ask(server, "GET", "/api/catalogue", "", "").body).unwrap();
    let own = &catalogue["scenarios"][0]["name"];
    format!(r#"{{"scenario":{own},"policy":"default","seed":3,"speed":4}}"#)
}

#[test]
fn a_mask_that_is_turned_is_in_the_next_picture_and_a_viewer_keeps_the_server() {
    let server = serve(None, WebLimits::default());
    assert!(ask(&server, "GET", "/api/catalogue", "", "").body.contains("\"main\":null"));
    let id = start(&server, &wish(&server));
    let mut viewer = view(&server, &id);
    let come = read_until(&mut viewer, "}\n\n");
    let picture = come.split_once("event: picture\ndata: ").unwrap().1.split("\n\n").next().unwrap();
    let picture: serde_json::Value = serde_json::from_str(picture).unwrap();
    let name = picture["tenants"][0]["name"].as_str().unwrap().to_owned();
    let turned = format!(r#"{{"do":"mask","tenant":"{name}","mask":"0x00c"}}"#);
    let reply = order(&server, "POST", &format!("/api/feeds/{id}/turn"), &turned);
    assert_eq!(reply.status, 200, "{reply:?}");
    read_until(&mut viewer, "\"mask\":\"0x00c\"");
    let history = ask(&server, "GET", &format!("/api/feeds/{id}/history"), "", "");
    assert!(history.body.contains("\"series\":\"llc_hit_ratio\""), "{}", history.body);
    let wide = format!(r#"{{"do":"mask","tenant":"{name}","mask":"0xfffff"}}"#);
    let reply = order(&server, "POST", &format!("/api/feeds/{id}/turn"), &wide);
    assert_eq!(reply.status, 400, "{reply:?}");
    assert!(reply.body.contains("wider than the chip"), "{}", reply.body);
}

#[test]
fn there_are_at_most_so_many_and_one_that_ends_makes_room() {
    let server = serve(None, WebLimits::default());
    let wish = wish(&server);
    let ids: Vec<String> = (0..PLAYGROUNDS_MOST).map(|_| start(&server, &wish)).collect();
    let reply = order(&server, "POST", "/api/playgrounds", &wish);
    assert_eq!(reply.status, 503, "{reply:?}");
    assert!(
        reply.body.contains(&format!("{PLAYGROUNDS_MOST} virtual servers run already")),
        "{}",
        reply.body
    );
    assert_eq!(order(&server, "DELETE", &format!("/api/playgrounds/{}", ids[0]), "").status, 200);
    let another = start(&server, &wish);
    assert!(!ids.contains(&another), "an id is never given again");
    // A server that a page has ended is gone for its viewers too.
    let gone = ask(&server, "GET", &format!("/api/feeds/{}", ids[0]), "", "");
    assert_eq!(gone.status, 404);
    let begin = Instant::now();
    drop(server);
    assert!(begin.elapsed() < Duration::from_secs(10), "the end waits for virtual servers");
}

#[test]
fn a_wrong_wish_gets_one_line_and_no_path_is_opened() {
    let server = serve(None, WebLimits::default());
    for (body, part) in [
        (r#"{"scenario":"/etc/passwd","policy":"default"}"#, "unknown scenario `/etc/passwd`"),
        (
            r#"{"scenario":"../scenarios/probe.toml","policy":"default"}"#,
            "unknown scenario `../scenarios/probe.toml`",
        ),
        (r#"{"scenario":"a4-fig5","policy":"nothing"}"#, "nothing"),
        (r#"{"scenario":"a4-fig5","policy":"default","speed":0}"#, "speed 0 is out of range"),
        (r#"{"scenario":"a4-fig5","policy":"default","speed":1e9}"#, "is out of range"),
        (r#"{"scenario":"a4-fig5","policy":"default","seed":-1}"#, "not a playground"),
        (r#"{"scenario":"a4-fig5","policy":"default","sets":"exact"}"#, "unknown field `sets`"),
        (r#"{"policy":"default"}"#, "missing field `scenario`"),
    ] {
        let reply = order(&server, "POST", "/api/playgrounds", body);
        assert_eq!(reply.status, 400, "{body}: {reply:?}");
        assert!(reply.body.contains(part), "{body}: {}", reply.body);
        assert_eq!(reply.body.trim_end().lines().count(), 1, "{}", reply.body);
    }
}
