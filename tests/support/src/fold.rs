//! Long texts whose parts repeat, such as unrolled code, for snapshots that somebody is to read.

/// The longest part that is looked for, in lines.
const LONGEST: usize = 96;

/// The text with consecutive parts that differ only in numbers, which all grow by the same steps, written once:
/// the number of times and lines, and then the lines with the first and the last number of each place; a single
/// line has the number of times behind it, and so has an element of a list. Nothing is lost.
pub fn folded(text: &str) -> String {
    let once = fold(text.lines().map(String::from).collect(), LONGEST);
    let lists = |line: String| fold(line.split(", ").map(String::from).collect(), 1).join(", ");
    fold(once, LONGEST).into_iter().map(|line| lists(line) + "\n").collect()
}

/// A line: what stands between its numbers, and these.
struct Line {
    text: String,
    between: Vec<String>,
    numbers: Vec<String>,
}

impl Line {
    fn new(text: String) -> Line {
        let (mut between, mut numbers) = (vec![String::new()], vec![]);
        let mut inside = false;
        for c in text.chars() {
            if c.is_ascii_digit() {
                if !inside {
                    numbers.push(String::new());
                    between.push(String::new());
                }
                numbers.last_mut().expect("one is begun").push(c);
            } else {
                between.last_mut().expect("one at least").push(c);
            }
            inside = c.is_ascii_digit();
        }
        Line { text, between, numbers }
    }

    /// By how much each number is larger than in a line of the same form: nothing where that is no count.
    fn steps(&self, before: &Line) -> Option<Vec<i128>> {
        let count = |n: &str| (n.len() < 30 && (n == "0" || !n.starts_with('0'))).then(|| n.parse::<i128>().ok())?;
        let pairs = self.numbers.iter().zip(&before.numbers);
        pairs.map(|(n, b)| if n == b { Some(0) } else { Some(count(n)? - count(b)?) }).collect()
    }

    /// With the first and the last of each number.
    fn to(&self, last: &Line) -> String {
        let mut out = self.between[0].clone();
        for (i, (from, to)) in self.numbers.iter().zip(&last.numbers).enumerate() {
            out += from;
            if from != to {
                out += &format!("..{to}");
            }
            out += &self.between[i + 1];
        }
        out
    }
}

fn fold(lines: Vec<String>, longest: usize) -> Vec<String> {
    let lines: Vec<Line> = lines.into_iter().map(Line::new).collect();
    let (mut out, mut at) = (vec![], 0);
    while at < lines.len() {
        let rest = &lines[at..];
        let parts = (1..=longest.min(rest.len() / 2)).map(|size| (size, times(rest, size)));
        // The one that saves most, of several the shortest.
        let saved = |(size, times): &(usize, usize)| size * (times - 1);
        let best = parts.reduce(|best, part| if saved(&part) > saved(&best) { part } else { best });
        // Twice is worth it where much is saved only: any two numbers are steps.
        match best.filter(|part| part.1 >= 3 || saved(part) >= 12) {
            Some((size, times)) => {
                let last = &rest[(times - 1) * size..];
                if size == 1 {
                    out.push(format!("{} ({times} times)", rest[0].to(&last[0])));
                } else {
                    out.push(format!("{times} times {size} lines:"));
                    out.extend(rest[..size].iter().zip(last).map(|(first, last)| first.to(last)));
                }
                at += size * times;
            }
            None => {
                out.push(rest[0].text.clone());
                at += 1;
            }
        }
    }
    out
}

/// How many times the first lines stand there one after the other.
fn times(lines: &[Line], size: usize) -> usize {
    let mut steps: Option<Vec<Vec<i128>>> = None;
    for (i, pair) in lines.chunks_exact(size).zip(lines[size..].chunks_exact(size)).enumerate() {
        let step = pair
            .1
            .iter()
            .zip(pair.0)
            .map(|(line, before)| if line.between == before.between { line.steps(before) } else { None });
        let Some(step) = step.collect::<Option<Vec<_>>>() else { return i + 1 };
        if *steps.get_or_insert_with(|| step.clone()) != step {
            return i + 1;
        }
    }
    lines.len() / size
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_repeat_are_written_once() {
        let unrolled: String =
            (0..5).map(|i| format!("  %{} = load {}\n  add %{}, 1\n", 2 * i, 16 * i, 2 * i)).collect();
        let folded = folded(&format!("begin 007\n{unrolled}end\n"));
        assert_eq!(folded, "begin 007\n5 times 2 lines:\n  %0..8 = load 0..64\n  add %0..8, 1\nend\n");
    }

    #[test]
    fn what_grows_otherwise_is_kept() {
        assert_eq!(folded("f(w 2, w 3, w 4, w 5, x)\n"), "f(w 2, w 3..5 (3 times), x)\n");
        assert_eq!(folded("a 1\na 2\na 3\n"), "a 1..3 (3 times)\n");
        for text in ["a 1\na 2\na 4\n", "a 01\na 02\na 03\n", "a 1\nb 2\nc 3\n", ""] {
            assert_eq!(folded(text), text);
        }
    }
}
