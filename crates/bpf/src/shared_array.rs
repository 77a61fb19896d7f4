//! A BPF array that lives in both worlds: the kernel's programs and this process read and write the same memory.

use std::sync::atomic::AtomicU64;

use aya::Ebpf;
use aya::maps::Map;

use crate::Error;
use crate::sys::Mapping;

/// A mapped `BPF_MAP_TYPE_ARRAY` whose elements are made of 64-bit words.
///
/// Words are atomics because a program may write them at any time; what a torn pair of words means is the caller's to
/// know. Reading costs no system call.
#[derive(Debug)]
pub(crate) struct SharedArray {
    mapping: Mapping,
    words: usize,
}

impl SharedArray {
    /// Maps `map` of `object`: `len` elements of `words` 64-bit words each, as the C source declares them.
    pub(crate) fn map(
        object: &Ebpf,
        program: &'static str,
        map: &'static str,
        len: usize,
        words: usize,
    ) -> Result<Self, Error> {
        let Some(Map::Array(data)) = object.map(map) else {
            return Err(Error::Load { program, reason: format!("the object has no array '{map}'") });
        };
        let mapping = Mapping::shared(data.fd(), len * words * size_of::<u64>())
            .map_err(|cause| Error::Map { program, map, cause })?;
        Ok(Self { mapping, words })
    }

    /// The words of element `index`.
    ///
    /// # Panics
    /// `index` is out of range: the caller's mistake, as with a slice.
    pub(crate) fn element(&self, index: usize) -> &[AtomicU64] {
        &self.mapping.words()[index * self.words..][..self.words]
    }
}
