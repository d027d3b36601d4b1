//! Speculative decoding (Leviathan et al., arXiv 2211.17192), exact for any way of choosing tokens.
//!
//! A *guesser* proposes tokens that may come next, and one step of the model evaluates them with the token before. The
//! generation then draws its own token at each place, as it would without guesses, and goes on as long as a guess
//! equals the draw. So tokens are the same bit for bit, whatever is guessed: guesses change only how many tokens a step
//! makes.
//!
//! Guessers are draft heads of the model ([`heads`], [`ahead`]), the text so far (`lookup`), earlier texts of an engine
//! (`texts`), texts of the caller's ([`corpus`]), the model's predictions behind wrong guesses (`jacobi`), or the
//! caller: a function, such as that of another artifact ([`drafter`]). Tokens that the caller expects
//! (`GenParams::expected`) come before all of them, and many at once: so a text that broke off elsewhere goes on.

pub mod ahead;
pub mod corpus;
mod course;
pub mod drafter;
pub mod heads;
mod jacobi;
mod lookup;
mod pace;
mod texts;

use std::ops::Add;
use std::sync::Arc;

use crate::engine::Engine;
use crate::error::{Error, Result, Status};
use crate::kv::SeqId;
use ahead::Ahead;
use corpus::Corpus;
pub use course::Course;
use heads::Heads;
use jacobi::Jacobi;
pub(crate) use jacobi::Step;
pub use pace::MOST_GUESSES;
use pace::Pace;
pub use texts::{Tenants, Texts};

/// Guesses for a step by a lookup in the text, if the caller names no number.
const OF_LOOKUP: usize = 8;
/// By predictions of the model.
const OF_JACOBI: usize = 8;
/// And by the caller's function.
const OF_CALLER: usize = 4;

/// Proposes tokens after all tokens of a sequence: at most as many as are asked for.
pub type Propose = dyn Fn(&[i32], usize) -> Result<Vec<i32>> + Send + Sync;

/// Where guesses come from.
#[derive(Clone, Default)]
pub enum Guesses {
    /// Nowhere: each step makes one token.
    #[default]
    None,
    /// From the model's draft heads; nowhere where it has none.
    Own,
    /// From the model's draft heads.
    Heads,
    /// From the text so far: what followed where its last tokens stood before.
    Lookup,
    /// From the text so far, else from earlier texts.
    Texts(Arc<Texts>),
    /// From texts of the caller's, else from the text so far.
    Corpus(Arc<Corpus>),
    /// From the model's predictions behind the last step's wrong guesses.
    Jacobi,
    /// From n-grams of all these predictions.
    Lookahead,
    /// From the caller.
    Caller(Arc<Propose>),
}

impl std::fmt::Debug for Guesses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Guesses::None => "None",
            Guesses::Own => "Own",
            Guesses::Heads => "Heads",
            Guesses::Lookup => "Lookup",
            Guesses::Texts(_) => "Texts",
            Guesses::Corpus(_) => "Corpus",
            Guesses::Jacobi => "Jacobi",
            Guesses::Lookahead => "Lookahead",
            Guesses::Caller(_) => "Caller",
        })
    }
}

/// A generation's guesser, and how good its guesses were.
pub(crate) struct Speculation {
    guesser: Guesser,
    pace: Pace,
    counts: Counts,
}

enum Guesser {
    Heads(Heads),
    Ahead(Ahead),
    Lookup,
    Texts(Arc<Texts>),
    Corpus(Arc<Corpus>),
    Jacobi(Jacobi),
    Caller(Arc<Propose>),
}

/// How good guesses were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Tokens that were guessed.
    pub guessed: u64,
    /// Guesses that became part of the text.
    pub accepted: u64,
    /// Steps of the model that evaluated guesses.
    pub steps: u64,
}

impl Add for Counts {
    type Output = Counts;

    fn add(self, other: Counts) -> Counts {
        Counts {
            guessed: self.guessed + other.guessed,
            accepted: self.accepted + other.accepted,
            steps: self.steps + other.steps,
        }
    }
}

impl Counts {
    /// Counts a step in which `accepted` of `guessed` tokens became part of the text.
    pub(crate) fn count(&mut self, guessed: usize, accepted: usize) {
        if guessed > 0 {
            *self = *self + Counts { guessed: guessed as u64, accepted: accepted as u64, steps: 1 };
        }
    }
}

impl Speculation {
    /// A guesser for a generation, of up to `most` guesses for a step (0: as many as suit it).
    ///
    /// # Errors
    /// Draft heads are asked for that the model does not have; too many guesses.
    pub fn new(engine: &Engine, guesses: &Guesses, most: usize) -> Result<Option<Speculation>> {
        if most > MOST_GUESSES {
            return Err(Error::invalid(format!(
                "{most} guesses for a step are too many; ask for {MOST_GUESSES} or fewer"
            )));
        }
        let (guesser, usual) = match guesses {
            Guesses::None => return Ok(None),
            Guesses::Own | Guesses::Heads => match own_heads(engine) {
                Some(found) => found,
                None if matches!(guesses, Guesses::Own) => return Ok(None),
                None => {
                    return Err(Error::new(
                        Status::Unsupported,
                        "this artifact has no draft heads: compile the model with --draft-head or --draft, or guess by \
                         lookup",
                    ));
                }
            },
            Guesses::Lookup => (Guesser::Lookup, OF_LOOKUP),
            Guesses::Texts(texts) => (Guesser::Texts(texts.clone()), OF_LOOKUP),
            Guesses::Corpus(corpus) => (Guesser::Corpus(corpus.clone()), OF_LOOKUP),
            Guesses::Jacobi => (Guesser::Jacobi(Jacobi::plain()), OF_JACOBI),
            Guesses::Lookahead => (Guesser::Jacobi(Jacobi::lookahead()), OF_JACOBI),
            Guesses::Caller(propose) => (Guesser::Caller(propose.clone()), OF_CALLER),
        };
        let most = if most == 0 { usual.min(MOST_GUESSES) } else { most };
        let pace = if matches!(guesser, Guesser::Jacobi(_)) { Pace::steady(most) } else { Pace::new(most) };
        Ok(Some(Speculation { guesser, pace, counts: Counts::default() }))
    }

    /// How good guesses were so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Whether it takes hidden states of all tokens.
    pub fn takes_rows(&self) -> bool {
        matches!(self.guesser, Guesser::Heads(_) | Guesser::Ahead(_))
    }

    /// Whether it takes the choices behind wrong guesses, too.
    pub fn takes_predictions(&self) -> bool {
        matches!(self.guesser, Guesser::Jacobi(_))
    }

    /// Takes the choices of a step.
    pub fn take_predictions(&mut self, step: &Step) {
        if let Guesser::Jacobi(jacobi) = &mut self.guesser {
            jacobi.learn(step);
        }
    }

    /// Guesses of the caller's function after `history`, which needs no engine; at most `room`.
    ///
    /// # Errors
    /// Those of the function.
    pub fn ask(&mut self, history: &[i32], room: usize) -> Result<Option<Vec<i32>>> {
        let Guesser::Caller(propose) = &self.guesser else { return Ok(None) };
        match self.pace.guesses().min(room) {
            0 => Ok(Some(vec![])),
            n => propose(history, n).map(|mut guesses| {
                guesses.truncate(n);
                Some(guesses)
            }),
        }
    }

    /// Guesses after a course; at most `room`. The caller's function guesses in [`Speculation::ask`], not here.
    ///
    /// # Errors
    /// The machine fails, or was interrupted. (Where the cache is full, there are no guesses.)
    pub fn guess(&mut self, engine: &mut Engine, seq: SeqId, course: &Course, room: usize) -> Result<Vec<i32>> {
        let n = self.pace.guesses().min(room);
        match &mut self.guesser {
            _ if n == 0 => Ok(vec![]),
            Guesser::Lookup => Ok(lookup::after(course.history, n).to_vec()),
            Guesser::Texts(texts) => Ok(match lookup::after(course.history, n) {
                [] => texts.after(course.history, n),
                own => own.to_vec(),
            }),
            Guesser::Corpus(corpus) => Ok(match &corpus.after(course.history, n)[..] {
                [] => lookup::after(course.history, n).to_vec(),
                found => found.to_vec(),
            }),
            Guesser::Jacobi(jacobi) => Ok(jacobi.guess(course.history, n)),
            Guesser::Caller(_) => Ok(vec![]),
            Guesser::Ahead(ahead) => ahead.guess(engine, seq, course, n),
            Guesser::Heads(heads) => match heads.guess(engine, seq, course, n) {
                Err(error) => {
                    heads.restart(engine, seq)?;
                    if matches!(error.status, Status::CacheFull | Status::ContextFull) {
                        Ok(vec![])
                    } else {
                        Err(error)
                    }
                }
                done => done,
            },
        }
    }

    /// Takes hidden states of the tokens from `at` on of the history, `[tokens, hidden]`, which the sequence has for
    /// good.
    ///
    /// # Errors
    /// As [`Speculation::guess`].
    pub fn take_rows(
        &mut self,
        engine: &mut Engine,
        seq: SeqId,
        (at, rows): (usize, &[f32]),
        history: &[i32],
    ) -> Result<()> {
        if let Guesser::Ahead(ahead) = &mut self.guesser {
            return ahead.take((at, rows));
        }
        let Guesser::Heads(heads) = &mut self.guesser else { return Ok(()) };
        if let Err(error) = heads.take(engine, seq, (at, rows), history) {
            heads.restart(engine, seq)?;
            if error.status != Status::CacheFull {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Learns that of `guessed` tokens `accepted` became part of the text.
    pub fn learn(&mut self, guessed: usize, accepted: usize) {
        self.pace.learn(guessed, accepted);
        self.counts.count(guessed, accepted);
    }

    /// Gives back the guesser's tokens in a sequence.
    ///
    /// # Errors
    /// The sequence does not exist.
    pub fn restart(&mut self, engine: &mut Engine, seq: SeqId) -> Result<()> {
        match &mut self.guesser {
            Guesser::Heads(heads) => heads.restart(engine, seq),
            Guesser::Ahead(ahead) => {
                ahead.restart();
                Ok(())
            }
            Guesser::Lookup | Guesser::Texts(_) | Guesser::Corpus(_) | Guesser::Jacobi(_) | Guesser::Caller(_) => {
                Ok(())
            }
        }
    }
}

/// The model's heads as a guesser, and how many there are.
fn own_heads(engine: &Engine) -> Option<(Guesser, usize)> {
    let heads = Heads::of(engine.image()).map(|heads| (heads.count(), Guesser::Heads(heads)));
    let found = heads.or_else(|| Ahead::of(engine.image()).map(|ahead| (ahead.count(), Guesser::Ahead(ahead))));
    found.map(|(count, guesser)| (guesser, count))
}
