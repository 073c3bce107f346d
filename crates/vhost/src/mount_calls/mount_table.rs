//! Tables of mounts in procfs, with resctrl where a kernel would show it.
//!
//! Formats: proc(5), linux fs/proc_namespace.c. This file must not know who reads them.

/// The two formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableFormat {
    /// `/proc/PID/mounts`.
    Mounts,
    /// `/proc/PID/mountinfo`.
    Mountinfo,
}

impl TableFormat {
    /// The file's name.
    pub fn file_name(self) -> &'static str {
        match self {
            TableFormat::Mounts => "mounts",
            TableFormat::Mountinfo => "mountinfo",
        }
    }
}

/// The tree and its resctrl.
#[derive(Clone, Copy, Debug)]
pub struct TreeMount {
    /// The tree's device, as in stat(2).
    pub device: u64,
    /// Options of resctrl, each after a comma.
    pub options: &'static str,
}

/// Whether a path can be that of a table, by its last part.
pub fn may_be(path: &str) -> bool {
    matches!(path.rsplit('/').next(), Some("mounts" | "mountinfo"))
}

/// The task of an absolute path of a table, as written after `/proc/`, and the table's format.
pub fn parse_path(path: &str) -> Option<(String, TableFormat)> {
    let (owner, name) = path.strip_prefix("/proc/")?.rsplit_once('/')?;
    let format = [TableFormat::Mounts, TableFormat::Mountinfo].into_iter();
    let format = { format }.find(|format| format.file_name() == name)?;
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_owner = match owner.split_once("/task/") {
        Some((process, thread)) => number(process) && number(thread),
        None => number(owner) || ["self", "thread-self"].contains(&owner),
    };
    is_owner.then(|| (owner.to_owned(), format))
}

/// A table with resctrl: on every mount of the tree's `/sys`, and in place of every bind mount of resctrl itself. `None`
/// if there is neither. `mountinfo` is the same task's, and tells which mounts are the tree's.
pub fn with_resctrl(format: TableFormat, text: &str, mountinfo: &str, tree: &TreeMount) -> Option<String> {
    let device = format!("{}:{}", rustix::fs::major(tree.device), rustix::fs::minor(tree.device));
    let mounts: Vec<Mount<'_>> = mountinfo.lines().filter_map(Mount::parse).collect();
    let of_tree = |mount: &&Mount<'_>| mount.device == device;
    let hosts: Vec<&Mount<'_>> = mounts.iter().filter(of_tree).filter(|mount| mount.root == "/sys").collect();
    let binds = mounts.iter().filter(of_tree).filter(|mount| mount.resctrl_part().is_some()).count();
    if hosts.is_empty() && binds == 0 {
        return None;
    }
    let options = tree.options;
    let mut table = String::with_capacity(text.len() + 128);
    // Both tables have the same mounts in the same order.
    for (line, info) in text.lines().zip(mountinfo.lines()) {
        let mount = Mount::parse(info).filter(|mount| mount.device == device);
        match (format, mount.as_ref().and_then(|mount| mount.resctrl_part().zip(Some(mount)))) {
            (_, None) => table.push_str(line),
            (TableFormat::Mounts, Some((_, mount))) => {
                let at = mount.point;
                table.push_str(&format!("resctrl {at} resctrl rw,relatime{options} 0 0"));
            }
            (TableFormat::Mountinfo, Some((part, mount))) => {
                let Mount { id, parent, device, point, .. } = mount;
                table.push_str(&format!(
                    "{id} {parent} {device} {part} {point} rw,relatime - resctrl resctrl rw{options}"
                ));
            }
        }
        table.push('\n');
    }
    let mut next = mounts.iter().map(|mount| mount.id).max().unwrap_or(0);
    for Mount { id: parent, point, .. } in hosts {
        next += 1;
        let at = format!("{}/fs/resctrl", point.trim_end_matches('/'));
        table.push_str(&match format {
            TableFormat::Mounts => format!("resctrl {at} resctrl rw,relatime{options} 0 0\n"),
            TableFormat::Mountinfo => {
                format!("{next} {parent} {device} / {at} rw,relatime - resctrl resctrl rw{options}\n")
            }
        });
    }
    Some(table)
}

/// A line of mountinfo: `36 35 98:0 /root /point rw,noatime - ext3 /dev/root rw`.
struct Mount<'a> {
    id: u64,
    parent: u64,
    device: &'a str,
    root: &'a str,
    point: &'a str,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Mount<'a>> {
        let mut fields = line.split(' ');
        Some(Mount {
            id: fields.next()?.parse().ok()?,
            parent: fields.next()?.parse().ok()?,
            device: fields.next()?,
            root: fields.next()?,
            point: fields.next()?,
        })
    }

    /// The part of resctrl that is mounted, as its own root; `None` for another part of the tree.
    fn resctrl_part(&self) -> Option<&'a str> {
        match self.root.strip_prefix("/sys/fs/resctrl")? {
            "" => Some("/"),
            part => part.starts_with('/').then_some(part),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "\
21 1 254:0 / / rw - ext4 /dev/vda rw
22 21 0:45 / /tmp/tree rw - fuse waykeeper rw
23 21 0:45 /sys /sys rw - fuse waykeeper rw
24 21 0:45 /sys/fs/resctrl/a /mnt rw - fuse waykeeper rw
25 21 0:45 /sys/fs/resctrl-not /x rw - fuse waykeeper rw
";
    const MOUNTS: &str = "\
/dev/vda / ext4 rw 0 0
waykeeper /tmp/tree fuse rw 0 0
waykeeper /sys fuse rw 0 0
waykeeper /mnt fuse rw 0 0
waykeeper /x fuse rw 0 0
";

    fn tree(options: &'static str) -> TreeMount {
        TreeMount { device: rustix::fs::makedev(0, 45), options }
    }

    #[test]
    fn resctrl_is_on_the_trees_sys_and_in_place_of_its_bind_mounts() {
        let shown = with_resctrl(TableFormat::Mountinfo, INFO, INFO, &tree(",cdp")).unwrap();
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[..3], INFO.lines().collect::<Vec<_>>()[..3]);
        assert_eq!(
            lines[3..],
            [
                "24 21 0:45 /a /mnt rw,relatime - resctrl resctrl rw,cdp",
                "25 21 0:45 /sys/fs/resctrl-not /x rw - fuse waykeeper rw",
                "26 23 0:45 / /sys/fs/resctrl rw,relatime - resctrl resctrl rw,cdp",
            ]
        );
        let shown = with_resctrl(TableFormat::Mounts, MOUNTS, INFO, &tree("")).unwrap();
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[2], "waykeeper /sys fuse rw 0 0");
        assert_eq!(lines[3], "resctrl /mnt resctrl rw,relatime 0 0");
        assert_eq!(lines[5], "resctrl /sys/fs/resctrl resctrl rw,relatime 0 0");
    }

    #[test]
    fn a_namespace_without_the_tree_is_shown_as_it_is() {
        let other = TreeMount { device: rustix::fs::makedev(0, 46), options: "" };
        assert_eq!(with_resctrl(TableFormat::Mountinfo, INFO, INFO, &other), None);
        let only_at_its_own_path: String = INFO.lines().take(2).map(|line| format!("{line}\n")).collect();
        let table =
            with_resctrl(TableFormat::Mountinfo, &only_at_its_own_path, &only_at_its_own_path, &tree(""));
        assert_eq!(table, None);
    }

    #[test]
    fn the_owner_of_a_table_is_in_its_path() {
        let owner =
            |path: &str| parse_path(path).map(|(owner, format)| format!("{owner} {}", format.file_name()));
        assert_eq!(owner("/proc/self/mountinfo").as_deref(), Some("self mountinfo"));
        assert_eq!(owner("/proc/12/task/13/mounts").as_deref(), Some("12/task/13 mounts"));
        for other in
            ["/proc/mounts", "/proc/sys/mountinfo", "/proc//mounts", "/etc/mounts", "/proc/1/task/mounts"]
        {
            assert_eq!(owner(other), None, "{other}");
        }
        assert!(may_be("mountinfo") && may_be("/proc/mounts") && !may_be("/proc/self/mountstats"));
    }
}
