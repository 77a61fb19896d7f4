//! Why a text is not a set of CPUs.

use thiserror::Error;

use super::CpuSet;

/// Why a text is not a set of CPUs. `at` is the position of the error in the text, from 1.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CpuSetError {
    /// Two commas in a row, or one at an end.
    #[error("missing CPU before character {at}; write CPUs as 0-3,8")]
    Empty {
        /// The character after the empty place.
        at: usize,
    },
    /// Not a decimal number.
    #[error("{item:?} is not a CPU number or range (character {at}); write CPUs as 0-3,8 or 0-6:2")]
    NotANumber {
        /// The part between commas.
        item: String,
        /// Position of the expected number.
        at: usize,
    },
    /// A number past [`CpuSet::MAX_CPU`].
    #[error("CPU {cpu} (character {at}) is too high: the highest is {max}", max = CpuSet::MAX_CPU)]
    TooHigh {
        /// The number as written.
        cpu: String,
        /// Where it begins; of a mask, where its group does.
        at: usize,
    },
    /// A range that ends before it starts.
    #[error("range {item:?} (character {at}) runs backwards; write the lower CPU first")]
    Backwards {
        /// The part between commas.
        item: String,
        /// Where it begins.
        at: usize,
    },
    /// A stride of 0, or one that takes more CPUs of a group than the group has.
    #[error(
        "{item:?} (character {at}) has an invalid stride; 0-6:2 is every second CPU, 0-7:2/4 the first 2 of every 4"
    )]
    Stride {
        /// The part between commas.
        item: String,
        /// Where it begins.
        at: usize,
    },
    /// A character in a mask that is not a hexadecimal digit, or no digit at all.
    #[error(
        "character {at} of a CPU mask is not a hexadecimal digit; write digits in groups of 32 CPUs, as in 1,0000000f"
    )]
    NotAMask {
        /// The character.
        at: usize,
    },
    /// More than 8 digits between two commas of a mask.
    #[error(
        "group {group:?} of a CPU mask (character {at}) has more than 8 digits; put a comma after every 32 CPUs"
    )]
    GroupTooLong {
        /// The part between commas.
        group: String,
        /// Where it begins.
        at: usize,
    },
}
