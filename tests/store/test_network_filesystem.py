"""Which file system a folder is on, from the kernel's list of mounts."""

from __future__ import annotations

from pathlib import Path

import pytest

from mulligan.store.network_filesystem import is_allowed, network_type

MOUNTS = r"""22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /nets rw - nfs4 files:/nets rw,vers=4.2
31 30 8:2 / /nets/local rw - xfs /dev/sdb1 rw
32 22 0:41 / /scratch rw master:3 - lustre mgs:/fs rw
33 22 0:42 / /my\040data rw - cifs //nas/data rw
34 22 0:43 / /ssh rw - fuse.sshfs me@host: rw
35 22 0:44 / /gpfs rw - gpfs gpfs0 rw
36 22 0:45 / /twice rw - nfs files:/twice rw
37 36 0:46 / /twice rw - tmpfs none rw
a line that makes no sense
"""


@pytest.mark.parametrize(
    ("folder", "found"),
    [
        ("/srv/runs", ""),
        ("/nets", "nfs"),
        ("/nets/ada/.mulligan", "nfs"),
        ("/nets/local/ada", ""),
        ("/netss/ada", ""),
        ("/scratch/a", "lustre"),
        ("/my data/a", "cifs"),
        ("/ssh/a/b", "sshfs"),
        ("/gpfs", "gpfs"),
        ("/twice/a", ""),
    ],
)
def test_the_nearest_mount_above_a_folder_says_what_it_is_on(tmp_path: Path, folder: str, found: str):
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)

    assert network_type(Path(folder), mounts) == found


def test_a_link_counts_where_it_leads(tmp_path: Path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"1 0 8:1 / / rw - ext4 x rw\n2 1 0:1 / {tmp_path}/real rw - nfs x rw\n")

    assert network_type(tmp_path / "link" / "home", mounts) == "nfs"


def test_where_there_is_no_list_of_mounts_nothing_is_refused(tmp_path: Path):
    assert network_type(tmp_path, tmp_path / "none") == ""


def test_this_folder_is_on_a_local_disk(tmp_path: Path):
    assert network_type(tmp_path) == ""


def test_the_variable_allows_it_unless_it_is_empty_or_0():
    name = "MULLIGAN_ALLOW_NETWORK_FILES"

    assert [is_allowed({name: value}) for value in ("1", "yes", "0", "")] == [True, True, False, False]
    assert not is_allowed({})
