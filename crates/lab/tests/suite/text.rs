//! The output on a terminal, as golden text. Update with `INSTA_UPDATE=always` and read the diff.

use crate::common;

use waykeeper_lab::results::{Warning, WarningKey, combine};
use waykeeper_lab::table::{self, Extent, Ink, Medium, PAGE_COLUMNS};
use waykeeper_lab::timeline;

/// A terminal without colour.
const PLAIN: Medium = Medium::Terminal(Ink::Plain);

fn assert_fits(text: &str) {
    for line in text.lines() {
        assert!(line.chars().count() <= PAGE_COLUMNS, "{} columns: {line}", line.chars().count());
        assert!(!line.contains('\x1b'), "an escape sequence in plain text: {line:?}");
    }
}

#[test]
fn a_run_as_text() {
    let summary = combine(vec![common::flagship(1)]).unwrap();
    let text = table::run(&summary, PLAIN, Extent::Details);
    assert_fits(&text);
    insta::assert_snapshot!(text);
}

#[test]
fn a_run_fits_a_screen() {
    let text = table::run(&common::five_seeds(), PLAIN, Extent::Screen);
    assert_fits(&text);
    assert!(text.lines().count() <= 45, "{} lines", text.lines().count());
    insta::assert_snapshot!(text);
}

#[test]
fn five_seeds_show_their_spread() {
    let summary = common::five_seeds();
    let text = table::heading(&summary) + &table::comparison(&summary, PLAIN);
    assert_fits(&text);
    insta::assert_snapshot!(text);
}

#[test]
fn the_footer_says_who_settled_when_and_who_was_not_at_rest() {
    let mut summary = common::five_seeds();
    summary.policies.retain(|name, _| name == "default" || name == "a4-b" || name == "a4-d");
    summary.policies["a4-b"].settled_s = None;
    // Measured from 12 s on. a4-d switched DCA at 12 s; a change at the end of the run affects no number.
    let mut late = summary.policies["a4-d"].decisions[4].clone();
    late.at_s = 30.0;
    summary.policies["a4-d"].decisions.push(late.clone());
    let wanted = "sampling error of hit ratios, points: LLC 0.18 (largest 0.49, parest), DCA write 0.13\n\
         settled (seed 1): a4-b never, a4-d at 12 s\nchanged knobs while measured (seed 1): a4-d at 12 s\n\
         knobs that did not take effect (seed 1): a4-d DCA ways 0x600: reads back 0x400\n";
    assert_eq!(table::footer(&summary), wanted);
    late.at_s = 29.0;
    summary.policies["a4-d"].decisions.push(late);
    assert!(table::footer(&summary).contains("a4-d 2 times from 12 s to 29 s\n"));
}

#[test]
fn sampling_errors_and_warnings_are_below_the_table() {
    let mut summary = combine(vec![common::flagship(1)]).unwrap();
    let text = table::footer(&summary);
    let wanted = "sampling error of hit ratios, points: LLC 0.40 (largest 1.10, parest), DCA write 0.30\n";
    assert!(text.contains(wanted) && !text.contains("warning"), "{text}");
    let warning = |number: u32| Warning {
        key: WarningKey::SampleGap,
        text: format!("{number} {}", "word ".repeat(30)),
        advice: "the cure".to_owned(),
    };
    summary.warnings = (1..=6).map(warning).collect();
    let text = table::footer(&summary);
    assert_fits(&text);
    // Of a kind two are printed.
    assert!(text.contains("\nwarning: 2 word") && !text.contains("warning: 3"), "{text}");
    let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(joined.contains("the cure (4 more of this kind are in the JSON, under `warnings`)"), "{text}");
    // With all sets there is no sampling error, and no line about it.
    summary.sampling_error.clear();
    for result in summary.policies.values_mut() {
        result.system.sampling_error.clear();
        result.workloads.values_mut().for_each(|workload| workload.sampling_error.clear());
    }
    assert!(!table::footer(&summary).contains("sampling error"));
}

#[test]
fn a_sweep_as_text() {
    let text = table::curve(&common::sweep(true), PLAIN);
    assert_fits(&text);
    insta::assert_snapshot!(text);
}

/// Alone a policy has nothing to be compared with, but a reader wants to see first how its programs did.
#[test]
fn a_sweep_of_one_policy_begins_with_what_workloads_are_scored_by() {
    let mut sweep = common::sweep(false);
    sweep.points.iter_mut().for_each(|point| point.run.policies.retain(|name, _| name == "isolate"));
    let text = table::curve(&sweep, PLAIN);
    let begins = "a4-fig3: which ways hurt: X-Mem's mask moves over the LLC\n\n\
                  what each workload is scored by\n\
                  X-Mem mask     fastclick  xalancbmk\n\
                  \u{20}           mean latency        IPC\n";
    assert!(text.starts_with(begins), "{text}");
    assert_eq!(text.matches("\nisolate\n").count(), 1, "the whole table follows: {text}");
    // Without a number there is no table.
    for result in sweep.points.iter_mut().flat_map(|point| point.run.policies.values_mut()) {
        result.workloads.values_mut().for_each(|workload| workload.metrics = Default::default());
    }
    assert!(!table::curve(&sweep, PLAIN).contains("scored"));
}

/// An editor and a program read lines of any length; only a terminal would break them.
#[test]
fn in_a_pipe_each_table_is_in_one_piece() {
    let (mut run, sweep) = (common::five_seeds(), common::sweep(true));
    for number in 1..=4 {
        run.policies.insert(format!("own-{number}"), run.policies["a4-d"].clone());
    }
    // The parts of a table repeat its leading columns.
    let parts = |text: &str, leading: &str| text.lines().filter(|line| line.starts_with(leading)).count();
    // The comparison, and each of two policies.
    let curve = |medium| parts(&table::curve(&sweep, medium), "X-Mem mask ");
    assert_eq!((curve(PLAIN), curve(Medium::Stream)), (5, 3));
    let comparison = |medium| parts(&table::comparison(&run, medium), "workload ");
    assert_eq!((comparison(PLAIN), comparison(Medium::Stream)), (2, 1));
    assert!(!table::run(&run, Medium::Stream, Extent::Details).contains('\x1b'));
}

#[test]
fn the_timeline_folds_circles_and_names_knobs_that_disobeyed() {
    let summary = common::flagship(1);
    let text = timeline::timeline(&summary, "a4-d");
    assert!(text.contains("[HH..llllL..]"), "{text}");
    assert!(text.contains("these 2 steps 3 times"), "{text}");
    assert!(text.contains("DCA ways 0x600: reads back 0x400"), "{text}");
    assert_eq!(timeline::timeline(&summary, "nobody"), "");
}

#[test]
fn colour_only_where_it_is_welcome() {
    let summary = common::flagship(1);
    assert!(table::comparison(&summary, Medium::Terminal(Ink::Colour)).contains('\x1b'));
    assert!(!table::comparison(&summary, PLAIN).contains('\x1b'));
}

#[test]
fn hostile_names_cannot_drive_a_terminal() {
    let summary = common::hostile();
    let summary = combine(vec![summary]).unwrap();
    for extent in [Extent::Screen, Extent::Details] {
        let text = table::run(&summary, PLAIN, extent);
        assert!(!text.chars().any(|c| (c.is_control() && c != '\n') || c == '\u{202e}'), "{text:?}");
    }
}

#[test]
fn a_result_with_nothing_in_it_still_reads() {
    let mut summary = common::flagship(1);
    summary.policies.values_mut().for_each(|policy| *policy = Default::default());
    summary.score();
    for extent in [Extent::Screen, Extent::Details] {
        assert_fits(&table::run(&summary, PLAIN, extent));
    }
    summary.policies.clear();
    summary.score();
    for extent in [Extent::Screen, Extent::Details] {
        assert_fits(&table::run(&summary, PLAIN, extent));
    }
    let mut sweep = common::sweep(true);
    sweep.points.clear();
    assert_fits(&table::curve(&sweep, PLAIN));
}

/// The numbers of a text that are not part of a word, a hexadecimal number or a time.
fn numbers(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '.' || c == ':' || c == '_'));
    let words = words.map(|word| word.trim_matches('.').trim_end_matches('%'));
    words.filter(|word| word.parse::<f64>().is_ok()).map(str::to_owned).collect()
}

#[test]
fn decisions_have_at_most_four_significant_digits() {
    use waykeeper_lab::{registry, runner};
    let significant = |number: &str| {
        let digits: String = number.chars().filter(char::is_ascii_digit).collect();
        let leading = digits.trim_start_matches('0');
        if number.contains('.') { leading.len() } else { leading.trim_end_matches('0').len() }
    };
    assert_eq!(["0.1235", "4718592", "33770000", "60.25"].map(significant), [4, 7, 4, 4]);
    assert_eq!(numbers("a 1.5 % of 0x00c (12 ways), group 3"), ["1.5", "12", "3"]);
    let mut source = registry::open(registry::FLAGSHIP).unwrap();
    source.set("time_factor", &toml::Value::Integer(100)).unwrap();
    let plan = runner::RunPlan {
        policies: waykeeper_policy::registry().iter().map(|entry| entry.name.to_owned()).collect(),
        sampling: "1/256".parse().unwrap(),
        duration_s: Some(15.0),
        warmup_s: Some(14.0),
        ..runner::RunPlan::default()
    };
    let outcome = runner::Experiment::prepare(&source, plan).unwrap().run(&|_| {}).unwrap();
    let runner::ExperimentOutcome::Run(summary) = outcome else { panic!("the flagship is no sweep") };
    let mut texts = 0;
    for (policy, result) in &summary.policies {
        for decision in &result.decisions {
            texts += 1;
            let long = numbers(&decision.text).into_iter().find(|number| significant(number) > 4);
            assert_eq!(long, None, "{policy}: {}", decision.text);
        }
        let long =
            numbers(&timeline::timeline(&summary, policy)).into_iter().find(|number| significant(number) > 4);
        assert_eq!(long, None, "the timeline of {policy}");
    }
    assert!(texts > 100, "{texts}");
}
