//! The part that the views of all headers share.

/// A `View` of a header of `LEN` bytes and of the bytes after it, borrowed immutably (`&[u8; LEN]`, `&[u8]`) or
/// mutably (`&mut`). The module adds the constructors and the header's fields.
macro_rules! view {
    ($(#[$meta:meta])* $len:ident) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy)]
        pub struct View<H, S> {
            header: H,
            payload: S,
        }

        impl<'a> View<&'a [u8; $len], &'a [u8]> {
            /// The bytes after the header, for as long as the buffer is borrowed.
            #[must_use]
            #[inline]
            pub fn payload(&self) -> &'a [u8] {
                self.payload
            }
        }

        impl<'a> View<&'a mut [u8; $len], &'a mut [u8]> {
            /// The bytes after the header.
            #[must_use]
            #[inline]
            pub fn payload_mut(&mut self) -> &mut [u8] {
                self.payload
            }

            /// What is behind the header, for as long as the bytes are borrowed.
            #[must_use]
            #[inline]
            pub fn into_payload(self) -> &'a mut [u8] {
                self.payload
            }
        }

        impl<H: std::borrow::Borrow<[u8; $len]>, S> View<H, S> {
            #[inline]
            fn header(&self) -> &[u8; $len] {
                self.header.borrow()
            }
        }
    };
}

pub(super) use view;
