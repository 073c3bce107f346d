//! `info/last_cmd_status`: the messages of the last refusals, in the kernel's small buffer.
//!
//! Like linux lib/seq_buf.c: messages are appended until they are cleared; what does not fit is lost. It must not know
//! its writers.

/// Bytes of the kernel's buffer (linux rdtgroup.c: `last_cmd_status_buf[512]`).
const BUFFER: usize = 512;

/// The buffer behind `last_cmd_status`.
#[derive(Debug, Default)]
pub(super) struct Status {
    text: String,
    full: bool,
}

impl Status {
    /// Removes all messages.
    pub fn clear(&mut self) {
        self.text.clear();
        self.full = false;
    }

    /// Appends a fixed text (`rdt_last_cmd_puts`): completely or not at all.
    pub fn puts(&mut self, text: &str) {
        self.full |= self.text.len() + text.len() + 1 > BUFFER;
        if !self.full {
            self.text.push_str(text);
        }
    }

    /// Appends a formatted text (`rdt_last_cmd_printf`): cut at the end of the buffer.
    pub fn printf(&mut self, text: &str) {
        if self.full {
            return;
        }
        self.full = self.text.len() + text.len() >= BUFFER;
        let room = BUFFER - 1 - self.text.len();
        let end = (0..=room.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        self.text.push_str(&text[..end]);
    }

    /// The file's content: the messages, or `ok`.
    pub fn show(&self) -> String {
        if self.text.is_empty() { "ok\n".to_owned() } else { self.text.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_pile_up_and_what_does_not_fit_is_lost() {
        let mut status = Status::default();
        assert_eq!(status.show(), "ok\n");
        // 18 bytes each: 28 of them are 504 bytes, the 29th would be 522.
        for _ in 0..40 {
            status.puts("Bad CPU list/mask\n");
        }
        assert_eq!(status.show().len(), 504);
        status.clear();
        assert_eq!(status.show(), "ok\n");
        status.printf(&"x".repeat(600));
        status.puts("a");
        assert_eq!(status.show(), "x".repeat(511));
    }
}
