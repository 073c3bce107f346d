//! Where resctrl is mounted and with which options, as the kernel's lists of mounts have it.
//!
//! proc(5): `/proc/mounts` and `/proc/self/mountinfo` list the same mounts. A recorded tree may have only one of them.
//! Must not know what is in the file system.

use super::error::{Action, ResctrlError, ResctrlErrorKind};
use super::{MOUNT, Resctrl};
use crate::root::{FileError, Root};
use std::path::Path;
use waykeeper_units::one_line;

/// Makes a mount that is read-only take writes.
pub const REMOUNT_COMMAND: &str = "mount -o remount,rw /sys/fs/resctrl";

/// Options of the file system itself, which only a new mount changes (linux rdtgroup.c, rdtgroup_show_options). Other
/// options are those of a mount at one place: a remount changes them and keeps all groups.
const OF_SYSTEM: [&str; 4] = ["cdp", "cdpl2", "mba_MBps", "debug"];

/// One mount of resctrl.
#[derive(PartialEq, Eq, Debug)]
struct MountPoint {
    place: String,
    /// Those of the mount and of the file system, each once.
    options: Vec<String>,
}

impl MountPoint {
    fn has(&self, option: &str) -> bool {
        self.options.iter().any(|own| own == option)
    }
}

impl Resctrl {
    /// Where resctrl is mounted; there is one instance of it, so a second mount(8) fails. `None`: nowhere, or there is no
    /// list of mounts.
    ///
    /// # Errors
    /// If a list of mounts cannot be read.
    pub fn mounted_at(root: &Root) -> Result<Option<String>, FileError> {
        Ok(mounts(root)?.pop().map(|mount| mount.place))
    }

    /// The options with which the file system that Waykeeper uses was made; the text is empty if there were none. `None`: no
    /// list of mounts has it.
    ///
    /// # Errors
    /// As [`Resctrl::mounted_at`].
    pub fn made_with(root: &Root) -> Result<Option<String>, FileError> {
        let all = mounts(root)?;
        let own = |mount: &MountPoint| {
            let own = OF_SYSTEM.into_iter().filter(|option| mount.has(option));
            own.collect::<Vec<_>>().join(",")
        };
        Ok(in_use(root, &all).map(own))
    }

    /// Whether the mount that Waykeeper uses refuses every write, as that of a container may.
    pub fn is_read_only(root: &Root) -> bool {
        Resctrl::has_option(root, "ro")
    }

    /// Whether limits of bandwidth are in MB/s, which the kernel keeps to by changing percentages (resctrl.rst, "mba_MBps").
    pub fn limits_in_mb_per_s(root: &Root) -> bool {
        Resctrl::has_option(root, "mba_MBps")
    }

    /// Whether the mount that Waykeeper uses has an option. False where no list of mounts says so.
    fn has_option(root: &Root, option: &str) -> bool {
        in_use(root, &mounts(root).unwrap_or_default()).is_some_and(|mount| mount.has(option))
    }

    /// Checks that the mount takes writes.
    ///
    /// # Errors
    /// [`ResctrlErrorKind::Denied`] with the remedy.
    pub fn check_writable(root: &Root) -> Result<(), ResctrlError> {
        if !Resctrl::is_read_only(root) {
            return Ok(());
        }
        let why = format!("resctrl is mounted read-only; run: {REMOUNT_COMMAND}");
        Err(ResctrlError::ours(ResctrlErrorKind::Denied, &root.path(MOUNT), Action::List, why))
    }
}

/// The mount that Waykeeper uses. Another place of the same file system may have other options.
fn in_use<'a>(root: &Root, all: &'a [MountPoint]) -> Option<&'a MountPoint> {
    // The last mount at a place hides those before it.
    let at = |place: &Path| all.iter().rfind(|mount| Path::new(&mount.place) == place);
    // Below a prefix the list may be that of the tree or, where the tree has this machine's /proc, of this process.
    at(&root.path(MOUNT)).or_else(|| at(Path::new(MOUNT)))
}

/// All mounts of resctrl that either list has. Each list has them in the order in which they were made.
fn mounts(root: &Root) -> Result<Vec<MountPoint>, FileError> {
    let read = |path: &str| root.read_optional(path).map(Option::unwrap_or_default);
    let (info, table) = (read("/proc/self/mountinfo")?, read("/proc/mounts")?);
    Ok(info.lines().filter_map(of_mountinfo).chain(table.lines().filter_map(of_mounts)).collect())
}

/// A line of `/proc/mounts`: device, place, kind, options (fstab(5)).
fn of_mounts(line: &str) -> Option<MountPoint> {
    let mut fields = line.split_whitespace().skip(1);
    let (place, kind, options) = (fields.next()?, fields.next()?, fields.next().unwrap_or_default());
    (kind == "resctrl").then(|| mount_point(place, options, ""))
}

/// A line of `/proc/self/mountinfo`: four fields, place, options of the mount, any number of fields, ` - `, kind, device,
/// options of the file system.
fn of_mountinfo(line: &str) -> Option<MountPoint> {
    let (mount, system) = line.split_once(" - ")?;
    let mut mount = mount.split_whitespace().skip(4);
    let mut system = system.split_whitespace();
    let (place, options) = (mount.next()?, mount.next()?);
    (system.next()? == "resctrl").then(|| mount_point(place, options, system.nth(1).unwrap_or_default()))
}

/// A mount with its own options and those of the file system that the own ones do not have.
fn mount_point(place: &str, own: &str, of_system: &str) -> MountPoint {
    let own = own.split(',');
    let more =
        of_system.split(',').filter(|option| !option.is_empty() && own.clone().all(|one| one != *option));
    let options = own.clone().chain(more).map(one_line).collect();
    // A list escapes a space in a path.
    MountPoint { place: place.replace("\\040", " "), options }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_lists_say_where_it_is_and_whether_it_takes_writes() {
        let point = |place: &str, options: &str, is_read_only: bool| {
            let options: Vec<String> = options.split(',').map(str::to_owned).collect();
            let point = MountPoint { place: place.to_owned(), options };
            assert_eq!(point.has("ro"), is_read_only, "{point:?}");
            Some(point)
        };
        assert_eq!(
            of_mounts("resctrl /a\\040b resctrl rw,relatime 0 0"),
            point("/a b", "rw,relatime", false)
        );
        assert_eq!(of_mounts("resctrl /a resctrl ro,cdp 0 0"), point("/a", "ro,cdp", true));
        assert_eq!(of_mounts("proc /proc proc ro 0 0"), None);
        assert_eq!(of_mounts("resctrl /a"), None);
        let info =
            |mount: &str, system: &str| of_mountinfo(&format!("30 20 0:28 / /a {mount} shared:5 - {system}"));
        assert_eq!(info("rw,relatime", "resctrl resctrl rw,cdp"), point("/a", "rw,relatime,cdp", false));
        // Of a bind mount, and of the file system itself.
        assert_eq!(info("ro,relatime", "resctrl resctrl rw"), point("/a", "ro,relatime,rw", true));
        assert_eq!(info("rw,relatime", "resctrl resctrl ro"), point("/a", "rw,relatime,ro", true));
        assert!(info("rw", "resctrl resctrl rw,mba_MBps").unwrap().has("mba_MBps"));
        assert_eq!(info("rw", "proc proc ro"), None);
    }

    #[test]
    fn the_last_mount_at_our_place_decides() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        assert_eq!((Resctrl::mounted_at(&root), Resctrl::is_read_only(&root)), (Ok(None), false));
        std::fs::create_dir(folder.path().join("proc")).unwrap();
        let with = |lines: &str| {
            std::fs::write(folder.path().join("proc/mounts"), lines).unwrap();
            (Resctrl::mounted_at(&root).unwrap(), Resctrl::is_read_only(&root))
        };
        let ours = "resctrl /sys/fs/resctrl resctrl";
        assert_eq!(with(&format!("{ours} rw 0 0\n{ours} ro 0 0\n")), (Some(MOUNT.to_owned()), true));
        assert_eq!(with(&format!("{ours} ro 0 0\n{ours} rw 0 0\n")), (Some(MOUNT.to_owned()), false));
        assert_eq!(with("resctrl /mnt/rdt resctrl ro 0 0\n"), (Some("/mnt/rdt".to_owned()), false));
        assert_eq!(Resctrl::check_writable(&root), Ok(()));
        // Another place, a remount and the order in the list are no new file system.
        let made = |lines: &str| {
            with(lines);
            Resctrl::made_with(&root).unwrap()
        };
        assert_eq!(made("proc /proc proc rw 0 0\n"), None);
        assert_eq!(made(&format!("{ours} rw,relatime 0 0\n")), Some(String::new()));
        assert_eq!(made(&format!("{ours} ro,nosuid,mba_MBps,cdp 0 0\n")), Some("cdp,mba_MBps".to_owned()));
        assert_eq!(
            made(&format!("{ours} rw 0 0\nresctrl /mnt/rdt resctrl rw,cdp 0 0\n")),
            Some(String::new())
        );
        let below = root.path(MOUNT).display().to_string();
        assert!(!with(&format!("resctrl {below} resctrl rw 0 0\n{ours} ro 0 0\n")).1);
        with(&format!("{ours} ro 0 0\n"));
        let error = Resctrl::check_writable(&root).unwrap_err();
        assert_eq!(error.kind, ResctrlErrorKind::Denied);
        assert!(
            error.to_string().ends_with(&format!("mounted read-only; run: {REMOUNT_COMMAND}")),
            "{error}"
        );
    }
}
