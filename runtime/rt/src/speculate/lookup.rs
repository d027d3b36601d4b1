//! Guesses from the text so far (prompt lookup decoding; Saxena 2023): the tokens that followed where the last ones
//! stood before. Summaries, edits and code repeat themselves.

/// Most of the last tokens that are looked for.
const LONGEST: usize = 4;
/// Fewest.
const SHORTEST: usize = 2;

/// Up to `n` tokens that followed the last place before the end where the longest ending of `text` stood; none where no
/// ending of two tokens did.
pub fn after(text: &[i32], n: usize) -> &[i32] {
    for length in (SHORTEST..=LONGEST.min(text.len().saturating_sub(1))).rev() {
        let ending = &text[text.len() - length..];
        // The place itself is left out.
        let before = &text[..text.len() - 1];
        if let Some(at) = before.windows(length).rposition(|place| place == ending) {
            let from = at + length;
            return &text[from..text.len().min(from + n)];
        }
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_endings_count_first() {
        let none: [i32; 0] = [];
        assert_eq!(after(&[1, 2, 3, 9, 1, 2, 3], 2), [9, 1]);
        assert_eq!(after(&[1, 2, 3, 9, 1, 2, 3], 9), [9, 1, 2, 3]);
        // Two tokens stand at two places: the later counts, unless three stand at the earlier.
        assert_eq!(after(&[5, 2, 3, 7, 6, 2, 3, 8, 4, 2, 3], 1), [8]);
        assert_eq!(after(&[5, 2, 3, 7, 6, 2, 3, 8, 5, 2, 3], 1), [7]);
        // One token in common is too few.
        assert_eq!(after(&[3, 1, 2, 3], 4), none);
        assert_eq!((after(&[], 4), after(&[1], 4), after(&[1, 1], 4)), (&none[..], &none[..], &none[..]));
        // A repetition of one token goes on.
        assert_eq!(after(&[4, 4, 4], 3), [4]);
    }
}
