//! `waykeeper policy new`: writes a policy to begin with, in Python or Rust: that of `examples/own-policy` under another
//! name. It never replaces a file. Must not know what the policy does.

use crate::exit::Failure;
use crate::out;
use clap::Args;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use waykeeper_output_file::Existing;
use waykeeper_policy::check_own_name;

/// Examples of `waykeeper policy new`.
pub const EXAMPLES: &str = "\
Examples:
  waykeeper policy new mine                     mine.py, which works at once
  waykeeper run --policy default --policy ./mine.py
  waykeeper policy new mine --rust --dir ~/src  a Cargo project in ~/src/mine

docs/own-policies.md explains what a policy sees and answers, and how the daemon runs mine.py.";

/// Arguments of `waykeeper policy new`.
#[derive(Args, Debug)]
pub struct NewArgs {
    /// Name of the policy: lower-case letters, digits and dashes
    name: String,
    /// Write one file in Python [default]
    #[arg(long, conflicts_with = "rust")]
    python: bool,
    /// Write a Cargo project in Rust, which runs your policy on the virtual server
    #[arg(long)]
    rust: bool,
    /// Directory in which to write it
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Checkout of Waykeeper whose crates the Cargo project uses [default: the one in which this program was built]
    #[arg(long, value_name = "DIR", requires = "rust")]
    checkout: Option<PathBuf>,
}

/// The name of the example, as it is written in its files.
const EXAMPLE: (&str, &str) = ("corner", "Corner");
const PYTHON: &str = include_str!("../../../examples/own-policy/corner.py");
const RUST_MAIN: &str = include_str!("../../../examples/own-policy/src/main.rs");
const RUST_POLICY: &str = include_str!("../../../examples/own-policy/src/policy.rs");
const RUST_MANIFEST: &str = include_str!("../../../examples/own-policy/Cargo.toml");

/// Longest name, as of a policy from a file.
const LONGEST_NAME: usize = 64;
/// Words of Rust and Python that are names of neither a file nor a crate.
const RESERVED: [&str; 8] = ["test", "core", "std", "alloc", "self", "super", "crate", "waykeeper"];
/// Folders of a Cargo project's results: cargo refuses a program of that name.
const FOLDERS: [&str; 4] = ["build", "deps", "examples", "incremental"];
/// Words of Python that begin with a capital letter, as names of classes do.
const CONSTANTS: [&str; 3] = ["False", "None", "True"];

/// Runs the subcommand.
pub fn new(args: &NewArgs) -> Result<(), Failure> {
    let name = args.name.as_str();
    let is_fine = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    let begins = name.starts_with(|letter: char| letter.is_ascii_lowercase());
    if !begins || name.len() > LONGEST_NAME || !name.chars().all(is_fine) || name.ends_with('-') {
        return Err(Failure::bad_input(format!(
            "`{}` is no name of a policy; write 1 to {LONGEST_NAME} lower-case letters, digits and dashes, like my-policy",
            name.escape_debug()
        )));
    }
    // The crates that the project uses are named so.
    let is_crate = args.rust && (name.starts_with("waykeeper-") || FOLDERS.contains(&name));
    if check_own_name(name).is_err() || RESERVED.contains(&name) || is_crate {
        return Err(Failure::bad_input(format!("the name {name} is taken; choose another, like my-{name}")));
    }
    if !args.dir.is_dir() {
        return Err(Failure::bad_input(format!(
            "--dir {}: no such directory; make it first",
            args.dir.display()
        )));
    }
    if args.rust { rust(args) } else { python(args) }
}

fn python(args: &NewArgs) -> Result<(), Failure> {
    let file = args.dir.join(format!("{}.py", args.name.replace('-', "_")));
    let text = renamed(PYTHON, &args.name).replace("./corner.py", &run_path(&file));
    write(&file, &text)?;
    out::text(&format!(
        "wrote {}\ntry it: waykeeper run --policy default --policy {}\n",
        file.display(),
        run_path(&file)
    ))
}

/// A path that `--policy` takes for a file.
fn run_path(file: &Path) -> String {
    let text = file.display().to_string();
    if text.contains('/') { text } else { format!("./{text}") }
}

fn rust(args: &NewArgs) -> Result<(), Failure> {
    let name = &args.name;
    let built = || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let checkout = args.checkout.clone().unwrap_or_else(built);
    let found =
        checkout.canonicalize().ok().filter(|folder| folder.join("crates/policy/Cargo.toml").is_file());
    let Some(checkout) = found else {
        return Err(Failure::bad_input(format!(
            "{}: no checkout of Waykeeper, whose crates the project would use; name one with --checkout DIR",
            checkout.display()
        )));
    };
    let folder = args.dir.join(name);
    // Fails if it exists.
    fs::create_dir(&folder).map_err(|why| match why.kind() {
        ErrorKind::AlreadyExists => Failure::bad_input(format!("{}: {why}", folder.display())),
        _ => Failure::io(folder.display(), &why),
    })?;
    let scenario = checkout.join("scenarios/a4-hpw-heavy.toml");
    project(&folder, name, &checkout, &scenario).inspect_err(|_| {
        // It is ours and incomplete; a failure to remove it would hide the reason.
        let _ = fs::remove_dir_all(&folder);
    })?;
    out::text(&format!(
        "wrote {0}\ntry it: cd {0} && cargo run --release -- {1}\n",
        folder.display(),
        scenario.display()
    ))
}

/// Writes the files of the project.
fn project(folder: &Path, name: &str, checkout: &Path, scenario: &Path) -> Result<(), Failure> {
    let sources = folder.join("src");
    fs::create_dir(&sources).map_err(|why| Failure::io(sources.display(), &why))?;
    let main = renamed(RUST_MAIN, name)
        .replace("-p own-policy -- scenarios/a4-hpw-heavy.toml", &format!("-- {}", scenario.display()));
    write(&folder.join("Cargo.toml"), &manifest(name, checkout))?;
    write(&sources.join("main.rs"), &main.replace("usage: own-policy", &format!("usage: {name}")))?;
    write(&sources.join("policy.rs"), &renamed(RUST_POLICY, name))?;
    write(&folder.join("README.md"), &readme(name, checkout, scenario))?;
    // The versions that Waykeeper was tested with.
    for shared in ["Cargo.lock", "rust-toolchain.toml"] {
        if let Ok(text) = fs::read_to_string(checkout.join(shared)) {
            write(&folder.join(shared), &text)?;
        }
    }
    Ok(())
}

/// The manifest of the example outside its workspace: every crate by its path, other versions as in the workspace.
fn manifest(name: &str, checkout: &Path) -> String {
    let dependencies = RUST_MANIFEST.split_once("[dependencies]\n").map_or("", |(_, rest)| rest);
    let dependencies = dependencies.split("\n[").next().unwrap_or_default();
    let mut text = format!(
        "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n# Not a part of a workspace around it.\n[workspace]\n\n\
         # Waykeeper's crates are not on crates.io: they are used from a checkout.\n[dependencies]\n"
    );
    for line in dependencies.lines().filter(|line| line.contains("workspace = true")) {
        let own = line.split(" =").next().unwrap_or_default();
        let dependency = match own.strip_prefix("waykeeper-") {
            // As TOML writes a text.
            Some(part) => {
                let path = checkout.join("crates").join(part).display().to_string();
                format!("{own} = {{ path = {} }}\n", toml::Value::String(path))
            }
            None => format!("{own} = \"1\"\n"),
        };
        text.push_str(&dependency);
    }
    text + "\n# Simulations take minutes without it.\n[profile.dev]\nopt-level = 2\n"
}

fn readme(name: &str, checkout: &Path, scenario: &Path) -> String {
    format!(
        "# {name}\n\nA policy for [Waykeeper]({0}/README.md), in `src/policy.rs`. `src/main.rs` runs it on a scenario and compares it \
         with `default`:\n\n```sh\ncargo run --release -- {1}\ncargo test\n```\n\n\
         `Cargo.toml` uses Waykeeper's crates by path, from the checkout in `{0}`, because they are not on crates.io. Elsewhere, change \
         the paths, or use `{{ git = \"URL\", rev = \"COMMIT\" }}` with the address of your copy. `Cargo.lock` has the versions of other \
         crates that Waykeeper was tested with.\n\n\
         [docs/own-policies.md]({0}/docs/own-policies.md) explains what a policy sees and answers. To run a policy in the daemon or under \
         `waykeeper run`, write it in Python (`waykeeper policy new {name}`), or add it to Waykeeper itself ([ARCHITECTURE.md]({0}/ARCHITECTURE.md), \
         \"Where to add things\").\n",
        checkout.display(),
        scenario.display()
    )
}

/// The example under another name.
fn renamed(text: &str, name: &str) -> String {
    let class = class(name);
    let (word, title) = EXAMPLE;
    // Only the names; the ways that the policy calls a corner stay.
    let text = text.replace(&format!("class {title}("), &format!("class {class}("));
    let text = text.replace(&format!("name = \"{word}\""), &format!("name = \"{name}\""));
    let text = text.replace(&format!("[policy.{word}]"), &format!("[policy.{name}]"));
    let text = text.replace(&format!("policy::{title};"), &format!("policy::{class};"));
    let text = text.replace(&format!("{title}::new"), &format!("{class}::new"));
    let text = text.replace(&format!("struct {title} "), &format!("struct {class} "));
    let text = text.replace(&format!("impl {title} "), &format!("impl {class} "));
    let text = text.replace(&format!("for {title} "), &format!("for {class} "));
    let text = text.replace(&format!("-> {title} "), &format!("-> {class} "));
    let text = text.replace(&format!("        {title} {{"), &format!("        {class} {{"));
    let text = text.replace(&format!("        \"{word}\"\n"), &format!("        \"{name}\"\n"));
    text.replace(&format!("\"IPC {word}\""), &format!("\"IPC {name}\""))
}

/// The name of the policy's type. Where the example has that word for something else, as it has `Plan`, a suffix follows.
fn class(name: &str) -> String {
    let class: String = name.split('-').map(capitalised).collect();
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut words = [PYTHON, RUST_MAIN, RUST_POLICY].into_iter().flat_map(|text| text.split(|c| !is_part(c)));
    let is_taken = CONSTANTS.contains(&class.as_str()) || words.any(|word| word == class);
    if is_taken && class != EXAMPLE.1 { class + "Policy" } else { class }
}

fn capitalised(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_ascii_uppercase().to_string() + letters.as_str())
}

/// Writes a new file.
fn write(path: &Path, text: &str) -> Result<(), Failure> {
    waykeeper_output_file::write(path, text.as_bytes(), Existing::Keep).map_err(|why| match why.kind() {
        ErrorKind::AlreadyExists => {
            Failure::bad_input(format!("{} exists already; choose another name or --dir", path.display()))
        }
        ErrorKind::IsADirectory | ErrorKind::InvalidInput => {
            Failure::bad_input(format!("{}: {why}", path.display()))
        }
        _ => Failure::io(path.display(), &why),
    })
}
