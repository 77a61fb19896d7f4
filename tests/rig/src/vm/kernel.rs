//! The kernel to boot: an unpacked Debian kernel package.
//!
//! ```text
//! /var/cache/udpath/kernel/boot/vmlinuz-6.12...              the image
//!                         /lib/modules/6.12.../kernel/...ko  its modules
//!                         /lib/modules/6.12.../modules.builtin
//! ```
//! The package has no dependency table; each module lists its dependencies in its section `.modinfo`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::VmError;

/// Where scripts/setup.sh puts it: one download for all checkouts on a machine, in a directory that may be emptied at
/// any time (FHS, section 5.5).
pub(crate) const CACHE: &str = "/var/cache/udpath/kernel";
/// A module's dependencies, in its section `.modinfo`: names separated by commas.
const DEPENDS: &[u8] = b"\0depends=";

/// An unpacked kernel package.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) image: PathBuf,
    release: String,
    /// By name, with `_` for `-` like in the kernel.
    modules: BTreeMap<String, PathBuf>,
    builtin: BTreeSet<String>,
}

/// A module to load.
pub(crate) struct Module {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

impl Kernel {
    /// Finds the package unpacked below `directory`.
    pub(crate) fn find(directory: &Path) -> Result<Self, VmError> {
        let wrong = |reason: String| VmError::Kernel { directory: directory.to_owned(), reason };
        let mut images = names(&directory.join("boot")).map_err(|error| wrong(error.to_string()))?;
        images.retain(|name| name.starts_with("vmlinuz-"));
        let image = match images.as_slice() {
            [image] => image,
            [] => return Err(wrong("it has no boot/vmlinuz-*".to_owned())),
            several => return Err(wrong(format!("it has {} kernels in boot; keep one", several.len()))),
        };
        let release = image.trim_start_matches("vmlinuz-").to_owned();
        // Packages for merged-/usr systems have it below usr.
        let tree = ["lib/modules", "usr/lib/modules"].map(|tree| directory.join(tree).join(&release));
        let tree = tree.iter().find(|tree| tree.is_dir()).ok_or_else(|| {
            wrong(format!("it has no lib/modules/{release}, the modules of its boot/{image}"))
        })?;
        let mut modules = BTreeMap::new();
        collect(&tree.join("kernel"), &mut modules).map_err(|error| wrong(error.to_string()))?;
        // Missing only in third-party packages; then nothing counts as built in, and missing modules are reported.
        let builtin = fs::read_to_string(tree.join("modules.builtin")).unwrap_or_default();
        let builtin = builtin.lines().filter_map(|line| module_name(Path::new(line), ".ko")).collect();
        Ok(Self { image: directory.join("boot").join(image), release, modules, builtin })
    }

    /// `wanted` and their dependencies, in load order. Built-in modules are left out.
    pub(crate) fn modules(&self, wanted: &[&str]) -> Result<Vec<Module>, VmError> {
        let mut loaded = Vec::new();
        let mut seen = BTreeSet::new();
        for name in wanted {
            self.add(name, &mut seen, &mut loaded)?;
        }
        Ok(loaded)
    }

    fn add(&self, name: &str, seen: &mut BTreeSet<String>, loaded: &mut Vec<Module>) -> Result<(), VmError> {
        if self.builtin.contains(name) || !seen.insert(name.to_owned()) {
            return Ok(());
        }
        let Some(path) = self.modules.get(name) else {
            return Err(VmError::NoModule { release: self.release.clone(), module: name.to_owned() });
        };
        let bytes =
            fs::read(path).map_err(|cause| VmError::File { what: "read", path: path.clone(), cause })?;
        for needed in depends(&bytes) {
            self.add(&needed, seen, loaded)?;
        }
        loaded.push(Module { name: name.to_owned(), bytes });
        Ok(())
    }
}

/// Names of the modules that a module depends on, from its file.
fn depends(module: &[u8]) -> Vec<String> {
    let Some(at) = module.windows(DEPENDS.len()).position(|window| window == DEPENDS) else {
        return Vec::new();
    };
    let text = &module[at + DEPENDS.len()..];
    let text = &text[..text.iter().position(|byte| *byte == 0).unwrap_or(text.len())];
    let names = text.split(|byte| *byte == b',').filter(|name| !name.is_empty());
    names.map(|name| String::from_utf8_lossy(name).replace('-', "_")).collect()
}

fn collect(directory: &Path, modules: &mut BTreeMap<String, PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            collect(&path, modules)?;
        } else if let Some(name) = module_name(&path, ".ko") {
            modules.insert(name, path);
        } else if module_name(&path, ".ko.xz").or_else(|| module_name(&path, ".ko.zst")).is_some() {
            return Err(std::io::Error::other(format!(
                "{} is compressed, and modules are loaded as they are; unpack all of them",
                path.display()
            )));
        }
    }
    Ok(())
}

fn module_name(path: &Path, extension: &str) -> Option<String> {
    Some(path.file_name()?.to_str()?.strip_suffix(extension)?.replace('-', "_"))
}

fn names(directory: &Path) -> std::io::Result<Vec<String>> {
    Ok(fs::read_dir(directory)?.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(modules: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let tree = folder.path().join("lib/modules/6.12.1");
        fs::create_dir_all(tree.join("kernel/net")).unwrap();
        fs::create_dir_all(folder.path().join("boot")).unwrap();
        fs::write(folder.path().join("boot/vmlinuz-6.12.1"), "").unwrap();
        fs::write(tree.join("modules.builtin"), "kernel/drivers/virtio/virtio-ring.ko\n").unwrap();
        for (name, needs) in modules {
            let text = format!("\x7fELF\0license=GPL\0depends={needs}\0name=x\0");
            fs::write(tree.join("kernel/net").join(name), text).unwrap();
        }
        folder
    }

    #[test]
    fn modules_come_after_what_they_need_and_once() {
        let modules = [("a-b.ko", "c,d"), ("c.ko", "d"), ("d.ko", "virtio-ring"), ("unused.ko", "a_b")];
        let folder = package(&modules);
        let kernel = Kernel::find(folder.path()).unwrap();
        let found = kernel.modules(&["a_b", "d", "virtio_ring"]).unwrap();
        assert_eq!(found.iter().map(|module| module.name.as_str()).collect::<Vec<_>>(), ["d", "c", "a_b"]);
        let Err(missing) = kernel.modules(&["e1000e"]) else { panic!("there is no e1000e") };
        assert_eq!(missing.to_string(), "Linux 6.12.1 has no module e1000e");
    }

    #[test]
    fn a_directory_without_a_kernel_package_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let said = || Kernel::find(folder.path()).unwrap_err().to_string();
        assert!(said().contains("scripts/setup.sh"), "{}", said());
        fs::create_dir(folder.path().join("boot")).unwrap();
        assert!(said().contains("no boot/vmlinuz-*"), "{}", said());
        fs::write(folder.path().join("boot/vmlinuz-1"), "").unwrap();
        assert!(said().contains("no lib/modules/1"), "{}", said());
        fs::write(folder.path().join("boot/vmlinuz-2"), "").unwrap();
        assert!(said().contains("2 kernels"), "{}", said());
        let compressed = package(&[("x.ko.xz", "")]);
        assert!(Kernel::find(compressed.path()).unwrap_err().to_string().contains("is compressed"));
    }
}
