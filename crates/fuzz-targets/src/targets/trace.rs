//! Memory traces as files: lackey's text, ChampSim's records and our own format. What is read is written in our format and
//! read again.

use crate::{one_line, with_file};
use waykeeper_inputs::{TraceInfo, TraceReader, TraceRecord, TraceWriter};

/// Reads an input. Panics for a finding.
pub fn read(data: &[u8]) {
    let read = with_file(data, |path| {
        let mut reader = TraceReader::open(path)?;
        let records = reader.by_ref().collect::<Result<Vec<TraceRecord>, _>>()?;
        let info = TraceInfo::read(path)?;
        Ok::<_, waykeeper_inputs::InputError>((records, reader.tail_instructions(), info))
    });
    let (records, tail, info) = match read {
        Ok(read) => read,
        Err(why) => return one_line(&why),
    };
    let mut writer =
        TraceWriter::new(Vec::new(), &info.source, info.l1_filtered).expect("a writer in memory");
    for record in &records {
        writer.push(*record).expect("a record that was read can be written");
    }
    let (summary, written) = writer.finish(tail).expect("a trace that was read can be written");
    assert_eq!(summary, info.summary);
    with_file(&written, |path| {
        let mut reader = TraceReader::open(path).expect("a trace that we wrote");
        let again = reader.by_ref().collect::<Result<Vec<_>, _>>().expect("records that we wrote");
        assert_eq!((again, reader.tail_instructions()), (records, tail));
    });
}
