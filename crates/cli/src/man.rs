//! `waykeeper man`: a manual page per subcommand, from the definitions of the help.
//!
//! Must not know any subcommand.

use crate::args::Cli;
use crate::exit::Failure;
use crate::outputs;
use clap::{Args, Command, CommandFactory};
use clap_mangen::Man;
use std::fs;
use std::io;
use std::path::PathBuf;
use waykeeper_output_file::Existing;

/// Examples of `waykeeper man`.
pub const EXAMPLES: &str = "\
Examples:
  waykeeper man --out man1            write waykeeper.1, waykeeper-run.1 and so on into man1
  man -l man1/waykeeper-ddio-set.1    read one of them

`make install` installs the pages, for `man waykeeper`.";

/// Arguments of `waykeeper man`.
#[derive(Args, Debug)]
pub struct ManArgs {
    /// Directory for the pages; it is created if it does not exist
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// Writes the pages.
pub fn man(args: &ManArgs) -> Result<(), Failure> {
    // `help` has no page: each page is the help of its subcommand.
    let mut root = Cli::command().disable_help_subcommand(true);
    root.build();
    let pages = pages(&root).map_err(|why| Failure::io("cannot make the pages", &why))?;
    let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
    outputs::directory("--out", &args.out, &names, true)?;
    fs::create_dir_all(&args.out).map_err(|why| Failure::io(args.out.display(), &why))?;
    for (name, page) in &pages {
        let path = args.out.join(name);
        waykeeper_output_file::write(&path, page, Existing::Replace)
            .map_err(|why| Failure::io(path.display(), &why))?;
    }
    Ok(())
}

/// The names and pages of a command and of all below it.
fn pages(command: &Command) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut all = Vec::new();
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        all.extend(pages(below)?);
    }
    all.push((Man::new(command.clone()).get_filename(), page(command)?));
    Ok(all)
}

fn page(command: &Command) -> io::Result<Vec<u8>> {
    let man = Man::new(command.clone()).manual("Waykeeper manual");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(&mut page)?;
    }
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    if let Some(after) = command.get_after_long_help().or(command.get_after_help()) {
        page.extend(closing(&after.to_string()).into_bytes());
    }
    Ok(page)
}

/// The part of the help after the options: the examples line by line, then the notes as paragraphs.
fn closing(after: &str) -> String {
    let mut out = String::new();
    let mut notes = after;
    if let Some(rest) = after.strip_prefix("Examples:\n") {
        let (examples, rest) = rest.split_once("\n\n").unwrap_or((rest, ""));
        out.push_str(".SH EXAMPLES\n.nf\n");
        examples.lines().for_each(|line| out.push_str(&(roff(line) + "\n")));
        out.push_str(".fi\n");
        notes = rest;
    }
    for (number, paragraph) in notes.split("\n\n").filter(|paragraph| !paragraph.is_empty()).enumerate() {
        out.push_str(if number == 0 { ".SH NOTES\n" } else { ".PP\n" });
        paragraph.lines().for_each(|line| out.push_str(&(roff(line) + "\n")));
    }
    out
}

/// A line of text escaped for roff: no request, no escape, and hyphens that can be copied into a shell.
fn roff(line: &str) -> String {
    let line = line.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq").replace('`', "\\(ga");
    if line.starts_with('.') { format!("\\&{line}") } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_text_in_roff() {
        assert_eq!(roff(".TH a-b 'c' `d` \\e"), "\\&.TH a\\-b \\(aqc\\(aq \\(gad\\(ga \\ee");
    }

    #[test]
    fn examples_keep_their_lines_and_notes_are_paragraphs() {
        let page = closing("Examples:\n  a x    why\n  b\n\nOne\nline.\n\nTwo.");
        assert_eq!(page, ".SH EXAMPLES\n.nf\n  a x    why\n  b\n.fi\n.SH NOTES\nOne\nline.\n.PP\nTwo.\n");
        assert_eq!(closing("Examples:\n  a"), ".SH EXAMPLES\n.nf\n  a\n.fi\n");
        assert_eq!(closing("One."), ".SH NOTES\nOne.\n");
    }
}
