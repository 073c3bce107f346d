//! `waykeeper replay`: shows the flight recorder's steps, and the decisions of another policy on the same counters.
//! Must not know the format of a recording (`service`).

mod trace;

use crate::exit::{self, Failure};
use crate::run::assignment;
use crate::{listing, out};
use clap::Args;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::SystemTime;
use waykeeper_linux_host::Grouping;
use waykeeper_service::DaemonMode;
use waykeeper_service::log::turned_of;
use waykeeper_service::naming::HostNames;
use waykeeper_service::protocol::plain_time;
use waykeeper_service::recorder::{Header, Item, ReadError, RecordedStep, RecordingReader};
use waykeeper_service::replay::{Compared, DifferenceSummary, KnobDifference, Replay, differences, within};
use waykeeper_units::one_line;

const EXAMPLES: &str = "\
Examples:
  The recorded decisions and their reasons
    waykeeper replay /var/lib/waykeeper/recorder
  One hour of them
    waykeeper replay DIR --from 2026-11-22T08:00:00Z --to 2026-11-22T09:00:00Z
  What iat would have decided
    waykeeper replay DIR --policy iat
  The same for a4 with one setting changed, one JSON object per line
    waykeeper replay DIR --policy a4 --set stable_interval_s=5 --json
  Decisions and counters on a time line: open the file in ui.perfetto.dev
    waykeeper replay DIR --trace steps.perfetto-trace

With --policy the replay is open loop: the other policy sees the recorded counters, which do not
react to its decisions, and each knob that it sets reads back as set.";

/// Arguments of `waykeeper replay`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ReplayArgs {
    /// A segment of a recording, or the directory with all segments
    #[arg(value_name = "FILE|DIR")]
    recording: PathBuf,
    /// Run this policy on the recorded counters and show where its decisions differ
    #[arg(long, value_name = "POLICY")]
    policy: Option<String>,
    /// Setting of that policy, such as stable_interval_s=5; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = assignment, requires = "policy")]
    set: Vec<(String, toml::Value)>,
    /// Leave out steps before this time (UTC), for example 2026-11-22T08:00:00Z
    #[arg(long, value_name = "TIME", value_parser = moment)]
    from: Option<SystemTime>,
    /// Leave out steps after this time (UTC)
    #[arg(long, value_name = "TIME", value_parser = moment)]
    to: Option<SystemTime>,
    /// Write the steps as a trace for Perfetto (ui.perfetto.dev) instead of printing them; `-` is standard
    /// output
    #[arg(long, value_name = "FILE", conflicts_with_all = ["policy", "json"])]
    trace: Option<PathBuf>,
    /// Replace FILE if it exists
    #[arg(long, requires = "trace")]
    force: bool,
    /// Print one JSON object per line instead of a table
    #[arg(long)]
    json: bool,
}

/// A time in UTC, as in the log.
fn moment(text: &str) -> Result<SystemTime, String> {
    humantime::parse_rfc3339_weak(text)
        .map_err(|_| "not a time; write it in UTC, for example 2026-11-22T08:00:00Z".to_owned())
}

/// What was read so far, and the output.
#[derive(Default)]
struct ReplayPrinter {
    header: Option<Box<Header>>,
    /// The last step's number, the state and the policy shown last.
    last_step: Option<u64>,
    shown: (String, String),
    /// The tenants that shared a class in the last step.
    shared: Vec<Grouping>,
    rows: Vec<Vec<String>>,
    /// Bytes of the rows, and how many rows were left out because of them.
    row_bytes: usize,
    rows_left_out: u64,
    notes: Vec<String>,
    notes_left_out: u64,
    steps: u64,
    summary: DifferenceSummary,
}

/// Most bytes of a table's cells: a table is held in memory to align its columns. A day of decisions has some MiB.
const ROWS_BYTES_MOST: usize = 16 << 20;
/// Most notes. Assumption: a reader does not read further.
const NOTES_MOST: usize = 1000;

/// Runs the subcommand.
pub fn replay(args: ReplayArgs) -> Result<(), Failure> {
    let mut other = match &args.policy {
        Some(name) => Some(Replay::new(name, args.set.iter().cloned().collect())?),
        None => None,
    };
    let reader = RecordingReader::open(&args.recording)?;
    if let Some(path) = &args.trace {
        return trace::write(reader, path, args.force, args.from, args.to);
    }
    let mut printer = ReplayPrinter::default();
    for item in reader {
        match item {
            Item::Unreadable(why) => printer.note(one_line(&why)),
            Item::Segment { header, .. } => {
                if let Some(other) = &mut other {
                    other.segment(&header);
                }
                printer.segment(*header);
            }
            Item::Entry(entry) if within(entry.at, args.from, args.to) => {
                printer.count(&entry);
                match &mut other {
                    None => printer.recorded(&entry, args.json)?,
                    Some(other) => {
                        if let Some(compared) = other.step(&entry)? {
                            printer.compared(&entry, &compared, args.json)?;
                        }
                    }
                }
            }
            Item::Entry(_) => {}
        }
    }
    printer.end(&args)
}

impl ReplayPrinter {
    fn segment(&mut self, header: Header) {
        let again = self.header.as_ref().is_some_and(|before| before.started != header.started);
        if again {
            self.note(format!("the daemon restarted at {}", plain_time(header.started)));
            self.last_step = None;
        }
        self.header = Some(Box::new(header));
    }

    /// Counts a step; missing steps are reported once per gap.
    fn count(&mut self, entry: &RecordedStep<'_>) {
        let missing = self.last_step.map_or(0, |last| entry.step.saturating_sub(last.saturating_add(1)));
        if missing > 0 {
            self.note(format!("{missing} steps are missing before {}", plain_time(entry.at)));
        }
        if self.last_step.is_none() && entry.step > 0 {
            let at = plain_time(entry.at);
            self.note(format!(
                "the recording begins at {at} with step {}, after the daemon's start",
                entry.step
            ));
        }
        self.last_step = Some(entry.step);
        self.steps += 1;
    }

    fn recorded(&mut self, entry: &RecordedStep<'_>, as_json: bool) -> Result<(), Failure> {
        let policy = self.header.as_ref().map(|header| header.policy.clone()).unwrap_or_default();
        let names = HostNames::recorded(self.header.as_deref(), entry.groups.as_deref().unwrap_or_default());
        let record = &entry.record;
        let mode = self.header.as_ref().map_or(DaemonMode::Manage, |header| header.mode);
        let turned = turned_of(mode, &record.wanted, &record.applied, &names);
        let problems: Vec<String> =
            record.problems.iter().map(|problem| names.text(&problem.to_string())).collect();
        if as_json {
            return line(&json!({
                "at": plain_time(entry.at), "step": entry.step, "policy": policy, "paused": entry.paused,
                "state": record.state, "events": record.events, "turned": turned, "problems": problems,
                "wish": record.wanted, "standing": entry.active_problems, "groupings": entry.groupings,
            }));
        }
        let mut what = Vec::new();
        let reasons = |event: &waykeeper_policy::Event| {
            let causes = waykeeper_service::log::causes(&event.causes, &names);
            let group = event.group.as_ref().map(|group| format!("{group}: ")).unwrap_or_default();
            let reasons = if causes.is_empty() { causes } else { format!(" ({causes})") };
            (event.action.clone(), format!("{group}{}{reasons}", names.text(&event.text)))
        };
        what.extend(record.events.iter().map(reasons));
        what.extend(turned.into_iter().map(|text| ("turned".to_owned(), text)));
        what.extend(problems.into_iter().map(|text| ("problem".to_owned(), text)));
        let shared = entry.groupings.as_deref().unwrap_or_default();
        if shared != self.shared {
            what.extend(shared.iter().filter(|own| !self.shared.contains(own)).map(|own| {
                let place = if own.in_default { "the default group" } else { "one class" };
                let with = if own.with.is_empty() {
                    String::new()
                } else {
                    format!(" with {}", own.with.join(", "))
                };
                ("grouping".to_owned(), format!("{} is in {place}{with}: {}", own.tenant, own.why))
            }));
            self.shared = shared.to_vec();
        }
        let now = (policy, record.state.clone());
        if what.is_empty() && now != self.shown {
            what.push(("state".to_owned(), String::new()));
        }
        self.shown = now;
        let (policy, state) = self.shown.clone();
        for (number, (event, text)) in what.into_iter().enumerate() {
            let first = number == 0;
            let head = |text: &str| if first { one_line(text) } else { String::new() };
            let row =
                [head(&plain_time(entry.at)), head(&policy), head(&state), one_line(&event), one_line(&text)];
            self.row(row.to_vec());
        }
        Ok(())
    }

    fn compared(
        &mut self,
        entry: &RecordedStep<'_>,
        compared: &Compared,
        as_json: bool,
    ) -> Result<(), Failure> {
        let names = HostNames::recorded(self.header.as_deref(), entry.groups.as_deref().unwrap_or_default());
        self.summary.add(entry.at, compared, &names);
        if as_json {
            return line(&json!({
                "at": plain_time(entry.at), "step": compared.step, "agrees": compared.agrees(),
                "recorded": compared.recorded, "replayed": compared.replayed,
            }));
        }
        if compared.agrees() {
            return Ok(());
        }
        let differ = differences(&compared.recorded.wanted, &compared.replayed.wanted, &names);
        let mut rows = Vec::new();
        let (ours, theirs) = (&compared.recorded, &compared.replayed);
        if ours.state != theirs.state {
            rows.push(["state".to_owned(), ours.state.clone(), theirs.state.clone()]);
        }
        rows.extend(differ);
        // A difference equal to that of the row before is not repeated.
        let now = (format!("{rows:?}"), String::new());
        let said = |side: &waykeeper_service::replay::Side| {
            side.events.iter().map(|event| event.action.as_str()).collect::<Vec<_>>().join(", ")
        };
        if now == self.shown && ours.events == theirs.events {
            return Ok(());
        }
        self.shown = now;
        if ours.events != theirs.events {
            rows.push(["events".to_owned(), listing::or_dash(&said(ours)), listing::or_dash(&said(theirs))]);
        }
        for (number, row) in rows.into_iter().enumerate() {
            let at = if number == 0 { plain_time(entry.at) } else { String::new() };
            self.row(std::iter::once(at).chain(row.iter().map(|cell| one_line(cell))).collect());
        }
        Ok(())
    }

    /// Keeps a row for the table, up to a bound.
    fn row(&mut self, row: Vec<String>) {
        self.row_bytes += row.iter().map(String::len).sum::<usize>();
        if self.row_bytes > ROWS_BYTES_MOST {
            self.rows_left_out += 1;
        } else {
            self.rows.push(row);
        }
    }

    /// Keeps a note, up to a bound.
    fn note(&mut self, note: String) {
        if self.notes.len() < NOTES_MOST {
            self.notes.push(note);
        } else {
            self.notes_left_out += 1;
        }
    }

    fn end(mut self, args: &ReplayArgs) -> Result<(), Failure> {
        if self.header.is_none() {
            let why = self.notes.first().cloned().unwrap_or_else(|| "no steps in this recording".to_owned());
            return Err(Failure::bad_input(why));
        }
        if self.notes_left_out > 0 {
            self.notes.push(format!("{} more notes are left out", self.notes_left_out));
        }
        let summary = match &args.policy {
            None => format!("{} steps; steps without decisions or changes are left out", self.steps),
            Some(name) => format!(
                "{name} decides differently in {} of {} steps. Open loop: the counters are those recorded \
                 under the other policy",
                self.summary.differ, self.summary.compared
            ),
        };
        if args.json {
            for note in &self.notes {
                line(&json!({ "note": note }))?;
            }
            let mut last = json!({ "steps": self.steps });
            if args.policy.is_some() {
                last = json!({ "steps": self.steps, "compared": self.summary.compared,
                    "differ": self.summary.differ, "summary": self.summary });
            }
            return line(&last);
        }
        if self.rows_left_out > 0 {
            let most = ROWS_BYTES_MOST >> 20;
            let why = format!("{} rows are left out", self.rows_left_out);
            let way = "name a shorter time with --from and --to, or use --json";
            self.notes.push(format!("{why}: the table has at most {most} MiB; {way}"));
        }
        for note in &self.notes {
            exit::eprint_line(&format!("note: {note}"));
        }
        let heading: &[&str] = match &args.policy {
            None => &["time", "policy", "state", "event", "decision and reason"],
            Some(name) => &["time", "knob", "recorded", name.as_str()],
        };
        if !self.rows.is_empty() {
            self.rows.insert(0, heading.iter().map(|cell| (*cell).to_owned()).collect());
            out::text(&listing::columns(&self.rows))?;
            out::text("\n")?;
        }
        if let Some(name) = &args.policy {
            let recorded = self.header.as_ref().map_or("recorded", |header| header.policy.as_str());
            out::text(&where_and_why(&self.summary, recorded, name))?;
        }
        out::text(&format!("{summary}\n"))
    }
}

/// Most reasons of a policy at the first difference: at its start there is one per tenant.
const REASONS_MOST: usize = 5;

/// Where and why the decisions differ, in a few lines and tables. `recorded` and `replayed` name the policies.
fn where_and_why(summary: &DifferenceSummary, recorded: &str, replayed: &str) -> String {
    let Some(first) = &summary.first else { return String::new() };
    let mut out = format!("first difference at {}, step {}\n", first.at, first.step);
    for (name, why) in
        [(format!("recorded ({recorded})"), &first.recorded), (replayed.to_owned(), &first.replayed)]
    {
        let _ = writeln!(out, "  {}, state {}", one_line(&name), listing::or_dash(&one_line(&why.state)));
        let none = ["no event".to_owned()];
        let reasons = if why.reasons.is_empty() { &none[..] } else { &why.reasons };
        for reason in reasons.iter().take(REASONS_MOST) {
            let _ = writeln!(out, "    {}", one_line(reason));
        }
        if reasons.len() > REASONS_MOST {
            let _ = writeln!(out, "    and {} more", reasons.len() - REASONS_MOST);
        }
    }
    let share = |steps: u64| format!("{:.0} %", 100.0 * steps as f64 / summary.compared as f64);
    let mut kinds = vec![["difference", "steps", "share"].map(str::to_owned).to_vec()];
    kinds.extend(
        summary.kinds.iter().map(|(kind, steps)| vec![kind.clone(), steps.to_string(), share(*steps)]),
    );
    let _ = write!(out, "\n{}", listing::columns(&kinds));
    if !summary.knobs.is_empty() {
        let heading = ["knob", "steps", "share", "first at", "recorded then", replayed];
        let mut rows = vec![heading.map(str::to_owned).to_vec()];
        rows.extend(summary.knobs.iter().map(|(name, knob)| {
            let KnobDifference { steps, first_at, recorded, replayed } = knob;
            [name, &steps.to_string(), &share(*steps), first_at, recorded, replayed]
                .map(|cell| one_line(cell))
                .to_vec()
        }));
        let _ = write!(out, "\n{}", listing::columns(&rows));
    }
    let actions = |of: &BTreeMap<String, u64>| {
        let counted: Vec<String> = of.iter().map(|(action, count)| format!("{action} {count}")).collect();
        one_line(&listing::or_dash(&counted.join(", ")))
    };
    let [ours, theirs] = &summary.actions;
    let _ = writeln!(
        out,
        "\nevents where they differ: recorded {}; {} {}",
        actions(ours),
        one_line(replayed),
        actions(theirs)
    );
    out.push('\n');
    out
}

fn line(value: &serde_json::Value) -> Result<(), Failure> {
    out::text(&format!("{value}\n"))
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Failure {
        match &error {
            ReadError::Open { source, .. } if source.kind() != std::io::ErrorKind::NotFound => {
                Failure::new(exit::io_code(source), error)
            }
            _ => Failure::bad_input(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use waykeeper_service::replay::{FirstDifference, Why};

    #[test]
    fn the_summary_names_the_first_difference_the_kinds_the_knobs_and_the_events() {
        assert_eq!(where_and_why(&DifferenceSummary::default(), "a4", "iat"), "");
        let why = |state: &str, reasons: &[&str]| Why {
            state: state.to_owned(),
            reasons: reasons.iter().map(|reason| (*reason).to_owned()).collect(),
        };
        let knob = KnobDifference {
            steps: 30,
            first_at: "1970-01-01T00:00:01.000Z".to_owned(),
            recorded: "0x00c".to_owned(),
            replayed: "-".to_owned(),
        };
        let summary = DifferenceSummary {
            compared: 40,
            differ: 30,
            first: Some(FirstDifference {
                at: "1970-01-01T00:00:01.000Z".to_owned(),
                step: 1,
                knobs: Vec::new(),
                recorded: why("Expand", &["1", "2", "3", "4", "5", "a\nb", "7"]),
                replayed: why("", &[]),
            }),
            kinds: BTreeMap::from([("mask".to_owned(), 30)]),
            knobs: BTreeMap::from([("mask of fio".to_owned(), knob)]),
            actions: [BTreeMap::from([("grow".to_owned(), 2)]), BTreeMap::new()],
        };
        let wanted = "\
first difference at 1970-01-01T00:00:01.000Z, step 1
  recorded (a4), state Expand
    1
    2
    3
    4
    5
    and 2 more
  iat, state -
    no event

difference  steps  share
mask        30     75 %

knob         steps  share  first at                  recorded then  iat
mask of fio  30     75 %   1970-01-01T00:00:01.000Z  0x00c          -

events where they differ: recorded grow 2; iat -

";
        assert_eq!(where_and_why(&summary, "a4", "iat"), wanted);
    }
}
