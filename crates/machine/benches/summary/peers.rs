//! Other cache simulators, each a program of its own in target/peers/bin: hands them a trace and has them run it.
//!
//! scripts/install_peers.py puts programs there; none is needed. The protocol is at the top of
//! scripts/peers/pycachesim.c. Knows nothing of our model, and not which programs there are.

use crate::pace::Pass;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// What to say where no peer is installed.
pub const HOW_TO_INSTALL: &str = "no other simulator to compare with; `python3 scripts/install_peers.py` installs some in target/peers/bin";

/// A peer that holds a trace and waits for the order to run it.
pub struct Peer {
    /// The file name of its program.
    pub name: String,
    child: Child,
    orders: Option<ChildStdin>,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Peer {
    /// All installed peers that can simulate these levels, as `SETSxWAYS`, the nearest first. The trace is a file of line
    /// numbers.
    pub fn start_all(trace: &Path, levels: &[&str]) -> Vec<Peer> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/peers/bin");
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut programs: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        programs.sort();
        programs.iter().filter_map(|program| Peer::start(program, trace, levels)).collect()
    }

    /// Starts a program and has it run the trace once, since one that cannot simulate the levels ends instead.
    fn start(program: &Path, trace: &Path, levels: &[&str]) -> Option<Peer> {
        let mut child = Command::new(program)
            .arg(trace)
            .args(levels)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let orders = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let name = program.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let mut peer = Peer { name, child, orders, answers };
        peer.pass().map(|_| peer)
    }

    /// Runs the trace once; `None` if the program has ended.
    pub fn pass(&mut self) -> Option<Pass> {
        self.orders.as_mut()?.write_all(b"\n").ok()?;
        // A simulator may print text of its own before its first answer.
        let mut answers = self.answers.by_ref().map_while(Result::ok);
        let answer = answers.find_map(|line| line.strip_prefix("pass ").map(str::to_owned))?;
        let (cpu_s, hits) = answer.split_once(' ')?;
        Some(Pass { cpu_s: cpu_s.parse().ok()?, hits: hits.parse().ok()? })
    }
}

impl Drop for Peer {
    /// The end of its standard input ends a peer; waiting for it leaves no zombie.
    fn drop(&mut self) {
        self.orders = None;
        // How it ends does not matter: its answers have been read.
        let _ = self.child.wait();
    }
}
