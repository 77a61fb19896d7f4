use proptest::prelude::*;

use super::*;

/// Debian 12, systemd, version 2.
const UNIFIED: &str = "23 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
    29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
/// CentOS 7, version 1.
const LEGACY: &str = "30 24 0:27 / /sys/fs/cgroup/cpu,cpuacct rw shared:11 - cgroup cgroup rw,cpuacct,cpu\n\
    31 24 0:28 / /sys/fs/cgroup/cpuset rw shared:12 - cgroup cgroup rw,cpuset\n";

fn folders(mounts: &str, cgroup: &str) -> Vec<String> {
    let mounts = Mounts::parse(mounts);
    let all = memberships(cgroup).unwrap();
    all.iter().flat_map(|one| mounts.folders(one).map(|(folder, _)| folder)).collect()
}

#[test]
fn limits_of_ancestor_groups_apply() {
    assert_eq!(
        folders(UNIFIED, "0::/system.slice/nsd.service\n"),
        ["/sys/fs/cgroup/system.slice/nsd.service", "/sys/fs/cgroup/system.slice", "/sys/fs/cgroup"]
    );
    assert_eq!(folders(UNIFIED, "0::/\n"), ["/sys/fs/cgroup"]);
    assert_eq!(
        folders(LEGACY, "4:cpu,cpuacct:/docker/0f3a\n3:cpuset:/\n2:freezer:/\n"),
        [
            "/sys/fs/cgroup/cpu,cpuacct/docker/0f3a",
            "/sys/fs/cgroup/cpu,cpuacct/docker",
            "/sys/fs/cgroup/cpu,cpuacct",
            "/sys/fs/cgroup/cpuset"
        ]
    );
}

#[test]
fn a_container_without_a_namespace_of_groups_sees_a_part() {
    let mounts = "9 8 0:27 /docker/0f3a /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n";
    assert_eq!(folders(mounts, "4:cpu:/docker/0f3a\n"), ["/sys/fs/cgroup/cpu"]);
    assert_eq!(
        folders(mounts, "4:cpu:/docker/0f3a/inner\n"),
        ["/sys/fs/cgroup/cpu/inner", "/sys/fs/cgroup/cpu"]
    );
}

#[test]
fn a_group_outside_of_the_namespace_has_no_folder() {
    assert_eq!(folders(UNIFIED, "0::/../other.slice\n"), [""; 0]);
    assert_eq!(folders(UNIFIED, "0::/..\n"), [""; 0]);
    assert_eq!(folders(UNIFIED, "0::/a..b\n"), ["/sys/fs/cgroup/a..b", "/sys/fs/cgroup"]);
}

proptest! {
    #[test]
    fn no_text_of_a_process_leads_out_of_its_hierarchy(
        text in prop_oneof![
            any::<String>(),
            "(0::|4:cpu,cpuacct:|3:cpuset:)(/(\\.\\.?|[ -~]{0,6})){0,5}",
        ],
    ) {
        for (mounts, points) in [
            (UNIFIED, &["/sys/fs/cgroup"][..]),
            (LEGACY, &["/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/cpuset"]),
        ] {
            let mounts = Mounts::parse(mounts);
            for one in memberships(&text).unwrap_or_default() {
                for (folder, group) in mounts.folders(&one) {
                    let point = points.iter().find(|point| folder.starts_with(**point)).unwrap();
                    let below = &folder[point.len()..];
                    prop_assert!(below.is_empty() && group == "/" || below == group, "{folder}");
                    prop_assert!(!below.split('/').any(|part| part == ".."), "{folder}");
                }
            }
        }
    }
}

#[test]
fn quotas_as_files_have_them() {
    assert_eq!(cpu_max("max 100000\n").unwrap().both(), None);
    assert_eq!(cpu_max("150000 100000\n").unwrap().both(), Some((150_000, 100_000)));
    assert!(cpu_max("150000\n").is_err());
    assert_eq!(single("-1\n").unwrap().quota_us, None);
    assert_eq!(single("50000\n").unwrap().quota_us, Some(50_000));
    let quota = Quota {
        group: "/a".into(),
        quota_us: 150_000,
        period_us: 100_000,
        periods: 0,
        throttled: 0,
        throttled_us: 0,
    };
    assert!((quota.cpus() - 1.5).abs() < 1e-9);
}

#[test]
fn escapes_of_paths() {
    assert_eq!(unescaped("/a\\040b"), "/a b");
    assert_eq!(unescaped("/a\\b\\"), "/a\\b\\");
    assert_eq!(unescaped("/ä\\134c"), "/ä\\c");
}
