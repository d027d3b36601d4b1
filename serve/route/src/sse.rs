//! Server-sent events of replicas, as their bytes come: cut into events, with the trace that says whose they are.

/// Longest event: further bytes of one without an end are none of a replica's.
const LONGEST: usize = 64 << 20;

/// Cuts a stream of bytes into events.
#[derive(Debug, Default)]
pub(crate) struct Splitter {
    bytes: Vec<u8>,
    /// Bytes of events that were taken.
    taken: usize,
    /// Bytes in which no further end of an event begins.
    searched: usize,
}

impl Splitter {
    /// Adds bytes.
    ///
    /// # Errors
    /// The event under way is longer than any may be.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.bytes.drain(..self.taken);
        (self.searched, self.taken) = (self.searched - self.taken, 0);
        if self.bytes.len() + bytes.len() > LONGEST {
            return Err(format!("an event of the stream has more than {LONGEST} bytes"));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// The next whole event, with the empty line behind it.
    pub(crate) fn next(&mut self) -> Option<&[u8]> {
        let from = self.searched.max(self.taken);
        match self.bytes[from..].windows(2).position(|two| two == b"\n\n") {
            Some(at) => {
                let event = self.taken..from + at + 2;
                (self.taken, self.searched) = (event.end, event.end);
                Some(&self.bytes[event])
            }
            None => {
                self.searched = from.max(self.bytes.len().saturating_sub(1));
                None
            }
        }
    }
}

/// Whose an event is, by the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// Nobody's.
    None,
    /// A choice's, with the token that it brings, if it brings one.
    Tokens(usize, Option<i32>),
    /// The first after all texts.
    End,
    /// The first after an error of this status.
    Failed(u16),
}

/// An event's mark, and what the client gets of it: nothing, if it is empty.
pub(crate) fn marked(event: &[u8]) -> (Mark, &[u8]) {
    let Some(comment) = event.strip_prefix(b": ") else { return (Mark::None, event) };
    let line = comment.iter().position(|b| *b == b'\n').unwrap_or(comment.len());
    let rest = comment.get(line + 1..).unwrap_or_default();
    let mut words = comment[..line].split(|b| *b == b' ').map(|word| std::str::from_utf8(word).unwrap_or_default());
    let mark = match (words.next(), words.next(), words.next()) {
        (Some("tokens"), Some(choice), token) => {
            choice.parse().ok().map(|choice| Mark::Tokens(choice, token.and_then(|token| token.parse().ok())))
        }
        (Some("end"), None, None) => Some(Mark::End),
        (Some("failed"), Some(status), None) => status.parse().ok().map(Mark::Failed),
        _ => None,
    };
    match mark {
        // A comment of somebody else's.
        None => (Mark::None, event),
        Some(mark) => (mark, if rest == b"\n" { &[] } else { rest }),
    }
}

/// Whether an event has comments alone, and none is a mark: no text depends on it.
pub(crate) fn is_comment(event: &[u8]) -> bool {
    let mut lines = event.split(|b| *b == b'\n');
    lines.all(|line| line.is_empty() || line.starts_with(b":")) && marked(event).0 == Mark::None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_whole_however_their_bytes_come() {
        let text = ": tokens 0 5\ndata: {\"é\"}\n\ndata: b\n\n: end\n\ndata: [DONE]\n\ndata: half".as_bytes();
        let want = [": tokens 0 5\ndata: {\"é\"}\n\n", "data: b\n\n", ": end\n\n", "data: [DONE]\n\n"];
        for size in 1..text.len() {
            let (mut splitter, mut all) = (Splitter::default(), vec![]);
            for bytes in text.chunks(size) {
                splitter.push(bytes).unwrap();
                while let Some(event) = splitter.next() {
                    all.push(String::from_utf8(event.to_vec()).unwrap());
                }
            }
            assert_eq!(all, want, "{size} bytes at once");
        }
    }

    #[test]
    fn marks_are_read() {
        for (event, mark, rest) in [
            ("data: a\n\n", Mark::None, "data: a\n\n"),
            (": tokens 3 17\ndata: a\n\n", Mark::Tokens(3, Some(17)), "data: a\n\n"),
            (": tokens 3\nevent: x\ndata: a\n\n", Mark::Tokens(3, None), "event: x\ndata: a\n\n"),
            (": tokens 0 1\n\n", Mark::Tokens(0, Some(1)), ""),
            (": end\n\n", Mark::End, ""),
            (": failed 503\ndata: e\n\n", Mark::Failed(503), "data: e\n\n"),
            (": ping\n\n", Mark::None, ": ping\n\n"),
            (": tokens x\n\n", Mark::None, ": tokens x\n\n"),
        ] {
            assert_eq!(marked(event.as_bytes()), (mark, rest.as_bytes()), "{event:?}");
            assert_eq!(is_comment(event.as_bytes()), [": ping\n\n", ": tokens x\n\n"].contains(&event), "{event:?}");
        }
    }
}
