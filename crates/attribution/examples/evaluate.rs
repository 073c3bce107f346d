//! Scores the attribution on recorded runs (see `record`): one line per run with its counts of pairs.
//!
//! `cargo run -p waykeeper-attribution --example evaluate -- [--alone] FILE...` prints, separated by tabs: scenario, point,
//! policy, seed, intervals; true pairs, claimed ones and those that are both, at a share of 0.1 and of 0.2; victims of which
//! it cannot tell, and true pairs of these; claimed pairs of victims whose loss matters, and how many of their true shares
//! are in the error band; victims whose loss matters and that it tells of, and how many of their largest polluters are the
//! true ones. With `--alone` each interval is judged without those before it. `scripts/attribution_table.py` makes the
//! tables of docs/attribution.md of it.

#![expect(clippy::print_stdout, reason = "a table for a script")]
#![expect(dead_code, reason = "the tests use the rest of the shared files")]

#[path = "../tests/suite/recorded.rs"]
mod recorded;
#[path = "../tests/suite/truth.rs"]
mod truth;

use recorded::TrueEviction;
use serde_json::Value;
use truth::{Truth, claimed, name};
use waykeeper_attribution::{Attribution, Attributor, PollutionSource};
use waykeeper_host::{Interval, Inventory, Workload};

/// The shares from which a pair counts.
const SHARES: [f64; 2] = [0.1, 0.2];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (alone, files) = match arguments.split_first() {
        Some((flag, files)) if flag == "--alone" => (true, files),
        _ => (false, arguments.as_slice()),
    };
    files.iter().for_each(|file| score(file, alone));
}

/// Counts of a run.
#[derive(Default)]
struct Score {
    intervals: usize,
    pairs: [[usize; 3]; 2],
    untold: usize,
    untold_pairs: usize,
    banded: usize,
    within: usize,
    victims: usize,
    largest: usize,
}

fn score(file: &str, alone: bool) {
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{file}: {error}"));
    let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let head = lines.next().expect("a first line");
    let inventory: Inventory = serde_json::from_value(head["inventory"].clone()).expect("an inventory");
    let mut attributor = Attributor::new(&inventory);
    let mut score = Score::default();
    for line in lines {
        let seen: Interval = serde_json::from_value(line["seen"].clone()).expect("an interval");
        let workloads: Vec<Workload> = serde_json::from_value(line["workloads"].clone()).expect("workloads");
        if alone {
            attributor = Attributor::new(&inventory);
        }
        let said = attributor.observe(&workloads, &seen);
        let truth = Truth::of(&inventory, &workloads, &seen, &evictions(&line["evictions"]));
        score.add(&said, &truth, &inventory, &workloads);
    }
    let text = |key: &str| head[key].as_str().unwrap_or_default().to_owned();
    let at: Vec<&str> = head["at"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let [first, second] = score.pairs.map(|of| of.map(|count| count.to_string()).join("\t"));
    println!(
        "{}\t{}\t{}\t{}\t{}\t{first}\t{second}\t{}\t{}\t{}\t{}\t{}\t{}",
        text("scenario"),
        at.join(" "),
        text("policy"),
        head["seed"],
        score.intervals,
        score.untold,
        score.untold_pairs,
        score.banded,
        score.within,
        score.victims,
        score.largest
    );
}

fn evictions(rows: &Value) -> Vec<TrueEviction> {
    let text = |value: &Value| value.as_str().expect("a name").to_owned();
    let row = |row: &Value| TrueEviction {
        by: text(&row[0]),
        of: text(&row[1]),
        reason: serde_json::from_value(row[2].clone()).expect("a reason"),
        lines_per_s: row[3].as_f64().expect("a rate"),
    };
    rows.as_array().expect("a list").iter().map(row).collect()
}

impl Score {
    fn add(&mut self, said: &Attribution, truth: &Truth, inventory: &Inventory, workloads: &[Workload]) {
        self.intervals += 1;
        let name = |source| name(source, inventory, workloads);
        let tenant = |id| name(PollutionSource::Tenant(id));
        let silent: Vec<String> = said.cannot_tell.iter().map(|of| tenant(of.victim)).collect();
        self.untold += silent.len();
        for (counts, share) in self.pairs.iter_mut().zip(SHARES) {
            let (is_true, is_claimed) = (truth.pairs(share), claimed(said, share, inventory, workloads));
            let both = is_true.intersection(&is_claimed).count();
            for (count, more) in counts.iter_mut().zip([is_true.len(), is_claimed.len(), both]) {
                *count += more;
            }
        }
        self.untold_pairs +=
            truth.pairs(SHARES[0]).iter().filter(|(_, victim)| silent.contains(victim)).count();
        for pair in said.pairs.iter().filter(|pair| pair.share >= SHARES[0]) {
            let key = (name(pair.polluter), tenant(pair.victim));
            if truth.matters.contains(&key.1) {
                let share = truth.shares.get(&key).copied().unwrap_or(0.0);
                self.banded += 1;
                self.within += usize::from((pair.low..=pair.high).contains(&share));
            }
        }
        for victim in truth.matters.iter().filter(|victim| !silent.contains(victim)) {
            let shares = truth.shares.iter().filter(|((_, of), _)| of == victim);
            let most = shares.max_by(|a, b| a.1.total_cmp(b.1)).map(|((by, _), _)| by.clone());
            let first = said.pairs.iter().find(|pair| tenant(pair.victim) == *victim);
            self.victims += 1;
            self.largest += usize::from(most == first.map(|pair| name(pair.polluter)));
        }
    }
}
