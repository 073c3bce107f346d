//! The stream of steps as a view reads it from a daemon's socket: one answer a line, up to the picture and its history.

use crate::one_line;
use waykeeper_service::protocol::{Answer, AnswerOutcome};
use waykeeper_service::recorder::{StreamLine, StreamReader};
use waykeeper_view::{Abilities, Picture, Series, SourceEvent, SourceInfo, SourceKind, ViewModel};

/// A daemon's socket.
fn info() -> SourceInfo {
    SourceInfo {
        kind: SourceKind::Daemon,
        name: "socket".to_owned(),
        live: true,
        abilities: Abilities::default(),
        speed: None,
        stopped: false,
        length_s: None,
        place_s: None,
        loads: Vec::new(),
    }
}

/// Reads an input. Panics for a finding.
pub fn read(data: &[u8]) {
    let (mut reader, mut model) = (StreamReader::default(), ViewModel::new());
    for line in data.split(|byte| *byte == b'\n').take(256) {
        let Ok(answer) = serde_json::from_slice::<Answer<StreamLine<'static>>>(line) else { continue };
        let AnswerOutcome::Ok(line) = answer.outcome else { continue };
        match reader.read(line) {
            Ok(StreamLine::Header(header)) => model.take(SourceEvent::Begin(header)),
            Ok(StreamLine::Step(step)) => {
                // What was read can be written, and reads as the same.
                let text = serde_json::to_string(&step).expect("a step as JSON");
                assert_eq!(
                    serde_json::from_str::<StreamLine<'static>>(&format!("{{\"step\":{text}}}")).ok(),
                    Some(StreamLine::Step(step.clone()))
                );
                model.take(SourceEvent::Step(step));
            }
            Err(why) => one_line(&why),
        }
        let Some(picture) = model.picture(info()) else { continue };
        let text = serde_json::to_string(&picture).expect("a picture as JSON");
        // Numbers that JSON cannot write would be null, which no picture has.
        serde_json::from_str::<Picture>(&text).expect("a picture that we wrote");
        for series in Series::ALL {
            let part = model.history(series, f64::MIN, f64::MAX);
            assert!(part.columns.iter().all(|column| column.values.len() == part.at_s.len()));
        }
    }
}
