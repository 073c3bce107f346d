//! Modules use one another in one direction only: no module depends on one that depends on it.
//!
//! Reads the paths in the source files, in `use` and in the code. Unit tests may use every module. Must not know what
//! any module does, except for the order of the layers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Most modules that may form a circle: 1 means that there is none. It was 31 when programs and bus used one another.
const LARGEST_CIRCLE: usize = 1;

/// The layers, lowest first; a module uses only its own layer and lower ones. Modules that are not listed are in none.
const LAYERS: [&[&str]; 6] = [
    &["scenario/error", "scenario/inputs", "scenario/keys", "random", "meter", "mailbox", "team", "posted"],
    &["bus", "nic", "ssd", "nvme"],
    &["programs"],
    &["scenario"],
    &["server", "launch"],
    &["bare", "host", "loading", "faults", "knobs", "steady"],
];

/// A path, one entry per name.
type Names = Vec<String>;

/// A source file without comments, texts, unit tests and `use`.
struct Module {
    /// Paths that it uses, and paths that it re-exports by name.
    uses: Vec<Names>,
    exports: BTreeMap<String, Names>,
}

/// Removes comments, texts in quotes and the unit tests at the end.
fn plain(source: &str) -> String {
    let source = source.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let code = source.lines().map(|line| line.split("//").next().unwrap_or_default());
    let code = code.collect::<Vec<_>>().join("\n").replace("\\\"", "").replace("'\"'", "");
    code.split('"').step_by(2).collect::<Vec<_>>().join("\"\"")
}

/// The paths of a `use` tree: `a::{b, c::d}` is `a::b` and `a::c::d`.
fn expand(prefix: &[String], tree: &str, into: &mut Vec<Names>) {
    let names = |text: &str| {
        let text = text.split(" as ").next().unwrap_or_default();
        text.split("::").map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect::<Names>()
    };
    let Some((head, rest)) = tree.split_once('{') else {
        return into.push([prefix, &names(tree)].concat());
    };
    let prefix = [prefix, &names(head)].concat();
    let inner = rest.rsplit_once('}').expect("a closed brace").0;
    let (mut depth, mut from) = (0, 0);
    for (at, letter) in inner.char_indices().chain([(inner.len(), ',')]) {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if !inner[from..at].trim().is_empty() {
                    expand(&prefix, &inner[from..at], into);
                }
                from = at + 1;
            }
            _ => {}
        }
    }
}

fn word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

fn read(source: &str) -> Module {
    let (mut uses, mut exports, mut body) = (Vec::new(), Vec::new(), String::new());
    for statement in plain(source).split_inclusive(';') {
        let at = statement.rmatch_indices("use ").map(|(at, _)| at).find(|at| {
            let before = &statement[..*at];
            before.trim_end_matches([' ']).is_empty() || before.ends_with(['\n', ' ', ')'])
        });
        match at.map(|at| statement.split_at(at)) {
            Some((before, tree)) => {
                let public = before.trim_end().ends_with("pub") || before.trim_end().ends_with("pub(crate)");
                let tree = tree["use ".len()..].trim_end_matches(';');
                expand(&[], tree, if public { &mut exports } else { &mut uses });
                body.push_str(before);
            }
            None => body.push_str(statement),
        }
    }
    let code: Vec<&str> = body.split(|letter| !word(letter) && letter != ':').collect();
    let paths = code.iter().filter(|path| path.contains("::"));
    uses.extend(
        paths.map(|path| path.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect()),
    );
    // A name that is re-exported and used here as well.
    let words: BTreeSet<&str> = code.iter().flat_map(|path| path.split(':')).collect();
    uses.extend(exports.iter().filter(|path| words.contains(path[path.len() - 1].as_str())).cloned());
    let named = |path: Names| (path[path.len() - 1].clone(), path);
    Module { uses, exports: exports.into_iter().map(named).collect() }
}

/// The path from the crate's root on of a path that the module `of` uses; `None` if it leads out of the crate.
fn absolute(modules: &BTreeMap<Names, Module>, of: &Names, path: &Names) -> Option<Names> {
    let (first, rest) = path.split_first()?;
    let parent = || of[..of.len().saturating_sub(1)].to_vec();
    match first.as_str() {
        "crate" => Some(rest.to_vec()),
        "self" => Some([of, rest].concat()),
        "super" if rest.first().is_some_and(|name| name == "super") => {
            absolute(modules, &parent(), &rest.to_vec())
        }
        "super" => Some([&parent(), rest].concat()),
        _ => {
            let own = [of.as_slice(), &path[..1]].concat();
            modules.contains_key(&own).then(|| [of.as_slice(), path].concat())
        }
    }
}

/// The module that defines what an absolute path names, found through re-exports.
fn defines(modules: &BTreeMap<Names, Module>, path: &Names) -> Option<Names> {
    let at = (0..=path.len()).rev().find(|length| modules.contains_key(&path[..*length]))?;
    let (module, rest) = (path[..at].to_vec(), &path[at..]);
    match rest.first().and_then(|name| modules[&module].exports.get(name)) {
        Some(exported) => defines(modules, &absolute(modules, &module, exported)?),
        None => Some(module),
    }
}

fn files(folder: &Path, into: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files(&path, into),
            false if path.extension().is_some_and(|it| it == "rs") && !path.ends_with("tests.rs") => {
                into.push(path)
            }
            false => {}
        }
    }
}

/// Per module of this crate: the modules that it uses, directly.
fn dependencies() -> BTreeMap<Names, BTreeSet<Names>> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths = Vec::new();
    files(&source, &mut paths);
    let name = |path: &Path| -> Names {
        let path = path.strip_prefix(&source).unwrap().with_extension("");
        let names = path.iter().map(|name| name.to_str().unwrap().to_owned());
        names.filter(|name| name != "mod" && name != "lib").collect()
    };
    let modules: BTreeMap<Names, Module> =
        paths.iter().map(|path| (name(path), read(&std::fs::read_to_string(path).unwrap()))).collect();
    let used = |(of, module): (&Names, &Module)| {
        let uses = module.uses.iter().filter_map(|path| absolute(&modules, of, path));
        let used: BTreeSet<Names> = uses.filter_map(|path| defines(&modules, &path)).collect();
        (of.clone(), used.into_iter().filter(|other| other != of).collect())
    };
    modules.iter().map(used).collect()
}

/// All modules that a module uses, directly or through others.
fn reach<'a>(graph: &'a BTreeMap<Names, BTreeSet<Names>>, from: &'a Names) -> BTreeSet<&'a Names> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(module) = open.pop() {
        open.extend(graph[module].iter().filter(|next| seen.insert(*next)));
    }
    seen
}

#[test]
fn modules_form_no_circle() {
    let graph = dependencies();
    assert!(graph.len() > 60, "{} modules found", graph.len());
    let circle = |of: &Names| {
        let others = reach(&graph, of).into_iter().filter(|other| reach(&graph, other).contains(of));
        others.map(|other| other.join("/")).collect::<BTreeSet<_>>()
    };
    let circles: BTreeSet<_> =
        graph.keys().map(circle).filter(|circle| circle.len() > LARGEST_CIRCLE).collect();
    assert!(circles.is_empty(), "modules that use one another: {circles:?}");
}

#[test]
fn no_module_uses_a_higher_layer() {
    let layer = |module: &Names| {
        let path = format!("{}/", module.join("/"));
        let within = |names: &&[&str]| names.iter().any(|name| path.starts_with(&format!("{name}/")));
        LAYERS.iter().position(within)
    };
    for (module, used) in &dependencies() {
        for other in used {
            let up = layer(module).zip(layer(other)).is_some_and(|(own, its)| its > own);
            assert!(!up, "`{}` uses `{}`, which is in a higher layer", module.join("/"), other.join("/"));
        }
    }
}

#[test]
fn uses_are_found_in_every_form() {
    let modules: BTreeMap<Names, Module> = [
        ("", "pub mod a; mod b; pub use a::One;"),
        ("a", "mod c;\npub use c::{Two, deep::Three as Other};\n// use crate::b::None;\nfn f() { Two::g(\"b::x\") }"),
        ("a/c", "use crate::b::{self, x::{Y, Z}};"),
        ("b", "use super::a::Two;\nfn f() { crate::One; }\n#[cfg(test)]\nmod tests { use crate::a::c; }"),
    ]
    .into_iter()
    .map(|(name, source)| (name.split('/').filter(|it| !it.is_empty()).map(str::to_owned).collect(), read(source)))
    .collect();
    let used = |of: &str| {
        let of: Names = of.split('/').map(str::to_owned).collect();
        let uses =
            modules[&of].uses.iter().filter_map(|path| defines(&modules, &absolute(&modules, &of, path)?));
        uses.map(|names| names.join("/")).filter(|name| *name != of.join("/")).collect::<BTreeSet<_>>()
    };
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!((used("a"), used("a/c")), (set(&["a/c"]), set(&["b"])));
    // `Two` is defined in `a/c`, `One` in `a`.
    assert_eq!(used("b"), set(&["a", "a/c"]));
}
