//! A BPF array mapped into user space: the kernel's programs and this process read and write the same memory.

use std::sync::atomic::AtomicU64;

use aya::Ebpf;
use aya::maps::Map;

use crate::Error;
use crate::sys::{Mapping, Quiet};

/// A mapped `BPF_MAP_TYPE_ARRAY` whose elements consist of 64-bit words.
///
/// Words are atomics because a program may write them at any time; the caller must handle torn pairs of words. Reading
/// needs no system call.
#[derive(Debug)]
pub struct SharedArray {
    mapping: Mapping,
    words: usize,
}

impl SharedArray {
    /// Maps `map` of `object`: `len` elements of `words` 64-bit words each, as the C source declares them.
    ///
    /// # Errors
    /// The object has no such map, or the kernel cannot map it.
    pub fn map(
        object: &Ebpf,
        program: &'static str,
        map: &'static str,
        len: usize,
        words: usize,
    ) -> Result<Self, Error> {
        let mapping = mapping(object, program, map, len * words * size_of::<u64>())?;
        Ok(Self { mapping, words })
    }

    /// The words of element `index`.
    ///
    /// # Panics
    /// `index` is out of range, as with a slice.
    pub fn element(&self, index: usize) -> &[AtomicU64] {
        &self.mapping.words()[index * self.words..][..self.words]
    }
}

/// A mapped `BPF_MAP_TYPE_ARRAY` of bytes that programs only read, and only while the process waits for them.
#[derive(Debug)]
pub(crate) struct SharedBytes(Quiet);

impl SharedBytes {
    /// Maps the first `len` bytes of `map` of `object`, a multiple of eight. The programs must follow the rule above.
    pub(crate) fn map(
        object: &Ebpf,
        program: &'static str,
        map: &'static str,
        len: usize,
    ) -> Result<Self, Error> {
        mapping(object, program, map, len).map(|mapping| Self(Quiet::new(mapping)))
    }

    /// All bytes.
    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.bytes_mut()
    }
}

fn mapping(object: &Ebpf, program: &'static str, map: &'static str, bytes: usize) -> Result<Mapping, Error> {
    let Some(Map::Array(data)) = object.map(map) else {
        return Err(Error::Load { program, source: format!("the object has no array '{map}'").into() });
    };
    Mapping::shared(data.fd(), bytes).map_err(|cause| Error::Map { program, map, cause })
}
