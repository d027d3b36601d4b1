//! Names that are written most alike, for messages about unknown ones.

/// The known name that has the longest common beginning with `name`, or else
/// takes the fewest edits; nothing if none is at all alike.
pub(crate) fn nearest(name: &str, known: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    let name = name.to_lowercase();
    let (distance, best) = known.map(|known| (edits(&name, known), known)).min_by_key(|(distance, _)| *distance)?;
    (2 * distance <= best.len().max(3)).then_some(best)
}

/// Insertions, deletions and replacements that turn the beginning of `a` into `b` (Levenshtein's
/// distance; the rest of `a` costs nothing).
fn edits(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    let mut least = row.last().copied().unwrap_or(0);
    // A beginning that is twice as long takes as many deletions as `b` takes insertions.
    for x in a.chars().take(2 * row.len()) {
        let mut corner = row[0];
        row[0] += 1;
        for (j, y) in b.chars().enumerate() {
            let replaced = corner + usize::from(x != y);
            corner = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(corner + 1);
        }
        least = least.min(row.last().copied().unwrap_or(least));
    }
    least
}
