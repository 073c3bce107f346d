//! Joins scripts that import one another into one script for a page without a server, which cannot load modules.
//!
//! Each module becomes a function that runs once and returns what the module exports; an import becomes a constant of
//! these values. The rule needs the form of our scripts: an import or export begins a line, an import has a source in `./`
//! and ends in a semicolon, and what is exported is a named `const`, function or class. Must not know what a script does.

use crate::scripts;
use std::fmt::Write;

/// Why scripts cannot be joined.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum JoinError {
    /// A script imports one that is not in the list.
    #[error("{by} imports {name}, which is not part of the drawing code")]
    Missing {
        /// What is imported.
        name: String,
        /// What imports it.
        by: String,
    },
    /// Scripts import one another in a circle.
    #[error("{0} imports itself through others")]
    Circle(String),
    /// A line is not in the form that the rule needs.
    #[error("{name}: `{line}` cannot be joined")]
    Form {
        /// The script.
        name: String,
        /// Its line.
        line: String,
    },
}

/// A script and all that it imports as one script, with uPlot and its licence before them.
///
/// # Errors
/// If a script imports what is not there, or is not in the form that the rule needs. No input of a user causes this.
pub fn joined(name: &str, text: &str) -> Result<String, JoinError> {
    let vendored = |name: &str| scripts::text(&format!("vendor/uplot/{name}")).unwrap_or_default();
    let mut joined = Joined::new(library);
    joined.add(name, text)?;
    let (licence, plot) = (vendored("LICENSE").trim(), vendored("uPlot.iife.min.js").trim());
    Ok(format!("/* uPlot:\n{licence} */\n{plot}\n(() => {{\n\"use strict\";\n{}}})();\n", joined.text))
}

/// The text of a module of the drawing code.
fn library(name: &str) -> Option<&'static str> {
    scripts::text(&format!("js/{name}"))
}

/// The modules that were joined so far.
struct Joined {
    find: fn(&str) -> Option<&'static str>,
    text: String,
    added: Vec<String>,
    /// Modules that wait for what they import, the outermost first.
    open: Vec<String>,
}

impl Joined {
    fn new(find: fn(&str) -> Option<&'static str>) -> Joined {
        Joined { find, text: "const modules = {};\n".to_owned(), added: Vec::new(), open: Vec::new() }
    }

    /// Adds a module after all that it imports.
    fn add(&mut self, name: &str, text: &str) -> Result<(), JoinError> {
        if self.open.iter().any(|open| open == name) {
            return Err(JoinError::Circle(name.to_owned()));
        }
        self.open.push(name.to_owned());
        let (mut body, mut exported) = (String::new(), Vec::new());
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            let wrong = || JoinError::Form { name: name.to_owned(), line: line.to_owned() };
            if line.starts_with("import ") {
                let mut statement = line.to_owned();
                while !statement.ends_with(';') {
                    statement.push_str(lines.next().ok_or_else(wrong)?);
                }
                let (what, source) = imported(&statement).ok_or_else(wrong)?;
                self.need(source, name)?;
                _ = writeln!(body, "const {what} = modules[\"{source}\"];");
            } else if let Some(definition) = line.strip_prefix("export ") {
                exported.push(defined(definition).ok_or_else(wrong)?.to_owned());
                _ = writeln!(body, "{definition}");
            } else {
                _ = writeln!(body, "{line}");
            }
        }
        let exported = exported.join(", ");
        _ = writeln!(self.text, "modules[\"{name}\"] = (() => {{\n{body}return {{ {exported} }};\n}})();");
        self.added.push(name.to_owned());
        self.open.pop();
        Ok(())
    }

    fn need(&mut self, name: &str, by: &str) -> Result<(), JoinError> {
        if self.added.iter().any(|added| added == name) {
            return Ok(());
        }
        let missing = || JoinError::Missing { name: name.to_owned(), by: by.to_owned() };
        let text = (self.find)(name).ok_or_else(missing)?;
        self.add(name, text)
    }
}

/// What an import defines, as a pattern of a constant, and the module's name.
fn imported(statement: &str) -> Option<(String, &str)> {
    let (what, source) = statement.strip_prefix("import ")?.split_once(" from \"./")?;
    let source = source.strip_suffix("\";")?;
    let what = match what.strip_prefix("* as ") {
        Some(all) => all.to_owned(),
        None if what.starts_with('{') && what.ends_with('}') => what.replace(" as ", ": "),
        None => return None,
    };
    Some((what, source))
}

/// The name that a definition defines.
fn defined(definition: &str) -> Option<&str> {
    let definition = definition.strip_prefix("async ").unwrap_or(definition);
    let rest = ["const ", "function ", "class "].iter().find_map(|word| definition.strip_prefix(word))?;
    let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(rest.len());
    (end > 0).then(|| &rest[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made_up(name: &str) -> Option<&'static str> {
        match name {
            "one.js" => Some("export const one = 1;\nexport async function wait() {}\n"),
            "two.js" => Some("import { one } from \"./one.js\";\nexport class Two {}\n"),
            "circle.js" => Some("import * as entry from \"./entry.js\";\n"),
            "default.js" => Some("export default 1;\n"),
            _ => None,
        }
    }

    fn join(text: &str) -> Result<String, JoinError> {
        let mut joined = Joined::new(|name| {
            if name == "entry.js" { Some("import * as circle from \"./circle.js\";") } else { made_up(name) }
        });
        joined.add("entry.js", text)?;
        Ok(joined.text)
    }

    #[test]
    fn a_module_runs_once_and_after_what_it_imports() {
        let text = "import {\n  Two as Pair,\n} from \"./two.js\";\nimport * as one from \"./one.js\";\nnew Pair(one.one);\n";
        let expected = "const modules = {};\n\
            modules[\"one.js\"] = (() => {\nconst one = 1;\nasync function wait() {}\nreturn { one, wait };\n})();\n\
            modules[\"two.js\"] = (() => {\nconst { one } = modules[\"one.js\"];\nclass Two {}\nreturn { Two };\n})();\n\
            modules[\"entry.js\"] = (() => {\nconst {  Two: Pair,} = modules[\"two.js\"];\nconst one = modules[\"one.js\"];\n\
            new Pair(one.one);\nreturn {  };\n})();\n";
        assert_eq!(join(text).unwrap(), expected);
    }

    #[test]
    fn what_cannot_be_joined_is_named() {
        let import = |name: &str| format!("import * as other from \"./{name}\";\n");
        let why = |text: &str| join(text).unwrap_err().to_string();
        assert_eq!(
            why(&import("none.js")),
            "entry.js imports none.js, which is not part of the drawing code"
        );
        assert_eq!(why(&import("circle.js")), "entry.js imports itself through others");
        assert_eq!(why(&import("default.js")), "default.js: `export default 1;` cannot be joined");
        assert_eq!(
            why("import x from \"./one.js\";"),
            "entry.js: `import x from \"./one.js\";` cannot be joined"
        );
        assert_eq!(
            why("import { x } from \"./one.js\""),
            "entry.js: `import { x } from \"./one.js\"` cannot be joined"
        );
    }

    #[test]
    fn our_scripts_can_be_joined_and_do_not_end_the_element_that_holds_them() {
        let entry = "import { Chart } from \"./chart.js\";\nimport { WayMap } from \"./way_map.js\";\n";
        let script = joined("entry.js", entry).unwrap();
        assert!(!script.contains("</script") && !script.contains("<!--"));
        assert!(!script.contains("\nimport ") && !script.contains("\nexport "));
        assert_eq!(
            script.matches("modules[\"dom.js\"] = ").count(),
            1,
            "a module that two import is there once"
        );
        assert!(script.starts_with("/* uPlot:\nThe MIT License"), "{}", &script[..40]);
    }
}
