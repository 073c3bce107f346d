//! `cpus` and `cpus_list`: sets of CPUs as text, and the group of each CPU.
//!
//! Like linux lib/bitmap.c (`bitmap_parse`, `bitmap_parselist`) and rdtgroup.c (`cpus_ctrl_write`, `cpus_mon_write`).
//! It must not know tasks and masks of ways.

use super::VirtualResctrl;
use super::groups::GroupId;
use super::numbers::c_string;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fmt::Write;

/// A set of CPUs.
pub(super) type Cpus = BTreeSet<u32>;

/// `%*pb`: hexadecimal, a comma every 32 CPUs, as many digits as `possible` CPUs need.
pub(super) fn mask_text(cpus: &Cpus, possible: u32) -> String {
    let mut text = String::new();
    for chunk in (0..possible.div_ceil(32)).rev() {
        let bits = (possible - chunk * 32).min(32);
        let value = (0..bits)
            .filter(|bit| cpus.contains(&(chunk * 32 + bit)))
            .fold(0u32, |value, bit| value | 1 << bit);
        let comma = if text.is_empty() { "" } else { "," };
        let _ = write!(text, "{comma}{value:0width$x}", width = bits.div_ceil(4) as usize);
    }
    text
}

/// `%*pbl`: ranges, in rising order.
pub(super) fn list_text(cpus: &Cpus) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let texts: Vec<String> = ranges
        .iter()
        .map(|(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") })
        .collect();
    texts.join(",")
}

fn is_separator(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b || byte == b','
}

/// `bitmap_parse`: hexadecimal words of up to 32 bits between commas or spaces, the last one the lowest.
/// EINVAL for other letters, EOVERFLOW for too many or too long words, ERANGE for CPUs past `possible`.
pub(super) fn parse_mask(text: &str, possible: u32) -> Result<Cpus, Errno> {
    let text = text.split('\n').next().unwrap_or("");
    let words: Vec<&[u8]> =
        text.as_bytes().split(|byte| is_separator(*byte)).filter(|word| !word.is_empty()).collect();
    let mut cpus = Cpus::new();
    for (chunk, word) in words.iter().rev().enumerate() {
        if chunk as u32 >= possible.div_ceil(32) {
            return Err(Errno::OVERFLOW);
        }
        for (place, byte) in word.iter().rev().enumerate() {
            let Some(digit) = (*byte as char).to_digit(16) else { return Err(Errno::INVAL) };
            if place >= 8 {
                return Err(Errno::OVERFLOW);
            }
            let lowest = chunk as u32 * 32 + place as u32 * 4;
            cpus.extend((0..4).filter(|bit| digit & (1 << bit) != 0).map(|bit| lowest + bit));
        }
    }
    if cpus.iter().any(|cpu| *cpu >= possible) { Err(Errno::RANGE) } else { Ok(cpus) }
}

/// `bitmap_parselist`: regions `a`, `a-b`, `a-b:used/group`, `all`, with `N` for the last CPU. EINVAL for an invalid
/// region, ERANGE for CPUs past `possible`.
pub(super) fn parse_list(text: &str, possible: u32) -> Result<Cpus, Errno> {
    let mut cpus = Cpus::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches(|letter: char| letter.is_ascii() && is_separator(letter as u8));
        if rest.is_empty() {
            return Ok(cpus);
        }
        let end =
            rest.find(|letter: char| letter.is_ascii() && is_separator(letter as u8)).unwrap_or(rest.len());
        let region = &rest[..end];
        let ends_line = rest[end..].is_empty() || rest[end..].starts_with('\n');
        let (first, last, used, group) = parse_region(region, possible - 1)?;
        if first > last || group == 0 || used > group {
            return Err(Errno::INVAL);
        }
        if last >= possible {
            return Err(Errno::RANGE);
        }
        let mut start = first;
        while start <= last {
            cpus.extend(start..start + used.min(last - start + 1));
            start = start.saturating_add(group);
        }
        // A region without a pattern at the end of the line ends the list.
        if ends_line && !region.contains(':') {
            return Ok(cpus);
        }
        rest = &rest[end..];
    }
}

/// First, last, used and group length of one region.
fn parse_region(region: &str, last_cpu: u32) -> Result<(u32, u32, u32, u32), Errno> {
    let number = |text: &mut &str| -> Result<u32, Errno> {
        if let Some(rest) = text.strip_prefix('N') {
            *text = rest;
            return Ok(last_cpu);
        }
        let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
        let value = if end == 0 { return Err(Errno::INVAL) } else { text[..end].parse() };
        *text = &text[end..];
        value.map_err(|_| Errno::OVERFLOW)
    };
    let mut rest = region;
    let (first, last);
    if region.get(..3).is_some_and(|start| start.eq_ignore_ascii_case("all")) {
        (first, last) = (0, last_cpu);
        rest = &region[3..];
    } else {
        first = number(&mut rest)?;
        if rest.is_empty() {
            return Ok((first, first, first.saturating_add(1), first.saturating_add(1)));
        }
        rest = rest.strip_prefix('-').ok_or(Errno::INVAL)?;
        last = number(&mut rest)?;
    }
    if rest.is_empty() {
        return Ok((first, last, last.saturating_add(1), last.saturating_add(1)));
    }
    rest = rest.strip_prefix(':').ok_or(Errno::INVAL)?;
    let used = number(&mut rest)?;
    rest = rest.strip_prefix('/').ok_or(Errno::INVAL)?;
    let group = number(&mut rest)?;
    if rest.is_empty() { Ok((first, last, used, group)) } else { Err(Errno::INVAL) }
}

impl VirtualResctrl {
    pub(super) fn cpus_show(&self, group: GroupId, list: bool) -> String {
        let cpus = &self.groups[&group].cpus;
        let text = if list { list_text(cpus) } else { mask_text(cpus, self.host.possible_cpus) };
        text + "\n"
    }

    pub(super) fn cpus_write(&mut self, group: GroupId, list: bool, data: &[u8]) -> Result<(), Errno> {
        let text = c_string(data);
        let possible = self.host.possible_cpus;
        let parsed = if list { parse_list(&text, possible) } else { parse_mask(&text, possible) };
        let wanted = parsed.inspect_err(|_| self.status.puts("Bad CPU list/mask\n"))?;
        if !self.online.is_superset(&wanted) {
            self.status.puts("Can only assign online CPUs\n");
            return Err(Errno::INVAL);
        }
        match self.groups[&group].parent {
            Some(parent) => self.cpus_of_monitoring_group(group, parent, wanted),
            None => self.cpus_of_control_group(group, wanted),
        }
    }

    fn cpus_of_control_group(&mut self, group: GroupId, wanted: Cpus) -> Result<(), Errno> {
        let held = self.groups[&group].cpus.clone();
        let dropped: Cpus = held.difference(&wanted).copied().collect();
        if !dropped.is_empty() {
            if group == GroupId::DEFAULT {
                self.status.puts("Can't drop CPUs from default group\n");
                return Err(Errno::INVAL);
            }
            self.group_mut(GroupId::DEFAULT).cpus.extend(&dropped);
            self.assign_cpus(&dropped, GroupId::DEFAULT);
        }
        let added: Cpus = wanted.difference(&held).copied().collect();
        for (id, other) in &mut self.groups {
            if *id != group && other.parent != Some(group) {
                other.cpus.retain(|cpu| !added.contains(cpu));
            }
        }
        self.assign_cpus(&added, group);
        self.group_mut(group).cpus = wanted.clone();
        // A new mask takes the CPUs from all monitoring groups below.
        for child in self.children(group) {
            let taken: Cpus = std::mem::take(&mut self.group_mut(child).cpus);
            self.assign_cpus(&taken.intersection(&wanted).copied().collect(), group);
        }
        Ok(())
    }

    fn cpus_of_monitoring_group(
        &mut self,
        group: GroupId,
        parent: GroupId,
        wanted: Cpus,
    ) -> Result<(), Errno> {
        if !self.groups[&parent].cpus.is_superset(&wanted) {
            self.status.puts("Can only add CPUs to mongroup that belong to parent\n");
            return Err(Errno::INVAL);
        }
        let held = self.groups[&group].cpus.clone();
        self.assign_cpus(&held.difference(&wanted).copied().collect(), parent);
        let added: Cpus = wanted.difference(&held).copied().collect();
        for sibling in self.children(parent) {
            if sibling != group {
                self.group_mut(sibling).cpus.retain(|cpu| !added.contains(cpu));
            }
        }
        self.assign_cpus(&added, group);
        self.group_mut(group).cpus = wanted;
        Ok(())
    }

    /// Sets the class and RMID of `group` on these CPUs in the hardware.
    pub(super) fn assign_cpus(&mut self, cpus: &Cpus, group: GroupId) {
        let (closid, rmid) = (self.groups[&group].closid, self.groups[&group].rmid);
        for &cpu in cpus {
            self.hardware.set_cpu(cpu, closid, rmid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(cpus: &[u32]) -> Cpus {
        cpus.iter().copied().collect()
    }

    #[test]
    fn masks_and_lists_are_those_of_the_kernel() {
        assert_eq!(mask_text(&set(&[]), 4), "0");
        assert_eq!(mask_text(&set(&[1, 3]), 6), "0a");
        assert_eq!(mask_text(&set(&[0, 32, 35]), 36), "9,00000001");
        assert_eq!(list_text(&set(&[])), "");
        assert_eq!(list_text(&set(&[0, 2, 3, 4, 7])), "0,2-4,7");
        assert_eq!(parse_mask("c,\n", 4), Ok(set(&[2, 3])));
        assert_eq!(parse_mask("\n", 4), Ok(set(&[])));
        assert_eq!(parse_mask("1,00000002", 36), Ok(set(&[1, 32])));
        assert_eq!(parse_mask("10", 4), Err(Errno::RANGE));
        assert_eq!(parse_mask("0x4", 4), Err(Errno::INVAL));
        assert_eq!(parse_mask("1,1", 4), Err(Errno::OVERFLOW));
        assert_eq!(parse_mask("000000001", 4), Err(Errno::OVERFLOW));
        assert_eq!(parse_list("0-3:1/2\n", 4), Ok(set(&[0, 2])));
        assert_eq!(parse_list("all", 4), Ok(set(&[0, 1, 2, 3])));
        assert_eq!(parse_list("2-N, 0", 4), Ok(set(&[0, 2, 3])));
        assert_eq!(parse_list("0-3,9", 4), Err(Errno::RANGE));
        for wrong in ["a", "3-1", "1-", "-1", "0-3:2/1", "0-3:1/0", "1x"] {
            assert_eq!(parse_list(wrong, 4), Err(Errno::INVAL), "{wrong}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn what_is_written_reads_back(cpus in proptest::collection::btree_set(0u32..70, 0..70)) {
            prop_assert_eq!(parse_mask(&mask_text(&cpus, 70), 70), Ok(cpus.clone()));
            prop_assert_eq!(parse_list(&list_text(&cpus), 70), Ok(cpus));
        }

        #[test]
        fn no_text_makes_it_fall_over(text in "[0-9a-fNx,:/ \n-]{0,24}", possible in 1u32..70) {
            for parsed in [parse_mask(&text, possible), parse_list(&text, possible)].into_iter().flatten() {
                prop_assert!(parsed.iter().all(|cpu| *cpu < possible));
            }
        }
    }
}
