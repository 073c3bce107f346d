//! What people see on a terminal, as golden text. Update with `INSTA_UPDATE=always` and read the diff.

mod common;

use waykeeper_lab::table::{self, Ink, PAGE_COLUMNS};
use waykeeper_lab::timeline;

fn assert_fits(text: &str) {
    for line in text.lines() {
        assert!(line.chars().count() <= PAGE_COLUMNS, "{} columns: {line}", line.chars().count());
        assert!(!line.contains('\x1b'), "an escape sequence in plain text: {line:?}");
    }
}

#[test]
fn a_run_as_text() {
    let summary = common::flagship(1);
    let text = table::run(&summary, Ink::Plain);
    assert_fits(&text);
    insta::assert_snapshot!(text);
}

#[test]
fn five_seeds_show_their_spread() {
    let summary = common::five_seeds();
    let text = table::heading(&summary) + &table::comparison(&summary, Ink::Plain);
    assert_fits(&text);
    insta::assert_snapshot!(text);
}

#[test]
fn a_sweep_as_text() {
    let text = table::curve(&common::sweep(true), Ink::Plain);
    assert_fits(&text);
    insta::assert_snapshot!(text);
}

#[test]
fn the_timeline_folds_circles_and_names_knobs_that_disobeyed() {
    let summary = common::flagship(1);
    let text = timeline::timeline(&summary, "a4-d");
    assert!(text.contains("[DD..llllL..]"), "{text}");
    assert!(text.contains("these 2 steps 3 times"), "{text}");
    assert!(text.contains("DCA ways 0x600: reads back 0x400"), "{text}");
    assert_eq!(timeline::timeline(&summary, "nobody"), "");
}

#[test]
fn colour_only_where_it_is_welcome() {
    let summary = common::flagship(1);
    assert!(table::comparison(&summary, Ink::Colour).contains('\x1b'));
    assert!(!table::comparison(&summary, Ink::Plain).contains('\x1b'));
}

#[test]
fn hostile_names_cannot_drive_a_terminal() {
    let summary = common::hostile();
    let text = table::run(&summary, Ink::Plain);
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
}

#[test]
fn a_result_with_nothing_in_it_still_reads() {
    let mut summary = common::flagship(1);
    summary.policies.values_mut().for_each(|policy| *policy = Default::default());
    summary.score();
    assert_fits(&table::run(&summary, Ink::Plain));
    summary.policies.clear();
    summary.score();
    assert_fits(&table::run(&summary, Ink::Plain));
    let mut sweep = common::sweep(true);
    sweep.points.clear();
    assert_fits(&table::curve(&sweep, Ink::Plain));
}
