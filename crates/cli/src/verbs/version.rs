//! `udpath --version --verbose`: what the program was built from, and what this kernel lacks.

use std::path::Path;

use crate::terminal;

/// A version of the kernel: `(6, 1)`.
type Version = (u32, u32);

/// Features that not every kernel has that udpath runs on, with the first version that has them: the rows of
/// docs/kernels.md.
const FEATURES: [(Version, &str); 12] = [
    ((5, 9), "a reuseport group's program, read from its server"),
    ((5, 9), "`serve --io xdp`"),
    ((5, 13), "`policy`"),
    ((5, 14), "functions hooked by packet filters"),
    ((5, 17), "`profile --trace drops`"),
    ((5, 18), "start-up probe with a frame, live frames"),
    ((5, 19), "`profile --trace locks`"),
    ((6, 3), "`profile --trace delays`"),
    ((6, 7), "`serve --io xdp --steer` by the NIC's hash"),
    ((6, 8), "NAPI instances"),
    ((6, 10), "packets and drops per queue of any driver"),
    ((6, 13), "settings of one NAPI instance"),
];

/// Prints both. That stdout is closed is no error.
pub(crate) fn print() {
    let release = read("/proc/sys/kernel/osrelease");
    let (release, mut lacks) = (release.trim(), Vec::new());
    match version(release) {
        Some(here) => lacks.extend(newer(here)),
        None => lacks.push("a version that can be read from /proc/sys/kernel/osrelease".to_owned()),
    }
    lacks.extend(absent());
    let (commit, compiler, target) = (env!("UDPATH_COMMIT"), env!("UDPATH_COMPILER"), env!("UDPATH_TARGET"));
    let lacks = if lacks.is_empty() { "nothing".to_owned() } else { lacks.join("\n               ") };
    let text = format!(
        "udpath {}\ncommit:        {commit}\ncompiler:      {compiler}\ntarget:        {target}\n\
         kernel:        {release}\nkernel lacks:  {lacks}\n",
        env!("CARGO_PKG_VERSION"),
    );
    let _ = terminal::print(&text);
}

/// The first two numbers of a kernel release, such as `6.1.0-31-amd64`.
fn version(release: &str) -> Option<Version> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Features of later kernels.
fn newer(here: Version) -> impl Iterator<Item = String> {
    FEATURES.into_iter().filter(move |(needs, _)| *needs > here).map(|((major, minor), feature)| {
        let feature = feature.replace('`', "");
        format!("{feature} (since {major}.{minor})")
    })
}

/// What a kernel can be built or booted without.
fn absent() -> impl Iterator<Item = String> {
    let btf = Path::new("/sys/kernel/btf/vmlinux").exists();
    // Third column of each line.
    let cgroup = read("/proc/self/mounts").lines().any(|line| line.split(' ').nth(2) == Some("cgroup2"));
    let bpf = read("/proc/filesystems").lines().any(|line| line.ends_with("\tbpf"));
    [
        (btf, "type information (CONFIG_DEBUG_INFO_BTF): policy, multiply, profile --trace"),
        (cgroup, "a mounted cgroup v2: policy, multiply"),
        (bpf, "a BPF file system (CONFIG_BPF_SYSCALL): policy, serve --io xdp"),
    ]
    .into_iter()
    .filter(|(there, _)| !there)
    .map(|(_, what)| what.to_owned())
}

fn read(path: &str) -> String {
    udpath_files::kernel::text(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_has_two_numbers() {
        assert_eq!(version("6.1.0-31-amd64"), Some((6, 1)));
        assert_eq!(version("6.18.5"), Some((6, 18)));
        assert_eq!(version("6"), None);
        assert_eq!(version(""), None);
    }

    #[test]
    fn an_older_kernel_lacks_more() {
        let lacks = |here| newer(here).collect::<Vec<_>>();
        assert_eq!(lacks((6, 10)), ["settings of one NAPI instance (since 6.13)"]);
        assert_eq!(lacks((5, 4)).len(), FEATURES.len());
        assert!(lacks((6, 13)).is_empty());
    }

    #[test]
    fn features_and_versions_are_those_of_the_docs() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/kernels.md");
        let page = std::fs::read_to_string(page).unwrap();
        for ((major, minor), feature) in FEATURES {
            let row = page.lines().find(|line| line.starts_with('|') && line.contains(feature));
            let row = row.unwrap_or_else(|| panic!("no row of docs/kernels.md has {feature}"));
            let needs = row.split('|').nth(2).map(str::trim);
            assert_eq!(needs, Some(&*format!("{major}.{minor}")), "{feature}");
        }
    }
}
