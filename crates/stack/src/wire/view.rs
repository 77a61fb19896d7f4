//! What the views of all headers have in common.

/// A `View` of a header of `LEN` bytes and of what is behind it: borrowed to read (`&[u8; LEN]`, `&[u8]`) or to write
/// (`&mut`). The module adds how one is made of bytes, and the header's fields.
macro_rules! view {
    ($(#[$meta:meta])* $len:ident) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy)]
        pub struct View<H, S> {
            header: H,
            payload: S,
        }

        impl<'a> View<&'a [u8; $len], &'a [u8]> {
            /// What is behind the header, for as long as the bytes are borrowed.
            #[must_use]
            #[inline]
            pub fn payload(&self) -> &'a [u8] {
                self.payload
            }
        }

        impl<'a> View<&'a mut [u8; $len], &'a mut [u8]> {
            /// What is behind the header.
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
