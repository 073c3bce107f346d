//! The pages: self-contained, safe, and complete. They are left in the target's temporary folder (`lab-report*.html`,
//! `lab-headline.svg`), because their appearance needs a human check.

use crate::common;

use std::path::Path;
use waykeeper_lab::report;

fn keep(name: &str, text: &str) {
    std::fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name), text).unwrap();
}

/// The page without its script, and the script.
fn parts(page: &str) -> (String, &str) {
    let (before, rest) = page.split_once("<script nonce=\"").expect("the page has a script");
    let (nonce, rest) = rest.split_once("\">").unwrap();
    let (script, after) = rest.split_once("</script>").unwrap();
    assert!(nonce.len() == 32 && nonce.chars().all(|digit| digit.is_ascii_hexdigit()), "{nonce}");
    assert!(before.contains(&format!("script-src 'nonce-{nonce}';")), "the policy does not allow the script");
    (before.to_owned() + after, script)
}

/// Nothing that would make a browser fetch something, or run anything but the page's own script.
fn assert_self_contained(page: &str) {
    let (page, script) = parts(page);
    assert!(page.contains("content=\"default-src 'none'; script-src 'nonce-"), "the page has no policy");
    let page = page.replace("http://www.w3.org/2000/svg", "");
    for word in ["http:", "https:", "src=\"", "<link", "@import", "<iframe", "<script>", "javascript:"] {
        assert!(!page.contains(word), "the page contains {word}");
    }
    for word in ["fetch(", "XMLHttpRequest", "import(", "EventSource", "localStorage.getItem(\"token"] {
        assert!(!script.contains(word), "the script contains {word}");
    }
    assert!(script.contains("The MIT License"), "uPlot's licence is missing");
    // The only URLs are those of the page's own patterns.
    for url in page.split("url(").skip(1) {
        assert!(url.starts_with('#'), "the page refers to url({}", &url[..url.len().min(40)]);
    }
}

/// A data element of the page.
fn data(page: &str, id: &str) -> serde_json::Value {
    let text = page.split(&format!(" id=\"{id}\">")).nth(1).unwrap().split("</script>").next().unwrap();
    serde_json::from_str(text).unwrap()
}

/// The charts of a page with this title.
fn charts(page: &str, title: &str) -> Vec<serde_json::Value> {
    let all = data(page, "charts");
    for number in 0..all.as_array().unwrap().len() {
        assert_eq!(
            page.matches(&format!("data-chart=\"{number}\"")).count(),
            1,
            "chart {number} has no place"
        );
    }
    all.as_array().unwrap().iter().filter(|chart| chart["title"] == title).cloned().collect()
}

/// Every referenced id exists exactly once.
fn assert_ids(page: &str) {
    let mut ids: Vec<&str> = page.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    for url in page.split("url(#").skip(1) {
        let id = url.split(')').next().unwrap();
        assert!(ids.contains(&id), "{id} is referred to and not there");
    }
    ids.sort_unstable();
    let count = ids.len();
    ids.dedup();
    assert_eq!(ids.len(), count, "an id stands twice");
}

#[test]
fn a_runs_report_needs_no_other_file() {
    let summary = common::five_seeds();
    let page = report::run_html(&summary).unwrap();
    keep("lab-report.html", &page);
    assert_self_contained(&page);
    assert_ids(&page);
    for policy in common::POLICIES {
        assert!(page.contains(&format!("<h3>{policy}</h3>")), "{policy} has no section");
    }
    let verdict = page.find("verdict against default, 5 seeds").expect("the verdict is on the page");
    assert!(verdict < page.find("<h2>Performance").unwrap(), "the verdict is not at the top");
    let facts = ["gold-6140", "1/32", "5 from 1, mean ± standard deviation", "llc_hit_ratio"];
    for words in
        facts.into_iter().chain(["storage antagonist", "reads back 0x400", "0000:5e:00.0 from 12 s to 30 s"])
    {
        assert!(page.contains(words), "the page does not say {words}");
    }
    assert!(!page.contains("wall_s"), "the wall-clock time has no place in a page that must not change");
}

#[test]
fn a_sweeps_report_needs_no_other_file() {
    for (name, two_keys) in [("lab-report-sweep.html", false), ("lab-report-sweep-2.html", true)] {
        let page = report::sweep_html(&common::sweep(two_keys)).unwrap();
        keep(name, &page);
        assert_self_contained(&page);
        assert_ids(&page);
        assert!(page.contains("0x0c0"));
    }
}

#[test]
fn hostile_names_stay_text() {
    let page = report::run_html(&common::hostile()).unwrap();
    keep("lab-report-hostile.html", &page);
    assert!(!page.contains("<img"), "a name became an element");
    // Three data elements and the script.
    assert_eq!(page.matches("</script>").count(), 4, "a name closed a data element");
    assert_self_contained(&page);
    let mut sweep = common::sweep(true);
    sweep.scenario = common::HOSTILE.into();
    sweep.keys[0].label = Some(common::HOSTILE.into());
    for point in &mut sweep.points {
        point.run = common::hostile();
        point.at[1] = waykeeper_lab::results::SweepValue::Text(common::HOSTILE.into());
    }
    let page = report::sweep_html(&sweep).unwrap();
    assert!(!page.contains("<img"));
    assert_eq!(page.matches("</script>").count(), 3);
    assert_self_contained(&page);
    let picture = report::headline_svg(&common::hostile()).unwrap();
    assert!(!picture.contains("<img") && !picture.contains("</script>"));
}

#[test]
fn the_embedded_result_is_the_result() {
    let summary = common::hostile();
    let page = report::run_html(&summary).unwrap();
    let data = page.split("id=\"summary\">").nth(1).unwrap().split("</script>").next().unwrap();
    let read: waykeeper_lab::results::RunSummary = serde_json::from_str(data).unwrap();
    assert!(read.deterministic_json().unwrap() == summary.deterministic_json().unwrap());
}

#[test]
fn a_result_with_nothing_in_it_still_has_a_page() {
    let mut summary = common::flagship(1);
    for policy in summary.policies.values_mut() {
        *policy = Default::default();
    }
    summary.score();
    report::run_html(&summary).unwrap();
    summary.policies.clear();
    summary.score();
    report::run_html(&summary).unwrap();
    assert!(report::headline_svg(&summary).unwrap().is_empty());
    let mut sweep = common::sweep(false);
    sweep.points.clear();
    report::sweep_html(&sweep).unwrap();
}

#[test]
fn the_headline_is_a_picture_of_its_own() {
    let picture = report::headline_svg(&common::five_seeds()).unwrap();
    keep("lab-headline.svg", &picture);
    assert!(picture.starts_with("<svg ") && picture.trim_end().ends_with("</svg>"));
    assert!(!picture.contains("var("), "a picture outside the page has no CSS variables");
    for words in [
        "higher is better",
        "performance relative to default (ratio)",
        "one standard deviation",
        "stroke-dasharray",
    ] {
        assert!(picture.contains(words), "the picture has no {words}");
    }
    for policy in common::POLICIES {
        assert!(picture.contains(&format!(">{policy}</text>")), "{policy} has no label");
    }
    // Every colour has a replacement on dark screens, so that text never has the colour of its background.
    let (drawn, dark) = picture.split_once("@media (prefers-color-scheme:dark)").unwrap();
    for attribute in ["fill", "stroke"] {
        for colour in drawn.split(&format!("{attribute}=\"#")).skip(1) {
            let rule = format!("[{attribute}=\"#{}\"]", &colour[..6]);
            assert!(dark.contains(&rule), "no colour on a dark screen for {rule}");
        }
    }
    assert!(picture == report::headline_svg(&common::five_seeds()).unwrap(), "same result, same bytes");
}

#[test]
fn ways_over_time_and_dca_are_drawn() {
    let page = report::run_html(&common::five_seeds()).unwrap();
    // The DCA ways 9 and 10 are one band of two lanes of 17; the port that was off has a lane of its own.
    assert!(
        page.contains("<title>devices may allocate in 0x600, 0 s to 30 s</title><rect class=\"dca-band\"")
    );
    assert!(
        page.contains(">5e:00.0</text>")
            && page.contains("<title>DCA off at 0000:5e:00.0, 12 s to 30 s</title>")
    );
    assert!(page.contains("<title>DCA on at 0000:5e:00.0, 0 s to 12 s</title>"));
    assert_eq!(page.matches("class=\"ways-at\"").count(), common::POLICIES.len());
    let bars = page.split("class=\"bars big\"").nth(1).unwrap().split("</svg>").next().unwrap();
    assert!(bars.contains("<title>fastclick, a4-d: 1.48"), "the bars have no values");
    assert_eq!(bars.matches("<g><title>").count(), 11 * common::POLICIES.len());
}

#[test]
fn a_chart_over_time_has_every_sample_and_every_decision() {
    let summary = common::five_seeds();
    let page = report::run_html(&summary).unwrap();
    let latencies = charts(&page, "Mean latency per workload");
    assert_eq!(latencies.len(), common::POLICIES.len());
    let hits = charts(&page, "LLC hit ratio per workload");
    let policy = summary.policies.values().last().unwrap();
    let chart = hits.last().unwrap();
    let times: Vec<f64> = serde_json::from_value(chart["places"].clone()).unwrap();
    let decided: Vec<f64> = serde_json::from_value(chart["marks"].clone()).unwrap();
    assert_eq!(times, policy.samples.iter().map(|sample| sample.at_s).collect::<Vec<_>>());
    assert_eq!(decided, policy.decisions.iter().map(|decision| decision.at_s).collect::<Vec<_>>());
    let lines = chart["lines"].as_array().unwrap();
    assert_eq!(lines.len(), 11);
    for line in lines {
        let name = line["name"].as_str().unwrap();
        let expected: Vec<Option<f64>> =
            policy.samples.iter().map(|sample| sample.workloads[name].get("llc_hit_ratio")).collect();
        let values: Vec<Option<f64>> = serde_json::from_value(line["values"].clone()).unwrap();
        assert_eq!(values, expected, "{name}");
    }
    assert_eq!((chart["unit"].as_str(), chart["x"]["kind"].as_str()), (Some("ratio"), Some("time")));
    // Fastclick at about 200 us and ffsb-heavy at about 4 ms share a logarithmic axis.
    assert_eq!((latencies[5]["is_log"].as_bool(), hits[5]["is_log"].as_bool()), (Some(true), Some(false)));
    assert_eq!(latencies[5]["lines"].as_array().unwrap().len(), 2);
}

#[test]
fn no_two_workloads_have_a_mark_and_series_of_a_sweep_have_points() {
    let page = report::run_html(&common::five_seeds()).unwrap();
    let marks = data(&page, "marks");
    let marks: std::collections::BTreeSet<String> =
        marks.as_object().unwrap().values().map(ToString::to_string).collect();
    assert_eq!(marks.len(), 11, "{marks:?}");
    let page = report::sweep_html(&common::sweep(false)).unwrap();
    let chart = charts(&page, "LLC hit").remove(0);
    assert_eq!(chart["has_points"].as_bool(), Some(true));
    // Two policies, two workloads, six values of the key: each has its name.
    let lines = chart["lines"].as_array().unwrap();
    assert_eq!(lines.len(), 2 * 2);
    for line in lines {
        assert_eq!(line["values"].as_array().unwrap().iter().filter(|value| value.is_f64()).count(), 6);
    }
    let names: Vec<String> = serde_json::from_value(chart["x"]["names"].clone()).unwrap();
    assert_eq!(names, ["0x600", "0x300", "0x0c0", "0x030", "0x00c", "0x003"]);
    let looks: std::collections::BTreeSet<String> =
        lines.iter().map(|line| format!("{} {} {}", line["colour"], line["letter"], line["dash"])).collect();
    assert_eq!(looks.len(), 2 * 2, "{looks:?}");
}

#[test]
fn the_script_is_allowed_by_a_value_that_depends_on_the_result() {
    let nonce = |summary: &waykeeper_lab::results::RunSummary| {
        let page = report::run_html(summary).unwrap();
        page.split("nonce-").nth(1).unwrap().split('\'').next().unwrap().to_owned()
    };
    let (summary, mut other) = (common::five_seeds(), common::five_seeds());
    other.scenario.push('x');
    assert_eq!(nonce(&summary), nonce(&summary));
    assert_ne!(nonce(&summary), nonce(&other));
}

#[test]
fn the_picture_in_the_readme_has_a_title_says_which_way_is_better_and_has_dark_colours() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    assert!(readme.contains("](docs/flagship.svg)"));
    let picture = std::fs::read_to_string(root.join("docs/flagship.svg")).unwrap();
    for words in ["a4-hpw-heavy: performance under each policy (higher is better)", "aria-label=\"Bar chart:"]
    {
        assert!(picture.contains(words), "the picture has no {words}");
    }
    assert!(
        picture.contains("@media (prefers-color-scheme:dark)")
            && picture.contains("[fill=\"#ffffff\"]{fill:#15191d}")
    );
}
