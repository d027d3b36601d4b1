//! The next step: which generations it has, and how many tokens of each.
//!
//! Generations whose prompts have been evaluated come first, one token each and guesses behind it: nobody waits for a
//! token because of others' prompts. Prompts fill the rest in the order of their ranks, cut into chunks (as
//! Sarathi-Serve does, Agrawal et al. 2024, arXiv 2403.02310). A prompt is begun when the cache has room for all of
//! it.

/// A generation that may take part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Candidate {
    /// Tokens that the model has seen.
    pub evaluated: usize,
    /// Tokens that it has not; at least one.
    pub pending: usize,
    /// Guesses behind them.
    pub guesses: usize,
}

/// Bounds of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Most tokens.
    pub tokens: usize,
    /// Most generations.
    pub parts: usize,
    /// Most tokens of prompts where generations get their next token.
    pub prompt_tokens: usize,
}

/// Pages of the cache.
pub trait Room {
    /// Groups of states, each with pages of its own.
    fn groups(&self) -> usize;
    /// Pages of a group that nobody uses.
    fn free(&self, group: usize) -> usize;
    /// Most pages of a group that a sequence uses while it grows to `tokens` tokens.
    fn pages(&self, group: usize, tokens: usize) -> usize;
}

/// The part of a step that is of one generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Index of the generation.
    pub generation: usize,
    /// Its first token in the step.
    pub first: usize,
    /// Tokens that the model has not seen.
    pub count: usize,
    /// Guesses behind them.
    pub guesses: usize,
    /// Whether a token is chosen.
    pub chooses: bool,
}

/// A step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Its parts, in the order of their tokens.
    pub parts: Vec<Part>,
    /// Tokens of all parts, guesses included.
    pub tokens: usize,
    /// Whether a prompt waits for room in the cache.
    pub waits: bool,
}

/// The next step of `all`, in the order of their ranks; `None` takes no part. `part` says how many of the pending
/// tokens of a generation a step with room for so many takes.
pub fn plan(all: &[Option<Candidate>], bounds: Bounds, room: &dyn Room, part: &dyn Fn(usize, usize) -> usize) -> Plan {
    let mut plan = Plan::default();
    let alive = |begun: bool| {
        let one =
            move |(i, c): (usize, &Option<Candidate>)| Some((i, (*c)?)).filter(|(_, c)| begun == (c.evaluated > 0));
        all.iter().enumerate().filter_map(one)
    };
    let (running, filling): (Vec<_>, Vec<_>) = alive(true).partition(|(_, c)| c.pending == 1);
    running.iter().for_each(|&(i, c)| plan.add(i, c, (bounds.tokens, bounds.parts), part));
    let limit = match plan.tokens {
        0 => bounds.tokens,
        tokens => bounds.tokens.min(tokens.saturating_add(bounds.prompt_tokens)),
    };
    filling.iter().for_each(|&(i, c)| plan.add(i, c, (limit, bounds.parts), part));
    // Pages that running generations need for their next token are not free.
    let whole = |group: usize, c: &Candidate| room.pages(group, c.evaluated + c.pending + 1);
    let grow = |group: usize, c: &Candidate| whole(group, c).saturating_sub(room.pages(group, c.evaluated));
    let grows = |group: usize| running.iter().chain(&filling).map(|(_, c)| grow(group, c)).sum();
    let mut free: Vec<usize> = (0..room.groups()).map(|g| room.free(g).saturating_sub(grows(g))).collect();
    for (i, c) in alive(false) {
        // The first of all is tried in any case.
        let fits = free.iter().enumerate().all(|(group, free)| whole(group, &c) <= *free);
        if !fits && !plan.parts.is_empty() {
            plan.waits = true;
            break;
        }
        free.iter_mut().enumerate().for_each(|(group, free)| *free = free.saturating_sub(whole(group, &c)));
        plan.add(i, c, (limit, bounds.parts), part);
    }
    plan
}

impl Plan {
    /// Adds as much of generation `i` as the step of up to so many tokens and parts has room for.
    fn add(&mut self, i: usize, c: Candidate, (tokens, parts): (usize, usize), part: &dyn Fn(usize, usize) -> usize) {
        let count = part(i, tokens.saturating_sub(self.tokens));
        if count == 0 || self.parts.len() == parts {
            return;
        }
        let (first, chooses) = (self.tokens, count == c.pending);
        let room = tokens.saturating_sub(first + count);
        let guesses = if chooses { c.guesses.min(room) } else { 0 };
        self.parts.push(Part { generation: i, first, count, guesses, chooses });
        self.tokens += count + guesses;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages of four tokens.
    struct Pages(usize);

    impl Room for Pages {
        fn groups(&self) -> usize {
            1
        }

        fn free(&self, _: usize) -> usize {
            self.0
        }

        fn pages(&self, _: usize, tokens: usize) -> usize {
            tokens.div_ceil(4)
        }
    }

    fn candidate(evaluated: usize, pending: usize, guesses: usize) -> Option<Candidate> {
        Some(Candidate { evaluated, pending, guesses })
    }

    fn of(all: &[Option<Candidate>], bounds: Bounds, pages: usize) -> (Vec<(usize, usize, usize, bool)>, bool) {
        let pending: Vec<usize> = all.iter().map(|c| c.map_or(0, |c| c.pending)).collect();
        let plan = plan(all, bounds, &Pages(pages), &|i, room| pending[i].min(room));
        let mut at = 0;
        for part in &plan.parts {
            assert_eq!(part.first, at, "parts follow each other");
            at += part.count + part.guesses;
        }
        assert_eq!(plan.tokens, at);
        (plan.parts.iter().map(|p| (p.generation, p.count, p.guesses, p.chooses)).collect(), plan.waits)
    }

    const WIDE: Bounds = Bounds { tokens: 512, parts: 64, prompt_tokens: 16 };

    #[test]
    fn next_tokens_come_before_prompts() {
        let all = [candidate(0, 100, 0), candidate(7, 1, 0), None, candidate(9, 1, 3)];
        let (parts, waits) = of(&all, WIDE, 1000);
        assert_eq!(parts, [(1, 1, 0, true), (3, 1, 3, true), (0, 16, 0, false)], "a chunk within the pace");
        assert!(!waits);
        // Alone, a prompt fills the step.
        assert_eq!(of(&all[..1], WIDE, 1000).0, [(0, 100, 0, true)]);
        assert_eq!(of(&all[..1], Bounds { tokens: 64, ..WIDE }, 1000).0, [(0, 64, 0, false)]);
    }

    #[test]
    fn prompts_wait_for_room() {
        // 40 tokens and one more: 11 pages each.
        let all = [candidate(0, 40, 0), candidate(0, 40, 0)];
        assert_eq!(of(&all, WIDE, 22), (vec![(0, 40, 0, true), (1, 40, 0, true)], false));
        assert_eq!(of(&all, WIDE, 21), (vec![(0, 40, 0, true)], true));
        assert_eq!(of(&all, WIDE, 0), (vec![(0, 40, 0, true)], true), "the first is tried in any case");
        // A running generation's next page is not free.
        let all = [candidate(7, 1, 0), candidate(0, 40, 0)];
        assert_eq!(of(&all, WIDE, 11), (vec![(0, 1, 0, true)], true));
        assert!(!of(&all, WIDE, 12).1);
    }

    #[test]
    fn bounds_hold() {
        let all = [candidate(5, 1, 8), candidate(5, 1, 0), candidate(5, 3, 0)];
        assert_eq!(of(&all, Bounds { tokens: 4, ..WIDE }, 99).0, [(0, 1, 3, true)]);
        assert_eq!(of(&all, Bounds { parts: 2, ..WIDE }, 99).0, [(0, 1, 8, true), (1, 1, 0, true)]);
        assert_eq!(of(&[], WIDE, 99), (vec![], false));
    }
}
