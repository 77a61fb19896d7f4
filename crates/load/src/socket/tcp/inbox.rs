//! Cuts the bytes of a connection into messages of a fixed size.

/// Keeps the beginning of a message until the rest arrives.
pub(super) struct Inbox {
    bytes: Box<[u8]>,
    filled: usize,
}

impl Inbox {
    /// For messages of `size` bytes.
    pub(super) fn new(size: usize) -> Self {
        Self { bytes: vec![0; size].into(), filled: 0 }
    }

    /// Calls `message` with each message that `input` completes.
    pub(super) fn cut(&mut self, mut input: &[u8], mut message: impl FnMut(&[u8])) {
        let size = self.bytes.len();
        while !input.is_empty() {
            if self.filled == 0
                && let Some((whole, rest)) = input.split_at_checked(size)
            {
                message(whole);
                input = rest;
                continue;
            }
            let (part, rest) = input.split_at((size - self.filled).min(input.len()));
            self.bytes[self.filled..self.filled + part.len()].copy_from_slice(part);
            self.filled += part.len();
            input = rest;
            if self.filled == size {
                self.filled = 0;
                message(&self.bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_out_whole_however_the_bytes_are_cut() {
        let sent: Vec<u8> = (0..35).collect();
        for piece in 1..=sent.len() {
            let (mut inbox, mut messages) = (Inbox::new(5), Vec::new());
            for bytes in sent.chunks(piece) {
                inbox.cut(bytes, |message| messages.push(message.to_vec()));
            }
            assert_eq!(messages.concat(), sent, "pieces of {piece}");
            assert!(messages.iter().all(|message| message.len() == 5));
        }
    }
}
