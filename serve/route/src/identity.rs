//! The identifier and the time of a stream's documents: they stay as the first replica gave them.

/// Members in which two streams of one request differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The member `id` with its value.
    id: Vec<u8>,
    /// The member `created` with its value.
    created: Vec<u8>,
}

impl Identity {
    /// The identity of a stream with this first event. (No string has the text of a member: quotes are escaped there.)
    pub(crate) fn of(event: &[u8]) -> Identity {
        let member = |name: &[u8], ends: fn(u8) -> bool| -> Vec<u8> {
            let Some(start) = find(event, name) else { return vec![] };
            let rest = &event[start + name.len()..];
            let len = rest.iter().position(|b| ends(*b)).unwrap_or(rest.len());
            event[start..start + name.len() + len].to_vec()
        };
        Identity { id: member(b"\"id\":\"", |b| b == b'"'), created: member(b"\"created\":", |b| !b.is_ascii_digit()) }
    }

    /// Adds an event of this stream to `out` as one of the stream `own`.
    pub(crate) fn rewrite(&self, own: &Identity, event: &[u8], out: &mut Vec<u8>) {
        let mut places: Vec<(usize, &[u8], &[u8])> = [(&self.id, &own.id), (&self.created, &own.created)]
            .into_iter()
            .filter(|(from, to)| !from.is_empty() && !to.is_empty() && from != to)
            .filter_map(|(from, to)| find(event, from).map(|at| (at, &from[..], &to[..])))
            .collect();
        places.sort_unstable();
        let mut done = 0;
        for (at, from, to) in places {
            out.extend_from_slice(event.get(done..at).unwrap_or_default());
            out.extend_from_slice(to);
            done = at + from.len();
        }
        out.extend_from_slice(event.get(done..).unwrap_or_default());
    }
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_another_stream_become_those_of_the_first() {
        let event = |id: &str, created: &str| {
            let text = r#"data: {"choices":[{"text":"\"id\":\"x\" \"created\":9"}],"created":C,"id":"I","object":"o"}"#;
            (text.replace('C', created).replace("\"I\"", &format!("\"{id}\"")) + "\n\n").into_bytes()
        };
        let (one, two) = (event("cmpl-1", "100"), event("cmpl-22", "1001"));
        let mut out = vec![];
        Identity::of(&two).rewrite(&Identity::of(&one), &two, &mut out);
        assert_eq!(out, one);
        out.clear();
        Identity::of(b"event: x\n\n").rewrite(&Identity::of(&one), &two, &mut out);
        assert_eq!(out, two);
    }
}
