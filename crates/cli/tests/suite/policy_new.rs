//! `waykeeper policy new`: what it writes works at once, and it replaces nothing.

use crate::common;

use common::{output, refused, repository, tiny};
use std::path::Path;
use std::process::Command;

#[test]
fn a_policy_in_python_works_at_once() {
    let (folder, scenario) = tiny();
    let dir = folder.path().to_str().unwrap();
    let said = output(&["policy", "new", "my-policy", "--dir", dir]);
    let file = folder.path().join("my_policy.py");
    let file = file.to_str().unwrap();
    assert_eq!(said, format!("wrote {file}\ntry it: waykeeper run --policy default --policy {file}\n"));
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.contains("class MyPolicy(Policy):") && text.contains("name = \"my-policy\""), "{text}");
    assert!(text.contains("[policy.my-policy]") && text.contains(&format!("--policy {file}")), "{text}");
    let run = ["run", scenario.to_str().unwrap(), "--policy", "default", "--policy", file];
    assert!(output(&run).contains("my-policy"));
    let set = ["--set", "policy.my-policy.limit=2"];
    refused(&[&run[..], &set[..]].concat(), 2, &["ValueError: limit is 2; it must be from 0 to 1"]);
    refused(&["policy", "new", "my-policy", "--dir", dir], 2, &["my_policy.py exists already"]);
    assert_eq!(std::fs::read_to_string(file).unwrap(), text);
}

#[test]
fn a_name_or_a_directory_that_is_wrong_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    for name in ["A", "a b", "", "1a", "a-", "../a", "a\nb"] {
        refused(&["policy", "new", name, "--dir", dir], 2, &["is no name of a policy"]);
    }
    for name in ["a4", "waykeeper", "std"] {
        refused(&["policy", "new", name, "--dir", dir], 2, &[&format!("the name {name} is taken")]);
    }
    refused(&["policy", "new", "mine", "--dir", "/nowhere"], 2, &["--dir /nowhere: no such directory"]);
    let checkout = ["policy", "new", "mine", "--rust", "--dir", dir, "--checkout", dir];
    refused(&checkout, 2, &["no checkout of Waykeeper"]);
    assert_eq!(std::fs::read_dir(dir).unwrap().count(), 0);
}

/// Only `cargo check`: the example, from which the sources are, is built and run by its own tests.
#[test]
fn a_project_in_rust_builds_against_this_repository() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    let here = repository().canonicalize().unwrap();
    let new = ["policy", "new", "my-policy", "--rust", "--dir", dir, "--checkout", here.to_str().unwrap()];
    let said = output(&new);
    let project = folder.path().join("my-policy");
    let scenario = here.join("scenarios/a4-hpw-heavy.toml");
    assert_eq!(
        said,
        format!(
            "wrote {0}\ntry it: cd {0} && cargo run --release -- {1}\n",
            project.display(),
            scenario.display()
        )
    );
    let read = |name: &str| std::fs::read_to_string(project.join(name)).unwrap();
    let all = ["src/main.rs", "src/policy.rs"].map(read).concat();
    assert!(
        !all.contains("Corner") && all.contains("pub struct MyPolicy {") && all.contains("\"my-policy\""),
        "{all}"
    );
    assert!(read("README.md").contains("not on crates.io"));
    let check = Command::new(env!("CARGO"))
        .args(["check", "--offline", "--all-targets", "--manifest-path"])
        .arg(project.join("Cargo.toml"))
        .args(["--target-dir", env!("CARGO_TARGET_TMPDIR")])
        .env("RUSTFLAGS", "-Dwarnings")
        .output()
        .unwrap();
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
    refused(&new, 2, &["my-policy: File exists"]);
}

/// The code in docs/own-policies.md is that of files that tests run.
#[test]
fn the_code_of_the_page_is_that_of_the_example() {
    let page = std::fs::read_to_string(repository().join("docs/own-policies.md")).unwrap();
    let mut blocks = 0;
    for part in page.split("<!-- code of ").skip(1) {
        let (file, rest) = part.split_once(" -->\n").expect("the name of a file");
        let code = rest.split("```").nth(1).and_then(|block| block.split_once('\n')).expect("a block").1;
        let text = std::fs::read_to_string(repository().join(Path::new(file))).unwrap();
        assert!(text.contains(code.trim_end()), "{file} has other code than docs/own-policies.md:\n{code}");
        blocks += 1;
    }
    assert!(blocks >= 3, "{blocks}");
}
