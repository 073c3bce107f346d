//! Playgrounds: virtual servers of a page, bounded in number, that take turns and answer in pictures.

use crate::common::{PATIENCE, ask, order, read_until, serve, view, view_all};
use std::time::{Duration, Instant};
use waykeeper_web::{FeedPatience, WebLimits, WebServer};

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
    for (turn, part) in [
        (format!(r#"{{"do":"mask","tenant":"{name}","mask":"0xfffff"}}"#), "wider than the chip"),
        (r#"{"do":"speed","factor":1e-308}"#.to_owned(), "give a number from 0.001 to 1000"),
        (r#"{"do":"speed","factor":1e999}"#.to_owned(), "number out of range"),
        (r#"{"do":"load","device":"nic0","factor":1e308}"#.to_owned(), "give a number from 0 to 10"),
        (r#"{"do":"load","device":"nic0","factor":-1e-308}"#.to_owned(), "give a number from 0 to 10"),
    ] {
        let reply = order(&server, "POST", &format!("/api/feeds/{id}/turn"), &turn);
        assert_eq!(reply.status, 400, "{turn}: {reply:?}");
        assert!(reply.body.contains(part), "{turn}: {}", reply.body);
    }
}

/// Few playgrounds, which wait for an hour for a page.
const FEW: usize = 3;
const LONG: Duration = Duration::from_secs(3600);

fn few() -> WebServer {
    let playground_idle = FeedPatience { first: LONG, next: LONG };
    serve(None, WebLimits { playgrounds: FEW, playground_idle, ..WebLimits::default() })
}

fn is_there(server: &WebServer, id: &str) -> bool {
    ask(server, "GET", &format!("/api/feeds/{id}"), "", "").status == 200
}

#[test]
fn pages_that_come_and_go_never_find_the_server_full() {
    let server = few();
    let wish = wish(&server);
    // A page that starts a server and is closed before it has seen a picture, and one that is closed after it.
    for round in 0..3 * FEW {
        let id = start(&server, &wish);
        if round % 2 == 0 {
            read_until(&mut view(&server, &id), "event: picture");
        }
    }
    // Hidden pages keep theirs for as long as no page that is shown needs the place.
    let hidden: Vec<String> = (0..FEW).map(|_| start(&server, &wish)).collect();
    let mut pages = view_all(&server, &format!("hidden={}", hidden.join(",")));
    read_until(&mut pages, "\r\n\r\n");
    let shown = start(&server, &wish);
    let come = read_until(&mut pages, "event: ended");
    let ended: Vec<&String> = hidden.iter().filter(|id| !is_there(&server, id)).collect();
    assert!(ended.len() == 1 && come.contains(&format!("id: {}\nevent: ended\n", ended[0])), "{come}");
    assert!(is_there(&server, &shown));
}

#[test]
fn only_pages_that_are_shown_fill_the_server_and_one_that_is_closed_makes_room_at_once() {
    let server = few();
    let wish = wish(&server);
    let ids: Vec<String> = (0..FEW).map(|_| start(&server, &wish)).collect();
    let mut pages: Vec<_> = ids.iter().map(|id| view(&server, id)).collect();
    for page in &mut pages {
        read_until(page, "event: picture");
    }
    let reply = order(&server, "POST", "/api/playgrounds", &wish);
    assert_eq!(reply.status, 503, "{reply:?}");
    assert!(reply.head.contains("retry-after: 2"), "{}", reply.head);
    assert!(reply.body.contains("pages show 3 virtual servers"), "{}", reply.body);
    assert_eq!(order(&server, "DELETE", &format!("/api/playgrounds/{}", ids[0]), "").status, 200);
    let another = start(&server, &wish);
    assert!(!ids.contains(&another), "an id is never given again");
    // A server that a page has ended is gone for its viewers too.
    assert!(!is_there(&server, &ids[0]));
    let _page = view_all(&server, &format!("seen={another}"));
    // A connection that is closed is enough; no request says goodbye.
    drop(pages.pop());
    let begin = Instant::now();
    while order(&server, "POST", "/api/playgrounds", &wish).status != 200 {
        assert!(begin.elapsed() < PATIENCE, "a closed page keeps its place");
    }
    assert!(is_there(&server, &ids[1]) && !is_there(&server, &ids[2]));
    let begin = Instant::now();
    drop(server);
    assert!(begin.elapsed() < Duration::from_secs(10), "the end waits for virtual servers");
}

#[test]
fn one_stream_has_the_pictures_of_all_pages() {
    let server = serve(None, WebLimits::default());
    let wish = wish(&server);
    let ids: Vec<String> = (0..2).map(|_| start(&server, &wish)).collect();
    let mut pages = view_all(&server, &format!("seen={},unknown&hidden={}", ids[0], ids[1]));
    let come = read_until(&mut pages, "event: picture");
    assert!(come.contains("id: unknown\nevent: ended\n"), "{come}");
    assert!(come.contains(&format!("id: {}\nevent: picture\n", ids[0])), "{come}");
    // A hidden page has no pictures, and the server behind it is paused; it is there when the page is shown.
    let mut pages = view_all(&server, &format!("seen={}", ids[1]));
    let come = read_until(&mut pages, "event: picture");
    assert!(come.contains(&format!("id: {}\n", ids[1])), "{come}");
    let wrong = ask(&server, "GET", "/api/events?all=1", "", "");
    assert_eq!((wrong.status, wrong.body.lines().count()), (400, 1), "{wrong:?}");
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
        // A step at this speed would take longer than a number can say.
        (r#"{"scenario":"a4-fig5","policy":"default","speed":1e-308}"#, "give a number from 0.001 to 1000"),
        (r#"{"scenario":"a4-fig5","policy":"default","speed":-1}"#, "give a number from 0.001 to 1000"),
        (r#"{"scenario":"a4-fig5","policy":"default","speed":1e999}"#, "number out of range"),
        (r#"{"scenario":"a4-fig5","policy":"default","speed":null}"#, "not a playground"),
        (r#"{"scenario":"a4-fig5","policy":"default","seed":1e3}"#, "not a playground"),
        (r#"{"scenario":"a4-fig5","policy":"default","seed":18446744073709551616}"#, "not a playground"),
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
