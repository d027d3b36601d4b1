//! Sentences between the facts of a probe, and the words that they are made of.

use crate::numbers::below;

/// Numbers of a seed.
pub struct Random(u64);

impl Random {
    /// The numbers of `seed`.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// A number below `n`, at least 1.
    pub fn below(&mut self, n: usize) -> usize {
        below(&mut self.0, n as u64) as usize
    }

    /// One of these.
    pub fn pick(&mut self, all: &[&'static str]) -> &'static str {
        all[self.below(all.len())]
    }

    /// Some of these, `count` different ones.
    pub fn some(&mut self, all: &[&'static str], count: usize) -> Vec<&'static str> {
        let mut left = all.to_vec();
        (0..count.min(all.len())).map(|_| left.swap_remove(self.below(left.len()))).collect()
    }
}

/// Things that have secret numbers.
pub const THINGS: &[&str] = &[
    "red lamp",
    "old clock",
    "green chair",
    "small boat",
    "wooden door",
    "glass bottle",
    "paper box",
    "black coat",
    "round table",
    "silver spoon",
    "white horse",
    "iron bridge",
    "yellow train",
    "blue window",
    "stone garden",
    "long river",
    "quiet forest",
    "broken radio",
    "heavy hammer",
    "golden ring",
    "tall tower",
    "young tree",
];

/// Given names.
pub const NAMES: &[&str] = &[
    "Anna", "Bruno", "Clara", "David", "Elena", "Felix", "Grace", "Hugo", "Irene", "Jonas", "Laura", "Martin", "Nora",
    "Oscar", "Paula", "Robert", "Sara", "Thomas", "Victor", "Wanda",
];

const SURNAMES: &[&str] =
    &["Baker", "Carter", "Fisher", "Hill", "Lake", "Mason", "Miller", "Parker", "Shepherd", "Stone", "Taylor", "Wood"];

/// Cities of one or two words.
pub const CITIES: &[&str] = &[
    "Paris", "London", "Berlin", "Madrid", "Rome", "Vienna", "Tokyo", "Cairo", "Boston", "Chicago", "Moscow", "Sydney",
    "Dublin", "Prague", "Lisbon", "Toronto",
];

/// Professions.
pub const PROFESSIONS: &[&str] =
    &["teacher", "doctor", "baker", "painter", "farmer", "driver", "writer", "singer", "lawyer", "gardener"];

const WHO: &[&str] = &[
    "The teacher",
    "A farmer",
    "The old man",
    "Her sister",
    "The doctor",
    "A young woman",
    "His neighbour",
    "The children",
];
const DID: &[&str] = &[
    "walked to the market",
    "looked at the sky",
    "opened a book",
    "waited for the train",
    "wrote a letter",
    "cooked some soup",
    "talked about the weather",
    "sat down by the fire",
    "cleaned the kitchen",
    "went home",
];
const WHEN: &[&str] = &[
    "in the morning",
    "before lunch",
    "after the rain",
    "on Sunday",
    "in the evening",
    "at noon",
    "in the spring",
    "last week",
    "as usual",
];

/// A sentence without numbers.
pub fn sentence(random: &mut Random) -> String {
    format!("{} {} {}.", random.pick(WHO), random.pick(DID), random.pick(WHEN))
}

/// A document about somebody with two names.
pub fn person(random: &mut Random) -> String {
    let (name, surname) = (random.pick(NAMES), random.pick(SURNAMES));
    let (city, work) = (random.pick(CITIES), random.pick(PROFESSIONS));
    format!("\nDocument: {name} {surname} was born in {city} and works as a {work}.")
}

/// A file with a function.
pub fn function(random: &mut Random) -> String {
    let (surname, work) = (random.pick(SURNAMES).to_lowercase(), random.pick(PROFESSIONS));
    let (a, b) = (1 + random.below(99), 1 + random.below(99));
    format!("\n# file: {surname}_{work}.py\ndef {work}_{surname}(x):\n    return {a} * x + {b}\n")
}
