//! The parts of sequences in a folder, as a tree: each goes on from a token of the one before it.

use std::collections::BTreeMap;

use crate::kv::{Group, Packed, Saved};
use llmcc_abi::tree::{Hash, Leaf};
use llmcc_steps::prefix::common;

/// Parts begin after a multiple of so many tokens, and a shorter one is not worth a file.
pub const GRAIN: usize = llmcc_abi::PAGE_TOKENS;

/// A part that is on disk.
#[derive(Clone, Debug)]
struct Node {
    /// The part before it; zeros: none.
    parent: Hash,
    from: usize,
    tokens: Vec<i32>,
    /// Where a sequence may go on from it.
    points: Points,
    /// Bytes of its file.
    bytes: u64,
    /// When it was used last.
    used: u64,
}

/// The numbers of tokens after which a sequence that comes back can go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Points {
    /// Not before so many.
    least: usize,
    /// `None`: at any number; else at these, ascending.
    at: Option<Vec<usize>>,
}

impl Points {
    /// Any number of tokens.
    const ANY: Points = Points { least: 0, at: None };

    /// The points of a part of a model with these groups of states.
    pub fn of(part: &Saved, groups: &[Group]) -> Points {
        let mut points = Points::ANY;
        for (index, group) in groups.iter().enumerate().filter(|(_, g)| g.track == 0 && g.adapters == 0) {
            let pages = part.pages.iter().find(|pages| pages.group == index);
            if group.fixed {
                let mut at = pages.map(|pages| pages.snapshots.clone()).unwrap_or_default();
                at.extend(pages.is_some().then_some(part.end()));
                points.at = Some(match points.at {
                    None => at,
                    Some(before) => before.into_iter().filter(|len| at.contains(len)).collect(),
                });
            } else if group.slides() {
                let first = pages.map_or(usize::MAX, |pages| pages.first);
                let least = (part.from..=part.end()).find(|len| group.first_page(*len) >= first);
                points.least = points.least.max(least.unwrap_or(usize::MAX));
            }
        }
        points
    }

    /// The last point of up to `len` tokens; 0: there is none.
    fn last(&self, len: usize) -> usize {
        let point = match &self.at {
            None => len,
            Some(at) => at.iter().copied().filter(|at| *at <= len).max().unwrap_or(0),
        };
        if point >= self.least { point } else { 0 }
    }
}

/// Parts that together are the beginning of a sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// Names of the parts, and the number of tokens of the sequence at which each is cut.
    pub parts: Vec<(Hash, usize)>,
    /// Tokens that need not be computed.
    pub tokens: usize,
}

/// All parts.
#[derive(Default)]
pub struct Tree {
    nodes: BTreeMap<Hash, Node>,
    /// Parts behind each part; of those that begin a sequence by a name of their owner's.
    next: BTreeMap<Hash, Vec<Hash>>,
    clock: u64,
    bytes: u64,
}

/// The name under which the first parts of an owner stand in [`Tree::next`].
fn root(salt: u64) -> Hash {
    let mut name = [0xff; 32];
    name[..8].copy_from_slice(&salt.to_le_bytes());
    name
}

/// The name of a part: a hash of the model, the parts before it, its owner and its tokens.
pub fn name_of(packed: &Packed) -> Hash {
    let mut hash = Leaf::default();
    hash.update(b"llmcc part of a sequence");
    hash.update(&packed.identity);
    hash.update(&packed.parent);
    hash.update(&packed.salt.to_le_bytes());
    hash.update(&(packed.part.from as u64).to_le_bytes());
    hash.update(&[u8::from(packed.part.ends)]);
    packed.part.tokens.iter().for_each(|token| hash.update(&token.to_le_bytes()));
    for (token, at) in &packed.part.places {
        hash.update(&(*token as u64).to_le_bytes());
        at.iter().for_each(|x| hash.update(&x.to_le_bytes()));
    }
    hash.finish()
}

impl Tree {
    /// Number of parts.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Bytes of their files.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether a part is there.
    pub fn has(&self, name: &Hash) -> bool {
        self.nodes.contains_key(name)
    }

    /// Adds a part of `bytes` bytes, used now. Returns whether the part before it is there, and it is new.
    pub fn add(&mut self, name: Hash, packed: &Packed, groups: &[Group], bytes: u64) -> bool {
        let Packed { parent, salt, part, .. } = packed;
        let first = *parent == Hash::default();
        let follows = match self.nodes.get(parent) {
            Some(before) => part.from > before.from && part.from <= before.from + before.tokens.len(),
            None => first && part.from == 0,
        };
        if !follows || self.has(&name) {
            return false;
        }
        let (tokens, points) = (part.tokens.clone(), Points::of(part, groups));
        self.nodes.insert(name, Node { parent: *parent, from: part.from, tokens, points, bytes, used: 0 });
        self.next.entry(if first { root(*salt) } else { *parent }).or_default().push(name);
        self.bytes += bytes;
        self.touch(&name);
        true
    }

    /// The parts from which a sequence of these tokens can go on; the last of the tokens is computed in any case.
    pub fn find(&self, salt: u64, tokens: &[i32]) -> Option<Path> {
        let tokens = &tokens[..tokens.len().saturating_sub(1)];
        let mut best = None;
        self.visit(salt, tokens, &mut |path: &[Hash], matched| {
            let Some(node) = path.last().and_then(|name| self.nodes.get(name)) else { return };
            let point = node.points.last(matched);
            if point > best.as_ref().map_or(node.from, |(_, point): &(Vec<Hash>, usize)| (*point).max(node.from)) {
                best = Some((path.to_vec(), point));
            }
        });
        let (names, tokens) = best?;
        let ends = names.iter().enumerate().map(|(i, name)| {
            let node = self.nodes.get(name)?;
            let end = node.from + node.tokens.len();
            Some(match names.get(i + 1).and_then(|next| self.nodes.get(next)) {
                Some(next) => next.from,
                // Windows and states of fixed size belong to the part's end.
                None if node.points != Points::ANY => end,
                None => tokens,
            })
        });
        let ends: Vec<usize> = ends.collect::<Option<_>>()?;
        Some(Path { parts: names.into_iter().zip(ends).collect(), tokens })
    }

    /// Where a part with the rest of a sequence of these tokens is to go on: the part before it (zeros: none), and the
    /// number of tokens before it. `None`: all but a few are there.
    pub fn place(&self, salt: u64, tokens: &[i32]) -> Option<(Hash, usize)> {
        let mut best = (Hash::default(), 0);
        let mut there = 0;
        self.visit(salt, tokens, &mut |path: &[Hash], matched| {
            let Some((name, node)) = path.last().and_then(|name| Some((name, self.nodes.get(name)?))) else { return };
            there = there.max(node.points.last(matched));
            let from = matched / GRAIN * GRAIN;
            if from > node.from && from > best.1 {
                best = (*name, from);
            }
        });
        (there + GRAIN <= tokens.len()).then_some(best)
    }

    /// Calls `each` with an owner's parts that begin like `tokens`, each with the parts before it, and how many tokens
    /// of the sequence it has in common with them.
    fn visit(&self, salt: u64, tokens: &[i32], each: &mut dyn FnMut(&[Hash], usize)) {
        let mut path: Vec<Hash> = Vec::new();
        let mut left: Vec<(usize, Hash, usize)> = Vec::new();
        let add = |left: &mut Vec<_>, at: &Hash, depth: usize, matched: usize| {
            left.extend(self.next.get(at).into_iter().flatten().map(|name| (depth, *name, matched)));
        };
        add(&mut left, &root(salt), 0, 0);
        while let Some((depth, name, matched)) = left.pop() {
            path.truncate(depth);
            let Some(node) = self.nodes.get(&name).filter(|node| node.from <= matched) else { continue };
            let same = common(&node.tokens, &tokens[node.from..]);
            if same == 0 {
                continue;
            }
            path.push(name);
            each(&path, node.from + same);
            add(&mut left, &name, depth + 1, node.from + same);
        }
    }

    /// A part was used, and so were all before it.
    pub fn touch(&mut self, name: &Hash) {
        let mut at = *name;
        while let Some(node) = self.nodes.get_mut(&at) {
            self.clock += 1;
            node.used = self.clock;
            at = node.parent;
        }
    }

    /// Takes a part out, and all behind it. Returns their names.
    pub fn remove(&mut self, name: &Hash) -> Vec<Hash> {
        let mut gone = Vec::new();
        let mut left = vec![*name];
        while let Some(name) = left.pop() {
            left.extend(self.next.remove(&name).into_iter().flatten());
            let Some(node) = self.nodes.remove(&name) else { continue };
            self.bytes -= node.bytes;
            let before = if node.parent == Hash::default() { None } else { Some(node.parent) };
            // (Parts that begin sequences are few, and their owner's name is not kept.)
            for (_, list) in self.next.iter_mut().filter(|(at, _)| before.is_none_or(|parent| **at == parent)) {
                list.retain(|other| *other != name);
            }
            gone.push(name);
        }
        gone
    }

    /// Takes out the part that was not used for the longest time, and all behind it. Returns their names.
    pub fn oldest(&mut self) -> Vec<Hash> {
        let oldest = self.nodes.iter().min_by_key(|(_, node)| node.used).map(|(name, _)| *name);
        oldest.map(|name| self.remove(&name)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::SavedPages;

    fn part(from: usize, tokens: &[i32], parent: Hash, salt: u64) -> (Hash, Packed) {
        let part = Saved { from, tokens: tokens.to_vec(), ends: true, ..Saved::default() };
        let packed = Packed { identity: [3; 32], parent, salt, part };
        (name_of(&packed), packed)
    }

    fn all(n: usize) -> Vec<i32> {
        (0..n as i32).collect()
    }

    #[test]
    fn sequences_are_found_by_their_beginnings() {
        let (mut tree, groups) = (Tree::default(), [Group::EMPTY]);
        assert_eq!((tree.find(0, &all(9)), tree.place(0, &all(9))), (None, None));
        assert_eq!(tree.place(0, &all(40)), Some((Hash::default(), 0)));
        let (a, first) = part(0, &all(40), Hash::default(), 0);
        assert!(tree.add(a, &first, &groups, 100) && !tree.add(a, &first, &groups, 100));
        // The last token is computed, and what differs.
        assert_eq!(tree.find(0, &all(60)), Some(Path { parts: vec![(a, 40)], tokens: 40 }));
        assert_eq!(tree.find(0, &all(40)), Some(Path { parts: vec![(a, 39)], tokens: 39 }));
        assert_eq!(tree.find(1, &all(60)), None);
        assert_eq!((tree.place(0, &all(55)), tree.place(0, &all(56))), (None, Some((a, 32))));
        // A part that goes on from the middle of it, and one that goes on from that.
        let other: Vec<i32> = (20..50).map(|i| if i < 24 { i } else { -i }).collect();
        let (b, second) = part(16, &[&all(20)[16..], &other].concat(), a, 0);
        assert!(tree.add(b, &second, &groups, 10));
        let whole = [&all(20)[..], &other, &[7, 7]].concat();
        assert_eq!(tree.find(0, &whole), Some(Path { parts: vec![(a, 16), (b, 50)], tokens: 50 }));
        let (c, third) = part(48, &[-48, -49, 7, 7, 7], b, 0);
        assert!(tree.add(c, &third, &groups, 1));
        assert_eq!(tree.find(0, &whole).unwrap().parts, [(a, 16), (b, 48), (c, 51)]);
        assert_eq!((tree.len(), tree.bytes()), (3, 111));
        // Whoever is not used goes first, ends before beginnings.
        tree.touch(&a);
        assert_eq!(tree.oldest(), [c]);
        assert_eq!(tree.find(0, &whole).unwrap().tokens, 50);
        assert!(tree.add(c, &third, &groups, 1));
        assert_eq!((tree.remove(&b), tree.len(), tree.bytes()), (vec![b, c], 1, 100));
        assert_eq!(tree.find(0, &whole).unwrap().tokens, 24);
        assert_eq!(tree.oldest(), [a]);
        assert_eq!((tree.find(0, &whole), tree.bytes(), tree.oldest()), (None, 0, vec![]));
    }

    #[test]
    fn orphans_and_wrong_places_are_refused() {
        let (mut tree, groups) = (Tree::default(), [Group::EMPTY]);
        let (a, first) = part(0, &all(40), Hash::default(), 0);
        let (b, orphan) = part(16, &all(40), a, 0);
        assert!(!tree.add(b, &orphan, &groups, 1));
        tree.add(a, &first, &groups, 1);
        for from in [0, 41] {
            let (c, wrong) = part(from, &all(40), a, 0);
            assert!(!tree.add(c, &wrong, &groups, 1));
        }
        assert!(tree.add(b, &orphan, &groups, 1));
    }

    /// States of fixed size are there at snapshots and ends, windows from some token on.
    #[test]
    fn states_that_are_no_pages_have_points() {
        let fixed = Group { fixed: true, ..Group::EMPTY };
        let slides = Group { window: 20, ..Group::EMPTY };
        let mut part = Saved { tokens: all(100), ends: true, ..Saved::default() };
        let none = Points::of(&part, &[Group::EMPTY, fixed]);
        assert_eq!(none.last(100), 0);
        part.pages.push(SavedPages { group: 1, snapshots: vec![30, 60], ..SavedPages::default() });
        let points = Points::of(&part, &[Group::EMPTY, fixed]);
        assert_eq!([29, 30, 59, 60, 99, 100].map(|len| points.last(len)), [0, 30, 30, 60, 60, 100]);
        part.pages[0] = SavedPages { group: 0, first: 3, ..SavedPages::default() };
        let points = Points::of(&part, &[slides]);
        // Tokens from 48 on are there, and the next token sees 19 before it.
        assert_eq!([66, 67, 80].map(|len| points.last(len)), [0, 67, 80]);
    }
}
