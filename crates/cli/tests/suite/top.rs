//! `waykeeper top` in a terminal (tmux): keys, the mouse, resize, a policy switch, a daemon that is gone and back, and the
//! terminal afterwards. Needs tmux; the test with a daemon also root and /dev/fuse.

use crate::common::daemon::Setup;
use crate::common::{output, refused, tiny, waykeeper};
use rustix::process::Signal;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use waykeeper_testbed::{MountedHost, PATIENCE, SCENARIO, scenario, wall_clock};

/// A terminal with a shell command in it, on a tmux server of its own.
struct Terminal(tempfile::TempDir);

impl Terminal {
    /// 80 x 24. After the command ends, its exit code stays on the screen.
    fn with(command: &str) -> Terminal {
        let terminal = Terminal(tempfile::tempdir().unwrap());
        let script = format!("{command}; echo \"ended with $?\"; sleep 1000");
        terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", &script]);
        terminal
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let socket = self.0.path().join("tmux");
        let mut command = Command::new("tmux");
        command.args(["-u", "-S"]).arg(socket).args(arguments).stdin(Stdio::null());
        let done = command.env_remove("TMUX").env("TERM", "xterm-256color").output();
        let done = done.unwrap_or_else(|why| panic!("not run: needs tmux: {why}"));
        assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).into_owned()
    }

    /// The screen as text.
    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Sends keys by tmux's names.
    fn keys(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// Waits for a screen for which a condition holds.
    fn until(&self, what: &str, so: impl Fn(&str) -> bool) -> String {
        let start = Instant::now();
        loop {
            let screen = self.screen();
            if so(&screen) {
                return screen;
            }
            assert!(start.elapsed() < PATIENCE, "waited for {what} in vain\n{screen}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn shows(&self, words: &str) -> String {
        self.until(words, |screen| screen.contains(words))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = Command::new("tmux").arg("-S").arg(self.0.path().join("tmux")).arg("kill-server").output();
    }
}

fn program() -> String {
    waykeeper().get_program().to_string_lossy().into_owned()
}

fn on_scenario(file: &Path) -> Terminal {
    Terminal::with(&format!("{} top --scenario {} --policy default --speed 20", program(), file.display()))
}

#[test]
fn keys_resize_and_a_policy_switch_work_in_a_terminal() {
    let (_folder, file) = tiny();
    let terminal = on_scenario(&file);
    let first = terminal.shows("polluters and victims");
    assert!(first.contains("policy default") && first.contains("xmem"), "{first}");
    assert_eq!(first.lines().count(), 24, "{first}");
    terminal.keys(&["Enter"]);
    terminal.shows("progress since found");
    terminal.keys(&["4"]);
    terminal.shows("LLC hit ratio over time");
    terminal.keys(&["s"]);
    terminal.shows("IPC over time");
    terminal.keys(&["?"]);
    terminal.shows("switch the policy");
    terminal.keys(&["Escape"]);
    terminal.shows("IPC over time");
    terminal.keys(&["1"]);
    // A filter without a match, and back.
    terminal.keys(&["/", "q", "q", "Enter"]);
    terminal.until("no tenant", |screen| screen.contains("[qq]") && screen.contains("tenants 0/3"));
    terminal.keys(&["Escape"]);
    terminal.until("all again", |screen| screen.contains("xmem") && !screen.contains("[qq]"));
    // The mask of the selected tenant: narrower by one way.
    terminal.keys(&["m", "-", "Enter"]);
    terminal.until("the mask by hand", |screen| screen.contains("policy fixed") && screen.contains("·DDDDD"));
    for (columns, rows) in [(120, 40), (200, 60), (80, 24)] {
        terminal.tmux(&["resize-window", "-x", &columns.to_string(), "-y", &rows.to_string()]);
        let screen = terminal.until("another size", |screen| {
            let last = screen.lines().last().unwrap_or_default();
            screen.lines().count() == rows
                && last.contains("select")
                && screen.contains("polluters and victims")
        });
        assert!(screen.contains("polluters and victims"), "{columns}x{rows}\n{screen}");
    }
    // The list begins at the policy in force; `default` is the third.
    terminal.keys(&["p", "Home", "Down", "Down", "Enter"]);
    terminal.shows("policy default replaces fixed");
    terminal.keys(&["Space"]);
    terminal.shows("stopped");
    // A click on the first tenant's line selects it, a second one opens it (xterm's mode 1006).
    terminal.keys(&["-l", "\x1b[<0;10;5M"]);
    terminal.keys(&["-l", "\x1b[<0;10;5M"]);
    terminal.shows("progress since found");
    terminal.keys(&["q"]);
    let after = terminal.shows("ended with 0");
    assert!(!after.contains("polluters and victims"), "the screen before is back\n{after}");
}

#[test]
fn the_terminal_is_as_before_after_a_signal() {
    let (folder, file) = tiny();
    let pid = folder.path().join("pid");
    let command = format!(
        "sh -c 'echo $$ > {}; exec {} top --scenario {}'; stty -a | tr \" \" \"\\n\" | grep -cx -e icanon -e echo",
        pid.display(),
        program(),
        file.display()
    );
    for (signal, code) in [(Signal::TERM, 0), (Signal::INT, 0)] {
        let terminal = Terminal::with(&command);
        terminal.shows("polluters and victims");
        let number = std::fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
        rustix::process::kill_process(rustix::process::Pid::from_raw(number).unwrap(), signal).unwrap();
        let after = terminal.shows(&format!("ended with {code}"));
        // Lines and echo are on again.
        assert!(after.lines().any(|line| line.trim() == "2"), "{after}");
    }
}

#[test]
fn a_daemon_that_is_gone_and_back_is_shown() {
    // So little traffic that the model keeps up on a busy machine.
    let light = SCENARIO.replace("time_factor = 5", "time_factor = 500");
    let machine = MountedHost::with(scenario("gold-6140", &light), wall_clock(256));
    let setup = Setup::plain(&machine, "[policy]\nname = \"default\"\n");
    let mut daemon = setup.start();
    assert!(daemon.in_charge(), "{}", daemon.log());
    let terminal = Terminal::with(&format!("{} top --socket {}", program(), setup.socket.display()));
    terminal.until("the daemon", |screen| screen.contains("daemon ") && screen.contains("l2fwd"));
    terminal.keys(&["P", "Enter"]);
    terminal.shows(", paused");
    terminal.keys(&["P", "Enter"]);
    terminal.until("resumed", |screen| !screen.contains(", paused"));
    daemon.ends_by(Signal::TERM);
    terminal.shows("trying again");
    let mut daemon = setup.start();
    assert!(daemon.in_charge(), "{}", daemon.log());
    terminal.until("the daemon again", |screen| !screen.contains("trying again") && screen.contains("l2fwd"));
    terminal.keys(&["p", "Home", "Down", "Down", "Down", "Enter"]);
    terminal.shows("policy isolate replaces default");
    terminal.keys(&["q"]);
    terminal.shows("ended with 0");
    daemon.ends_by(Signal::TERM);
}

#[test]
fn one_frame_as_text_and_what_cannot_work() {
    let (folder, file) = tiny();
    let scenario = file.to_str().unwrap();
    let frame = output(&["top", "--scenario", scenario, "--policy", "none", "--speed", "100", "--once"]);
    assert!(
        frame.contains("xmem") && frame.contains("polluters and victims") && !frame.contains('\u{1b}'),
        "{frame}"
    );
    refused(&["top", "--scenario", scenario], 2, &["needs a terminal", "--once"]);
    refused(&["top", "--scenario", scenario, "--once", "--policy", "a5"], 2, &["unknown policy `a5`"]);
    refused(
        &["top", "--scenario", scenario, "--once", "--speed", "-1"],
        2,
        &["--speed", "from 0.001 to 1000"],
    );
    for command in ["top", "serve"] {
        for speed in ["1e-308", "1e308", "inf", "nan", "0"] {
            let words = [command, "--scenario", scenario, "--speed", speed];
            refused(&words, 2, &["--speed: speed ", "is out of range; give a number from 0.001 to 1000"]);
        }
    }
    refused(&["top", "--scenario", "a4-fgi5", "--once"], 2, &["a4-fig5"]);
    let empty = folder.path().to_str().unwrap();
    refused(&["top", "--replay", empty, "--once"], 2, &["has no recording"]);
    // An empty folder is the root of a host on which nothing can be observed.
    let bare = tempfile::tempdir().unwrap();
    let root = bare.path().to_str().unwrap();
    refused(&["top", "--root", root, "--once"], 3, &["no daemon at", "cannot be observed", "--scenario"]);
}

#[test]
fn a_host_without_a_daemon_is_observed_and_nothing_is_written() {
    let light = SCENARIO.replace("time_factor = 5", "time_factor = 500");
    let machine = MountedHost::with(scenario("gold-6140", &light), wall_clock(256));
    let found = machine.state();
    let root = machine.root().prefix().display().to_string();
    let frame = output(&["top", "--root", &root, "--once"]);
    assert!(frame.contains("observing") && frame.contains("nic0"), "{frame}");
    waykeeper_testbed::assert_same_state(&machine.state(), &found, "after an observation");
    assert!(!machine.journal().exists(), "a journal was written");
}
