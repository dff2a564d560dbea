"""Whether a folder lies on a file system of the network, on which the locks of a database do not hold."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from mulligan.core.model.text.lazy_regex import lazy_regex

# Set to 1, it allows a database on such a file system, for those who know that one host alone uses it.
ALLOW_VARIABLE = "MULLIGAN_ALLOW_NETWORK_FILES"
MOUNTS = Path("/proc/self/mountinfo")
# The types by which Linux mounts them, and how messages call them.
_TYPES = {
    "nfs": "nfs",
    "nfs4": "nfs",
    "lustre": "lustre",
    "gpfs": "gpfs",
    "cifs": "cifs",
    "smb3": "smb",
    "smbfs": "smb",
    "fuse.sshfs": "sshfs",
    "ceph": "ceph",
    "fuse.ceph": "ceph",
    "fuse.ceph-fuse": "ceph",
    "beegfs": "beegfs",
    "fuse.glusterfs": "glusterfs",
    "afs": "afs",
    "panfs": "panfs",
    "pvfs2": "orangefs",
    "fuse.rclone": "rclone",
    "fuse.s3fs": "s3fs",
    "fuse.gcsfuse": "gcsfuse",
}
_OCTAL = lazy_regex(r"\\([0-7]{3})")


def network_type(folder: Path, mounts: Path = MOUNTS) -> str:
    """The network file system that the folder is on, or will be on when it is created; "" if it is a local one."""
    try:
        lines = mounts.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return ""
    path = os.path.realpath(folder)
    longest, found = -1, ""
    for line in lines:
        # "36 35 98:0 /root /mount/point options [optional fields] - type source options"
        before, separator, after = line.partition(" - ")
        fields = before.split(" ")
        if not separator or len(fields) < 5:
            continue
        point = _OCTAL.sub(lambda code: chr(int(code[1], 8)), fields[4])
        is_above = path == point or path.startswith(point.rstrip("/") + "/")
        # Of two mounts at the same place the later one hides the other.
        if is_above and len(point) >= longest:
            longest, found = len(point), _TYPES.get(after.split(" ")[0], "")
    return found


def is_allowed(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the user has said that a database may be on such a file system."""
    return environ.get(ALLOW_VARIABLE, "") not in ("", "0")
