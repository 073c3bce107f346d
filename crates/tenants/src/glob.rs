//! Globs over names of cgroups, units, programs and virtual functions.
//!
//! `*`, `?`, `[a-c]` and `{a,b}` stay within one component of a path; `**` is any number of components. A backslash is
//! an ordinary character, since systemd writes `\x2d` into the names of cgroups. Must not open a file.

use globset::{GlobBuilder, GlobMatcher};

/// Longest glob, bytes; no path of a cgroup is longer (PATH_MAX).
const LONGEST: usize = 4096;
/// Most groups `{a,b}` of a glob, which also bounds how deep they nest: globset panics where the regular expression of a
/// glob nests deeper than 250 (`regex_syntax`'s default), two levels for each group. Assumption: a glob in use has one
/// or two.
const GROUPS_MOST: usize = 16;
/// Most commas of a glob, each of which adds a choice to a group. Assumption: a longer list is several globs.
const CHOICES_MOST: usize = 256;

/// Kinds of units that run processes (systemd.unit(5)). Slices have a key of their own.
pub(super) const UNIT_KINDS: [&str; 5] = [".service", ".scope", ".socket", ".mount", ".swap"];

/// One glob, compiled.
#[derive(Clone, Debug)]
pub struct Glob {
    text: String,
    /// None for a plain name, which is compared as text.
    matcher: Option<GlobMatcher>,
}

impl PartialEq for Glob {
    fn eq(&self, other: &Glob) -> bool {
        self.text == other.text
    }
}

impl Eq for Glob {}

impl std::fmt::Display for Glob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// Whether a text has a character that makes it a glob.
fn is_wild(text: &str) -> bool {
    text.contains(['*', '?', '[', '{'])
}

fn shown(text: &str) -> String {
    let short: String = text.chars().take(waykeeper_kernel::content::FOUND_MOST).collect();
    let dots = if short.len() < text.len() { "…" } else { "" };
    format!("`{}{dots}`", short.escape_debug())
}

impl Glob {
    /// Compiles a glob.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(text: &str) -> Result<Glob, String> {
        if text.is_empty() {
            return Err("an empty glob matches nothing".to_owned());
        }
        if text.len() > LONGEST {
            return Err(format!("{} is longer than {LONGEST} bytes, and no path is", shown(text)));
        }
        if text.chars().any(char::is_control) {
            return Err(format!("{} contains a control character", shown(text)));
        }
        // A brace or comma in a class counts too, so that the count is never below the parser's.
        for (letter, most, what) in [('{', GROUPS_MOST, "opening braces"), (',', CHOICES_MOST, "commas")] {
            let count = text.matches(letter).count();
            if count > most {
                return Err(format!("{} has {count} {what}; a glob has at most {most}", shown(text)));
            }
        }
        let built = GlobBuilder::new(text).literal_separator(true).backslash_escape(false).build();
        let glob = built.map_err(|why| format!("{} is not a glob: {}", shown(text), why.kind()))?;
        Ok(Glob { text: text.to_owned(), matcher: is_wild(text).then(|| glob.compile_matcher()) })
    }

    /// The text as written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it matches `name` as a whole.
    pub fn matches(&self, name: &str) -> bool {
        self.matcher.as_ref().map_or(self.text == name, |matcher| matcher.is_match(name))
    }

    /// Whether it may match more than one name.
    pub fn is_wild(&self) -> bool {
        self.matcher.is_some()
    }
}

/// Which cgroups belong to a tenant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CgroupSelector {
    /// Cgroups whose path from the root of the tree, without a leading slash, matches.
    Path(Glob),
    /// Slices. The name determines the path: `a-b.slice` is `a.slice/a-b.slice` (systemd.slice(5)). A glob matches
    /// slices anywhere.
    Slice(Glob),
    /// Units with a matching name, in any slice of the system manager.
    Unit(Glob),
}

impl CgroupSelector {
    /// `cgroup = "kubepods.slice/**/cri-*.scope"`.
    ///
    /// # Errors
    /// A bad glob, or not a path below the root of the tree.
    pub fn path(text: &str) -> Result<CgroupSelector, String> {
        let path = text.trim_matches('/');
        if path.is_empty() {
            return Err(format!(
                "{} would match all processes; name a cgroup below it, like system.slice",
                shown(text)
            ));
        }
        if path.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(format!(
                "{} is not the path of a cgroup; write it from the root, like a.slice/b",
                shown(text)
            ));
        }
        let crossed = |part: &str| part.contains("**") && part != "**";
        if path.split('/').any(crossed) {
            return Err(format!("{} is not a glob: `**` must be a whole part between slashes", shown(text)));
        }
        Ok(CgroupSelector::Path(Glob::new(path)?))
    }

    /// `slice = "redis.slice"`.
    ///
    /// # Errors
    /// A bad glob, or not the name of a slice.
    pub fn slice(text: &str) -> Result<CgroupSelector, String> {
        let stem = text.strip_suffix(".slice").filter(|stem| !stem.is_empty() && !text.contains('/'));
        let Some(stem) = stem else {
            return Err(format!("{} is not a slice; write its whole name, like redis.slice", shown(text)));
        };
        if stem == "-" {
            return Err(format!("{} would match all processes; name a slice below it", shown(text)));
        }
        if stem.starts_with('-') || stem.ends_with('-') || stem.contains("--") {
            let why = "dashes separate the names of nested slices, and one of these names is empty";
            return Err(format!("{} is not a slice: {why}", shown(text)));
        }
        Ok(CgroupSelector::Slice(Glob::new(text)?))
    }

    /// `unit = "redis-server.service"`.
    ///
    /// # Errors
    /// A bad glob, or not the name of a unit that has processes.
    pub fn unit(text: &str) -> Result<CgroupSelector, String> {
        let known = |kind: &str| text.strip_suffix(kind).is_some_and(|stem| !stem.is_empty());
        if text.ends_with(".slice") {
            return Err(format!("{} is a slice; write slice = instead of unit =", shown(text)));
        }
        if text.contains('/') || !UNIT_KINDS.iter().any(|kind| known(kind)) {
            let kinds = UNIT_KINDS.join(", ");
            return Err(format!("{} is not a unit; write its whole name, ending in {kinds}", shown(text)));
        }
        Ok(CgroupSelector::Unit(Glob::new(text)?))
    }

    /// The glob.
    pub fn glob(&self) -> &Glob {
        match self {
            CgroupSelector::Path(glob) | CgroupSelector::Slice(glob) | CgroupSelector::Unit(glob) => glob,
        }
    }

    /// Whether two different matches may have the same last component of their paths.
    pub fn may_repeat_names(&self) -> bool {
        match self {
            CgroupSelector::Path(glob) => {
                glob.text().rsplit_once('/').is_some_and(|(above, _)| is_wild(above))
            }
            // A slice's name determines its path, and the system manager has one unit of each name.
            CgroupSelector::Slice(_) | CgroupSelector::Unit(_) => false,
        }
    }
}

/// Parses a program's name: a process's name (the first 15 bytes, as the kernel keeps it) or the name of the file it
/// runs.
///
/// # Errors
/// A bad glob, or a path.
pub(super) fn program(text: &str) -> Result<Glob, String> {
    if let Some((_, last)) = text.rsplit_once('/') {
        return Err(format!("{} is a path; name the program alone, like {}", shown(text), shown(last)));
    }
    Glob::new(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_star_stays_in_its_component_and_two_do_not() {
        let matches = |glob: &str, path: &str| Glob::new(glob).unwrap().matches(path);
        assert!(matches("kubepods.slice/**/cri-*.scope", "kubepods.slice/a.slice/b.slice/cri-12.scope"));
        assert!(matches("kubepods.slice/**/cri-*.scope", "kubepods.slice/cri-12.scope"));
        assert!(!matches("kubepods.slice/*/cri-*.scope", "kubepods.slice/a.slice/b.slice/cri-12.scope"));
        assert!(!matches("kubepods.slice/cri-*", "kubepods.slice/cri-1/x"));
        assert!(matches("{redis,valkey}-server", "valkey-server"));
        assert!(matches("vf[0-3]", "vf3") && !matches("vf[0-3]", "vf4"));
        // systemd writes a dash in a name like this.
        assert!(matches(r"system-redis\x2d*.slice", r"system-redis\x2dserver.slice"));
        assert!(
            matches(r"a\x2db.service", r"a\x2db.service") && !matches(r"a\x2db.service", "ax2db.service")
        );
        assert!(matches("a*", "a\nb"), "a name may have a newline in it");
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_reason() {
        let refused = |selector: Result<CgroupSelector, String>| selector.unwrap_err();
        let reported = refused(CgroupSelector::path("kubepods/[a"));
        assert_eq!(reported, "`kubepods/[a` is not a glob: unclosed character class; missing ']'");
        assert!(
            refused(CgroupSelector::path("a/x**/b")).ends_with("`**` must be a whole part between slashes")
        );
        assert!(refused(CgroupSelector::path("/")).contains("would match all processes"));
        assert!(refused(CgroupSelector::path("a/../b")).contains("not the path of a cgroup"));
        assert!(refused(CgroupSelector::slice("redis")).ends_with("write its whole name, like redis.slice"));
        assert!(refused(CgroupSelector::slice("a--b.slice")).contains("one of these names is empty"));
        assert!(refused(CgroupSelector::slice("-.slice")).contains("would match all processes"));
        assert!(refused(CgroupSelector::unit("redis")).contains("ending in .service, .scope"));
        assert!(refused(CgroupSelector::unit("a.slice")).contains("write slice ="));
        assert!(program("/usr/bin/fastclick").unwrap_err().ends_with("like `fastclick`"));
        assert!(Glob::new(&"a".repeat(5000)).unwrap_err().contains("longer than 4096 bytes"));
    }

    #[test]
    fn a_glob_at_its_bounds_matches_and_one_beyond_them_is_refused() {
        // Sixteen groups, one inside the other: `{a,{a,...{a,b}...}}` is `a` or `b`.
        let nested = |deep: usize| format!("{}b{}", "{a,".repeat(deep), "}".repeat(deep));
        let deepest = Glob::new(&nested(16)).unwrap();
        assert!(deepest.matches("a") && deepest.matches("b") && !deepest.matches("ab"));
        assert_eq!(
            Glob::new(&nested(130)).unwrap_err(),
            "`{a,{a,{a,{a,{a,{a,{a,{a,{a,{a,{a,{a,{a,{…` has 130 opening braces; a glob has at most 16"
        );
        assert!(Glob::new(&"{".repeat(4096)).unwrap_err().contains("4096 opening braces"));
        let choices = |many: usize| format!("{{{}x}}", "a,".repeat(many));
        assert!(Glob::new(&choices(256)).unwrap().matches("x"));
        assert!(Glob::new(&choices(257)).unwrap_err().ends_with("has 257 commas; a glob has at most 256"));
        // The longest globs of each kind compile: their regular expressions grow with the text alone.
        for part in ["?", "*a", "[a-z]", "[!/]", "**/"] {
            let longest = part.repeat(4096 / part.len());
            assert_eq!(Glob::new(&longest).map(|glob| glob.matches("a")), Ok(part == "**/"), "{part}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        #[test]
        fn no_glob_and_no_name_makes_it_panic(text in "\\PC{0,40}|[a*?\\[\\]{},!/\\\\-]{0,20}|[a,*{}\\[\\]]{0,600}", name in "\\PC{0,40}|[a/]{0,20}") {
            for glob in [Glob::new(&text), program(&text)].into_iter().flatten() {
                let _ = glob.matches(&name);
            }
            for selector in [CgroupSelector::path(&text), CgroupSelector::slice(&text), CgroupSelector::unit(&text)].into_iter().flatten() {
                let _ = (selector.glob().matches(&name), selector.may_repeat_names());
            }
        }
    }
}
