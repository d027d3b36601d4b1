//! Texts that can be continued rightly only with a fact that stands far before: a table of probes.
//!
//! The texts are made here, of words that any tokenizer knows. A probe's facts stand at places of their own in a text
//! of other sentences, which is as long as asked for.

use super::filler::{CITIES, NAMES, PROFESSIONS, Random, THINGS};

/// A kind of text.
pub struct Probe {
    /// Its name in options and results.
    pub name: &'static str,
    /// The fact to be found, in a sentence.
    pub about: &'static str,
    /// Whose task it is.
    pub source: &'static str,
    make: fn(&mut Random) -> Parts,
}

/// A text in parts.
pub struct Parts {
    /// The beginning.
    pub task: String,
    /// Facts, each with its place between beginning (0) and end (1), ascending.
    pub facts: Vec<(f64, String)>,
    /// How sentences are made that stand between them.
    pub other: fn(&mut Random) -> String,
    /// The end, up to the answer.
    pub question: String,
    /// The right continuation.
    pub answer: String,
}

/// All probes.
pub const PROBES: &[Probe] = &[
    Probe {
        name: "needle",
        about: "one sentence among others",
        source: "needle in a haystack (Kamradt 2023), RULER's S-NIAH (Hsieh et al. 2024, arXiv 2404.06654)",
        make: needle,
    },
    Probe {
        name: "keys",
        about: "one of eight sentences that differ in a word",
        source: "RULER's MK-NIAH (arXiv 2404.06654)",
        make: keys,
    },
    Probe {
        name: "trace",
        about: "the value of a variable, over two assignments",
        source: "RULER's variable tracking (arXiv 2404.06654)",
        make: trace,
    },
    Probe {
        name: "documents",
        about: "a fact of one among many short documents",
        source: "question over documents of LongBench (Bai et al. 2023, arXiv 2308.14508)",
        make: documents,
    },
    Probe {
        name: "code",
        about: "the result of a function that an earlier file defines",
        source: "code completion over files of LongBench (arXiv 2308.14508)",
        make: code,
    },
    Probe {
        name: "summary",
        about: "all of five figures, in their order",
        source: "summaries of LongBench (arXiv 2308.14508): a table of figures that stand far apart",
        make: summary,
    },
];

impl Probe {
    /// The parts of its text number `sample`; `depth`: the place of the fact that is asked for, from 0 to 1, where the
    /// probe has one fact.
    pub fn parts(&self, seed: u64, sample: usize, depth: f64) -> Parts {
        let name = self.name.bytes().fold(0u64, |h, byte| h.wrapping_mul(31).wrapping_add(byte.into()));
        let mut random = Random::new(seed ^ name.rotate_left(17) ^ (sample as u64) << 40);
        let mut parts = (self.make)(&mut random);
        if let [(place, _)] = &mut parts.facts[..] {
            *place = depth;
        }
        parts
    }
}

/// A number of five digits.
fn value(random: &mut Random) -> String {
    (10_000 + random.below(90_000)).to_string()
}

fn secret(thing: &str, value: &str) -> String {
    format!("The secret number of the {thing} is {value}.")
}

const READ: &str = "Read the following text. There are secret numbers in it, which will be asked for.\n";

fn asked(thing: &str) -> String {
    format!("\nQuestion: Which is the secret number of the {thing}?\nAnswer: The secret number of the {thing} is")
}

fn needle(random: &mut Random) -> Parts {
    let (thing, value) = (random.pick(THINGS), value(random));
    Parts {
        task: READ.into(),
        facts: vec![(0.5, secret(thing, &value))],
        other: super::filler::sentence,
        question: asked(thing),
        answer: format!(" {value}"),
    }
}

fn keys(random: &mut Random) -> Parts {
    let things = random.some(THINGS, 8);
    let values: Vec<String> = things.iter().map(|_| value(random)).collect();
    let at = random.below(things.len());
    let place = |i: usize| (i as f64 + 0.5) / things.len() as f64;
    Parts {
        task: READ.into(),
        facts: things.iter().zip(&values).enumerate().map(|(i, (t, v))| (place(i), secret(t, v))).collect(),
        other: super::filler::sentence,
        question: asked(things[at]),
        answer: format!(" {}", values[at]),
    }
}

fn trace(random: &mut Random) -> Parts {
    let names = random.some(&["ALPHA", "BRAVO", "DELTA", "GAMMA", "KAPPA", "OMEGA", "SIGMA", "THETA"], 6);
    let values = [value(random), value(random)];
    let first = |chain: usize| format!("VAR {} = {}.", names[3 * chain], values[chain]);
    let next = |chain: usize, i: usize| format!("VAR {} = VAR {}.", names[3 * chain + i], names[3 * chain + i - 1]);
    let facts = vec![first(0), first(1), next(0, 1), next(1, 1), next(0, 2), next(1, 2)];
    let chain = random.below(2);
    let asked = names[3 * chain + 2];
    let count = facts.len() as f64;
    Parts {
        task: "Read the following text. Variables get values in it, which will be asked for.\n".into(),
        facts: facts.into_iter().enumerate().map(|(i, fact)| ((i as f64 + 0.5) / count, fact)).collect(),
        other: super::filler::sentence,
        question: format!("\nQuestion: Which is the value of VAR {asked}?\nAnswer: The value of VAR {asked} is"),
        answer: format!(" {}", values[chain]),
    }
}

fn documents(random: &mut Random) -> Parts {
    let (name, city, work) = (random.pick(NAMES), random.pick(CITIES), random.pick(PROFESSIONS));
    // Names of the other documents have a second part.
    let name = format!("Dr. {name}");
    let fact = format!("\nDocument: {name} was born in {city} and works as a {work}.");
    Parts {
        task: "Read the following documents about people.\n".into(),
        facts: vec![(0.5, fact)],
        other: super::filler::person,
        question: format!("\n\nQuestion: In which city was {name} born?\nAnswer: {name} was born in"),
        answer: format!(" {city}"),
    }
}

fn summary(random: &mut Random) -> Parts {
    let months = ["January", "February", "March", "April", "May"];
    let (goods, city) = (random.pick(&["boats", "lamps", "chairs", "clocks", "coats"]), random.pick(CITIES));
    let figures = months.map(|_| 100 + random.below(900));
    let fact = |i: usize| format!("In {}, the shop in {city} sold {} {goods}.", months[i], figures[i]);
    let line = |i: usize| format!(" {}: {} {goods}.", months[i], figures[i]);
    let place = |i: usize| (i as f64 + 0.5) / months.len() as f64;
    Parts {
        task: format!("Read the following report about a shop in {city}. Its sales will be asked for.\n"),
        facts: (0..months.len()).map(|i| (place(i), fact(i))).collect(),
        other: super::filler::sentence,
        question: format!("\nSummary of the sales of {goods} in {city}, month by month."),
        answer: (0..months.len()).map(line).collect(),
    }
}

fn code(random: &mut Random) -> Parts {
    let (thing, value) = (random.pick(THINGS), value(random));
    let name = thing.replace(' ', "_");
    let fact = format!("\n# file: {name}.py\ndef price_of_{name}():\n    return {value}\n");
    Parts {
        task: "# The files of a project, and their tests.\n".into(),
        facts: vec![(0.5, fact)],
        other: super::filler::function,
        question: format!("\n# file: test_{name}.py\nfrom {name} import price_of_{name}\nassert price_of_{name}() =="),
        answer: format!(" {value}"),
    }
}
