//! Recordings of the daemon, and the replay of every policy on them. The first byte chooses: 0 to 127, the rest is a file;
//! from 128 on, the rest are JSON lines, which are packed as the recorder packs them.

use crate::{one_line, with_file};
use waykeeper_policy::registry;
use waykeeper_service::naming::HostNames;
use waykeeper_service::recorder::{Header, Item, RecordedStep, RecordingReader};
use waykeeper_service::replay::{Replay, differences};

fn rereads(header: &Header, steps: &[RecordedStep<'static>]) {
    let text = serde_json::to_string(header).expect("a header as JSON");
    assert_eq!(&serde_json::from_str::<Header>(&text).expect("a header that we wrote"), header);
    for step in steps {
        let text = serde_json::to_string(step).expect("a step as JSON");
        assert_eq!(
            &serde_json::from_str::<RecordedStep<'static>>(&text).expect("a step that we wrote"),
            step
        );
    }
}

/// Reads an input. Panics for a finding.
pub fn read(data: &[u8]) {
    let Some((choice, content)) = data.split_first() else { return };
    let packed = (*choice >= 128).then(|| zstd::bulk::compress(content, 1).expect("packing in memory"));
    let items: Vec<Item> =
        with_file(packed.as_deref().unwrap_or(content), |path| match RecordingReader::open(path) {
            Ok(reader) => reader.take(1000).collect(),
            Err(why) => {
                one_line(&why);
                Vec::new()
            }
        });
    let entry = registry().get(usize::from(choice % 128) % registry().len()).expect("a policy");
    let mut replay = Replay::new(entry.name, toml::Table::new()).expect("a policy with its defaults");
    let mut header = None;
    for item in items {
        match item {
            Item::Segment { header: found, .. } => {
                replay.segment(&found);
                header = Some(found);
            }
            Item::Entry(step) => {
                if let Some(header) = &header {
                    rereads(header, std::slice::from_ref(&step));
                }
                match replay.step(&step) {
                    Ok(Some(compared)) => {
                        let groups = step.groups.as_deref().unwrap_or_default();
                        let names = HostNames::recorded(header.as_deref(), groups);
                        differences(&compared.recorded.wanted, &compared.replayed.wanted, &names);
                    }
                    Ok(None) => {}
                    Err(why) => return one_line(&why),
                }
            }
            Item::Unreadable(why) => one_line(&why),
        }
    }
}
