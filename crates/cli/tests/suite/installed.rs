//! Files that `make install` adds to the program: completions and manual pages, which the program itself makes.

use crate::common::{output, repository, waykeeper};
use std::path::Path;
use std::process::Command;

/// Checks a script with a shell's own syntax check; a shell other than bash that is not installed is left out.
fn accepted(shell: &str, arguments: &[&str], script: &Path) {
    match Command::new(shell).args(arguments).arg(script).output() {
        Err(why) if why.kind() == std::io::ErrorKind::NotFound && shell != "bash" => {}
        done => {
            let done = done.unwrap();
            assert!(done.status.success(), "{shell}: {}", String::from_utf8_lossy(&done.stderr));
        }
    }
}

#[test]
fn shells_accept_their_completions() {
    let folder = tempfile::tempdir().unwrap();
    for (shell, check) in [("bash", &["-n"][..]), ("zsh", &["-n"]), ("fish", &["--no-execute"])] {
        let script = folder.path().join(shell);
        std::fs::write(&script, output(&["completions", shell])).unwrap();
        accepted(shell, check, &script);
    }
    for shell in ["elvish", "powershell"] {
        assert!(output(&["completions", shell]).contains("find-zero-loss"), "{shell}");
    }
    let refused = waykeeper().args(["completions", "tcsh"]).assert().code(2);
    let reported = String::from_utf8(refused.get_output().stderr.clone()).unwrap();
    assert!(
        reported.contains("'tcsh'") && reported.contains("bash, elvish, fish, powershell, zsh"),
        "{reported}"
    );
}

#[test]
fn bash_completes_subcommands_and_options() {
    let script = output(&["completions", "bash"]);
    let ask = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let last = words.len() - 1;
        // The arguments that bash passes: the command, the word under the cursor, the word before.
        let asked = format!(
            "{script}\nCOMP_WORDS=({line}); COMP_CWORD={last}; _waykeeper {} {} {}; echo \"${{COMPREPLY[*]}}\"",
            words[0],
            words[last],
            words[last - 1]
        );
        let done = Command::new("bash").args(["-c", &asked]).output().unwrap();
        String::from_utf8(done.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(ask("waykeeper dae"), "daemon");
    assert_eq!(ask("waykeeper ddio of"), "off");
    assert_eq!(ask("waykeeper run --find-z"), "--find-zero-loss");
    assert_eq!(ask("waykeeper memload --huge-pages 2"), "2M");
}

/// The names of all subcommands, read from the help pages.
fn subcommands(above: &[&str], into: &mut Vec<String>) {
    let help = output(&[above, &["--help"]].concat());
    into.push(above.join("-"));
    let Some((_, list)) = help.split_once("\nCommands:\n") else { return };
    let names = list.lines().take_while(|line| !line.is_empty());
    let names =
        names.filter(|line| !line.starts_with("   ")).filter_map(|line| line.split_whitespace().next());
    for name in names.filter(|name| *name != "help") {
        subcommands(&[above, &[name]].concat(), into);
    }
}

#[test]
fn every_subcommand_has_a_page_that_groff_accepts() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("share/man1");
    waykeeper().args(["man", "--out"]).arg(&pages).assert().success();
    let mut wanted = Vec::new();
    subcommands(&[], &mut wanted);
    let mut wanted: Vec<String> = wanted
        .iter()
        .map(|words| if words.is_empty() { "waykeeper.1".to_owned() } else { format!("waykeeper-{words}.1") })
        .collect();
    let found = std::fs::read_dir(&pages).unwrap();
    let mut found: Vec<String> =
        found.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    wanted.sort();
    found.sort();
    assert_eq!(found, wanted);
    assert!(found.contains(&"waykeeper-ddio-set.1".to_owned()) && found.len() > 30, "{found:?}");
    for name in &found {
        let path = pages.join(name);
        let text = std::fs::read_to_string(&path).unwrap();
        for part in [".TH ", ".SH NAME\n", ".SH SYNOPSIS\n", ".SH DESCRIPTION\n", ".SH OPTIONS\n"] {
            assert!(text.contains(part), "{name} has no `{part}`");
        }
        match Command::new("groff").args(["-man", "-ww", "-z", "-Tutf8"]).arg(&path).output() {
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => {}
            done => {
                let reported = String::from_utf8(done.unwrap().stderr).unwrap();
                assert_eq!(reported, "", "{name}");
            }
        }
    }
    let daemon = std::fs::read_to_string(pages.join("waykeeper-daemon.1")).unwrap();
    assert!(daemon.contains(".SH EXAMPLES\n.nf\n  waykeeper daemon "), "{daemon}");
    assert!(daemon.contains(".SH NOTES\nLater sources override"), "{daemon}");
}

#[test]
fn make_install_puts_them_where_shells_and_man_look() {
    let done = Command::new("make")
        .args(["--dry-run", "--no-print-directory", "install", "DESTDIR=/dest", "PREFIX=/usr"])
        .current_dir(repository())
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let reported = String::from_utf8(done.stdout).unwrap();
    for place in [
        "man --out /dest/usr/share/man/man1",
        "completions bash > /dest/usr/share/bash-completion/completions/waykeeper",
        "completions zsh > /dest/usr/share/zsh/site-functions/_waykeeper",
        "completions fish > /dest/usr/share/fish/vendor_completions.d/waykeeper.fish",
    ] {
        assert!(reported.contains(place), "{place}: {reported}");
    }
}
