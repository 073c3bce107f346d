//! Identifies a client and its right.
//!
//! The kernel reports the user that connected (SO_PEERCRED) and its other groups (SO_PEERGROUPS), both as of the
//! connection; neither can be forged. Must not know the requests.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// The id that the kernel shows for ids without a mapping in our user namespace (overflowuid, overflowgid).
pub const OVERFLOW_ID: u32 = 65534;

/// A client's right.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Right {
    /// Nothing.
    Nothing,
    /// May read.
    Read,
    /// May read and give orders.
    Order,
}

/// Which clients have which right.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientRights {
    /// The daemon's own user.
    pub own_uid: u32,
    /// Members of this group may read.
    pub readers_gid: Option<u32>,
}

/// A client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Its user.
    pub uid: u32,
    /// Its primary group.
    pub gid: u32,
    /// Its other groups.
    pub groups: Vec<u32>,
}

impl ClientRights {
    /// The right of `peer`: root and the daemon's own user may give orders, members of the group may read.
    pub fn right_of(&self, peer: &Peer) -> Right {
        // The overflow id may be any user of another user namespace, even if the daemon itself runs as it.
        let is_own = peer.uid == self.own_uid && peer.uid != OVERFLOW_ID;
        let is_in = |gid: u32| peer.gid == gid || peer.groups.contains(&gid);
        match self.readers_gid {
            _ if peer.uid == 0 || is_own => Right::Order,
            Some(gid) if gid != OVERFLOW_ID && is_in(gid) => Right::Read,
            _ => Right::Nothing,
        }
    }
}

impl Peer {
    /// Identifies the peer of a socket.
    ///
    /// # Errors
    /// If the kernel does not report it; such a connection has no right.
    pub fn of(socket: impl AsFd) -> io::Result<Peer> {
        let who = rustix::net::sockopt::socket_peercred(&socket)?;
        let (uid, gid) = (who.uid.as_raw(), who.gid.as_raw());
        Ok(Peer { uid, gid, groups: groups_of(socket.as_fd())? })
    }
}

/// The peer's supplementary groups. rustix has no call for it.
fn groups_of(socket: impl AsFd) -> io::Result<Vec<u32>> {
    // NGROUPS_MAX is 65536; most users have a few groups. If the buffer is too small, the kernel reports the size
    // needed.
    let mut groups = vec![0_u32; 64];
    loop {
        let room = size_of_val(groups.as_slice());
        let mut bytes = room as libc::socklen_t;
        // SAFETY: the pointer is that of `groups` and `bytes` is its size in bytes, which the kernel respects; it
        // writes plain 32-bit ids there, for which any bits are valid, and the size it wrote or wants into `bytes`.
        let code = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut bytes,
            )
        };
        let count = bytes as usize / size_of::<u32>();
        if code == 0 {
            groups.truncate(count);
            return Ok(groups);
        }
        let why = io::Error::last_os_error();
        if why.raw_os_error() != Some(libc::ERANGE) || count <= groups.len() {
            return Err(why);
        }
        groups.resize(count, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    fn peer(uid: u32, gid: u32, groups: &[u32]) -> Peer {
        Peer { uid, gid, groups: groups.to_vec() }
    }

    #[test]
    fn root_and_the_daemons_own_user_order_the_group_sees_and_others_nothing() {
        let access = ClientRights { own_uid: 200, readers_gid: Some(30) };
        let right = |uid, gid, groups: &[u32]| access.right_of(&peer(uid, gid, groups));
        assert_eq!(right(0, 0, &[]), Right::Order);
        assert_eq!(right(200, 5, &[]), Right::Order);
        assert_eq!(right(1000, 30, &[]), Right::Read);
        assert_eq!(right(1000, 5, &[7, 30]), Right::Read);
        // Root's group gives no right, nor does a group other than the readers'.
        assert_eq!(right(1000, 0, &[0, 200]), Right::Nothing);
        assert_eq!(right(1000, 1000, &[]), Right::Nothing);
        let closed = ClientRights { own_uid: 0, readers_gid: None };
        assert_eq!(closed.right_of(&peer(1000, 30, &[30])), Right::Nothing);
    }

    #[test]
    fn a_user_without_a_name_is_in_no_group() {
        let access = ClientRights { own_uid: OVERFLOW_ID, readers_gid: Some(OVERFLOW_ID) };
        assert_eq!(access.right_of(&peer(OVERFLOW_ID, OVERFLOW_ID, &[OVERFLOW_ID])), Right::Nothing);
    }

    #[test]
    fn the_kernel_says_who_it_is() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let peer = Peer::of(&ours).unwrap();
        assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
        assert_eq!(peer.gid, rustix::process::getegid().as_raw());
        let mut groups: Vec<u32> =
            rustix::process::getgroups().unwrap().iter().map(|gid| gid.as_raw()).collect();
        let mut reported = peer.groups;
        groups.sort_unstable();
        reported.sort_unstable();
        assert_eq!(reported, groups);
    }
}
