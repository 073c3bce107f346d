//! A group's `tasks`: reading them, and moving tasks into the group, one pid per write.
//!
//! hardware.md 7.4: newer kernels take lists and stop at the first failure; with one pid per write we know which task
//! failed. Tasks end at any time; one that has ended does not fail the others.

use super::error::{Action, ResctrlError, shown};
use super::files;
use super::schemata::decimal;
use super::{Group, Resctrl};

/// The result of moving tasks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MovedTasks {
    /// Tasks that are in the group now.
    pub moved: Vec<u32>,
    /// Tasks that no longer exist.
    pub vanished: Vec<u32>,
}

impl Resctrl {
    /// The tasks of a group. A control group's include those of its monitoring groups; the default group's are all that
    /// are in no other group.
    ///
    /// # Errors
    /// If the group is gone or the file is malformed.
    pub fn tasks(&self, group: &Group) -> Result<Vec<u32>, ResctrlError> {
        let path = self.directory(group).join("tasks");
        let text = files::read(self.system(), &path, files::MOST_TASK_BYTES)?;
        parse_tasks(&text).map_err(|why| ResctrlError::malformed(&path, why))
    }

    /// Moves tasks into a group. Threads that they start later are in it too; existing ones are not (hardware.md 7.4).
    ///
    /// # Errors
    /// The first refusal that is not about an ended task; the tasks before it have moved.
    pub fn assign(&self, group: &Group, pids: &[u32]) -> Result<MovedTasks, ResctrlError> {
        let path = self.directory(group).join("tasks");
        let failed =
            |text: String, error: &std::io::Error| ResctrlError::system(&path, Action::Write(text), error);
        let file =
            files::open_for_commands(self.system(), &path).map_err(|error| failed(String::new(), &error))?;
        let mut result = MovedTasks::default();
        for &pid in pids {
            let text = format!("{pid}\n");
            // The kernel would take 0 as the writing process.
            let written = if pid == 0 {
                Err(std::io::Error::from_raw_os_error(libc::EINVAL))
            } else {
                files::command(file.as_ref(), &text)
            };
            match written {
                Ok(()) => result.moved.push(pid),
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => result.vanished.push(pid),
                Err(error) => {
                    let error = self.with_status(failed(text, &error), None);
                    return Err(error.expecting(
                        "the pid of a task; for a monitoring group, of a task in its control group",
                    ));
                }
            }
        }
        Ok(result)
    }
}

/// Reads `tasks`: one pid per line. A pid of 0 is a task outside the reader's pid namespace, which has no number here.
fn parse_tasks(text: &str) -> Result<Vec<u32>, String> {
    let mut tasks = Vec::new();
    for line in text.lines() {
        let pid = decimal(line).and_then(|pid| u32::try_from(pid).ok());
        match pid.ok_or_else(|| format!("expected one pid a line, not `{}`", shown(line)))? {
            0 => {}
            pid => tasks.push(pid),
        }
    }
    Ok(tasks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_pid_a_line() {
        assert_eq!(parse_tasks("1\n0\n4194303\n"), Ok(vec![1, 4_194_303]));
        assert_eq!(parse_tasks(""), Ok(vec![]));
        for text in ["1 2\n", "-1\n", "\n", "abc\n", "99999999999\n"] {
            assert!(parse_tasks(text).unwrap_err().contains("one pid a line"), "{text:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn pids_read_back_and_no_text_panics(pids: Vec<u32>, text in "[0-9 \n\u{0}-\u{ff}]{0,40}") {
            let lines: String = pids.iter().map(|pid| format!("{pid}\n")).collect();
            let named: Vec<u32> = pids.into_iter().filter(|pid| *pid != 0).collect();
            prop_assert_eq!(parse_tasks(&lines), Ok(named));
            let _ = parse_tasks(&text);
        }
    }
}
