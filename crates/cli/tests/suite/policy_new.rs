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

/// The words that the example has for something else, that Python keeps, and modules that Python imports.
#[test]
fn a_name_that_means_something_else_works_too() {
    let (folder, scenario) = tiny();
    let dir = folder.path().to_str().unwrap();
    for (name, class) in
        [("plan", "PlanPolicy"), ("true", "TruePolicy"), ("json", "Json"), ("resource", "Resource")]
    {
        output(&["policy", "new", name, "--dir", dir]);
        let text = std::fs::read_to_string(folder.path().join(format!("{name}.py"))).unwrap();
        assert!(text.contains(&format!("\nclass {class}(Policy):\n")), "{text}");
    }
    let files = ["plan", "true", "json", "resource"].map(|name| format!("--policy=./{name}.py"));
    let run = [&["run", scenario.to_str().unwrap()][..], &files.each_ref().map(String::as_str)].concat();
    // As a user does: in the folder of the files, where Python would look for its own modules.
    let done = common::waykeeper().current_dir(&folder).args(run).assert().success();
    assert!(String::from_utf8_lossy(&done.get_output().stdout).contains("resource"), "{done}");
    output(&[
        "policy",
        "new",
        "workload",
        "--rust",
        "--dir",
        dir,
        "--checkout",
        repository().to_str().unwrap(),
    ]);
    let text = std::fs::read_to_string(folder.path().join("workload/src/policy.rs")).unwrap();
    assert!(text.contains("pub struct WorkloadPolicy {") && text.contains(", Workload};"), "{text}");
}

#[test]
fn a_name_or_a_directory_that_is_wrong_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    for name in ["A", "a b", "", "1a", "a-", "../a", "a\nb"] {
        refused(&["policy", "new", name, "--dir", dir], 2, &["is no name of a policy"]);
    }
    for name in ["a4", "best", "waykeeper", "std"] {
        refused(&["policy", "new", name, "--dir", dir], 2, &[&format!("the name {name} is taken")]);
    }
    for name in ["build", "waykeeper-host"] {
        let wanted = format!("the name {name} is taken; choose another, like my-{name}");
        refused(&["policy", "new", name, "--rust", "--dir", dir], 2, &[&wanted]);
    }
    refused(&["policy", "new", "mine", "--dir", "/nowhere"], 2, &["--dir /nowhere: no such directory"]);
    let checkout = ["policy", "new", "mine", "--rust", "--dir", dir, "--checkout", dir];
    refused(&checkout, 2, &["no checkout of Waykeeper"]);
    assert_eq!(std::fs::read_dir(dir).unwrap().count(), 0);
}

/// The sources are the example's, which is built and run by its own tests, under another name; cargo reads the manifest.
/// Building it here would build 60 crates again.
#[test]
fn a_project_in_rust_is_the_example_under_another_name() {
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
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    // A name in these files is a type's, a policy's, or the program's.
    let run = format!("-- {}", scenario.display());
    for file in ["src/main.rs", "src/policy.rs"] {
        let text = read(&project.join(file));
        assert!(!text.contains("Corner") && text.contains("MyPolicy"), "{text}");
        let back = text
            .replace("MyPolicy", "Corner")
            .replace("usage: my-policy", "usage: own-policy")
            .replace("my-policy", "corner")
            .replace(&run, "-p own-policy -- scenarios/a4-hpw-heavy.toml");
        assert_eq!(back, read(&here.join("examples/own-policy").join(file)), "{file}");
    }
    assert!(read(&project.join("README.md")).contains("not on crates.io"));
    let own = dependencies(&project.join("Cargo.toml"));
    let of_example = dependencies(&here.join("examples/own-policy/Cargo.toml"));
    assert_eq!(own, of_example);
    assert!(own.len() > 5, "{own:?}");
    refused(&new, 2, &["my-policy: File exists"]);
}

/// What a package depends on, and where that lies, as cargo reads its manifest.
fn dependencies(manifest: &Path) -> Vec<(String, Option<String>)> {
    let done = Command::new(env!("CARGO"))
        .args(["metadata", "--offline", "--no-deps", "--format-version", "1", "--manifest-path"])
        .arg(manifest)
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let found: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    let packages = found["packages"].as_array().unwrap();
    let path = manifest.to_str().unwrap();
    let package = packages.iter().find(|package| package["manifest_path"] == path).expect("the package");
    let listed = package["dependencies"].as_array().unwrap();
    let normal = listed.iter().filter(|dependency| dependency["kind"].is_null());
    let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
    normal.map(|one| (text(&one["name"]).unwrap(), text(&one["path"]))).collect()
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
