//! Patterns of names.

/// Whether a text is as a pattern, in which `*` stands for any characters.
pub fn fits(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(first) else { return false };
    let (between, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    // The first place of each part leaves the most for those after it.
    for part in between.split('*') {
        let Some((_, behind)) = text.split_once(part) else { return false };
        text = behind;
    }
    text.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_characters() {
        for (pattern, name) in [
            ("*", ""),
            ("*", "a.b"),
            ("a.b", "a.b"),
            ("*.experts.*", "model.layers.1.mlp.experts.gate.weight"),
            ("model.*.q_proj*", "model.layers.0.q_proj.weight"),
            ("*a*b", "aab_b"),
        ] {
            assert!(fits(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("a", "ab"), ("", "a"), ("*.experts.*", "model.experts"), ("a*b", "abc")] {
            assert!(!fits(pattern, name), "{pattern} {name}");
        }
    }
}
