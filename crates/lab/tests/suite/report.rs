//! The pages: self-contained, safe, and complete. They are left in the target's temporary folder (`lab-report*.html`,
//! `lab-headline.svg`), because their appearance needs a human check.

use crate::common;

use std::path::Path;
use waykeeper_lab::report;

fn keep(name: &str, text: &str) {
    std::fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name), text).unwrap();
}

/// Nothing that would make a browser fetch or run something.
fn assert_self_contained(page: &str) {
    let without_namespaces = page.replace("http://www.w3.org/2000/svg", "");
    for word in ["http:", "https:", "src=\"", "<link", "@import", "<iframe", "<script>", "javascript:"] {
        assert!(!without_namespaces.contains(word), "the page contains {word}");
    }
    // The only URLs are those of the page's own patterns and clip paths.
    for url in page.split("url(").skip(1) {
        assert!(url.starts_with('#'), "the page refers to url({}", &url[..url.len().min(40)]);
    }
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
    assert_eq!(page.matches("</script>").count(), 1, "a name closed the data element");
    let mut sweep = common::sweep(true);
    sweep.scenario = common::HOSTILE.into();
    sweep.keys[0].label = Some(common::HOSTILE.into());
    for point in &mut sweep.points {
        point.run = common::hostile();
        point.at[1] = waykeeper_lab::results::SweepValue::Text(common::HOSTILE.into());
    }
    let page = report::sweep_html(&sweep).unwrap();
    assert!(!page.contains("<img"));
    assert_eq!(page.matches("</script>").count(), 1);
    let picture = report::headline_svg(&common::hostile());
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
    report::headline_svg(&summary);
    let mut sweep = common::sweep(false);
    sweep.points.clear();
    report::sweep_html(&sweep).unwrap();
}

#[test]
fn the_headline_is_a_picture_of_its_own() {
    let picture = report::headline_svg(&common::five_seeds());
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
    assert!(picture == report::headline_svg(&common::five_seeds()), "same result, same bytes");
}

#[test]
fn latency_over_time_and_dca_are_drawn() {
    let page = report::run_html(&common::five_seeds()).unwrap();
    assert_eq!(page.matches("<h4>Mean latency per workload</h4>").count(), common::POLICIES.len());
    // The DCA ways 9 and 10 are one band of two lanes of 17; the port that was off has a lane of its own.
    assert!(
        page.contains("<title>devices may allocate in 0x600, 0 s to 30 s</title><rect class=\"dca-band\"")
    );
    assert!(
        page.contains(">5e:00.0</text>")
            && page.contains("<title>DCA off at 0000:5e:00.0, 12 s to 30 s</title>")
    );
    assert!(page.contains("<title>DCA on at 0000:5e:00.0, 0 s to 12 s</title>"));
    // Fastclick at about 200 us and ffsb-heavy at about 4 ms share a logarithmic axis.
    let chart = page.split("id=\"p5-latency-clip-0\"").next().unwrap();
    assert!(chart.ends_with("<clipPath "), "the chart has no clip path of its own");
}

#[test]
fn workloads_have_a_hue_each_and_series_of_a_sweep_have_points() {
    let page = report::run_html(&common::five_seeds()).unwrap();
    let chart =
        page.split("<h4>LLC hit ratio per workload</h4>").nth(1).unwrap().split("</svg>").next().unwrap();
    let mut hues: Vec<&str> =
        chart.split("stroke=\"hsl(").skip(1).filter_map(|rest| rest.split(' ').next()).collect();
    hues.sort_unstable();
    hues.dedup();
    assert_eq!(hues.len(), 11, "{hues:?}");
    let page = report::sweep_html(&common::sweep(false)).unwrap();
    let chart = page.split("<h4>LLC hit</h4>").nth(1).unwrap().split("</svg>").next().unwrap();
    // Two policies, two workloads, six values of the key.
    assert_eq!(chart.matches("<circle").count(), 2 * 2 * 6);
    // Every value of the swept key has its name.
    for mask in ["0x600", "0x300", "0x0c0", "0x030", "0x00c", "0x003"] {
        assert!(chart.contains(&format!(">{mask}</text>")), "{mask}");
    }
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
