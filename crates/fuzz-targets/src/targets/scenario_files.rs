//! Files that scenarios name: profiles of programs, fio's jobs. The first byte chooses which.

use crate::{one_line, with_file};
use waykeeper_machine::ScenarioSource;

/// Reads an input. Panics for a finding.
pub fn read(data: &[u8]) {
    let Some((choice, content)) = data.split_first() else { return };
    with_file(content, |path| {
        let path = path.display();
        let text = match choice % 2 {
            0 => format!(
                "name = \"x\"\n[[workload]]\nname = \"p\"\nprogram = \"spec\"\ncores = \"0\"\nprofile = \"{path}\"\n"
            ),
            _ => format!(
                "name = \"x\"\n[[storage]]\nname = \"s\"\n[[workload]]\nname = \"p\"\nprogram = \"fio\"\ncores = \
                 \"0\"\nfio = \"{path}\"\n"
            ),
        };
        let source = ScenarioSource::parse("fuzz.toml", &text, None).expect("the target's own scenario");
        if let Err(why) = source.read() {
            one_line(&why);
        }
    });
}
