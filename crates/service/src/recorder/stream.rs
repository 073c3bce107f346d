//! The stream of steps: the header once, then a line per step. The control socket sends it (`steps`), recordings contain the
//! same headers and steps.
//!
//! The writer leaves out tenants that have not changed, and the reader adds them again. A reader does not trust the other
//! side: each line is checked before it is returned. Must not know sockets or files.

use super::check;
use super::format::{Header, RecordedStep, WrittenTenants};
use crate::Published;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use waykeeper_host::Workload;
use waykeeper_linux_host::Grouping;

/// A line of the stream.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StreamLine<'a> {
    /// What the steps that follow share. It comes first, and again when something in it changes.
    Header(Box<Header>),
    /// A step.
    Step(Box<RecordedStep<'a>>),
}

/// Turns published steps into lines for one reader.
#[derive(Debug, Default)]
pub struct StreamWriter {
    header: Option<Header>,
    written: Option<WrittenTenants>,
}

impl StreamWriter {
    /// The lines of a step: it, and before it a header if the reader has none that fits.
    pub fn lines<'a>(&mut self, step: &'a Published) -> Vec<StreamLine<'a>> {
        let mut lines = Vec::with_capacity(2);
        if self.header.as_ref().is_none_or(|header| !header.covers(step)) {
            let header = Header::of(step);
            self.written = None;
            self.header = Some(header.clone());
            lines.push(StreamLine::Header(Box::new(header)));
        }
        lines.push(StreamLine::Step(Box::new(RecordedStep::of(step, self.written.as_ref()))));
        let (groups, groupings) = (step.groups.clone(), step.groupings.clone());
        self.written = Some(WrittenTenants { groups, groupings });
        lines
    }
}

/// Reads lines of one writer.
#[derive(Debug, Default)]
pub struct StreamReader {
    header: Option<Header>,
    groups: Option<Vec<Workload>>,
    groupings: Option<Vec<Grouping>>,
}

impl StreamReader {
    /// The header in force; `None` before the first.
    pub fn header(&self) -> Option<&Header> {
        self.header.as_ref()
    }

    /// Checks a line. A step that is returned lists its tenants, also where the line does not.
    ///
    /// # Errors
    /// What is wrong with the line.
    pub fn read(&mut self, line: StreamLine<'static>) -> Result<StreamLine<'static>, String> {
        match line {
            StreamLine::Header(header) => {
                check::header(&header)?;
                *self = StreamReader { header: Some((*header).clone()), ..StreamReader::default() };
                Ok(StreamLine::Header(header))
            }
            StreamLine::Step(step) => self.step(*step).map(|step| StreamLine::Step(Box::new(step))),
        }
    }

    /// Checks a step.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn step(&mut self, mut step: RecordedStep<'static>) -> Result<RecordedStep<'static>, String> {
        let header = self.header.as_ref().ok_or("a step came before the header")?;
        check::entry(&step, &header.inventory).map_err(|why| format!("step {}: {why}", step.step))?;
        match &step.groups {
            Some(groups) => self.groups = Some(groups.to_vec()),
            None => {
                let groups = self.groups.clone().ok_or("the first entry does not list the tenants")?;
                step.groups = Some(Cow::Owned(groups));
            }
        }
        match &step.groupings {
            Some(groupings) => self.groupings = Some(groupings.to_vec()),
            None => step.groupings = self.groupings.clone().map(Cow::Owned),
        }
        if step.groupings.is_none() && header.version > 1 {
            return Err("the first entry does not list the tenants that share a class".to_owned());
        }
        Ok(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published_state::tests::published;
    use waykeeper_host::{Priority, WorkloadKind};
    use waykeeper_units::WorkloadId;

    fn tenant(id: u32) -> Workload {
        Workload {
            id: WorkloadId(id),
            name: format!("tenant-{id}"),
            priority: Priority::High,
            kind: WorkloadKind::NonIo,
            cores: Default::default(),
            devices: Vec::new(),
            stack: false,
            mask: None,
        }
    }

    /// The lines as a socket carries them.
    fn sent(writer: &mut StreamWriter, step: &Published) -> Vec<StreamLine<'static>> {
        let read = |line| serde_json::from_str(&serde_json::to_string(&line).unwrap()).unwrap();
        writer.lines(step).into_iter().map(read).collect()
    }

    #[test]
    fn a_header_comes_first_and_tenants_only_when_they_change() {
        let step = |step, groups: &[u32]| {
            let groups = groups.iter().map(|id| tenant(*id)).collect();
            Published { step, groups, ..published() }
        };
        let (mut writer, mut reader) = (StreamWriter::default(), StreamReader::default());
        let steps = [step(0, &[0]), step(1, &[0]), step(5, &[0, 1])];
        let mut got = Vec::new();
        for step in &steps {
            let lines = sent(&mut writer, step);
            assert_eq!(lines.len(), if step.step == 0 { 2 } else { 1 });
            let Some(StreamLine::Step(written)) = lines.last() else { panic!("{lines:?}") };
            assert_eq!(written.groups.is_some(), step.step != 1);
            for line in lines {
                if let StreamLine::Step(step) = reader.read(line).unwrap() {
                    got.push((step.step, step.groups.unwrap().len()));
                }
            }
        }
        assert_eq!(got, [(0, 1), (1, 1), (5, 2)]);
        // Another policy: another header, and all tenants again.
        let lines = sent(&mut writer, &Published { policy: "a4".to_owned(), ..steps[2].clone() });
        assert!(matches!(&lines[0], StreamLine::Header(header) if header.policy == "a4"));
        assert!(matches!(&lines[1], StreamLine::Step(step) if step.groups.is_some()));
    }

    #[test]
    fn lines_in_a_wrong_order_or_with_impossible_values_are_refused() {
        let published = Published { groups: vec![tenant(0)], ..published() };
        let mut writer = StreamWriter::default();
        let lines = sent(&mut writer, &published);
        let second = sent(&mut writer, &published).remove(0);
        let mut reader = StreamReader::default();
        assert_eq!(reader.read(lines[1].clone()).unwrap_err(), "a step came before the header");
        reader.read(lines[0].clone()).unwrap();
        assert_eq!(reader.read(second).unwrap_err(), "the first entry does not list the tenants");
        reader.read(lines[1].clone()).unwrap();
        let StreamLine::Header(mut header) = lines[0].clone() else { panic!("{lines:?}") };
        header.period_ns = 0;
        assert_eq!(reader.read(StreamLine::Header(header)).unwrap_err(), "its period is 0");
    }
}
