//! lsblk (util-linux): the drives of the virtual host as disks, from `sys/block` and `sys/dev/block`.

use crate::third_party::host::{Host, has, needed};

#[test]
fn lsblk_lists_the_drives_with_their_size() {
    let host = Host::start(&[]);
    let columns = "NAME,MAJ:MIN,SIZE,RO,TYPE,TRAN,MODEL";
    let said = host.good(&[&needed("lsblk", "util-linux"), "-b", "-n", "-r", "-o", columns]);
    assert_eq!(said.lines().count(), 4, "{said}");
    // A terabyte drive has 1953525168 sectors of 512 bytes.
    has(
        &said,
        &[r"nvme0n1 1259:0 1000204886016 0 disk nvme Samsung\x20SSD\x20980\x20PRO\x201TB", "nvme3n1 1259:3 "],
    );
}
